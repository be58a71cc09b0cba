"""A Student run's output as a folder, for what reads many partitions by their paths."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Container, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from coral_pipeline.errors import BadInput, Changed
from coral_pipeline.storage.interface import SEPARATOR, Storage, fetch_whole, recorded
from coral_pipeline.storage.opening import is_url, open_url
from coral_pipeline.tables import SELECTED_ROOTS, TABLES

if TYPE_CHECKING:
    from coral_pipeline.storage.remote import RemoteStorage


@contextmanager
def output_folder(output: str | Path, student_run: str) -> Iterator[Path]:
    """``output`` itself, or where it is a URL a folder laid out the same, to be read for the length of the block.

    It holds what was made of the Student run, of the roots that are selected now and of those that its dataset
    was made from, each partition as it was when it was fetched, damaged ones with what is left of them. Raises
    ``BadInput`` where nothing was made.
    """
    if not is_url(str(output)):
        yield Path(output)
        return
    storage = open_url(str(output))
    selected, dataset = (
        recorded(partial(storage.provenance, asset, student_run)) for asset in (SELECTED_ROOTS.name, "sft_dataset")
    )
    used = {made_from.partition.partition(SEPARATOR)[2] for made_from in dataset.inputs} if dataset else set()
    dropped = used - {"", *selected.folders} if selected else set()
    roots = {"", *selected.folders} | dropped if selected else None
    partitions = list(_partitions(storage, student_run, roots))
    if not partitions:
        raise BadInput(output, f"holds nothing that was made from the Student run {student_run}", "name another --out")
    with tempfile.TemporaryDirectory(prefix="coral-pipeline-") as name:
        for asset, partition in partitions:
            place = Path(name, asset, *partition.split(SEPARATOR))
            place.parent.mkdir(parents=True, exist_ok=True)
            _mirror(storage, asset, partition, place, dropped)
        yield Path(name)


def _partitions(storage: Storage, student_run: str, roots: Container[str] | None) -> Iterator[tuple[str, str]]:
    """Asset and partition of all that was made of the Student run and of ``roots``; None: of any root."""
    for asset in TABLES:
        for partition in storage.partitions(asset):
            run, _, root = partition.partition(SEPARATOR)
            if run == student_run and (roots is None or root in roots):
                yield asset, partition


def _mirror(storage: RemoteStorage, asset: str, partition: str, place: Path, dropped: Collection[str]) -> None:
    """Make ``place`` the partition; where it is of a dropped root, or holds the copy of one, with the notes on it."""
    if not (partition.partition(SEPARATOR)[2] in dropped or (asset == SELECTED_ROOTS.name and dropped)):
        try:
            place.symlink_to(fetch_whole(storage, asset, partition), target_is_directory=True)
            return
        except Changed:
            raise
        except BadInput:  # whoever reads it finds what is wrong with it
            pass
    storage.salvage(asset, partition, place, dropped)
