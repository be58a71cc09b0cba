"""Deque's accessibility checks: pinned in package.json beside this, installed here on first use."""

from __future__ import annotations

from pathlib import Path

from coral_pipeline_tests.npm import installed


def axe_script() -> str:
    """The checks as JavaScript."""
    return installed(Path(__file__).parent, "axe-core/axe.min.js").read_text(encoding="utf-8")
