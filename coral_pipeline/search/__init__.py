"""The search of one root: tree, ranks, rules, rounds, journal (method T1–T14)."""
