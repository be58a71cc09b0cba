"""Roots that a new selection of their Student run drops: no partitions any more, but all that was made of them stays.

Their folders are marked where they lie, not moved: a tree may be growing in one, and a later selection that
chooses the same root again finds it as it was, its history in Dagster too, and explores nothing twice.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable

import dagster as dg

from coral_pipeline.content import SUPERSEDED_FILE
from coral_pipeline.defs.folders import PER_ROOT, Folders
from coral_pipeline.defs.partitions import ROOTS_NAME, RootKey, roots_of
from coral_pipeline.tables import SELECTED_ROOTS


def replace_roots(
    student_run: str, chosen: Iterable[RootKey], folders: Folders, instance: dg.DagsterInstance, run_id: str
) -> list[RootKey]:
    """Make ``chosen`` the partitions of the Student run's roots; returns those that were and are no longer.

    What was made of the dropped ones is marked as superseded, what was made of those taken back is no longer: before
    the partition goes or comes, so that after a crash the same selection finds them to be done again.
    """
    kept, before = set(chosen), set(roots_of(student_run, instance))
    dropped = sorted(before - kept, key=str)
    mark = {"superseded_at": datetime.datetime.now(datetime.UTC).isoformat(), "by_run": run_id}
    for key in dropped:
        _note(key, json.dumps(mark), folders)
        instance.delete_dynamic_partition(ROOTS_NAME, str(key))
    for key in kept - before:
        _note(key, None, folders)
    instance.add_dynamic_partitions(ROOTS_NAME, sorted(map(str, kept)))
    return dropped


def _note(key: RootKey, mark: str | None, folders: Folders) -> None:
    for asset in (SELECTED_ROOTS.name, *PER_ROOT):
        folders.storage.note(asset, str(key), SUPERSEDED_FILE, mark)
