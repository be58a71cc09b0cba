"""The OpenCode that tests and benchmarks run: pinned in package.json beside this, installed here on first use."""

from __future__ import annotations

from pathlib import Path

from coral_pipeline_tests.npm import installed


def opencode_program() -> Path:
    """OpenCode's program."""
    return installed(Path(__file__).parent, ".bin/opencode")
