"""``parallel_width: auto`` in the pipeline: the model server is asked when a tree is begun, and trees share it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coral_pipeline.audit.checks import CHECKS
from coral_pipeline.audit.sources import Source
from coral_pipeline.defs.folders import TREES
from coral_pipeline.defs.partitions import RootKey
from coral_pipeline.defs.retries import FAULT, INFRASTRUCTURE
from coral_pipeline.teacher.protocol import EdgeRequest, TeacherError, Turn
from coral_pipeline.teacher.registry import TEACHERS
from coral_pipeline.tree_file import read_tree_info
from coral_pipeline_tests.defs.world import RUN, TO_ROOTS, World, failure, settings, talk
from coral_pipeline_tests.search.growing import AnswerTeacher
from coral_pipeline_tests.teacher.opencode.model_server import ModelServer, steps

pytestmark = pytest.mark.slow

AUTO = {"parallel_width": "auto"}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    """It can run six requests at once."""
    with ModelServer(steps(), info={"max_running_requests": 6}) as server:
        yield server


@pytest.fixture
def world(tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> World:
    """Of a teacher that asks the server; two trees grow at once."""
    monkeypatch.setitem(TEACHERS, "opencode", lambda request: AnswerTeacher(talk))
    opencode: dict[str, Any] = {"endpoint": server.url, "agents_per_cpu": 1000, "agent_bytes": 1}
    world = World(tmp_path, settings(teacher={"name": "opencode"}, search=AUTO, opencode=opencode))
    world.materialize(TO_ROOTS, RUN)
    return world


def width(world: World, key: RootKey) -> int:
    told = read_tree_info(world.folders.asset(TREES, str(key)))["configuration"]["search"]
    return int(told["parallel_width"])


def test_trees_share_what_the_server_takes_and_are_verified_with_the_width_they_got(
    world: World, server: ModelServer
) -> None:
    first, second, _ = world.keys
    world.materialize([TREES], str(first))
    server.info = {"max_running_requests": 100}
    world.materialize([TREES], str(second))
    world.materialize([TREES], str(first))
    assert (width(world, first), width(world, second)) == (3, 50)
    source = Source.on_disk(Path(world.folders.output), world.folders.student_run(RUN))
    for check in CHECKS:
        if check.asset == TREES:
            assert list(check.review(source, str(first)).lines()) == []


def test_a_tree_that_was_begun_goes_on_as_wide_whatever_the_server_takes_now(
    world: World, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = world.keys[0]

    def halting(edge: EdgeRequest, number: int) -> Turn:
        if edge.path:
            raise TeacherError("no answer")
        return talk(edge, number)

    with monkeypatch.context() as patch:
        patch.setitem(TEACHERS, "opencode", lambda request: AnswerTeacher(halting))
        assert "no answer" in failure(world.run([TREES], str(key)))
    server.info = {"max_running_requests": 100}
    world.materialize([TREES], str(key))
    assert width(world, key) == 3
    assert not (world.folder / "output" / "superseded").exists()


def test_a_server_that_cannot_be_asked_is_an_outage(world: World) -> None:
    gone = {"endpoint": "http://127.0.0.1:1/v1"}
    world.settings = settings(teacher={"name": "opencode"}, search=AUTO, opencode=gone)
    result = world.run([TREES], str(world.keys[0]))
    assert "127.0.0.1:1" in failure(result)
    run = world.instance.get_run_by_id(result.run_id)
    assert run is not None and run.tags[FAULT] == INFRASTRUCTURE


def test_a_teacher_without_a_server_is_refused_in_one_line(world: World) -> None:
    world.settings = settings(search=AUTO)
    said = failure(world.run([TREES], str(world.keys[0])))
    assert said.startswith("width auto: is what a model server can take, and the talkative teacher asks none")
