"""What a storage can do, wherever the files lie."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from coral_pipeline import provenance
from coral_pipeline.errors import BadInput
from coral_pipeline.provenance import Provenance

SEPARATOR = "|"
"""Between Student run and root in the partition of a root."""

Describe = Callable[[Path], Provenance]
"""Gives the provenance of the tables in a folder, ``files`` still to be filled in."""

CHANGED = "changed while it was read"


class Storage(Protocol):
    """Files by asset and partition.

    All raise ``OSError`` where the disk or the store fails, with the file or address in ``filename``.
    """

    def address(self, asset: str, partition: str) -> str:
        """Where the partition lies, for people."""

    def partitions(self, asset: str) -> list[str]:
        """Partitions of an asset that have been made, sorted."""

    def provenance(self, asset: str, partition: str) -> Provenance | None:
        """What stands behind the partition now; None where it has not been made. Raises ``BadInput`` if damaged."""

    def fetch(self, asset: str, partition: str, *copied: str) -> Path:
        """A folder of this machine with the partition's tables and other files, to be read.

        ``copied``: the copied folders (``Provenance.folders``) that are needed in it; others may be missing. Raises
        ``BadInput`` where there is nothing to fetch, or it is not what its provenance says.
        """

    def is_being_written(self, asset: str, partition: str) -> bool:
        """Whether what ``fetch`` gave may be half of one making and half of another until a writer is done."""

    def writing(self, asset: str, partition: str, describe: Describe) -> AbstractContextManager[Path]:
        """An empty folder to write the partition in; when the block ends well it replaces the earlier one.

        The last of several that end at once wins; what lies there is always all of one of them. Folders that the
        provenance names (``folders``) are replaced each as a whole. What no provenance tells of stays.
        """

    def place(self, asset: str, partition: str) -> Path:
        """A folder of this machine in which the partition can grow over many runs, until ``seal`` is called."""

    def alone(self, asset: str, partition: str) -> AbstractContextManager[None]:
        """Work in ``place`` alone on this machine. Raises ``BadInput`` where another process does."""

    def seal(self, asset: str, partition: str, describe: Describe, files: Iterable[str]) -> None:
        """Make ``files`` of ``place`` the partition, in place of an earlier one."""

    def supersede(self, asset: str, partition: str) -> str:
        """Move aside all that the partition holds and what grows in its place; returns where it is, for people."""

    def note(self, asset: str, partition: str, name: str, text: str | None) -> None:
        """Put a small file beside the partition or copied folder, unless nothing lies there; None removes it."""


def fetch_whole(storage: Storage, asset: str, partition: str) -> Path:
    """As ``Storage.fetch``, with all copied folders in it."""
    made = recorded(lambda: storage.provenance(asset, partition))
    return storage.fetch(asset, partition, *(made.folders if made else ()))


def complete(made: Provenance, folder: Path) -> Provenance:
    """``made`` with the checksums of all files in ``folder`` that are in none of its copied folders, and its seal."""
    names = [name for name in provenance.files_below(folder) if name.split("/")[0] not in made.folders]
    return made.model_copy(update={"files": provenance.checksums(folder, names)}).sealed()


def recorded(read: Callable[[], Provenance | None]) -> Provenance | None:
    """The provenance that ``read`` gives; None as well where it is damaged."""
    try:
        return read()
    except BadInput:
        return None


def is_same_making(one: Provenance, other: Provenance) -> bool:
    """Whether both were made by the same code, with the same settings that decide, from the same inputs."""
    made = ((this.code, provenance.deciding(this.settings), this.inputs) for this in (one, other))
    return next(made) == next(made)
