"""``coral-pipeline backfill`` where it cannot be carried out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("home", "said"),
    [
        ("", "coral-pipeline: DAGSTER_HOME: is not set; set it to the folder that the deployment's Dagster has"),
        ("gone", "gone, which is no folder; set it to the folder that the deployment's Dagster has"),
        (".", "Student run 'tour': has no roots in "),
    ],
)
def test_it_says_in_one_line_what_is_missing(tmp_path: Path, home: str, said: str) -> None:
    (tmp_path / "dagster.yaml").touch()
    variables = {"DAGSTER_HOME": home and str(tmp_path / home), "CORAL_PIPELINE_OUTPUT": str(tmp_path / "output")}
    command = [sys.executable, "-m", "coral_pipeline.cli", "backfill", "tour"]
    done = subprocess.run(command, env=dict(os.environ) | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert said in done.stderr and done.stderr.count("\n") == 1
