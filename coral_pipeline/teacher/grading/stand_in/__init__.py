"""A folder to put on ``sys.path`` where CORAL is not installed, so that a task's grader can be loaded."""
