"""A world per test, and one per module in which everything has been materialized."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coral_pipeline.teacher.registry import TEACHERS
from coral_pipeline_tests.defs.world import World, talk
from coral_pipeline_tests.search.growing import AnswerTeacher


@pytest.fixture(autouse=True, scope="module")
def talkative() -> Iterator[None]:
    """The teacher of that name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TEACHERS, "talkative", lambda request: AnswerTeacher(talk))
        yield


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture(scope="module")
def finished(talkative: None, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Everything is materialized; shared by the tests of a module."""
    world = World(tmp_path_factory.mktemp("finished"))
    world.materialize_all()
    return world
