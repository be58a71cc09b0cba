"""Teachers: what explores from a node. The only room that touches agents, forks and graders."""
