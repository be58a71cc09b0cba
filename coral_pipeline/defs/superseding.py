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
from coral_pipeline.defs.partitions import ROOTS_NAME, RootKey


def replace_roots(
    student_run: str, chosen: Iterable[RootKey], folders: Folders, instance: dg.DagsterInstance, run_id: str
) -> list[RootKey]:
    """Make ``chosen`` the partitions of the Student run's roots; returns those that were and are no longer.

    What was made of the dropped ones is marked as superseded, what was made of chosen ones is no longer.
    """
    kept = set(chosen)
    before = map(RootKey.parse, instance.get_dynamic_partitions(ROOTS_NAME))
    dropped = sorted({key for key in before if key.student_run == student_run} - kept, key=str)
    mark = {"superseded_at": datetime.datetime.now(datetime.UTC).isoformat(), "by_run": run_id}
    for key in dropped:
        for asset in ("selected_roots", *PER_ROOT):
            folders.storage.note(asset, str(key), SUPERSEDED_FILE, json.dumps(mark))
        instance.delete_dynamic_partition(ROOTS_NAME, str(key))
    for key in kept:
        for asset in ("selected_roots", *PER_ROOT):
            folders.storage.note(asset, str(key), SUPERSEDED_FILE, None)
    instance.add_dynamic_partitions(ROOTS_NAME, sorted(map(str, kept)))
    return dropped
