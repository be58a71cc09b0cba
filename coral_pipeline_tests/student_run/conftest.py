"""What the tests of importing start from."""

from __future__ import annotations

from pathlib import Path

import pytest

from coral_pipeline_tests.coral_runs import CoralRun


@pytest.fixture
def run(tmp_path: Path) -> CoralRun:
    """A CORAL run without attempts."""
    return CoralRun(tmp_path / "run")


@pytest.fixture
def student_run(tmp_path: Path) -> Path:
    """Where to import it to; nothing is there."""
    return tmp_path / "student"
