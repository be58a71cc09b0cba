"""Where one thing comes from: a sample, path, edge, node, message or token, back to the attempt of the Student run."""

from coral_pipeline.lineage.chain import chain_of
from coral_pipeline.lineage.reference import Reference
from coral_pipeline.lineage.steps import Step

__all__ = ["Reference", "Step", "chain_of"]
