"""What a tree of the real Teacher begins with, without an agent at work."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from coral_pipeline.errors import BadInput
from coral_pipeline.settings import OpenCodeSettings
from coral_pipeline.teacher.opencode import root as layout
from coral_pipeline.teacher.opencode.grounds import Root
from coral_pipeline.teacher.opencode.states import FILES, ROOT, State
from coral_pipeline.teacher.opencode.teacher import OpenCodeTeacher
from coral_pipeline.teacher.protocol import EdgeRequest, InfrastructureFault, TeacherError
from coral_pipeline_tests.teacher.opencode.roots import make_root

EDGE = EdgeRequest(root="root", path=(), expansion=0)


def opened(folder: Path, root: Path, task: Path, **changes: Any) -> OpenCodeTeacher:
    given = {"endpoint": "http://127.0.0.1:1/v1", "model": "m", "opencode_command": "/bin/true", "min_free_bytes": 0}
    settings = OpenCodeSettings.model_validate({**given, **changes})
    return OpenCodeTeacher.open(root, task, folder / "teacher", settings, "sk-test-key")


def root_state(folder: Path) -> State:
    return State.model_validate_json((folder / "teacher" / "states" / ROOT / "state.json").read_bytes())


def test_the_root_state_is_made_by_the_first_fork_and_once(tmp_path: Path) -> None:
    root, task = make_root(tmp_path)
    teacher = opened(tmp_path, root, task)
    teacher.release("never made")
    assert not (tmp_path / "teacher").exists()
    with teacher.fork(EDGE, None, threading.Event()):
        state = root_state(tmp_path)
    assert (state.agent_id, state.best_score, state.session_id) == ("agent-1", 1.0, None)
    made = (tmp_path / "teacher" / "states" / ROOT / "state.json").stat().st_mtime_ns
    leftover = tmp_path / "teacher" / "forks" / "0" / "1"
    leftover.mkdir(parents=True)
    with opened(tmp_path, root, task).fork(EDGE, None, threading.Event()):
        assert not leftover.exists()
    assert (tmp_path / "teacher" / "states" / ROOT / "state.json").stat().st_mtime_ns == made
    assert list((tmp_path / "teacher").rglob("forks/*")) == []


def test_the_states_of_another_root_are_refused(tmp_path: Path) -> None:
    root, task = make_root(tmp_path)
    with opened(tmp_path, root, task).fork(EDGE, None, threading.Event()):
        pass
    metadata = json.loads((root / "metadata.json").read_text())
    (root / "metadata.json").write_text(json.dumps({**metadata, "commit_hash": "d" * 40}))
    with (
        pytest.raises(TeacherError, match="another root"),
        opened(tmp_path, root, task).fork(EDGE, None, threading.Event()),
    ):
        pass


def test_a_full_disk_is_an_infrastructure_fault(tmp_path: Path) -> None:
    root, task = make_root(tmp_path)
    teacher = opened(tmp_path, root, task, min_free_bytes=1 << 60)
    with pytest.raises(InfrastructureFault, match="make room"), teacher.fork(EDGE, None, threading.Event()):
        pass


@pytest.mark.parametrize("refused", ["copy_tree", "git"])
def test_a_disk_that_fills_while_the_root_state_is_made_says_nothing_about_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    root, task = make_root(tmp_path)
    teacher = opened(tmp_path, root, task)
    if refused == "git":
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "git").write_text("#!/bin/sh\necho No space left on device >&2; exit 128\n")
        (tmp_path / "bin" / "git").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    else:

        def full(source: Path, target: Path) -> list[str]:
            raise OSError(errno.ENOSPC, "No space left on device", str(target))

        monkeypatch.setattr(layout, "copy_tree", full)
    with (
        pytest.raises(InfrastructureFault, match="No space left on device"),
        teacher.fork(EDGE, None, threading.Event()),
    ):
        pass
    monkeypatch.undo()
    with teacher.fork(EDGE, None, threading.Event()):
        assert not root_state(tmp_path).reduced


def test_a_root_state_of_an_earlier_version_is_known(tmp_path: Path) -> None:
    """It had the snapshot's commit for its own, and none named as the root's."""
    root, task = make_root(tmp_path)
    with opened(tmp_path, root, task).fork(EDGE, None, threading.Event()):
        state = root_state(tmp_path)
    assert (state.commit_hash, state.root_commit) == (None, "a" * 40)
    earlier = {**state.model_dump(exclude={"root_commit"}), "commit_hash": "a" * 40}
    (tmp_path / "teacher" / "states" / ROOT / "state.json").write_text(json.dumps(earlier))
    with opened(tmp_path, root, task).fork(EDGE, None, threading.Event()):
        pass


def test_a_tree_beyond_its_bound_begins_no_turn_and_says_which_setting_to_raise(tmp_path: Path) -> None:
    root, task = make_root(tmp_path)
    (root / "code" / "data.bin").write_bytes(os.urandom(3 << 20))
    with (
        opened(tmp_path, root, task, max_tree_bytes=1 << 20).fork(EDGE, None, threading.Event()) as fork,
        pytest.raises(InfrastructureFault, match=r"teacher: the tree takes .* MB of disk, opencode\.max_tree_bytes"),
    ):
        fork.run_turn(1)


def test_the_root_state_goes_when_it_is_released_and_comes_back_when_it_is_wanted_again(tmp_path: Path) -> None:
    root, task = make_root(tmp_path)
    teacher = opened(tmp_path, root, task)
    for _ in range(2):
        with teacher.fork(EDGE, None, threading.Event()):
            assert not root_state(tmp_path).reduced
        files = tmp_path / "teacher" / "states" / ROOT / FILES
        assert (files / "coral").is_dir()
        teacher.release(None)
        assert not files.exists() and root_state(tmp_path).reduced


def test_a_state_that_is_gone_is_named(tmp_path: Path) -> None:
    root, task = make_root(tmp_path)
    with (
        opened(tmp_path, root, task).fork(EDGE, "0-t9", threading.Event()) as fork,
        pytest.raises(TeacherError, match="0-t9"),
    ):
        fork.run_turn(1)


def test_what_decides_the_answers_is_told_and_no_place_or_key(tmp_path: Path) -> None:
    root, task = make_root(tmp_path)
    told = json.dumps(opened(tmp_path, root, task, first_prompt=None).describe())
    assert str(tmp_path) not in told and "sk-test-key" not in told and "127.0.0.1" not in told
    (task / "grader" / "secret.txt").write_text("another")
    assert json.dumps(opened(tmp_path, root, task).describe()) != told


@pytest.mark.parametrize(("given", "agent"), [("agent-7", "agent-7"), ("../up", "agent-1"), ("", "agent-1"), (7, "7")])
def test_the_agent_goes_on_as_the_one_whose_snapshot_it_is(tmp_path: Path, given: object, agent: str) -> None:
    root, _ = make_root(tmp_path)
    (root / "metadata.json").write_text(json.dumps({"commit_hash": "a" * 40, "agent_id": given, "score": 3.0}))
    found = Root.read(root, "minimize")
    assert found.agent_id == agent
    # lower is better: agent-1 has an attempt with 1.0 besides
    assert found.best_score == (1.0 if agent == "agent-1" else 3.0)


def test_a_folder_without_metadata_is_no_root(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"metadata\.json"):
        Root.read(tmp_path, "maximize")
