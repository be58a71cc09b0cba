"""A Student run taken all the way once, with failures of every kind; tests damage it and put it back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coral_pipeline.audit.sources import Source
from coral_pipeline.teacher.registry import TEACHERS
from coral_pipeline_tests.audit.talking import SETTINGS, talk
from coral_pipeline_tests.defs.world import RUN, World, settings
from coral_pipeline_tests.search.growing import AnswerTeacher


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Everything is materialized; whoever changes a file changes it back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TEACHERS, "talkative", lambda request: AnswerTeacher(talk))
        world = World(tmp_path_factory.mktemp("audited"), settings(**SETTINGS))
        snapshots = world.folders.student_run(RUN) / "all_snapshots"
        (snapshots / "no snapshot").mkdir()
        world.materialize_all()
        yield world


@pytest.fixture(scope="session")
def output(finished: World) -> Path:
    return Path(finished.folders.output)


@pytest.fixture(scope="session")
def source(finished: World, output: Path) -> Source:
    return Source.on_disk(output, finished.folders.student_run(RUN))
