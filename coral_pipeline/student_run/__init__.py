"""A Student run on disk: layout, reading snapshots, stages, choice of roots, import from CORAL."""
