"""Credit: rewards, values, advantages and tokens of a finished tree (method C1–C7)."""
