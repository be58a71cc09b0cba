"""``python -m coral_pipeline.cli``."""

from coral_pipeline.cli import main

main()
