"""What trainers load: SFT samples, verifiers episodes, token tables."""
