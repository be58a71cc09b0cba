"""``parallel_width: auto``, made a number for one tree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from coral_pipeline.search.explore import WORK_FOLDER
from coral_pipeline.search.journal import header_in
from coral_pipeline.settings import SearchSettings


def with_width(settings: SearchSettings, out: Path, fitting: Callable[[], int]) -> SearchSettings:
    """The settings with a number for ``parallel_width: auto``: that of the tree in ``out``, else ``fitting()``.

    A tree keeps the width with which it was begun, whatever could be done at once later: the width is part of the
    method (T12).
    """
    if settings.parallel_width != "auto":
        return settings
    begun = header_in(out / WORK_FOLDER)
    return settings.at_width(begun.settings["parallel_width"] if begun else fitting())
