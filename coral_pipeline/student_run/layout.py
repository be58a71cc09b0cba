"""What a Student run looks like on disk, and the names of its snapshots (method S1)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

TASK_FILE = "task.yaml"
"""CORAL's own task configuration, at the top of the run."""
GRADER_FOLDER = "grader"
"""The task's grader, at the top of the run where the run brought it along."""
PRIVATE_FOLDER = "private"
"""What the grader alone may see besides (``grader.private`` of the task), likewise."""
SNAPSHOTS_FOLDER = "all_snapshots"
METADATA_FILE = "metadata.json"
CODE_FOLDER = "code"
SHARED_FOLDER = "shared"
ATTEMPTS_FOLDER = "attempts"
"""Folder of the attempt records, one JSON file per attempt, inside ``SHARED_FOLDER``."""

COMMIT_DIGITS = 12
"""Hex digits of the commit that end a snapshot's name."""
_CONTROL = r"\x00-\x1f\x7f-\x9f\ud800-\udfff"
# 18 digits always fit the 64 bits of a table's column.
_SNAPSHOT_NAME = re.compile(rf"eval-([0-9]{{1,18}})-([^{_CONTROL}/]+)-([0-9a-fA-F]{{{COMMIT_DIGITS}}})")


@dataclass(frozen=True)
class SnapshotName:
    """The three parts of ``eval-<global index>-<agent id>-<12 hex>``."""

    global_index: int
    agent_id: str
    """May hold dashes."""
    commit_prefix: str
    """First hex digits of the attempt's commit."""

    @property
    def folder(self) -> str:
        """The folder's name, the global index padded to six digits as the runs write it."""
        return f"eval-{self.global_index:06d}-{self.agent_id}-{self.commit_prefix}"


def parse_snapshot_name(name: str) -> SnapshotName | None:
    """The parts of a snapshot folder's name, parsed from both ends; None where it is no such name."""
    match = _SNAPSHOT_NAME.fullmatch(name)
    if match is None:
        return None
    return SnapshotName(int(match[1]), match[2], match[3])


def student_run_name(student_run: Path) -> str:
    """The Student run's name in tables: its folder's."""
    return unicode_text(student_run.resolve().name)


def unicode_text(text: str) -> str:
    """The text, what is not Unicode in it (bytes of a file's name, half a surrogate pair) written as escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
