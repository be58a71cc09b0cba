"""``coral`` for the agents of the real Teacher where CORAL is not installed."""
