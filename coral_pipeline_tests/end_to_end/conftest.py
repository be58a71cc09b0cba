"""The bundled Student run taken all the way, once, by the command that newcomers type."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from coral_pipeline_tests.conftest import DATA

TOUR = DATA / "student_runs" / "tour"
SMALL = {"search": {"max_depth": 2, "max_logical_edges": 5, "parallel_width": 2}}
"""Trees of five edges: a few seconds with the embedded teacher."""


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "coral_pipeline.cli", *map(str, arguments)]


def coral_pipeline(*arguments: object, cwd: Path | None = None) -> Ended:
    """The command as a process of its own."""
    done = subprocess.run(command(*arguments), capture_output=True, text=True, cwd=cwd, check=False)
    return Ended(done.returncode, done.stdout, done.stderr)


def settings_file(folder: Path) -> Path:
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL))
    return path


def environment(out: Path) -> dict[str, str]:
    """Of a Dagster process that works on what ``run`` wrote."""
    variables = {
        "DAGSTER_HOME": str(out / "dagster_home"),
        "CORAL_PIPELINE_OUTPUT": str(out),
        "CORAL_PIPELINE_STUDENT_RUNS": str(TOUR.parent),
    }
    return dict(os.environ) | variables


@dataclass(frozen=True)
class Finished:
    """An output folder and what ``run`` said when it made it."""

    out: Path
    ended: Ended
    arguments: tuple[object, ...]


@pytest.fixture(scope="session")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Two roots of the bundled run, explored by the embedded teacher."""
    folder = tmp_path_factory.mktemp("bundled")
    arguments = ("run", TOUR, "--out", folder / "out", "--num-roots", 2, "--settings", settings_file(folder))
    return Finished(folder / "out", coral_pipeline(*arguments), arguments)
