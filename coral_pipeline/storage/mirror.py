"""A Student run's output as a folder, for what reads many partitions by their paths."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coral_pipeline.errors import BadInput
from coral_pipeline.storage.interface import SEPARATOR, Storage, fetch_whole
from coral_pipeline.storage.opening import is_url, open_storage
from coral_pipeline.tables import SELECTED_ROOTS, TABLES


@contextmanager
def output_folder(output: str | Path, student_run: str) -> Iterator[Path]:
    """``output`` itself, or where it is a URL a folder laid out the same, to be read for the length of the block.

    It holds what was made of the Student run and of the roots that are selected now, each partition as it was
    when it was fetched. Raises ``BadInput`` where nothing was made, or something cannot be fetched.
    """
    if not is_url(str(output)):
        yield Path(output)
        return
    storage = open_storage(output)
    partitions = list(_partitions(storage, student_run))
    if not partitions:
        raise BadInput(output, f"holds nothing that was made from the Student run {student_run}", "name another --out")
    with tempfile.TemporaryDirectory(prefix="coral-pipeline-") as name:
        for asset, partition in partitions:
            link = Path(name, asset, *partition.split(SEPARATOR))
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(fetch_whole(storage, asset, partition), target_is_directory=True)
        yield Path(name)


def _partitions(storage: Storage, student_run: str) -> Iterator[tuple[str, str]]:
    selected = storage.provenance(SELECTED_ROOTS.name, student_run)
    roots = selected.folders if selected else {}
    for asset in TABLES:
        for partition in storage.partitions(asset):
            run, _, root = partition.partition(SEPARATOR)
            if run == student_run and (not root or root in roots):
                yield asset, partition
