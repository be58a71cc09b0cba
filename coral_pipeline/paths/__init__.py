"""Root-to-leaf paths of a finished tree: candidates, PathScore, the best (method P1–P3)."""
