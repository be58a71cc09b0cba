"""The task of a CORAL run and its own grader, run apart from the agents."""
