"""From one thing back to the attempt of the Student run that it came from."""

from __future__ import annotations

from coral_pipeline.audit.sources import Source
from coral_pipeline.lineage.dataset import find_in_dataset
from coral_pipeline.lineage.origin import origin
from coral_pipeline.lineage.reference import Reference, the_one
from coral_pipeline.lineage.steps import Records, Step
from coral_pipeline.lineage.tree import TreeChain
from coral_pipeline.storage import SEPARATOR


def chain_of(reference: Reference, source: Source) -> list[Step]:
    """The steps from what ``reference`` names back to the Student run; what each came from is next.

    Raises ``BadInput`` where it names nothing, saying what there is, or where the tables cannot be read.
    """
    records = Records(source)
    storage = source.storage
    run = the_one("Student run", reference.student_run, storage.partitions("filtered_snapshots"), "this output")
    steps: list[Step] = []
    if reference.kind in ("sft", "branches"):
        sample = find_in_dataset(reference, run, source, records)
        steps, reference = [sample.step], sample.made_from
    trees = (partition.split(SEPARATOR) for partition in storage.partitions("explored_trees"))
    root = the_one("root", reference.root, [root for name, root in trees if name == run], f"the trees of {run}")
    key = f"{run}{SEPARATOR}{root}"
    return [*steps, *TreeChain(key, source, records).of(reference), *origin(key, source, records)]
