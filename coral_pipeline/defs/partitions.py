"""The two kinds of partition, and the keys they may have.

Dagster takes any text for a key and trips over some of it later: ``/`` makes folders, ``,`` ``[`` ``]`` and
``...`` mean ranges, long keys fail in storage. So every key is checked here, before it is added.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import dagster as dg

from coral_pipeline.errors import BadInput
from coral_pipeline.storage import SEPARATOR
from coral_pipeline.student_run.layout import parse_snapshot_name

STUDENT_RUNS_NAME, ROOTS_NAME = "student_runs", "roots"
"""Names under which Dagster's instance keeps the keys."""
STUDENT_RUNS = dg.DynamicPartitionsDefinition(name=STUDENT_RUNS_NAME)
"""One partition per Student run; its key is the folder's name."""
ROOTS = dg.DynamicPartitionsDefinition(name=ROOTS_NAME)
"""One partition per root; its key is a ``RootKey``."""

MAX_KEY_LENGTH = 120
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class RootKey:
    """The key of a root: ``<student_run>|<root>``, both folder names. Raises ``BadInput`` where they make no key."""

    student_run: str
    root: str

    def __post_init__(self) -> None:
        """Refuse what could not be a key."""
        _check(self.student_run, self.student_run)
        _check(self.root, str(self))

    def __str__(self) -> str:
        """The partition key."""
        return f"{self.student_run}{SEPARATOR}{self.root}"

    @classmethod
    def parse(cls, key: str) -> RootKey:
        """The two names in a partition key; raises ``BadInput`` where it is none."""
        student_run, separator, root = key.partition(SEPARATOR)
        if not separator:
            raise BadInput(f"partition {key!r}", "names no root", f"write <student_run>{SEPARATOR}<root>")
        return cls(student_run, root)


def roots_of(student_run: str, instance: dg.DagsterInstance) -> list[RootKey]:
    """The roots of a Student run, in the order of their keys: as snapshots count up, in run order."""
    keys = sorted(instance.get_dynamic_partitions(ROOTS_NAME))
    return [RootKey.parse(key) for key in keys if key.startswith(student_run + SEPARATOR)]


def age(key: RootKey) -> tuple[int, str]:
    """Sorts roots as their snapshots were made, the oldest first."""
    parts = parse_snapshot_name(key.root)
    return (parts.global_index if parts else 0, key.root)


def student_run_key(folder_name: str) -> str:
    """The partition key of a Student run; raises ``BadInput`` where its folder's name could not be one."""
    _check(folder_name, folder_name)
    return folder_name


def _check(name: str, key: str) -> None:
    if not _PART.fullmatch(name):
        raise BadInput(
            f"folder name {name!r}",
            "cannot be part of a partition key",
            "use letters, digits, '.', '_' and '-', the first a letter, digit or '_'",
        )
    if len(key) > MAX_KEY_LENGTH:
        raise BadInput(f"partition {key!r}", f"is longer than {MAX_KEY_LENGTH} characters", "shorten the folder names")
