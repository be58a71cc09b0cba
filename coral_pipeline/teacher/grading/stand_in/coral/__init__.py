"""Stand-in for as much of CORAL as its graders use."""
