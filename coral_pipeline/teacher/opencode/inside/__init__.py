"""Programs that run inside the sandbox, each a file of its own with the standard library alone."""
