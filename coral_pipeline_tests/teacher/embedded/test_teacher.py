"""The embedded teacher in real forks, with real git, processes and graders."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coral_pipeline.errors import BadInput
from coral_pipeline.settings import EmbeddedSettings
from coral_pipeline.teacher.embedded import EmbeddedTeacher, states
from coral_pipeline.teacher.embedded.repository import Repository, git_environment
from coral_pipeline.teacher.processes import MARKER_VARIABLE, ProcessFamily
from coral_pipeline.teacher.protocol import EdgeRequest, InfrastructureFault, Stopped, TeacherError, Turn
from coral_pipeline.tree_copy import remove_tree
from coral_pipeline_tests.coral_runs import fingerprint
from coral_pipeline_tests.teacher.embedded.small_task import (
    PROGRAM,
    ROOT_COMMIT,
    ROOT_SCORE,
    edge,
    open_teacher,
    write_root,
    write_task,
)
from coral_pipeline_tests.teacher.living import living, until

FAMILIES = "embedded-"


def explore(teacher: EmbeddedTeacher, request: EdgeRequest, state: str | None = None) -> tuple[Turn, Turn]:
    """Both turns of an edge."""
    with teacher.fork(request, state, threading.Event()) as fork:
        return fork.run_turn(1), fork.run_turn(2)


def lasting(turn: Turn) -> dict[str, Any]:
    """All of a turn that must come out the same when it is run again."""
    return turn.model_dump(exclude={"seconds"})


def session_texts(*turns: Turn) -> str:
    return "\n".join(turn.model_dump_json() for turn in turns)


def test_an_edge_leaves_states_with_code_knowledge_and_session(tmp_path: Path) -> None:
    teacher = open_teacher(tmp_path)
    turns = explore(teacher, edge(0))
    assert [turn.state for turn in turns] == ["0-1", "0-2"]
    assert not list((tmp_path / "work" / "work").iterdir()), "nothing half-done is left"
    for number, turn in enumerate(turns, 1):
        state = tmp_path / "work" / "states" / f"0-{number}"
        assert sorted(path.name for path in state.iterdir()) == ["code", "session.json", "shared"]
        record = json.loads((state / "shared" / "attempts" / f"{turn.commit_hash}.json").read_text())
        assert (record["score"], record["status"], record["feedback"]) == (turn.score, turn.status, turn.feedback)
        assert record["metadata"]["budget_class"] == "real"
        assert record["timestamp"] == f"2026-05-01T12:0{number}:00+00:00", "the session's clock, not this machine's"
        log = subprocess.run(
            ["git", "log", "--format=%H %P %an %aI %s"], cwd=state / "code", capture_output=True, text=True, check=True
        ).stdout.splitlines()
        assert len(log) == number + 1
        assert log[0].split(" ")[:2] == [turn.commit_hash, record["parent_hash"]]
        assert log[0].endswith(record["title"]) and "2026-05-01T12:0" in log[0]
    assert turns[0].score is not None and turns[0].score != ROOT_SCORE
    assert turns[1].context_tokens > turns[0].context_tokens > 0


def test_the_transcript_tells_what_was_done(tmp_path: Path) -> None:
    """Numbers of a turn agree with its messages, calls with results; files said to be changed are changed."""
    teacher = open_teacher(tmp_path)
    first, second = explore(teacher, edge(0))
    assert [message.role for message in first.messages[:2]] == ["system", "user"]
    assert second.messages[0].role == "user", "the session goes on"
    seen: set[str | None] = set()
    for turn in (first, second):
        calls = [part for m in turn.messages for part in m.content if part.type == "tool_call"]
        results = [part for m in turn.messages for part in m.content if part.type == "tool_result"]
        assert [c.tool_call_id for c in calls] == [r.tool_call_id for r in results]
        assert len({c.tool_call_id for c in calls} | seen) == len(calls) + len(seen), "ids are unique in the session"
        seen |= {c.tool_call_id for c in calls}
        assert turn.tool_calls == len(calls)
        assert turn.failed_tool_calls == sum(bool(r.is_error) for r in results)
        assistants = [m for m in turn.messages if m.role == "assistant"]
        assert turn.step_turns == len(assistants)
        assert all(m.sampled == (m.role == "assistant") for m in turn.messages)
        assert turn.messages[-1].role == "assistant" and turn.messages[-1].content[-1].type == "text"
        commands = [json.loads(c.arguments or "")["command"] for c in calls if c.name == "bash"]
        assert sum(command.startswith("coral eval -m") for command in commands) == 1
        edits = [
            (json.loads(c.arguments or ""), r)
            for c, r in zip(calls, results, strict=True)
            if c.name == "edit" and not r.is_error
        ]
        code = (tmp_path / "work" / "states" / (turn.state or "") / "code" / "values.py").read_text()
        assert edits and all(arguments["newString"] in code for arguments, _ in edits)
    assert first.knowledge_read, "a fresh session begins by reading what others wrote"
    assert "larger values may be better" in session_texts(first)


def test_a_turn_tells_what_it_changed_in_the_code(tmp_path: Path) -> None:
    """Turn 1 against the root's code, turn 2 against turn 1's, as git itself would say."""
    teacher = open_teacher(tmp_path)
    turns = explore(teacher, edge(0))
    code = tmp_path / "work" / "states" / "0-2" / "code"
    for turn, (before, after) in zip(turns, (("HEAD~2", "HEAD~1"), ("HEAD~1", "HEAD")), strict=True):
        asked = subprocess.run(["git", "diff", before, after], cwd=code, capture_output=True, text=True, check=True)
        assert turn.code_diff == asked.stdout
        assert asked.stdout.startswith("diff --git a/values.py b/values.py\n")
    assert turns[0].code_diff is not None and "-VALUES = [0.5, 0.5, 0.5]\n" in turns[0].code_diff


def test_a_long_diff_is_cut_and_says_so(tmp_path: Path) -> None:
    teacher = open_teacher(tmp_path, settings=EmbeddedSettings(code_diff_bytes=80))
    whole = open_teacher(tmp_path / "whole").describe()
    first, _ = explore(teacher, edge(0))
    assert first.code_diff is not None
    *kept, mark = first.code_diff.splitlines(keepends=True)
    assert 0 < len("".join(kept)) <= 80 and kept[0].startswith("diff --git")
    assert mark == "\\ Cut here: the diff is longer than 80 bytes\n"
    assert teacher.describe() == whole, "a tree begun with another limit goes on"


def test_binary_files_are_named_in_a_diff_not_dumped(tmp_path: Path) -> None:
    program = PROGRAM + 'open("weights.bin", "wb").write(bytes(range(256)) * 40)\n'  # when the agent loads it
    first, _ = explore(open_teacher(tmp_path, program), edge(0))
    assert first.code_diff is not None
    assert "Binary files /dev/null and b/weights.bin differ\n" in first.code_diff
    assert len(first.code_diff) < 2000


def test_where_git_cannot_tell_there_is_no_diff(tmp_path: Path) -> None:
    """An agent's program may have done away with what it was asked for; that is no fault of the machine."""
    (tmp_path / "code").mkdir()
    env = dict(os.environ) | git_environment(10**9, "anyone") | {"GIT_OBJECT_DIRECTORY": str(tmp_path / "objects")}
    with ProcessFamily("test-diff") as family:
        repository = Repository(tmp_path / "code", family, env)
        head = repository.create((), str(tmp_path / "objects"))
        assert repository.diff("0" * 40, head, 1000) is None


def test_nothing_of_this_machine_is_in_turns_and_records(tmp_path: Path) -> None:
    program = "import sys\nVALUES = [0.5, 0.5, 0.5]\nprint(__file__, sys.path, sys.prefix)\nraise OSError(__file__)\n"
    teacher = open_teacher(tmp_path, program)
    turns = explore(teacher, edge(0))
    told = session_texts(*turns) + "".join(path.read_text() for path in (tmp_path / "work").rglob("attempts/*.json"))
    assert "/coral/agents/teacher" in told and "OSError" in told
    for place in (tmp_path, tmp_path.resolve(), Path(sys.prefix), Path(sys.base_prefix), Path.home()):
        assert f"{place}/" not in told


def test_the_same_edge_again_gives_the_same_turns(tmp_path: Path) -> None:
    """Commits included, in another folder. Another seed, and another edge, give others."""

    def turns(place: str, seed: int, *edges: EdgeRequest) -> list[dict[str, Any]]:
        (tmp_path / place).mkdir()
        teacher = open_teacher(tmp_path / place, seed=seed)
        results: list[Turn] = []
        for request in edges:
            results += explore(teacher, request, results[-1].state if request.path else None)
        return [lasting(turn) for turn in results]

    once = turns("once", 0, edge(0), edge(0, 1))
    assert turns("again", 0, edge(0), edge(0, 1)) == once
    assert turns("another-seed", 1, edge(0))[0]["commit_hash"] != once[0]["commit_hash"]
    assert turns("another-edge", 0, edge(1))[0]["commit_hash"] != once[0]["commit_hash"]


def test_an_edge_run_again_over_its_own_leftovers_gives_the_same(tmp_path: Path) -> None:
    teacher = open_teacher(tmp_path)
    first = explore(teacher, edge(0))
    leftover = tmp_path / "work" / "work" / "0-1"
    leftover.mkdir()
    (leftover / "half").write_text("written")
    assert [lasting(turn) for turn in explore(teacher, edge(0))] == [lasting(turn) for turn in first]


def test_taken_up_after_its_first_turn_an_edge_ends_the_same(tmp_path: Path) -> None:
    """By another process: nothing but the state is carried over."""
    teacher = open_teacher(tmp_path)
    first, second = explore(teacher, edge(0))
    again = EmbeddedTeacher.open(tmp_path / "root", tmp_path / "task", tmp_path / "work", 0)
    with again.fork(edge(0), first.state, threading.Event()) as fork:
        assert lasting(fork.run_turn(2)) == lasting(second)


def test_forks_never_change_the_state_they_start_from(tmp_path: Path) -> None:
    program = "from pathlib import Path\nVALUES = [0.5, 0.5, 0.5]\nPath('values.pyc').write_text('x')\n"
    teacher = open_teacher(tmp_path, program)
    first = explore(teacher, edge(0))
    root, parent = (tmp_path / "work" / "states" / name for name in ("root", "0-2"))
    before = fingerprint(root), fingerprint(parent), fingerprint(tmp_path / "root")
    children = [explore(teacher, edge(0, number), first[1].state) for number in range(2)]
    explore(teacher, edge(1))
    assert (fingerprint(root), fingerprint(parent), fingerprint(tmp_path / "root")) == before
    commits = [{turn.commit_hash for turn in child} for child in children]
    assert not commits[0] & commits[1], "siblings go their own ways"
    attempts = {path.stem for path in (tmp_path / "work" / "states" / "0.0-2" / "shared" / "attempts").iterdir()}
    assert attempts == {ROOT_COMMIT, *(turn.commit_hash for turn in first), *commits[0]}


def test_after_a_change_that_did_not_help_the_best_code_is_taken_up(tmp_path: Path) -> None:
    """Over four turns, whichever way they turn out: each commit differs from the best before it in one change."""
    teacher = open_teacher(tmp_path)
    first = explore(teacher, edge(0))
    turns = [*first, *explore(teacher, edge(0, 0), first[1].state)]
    best, best_values = ROOT_SCORE, [0.5, 0.5, 0.5]
    for turn in turns:
        state = tmp_path / "work" / "states" / (turn.state or "")
        record = json.loads((state / "shared" / "attempts" / f"{turn.commit_hash}.json").read_text())
        places = record["title"].split(" at ")[1].split(" by ")[0].split(", ")
        changed = [
            n for n, pair in enumerate(zip(best_values, record["metadata"]["values"], strict=True)) if len({*pair}) > 1
        ]
        assert changed == [int(place) for place in places]
        assert turn.score is not None
        assert turn.status == ("improved" if turn.score > best else "regressed")
        if turn.score > best:
            best, best_values = turn.score, record["metadata"]["values"]
    assert best > ROOT_SCORE, "one of four small changes of three numbers that are too low helps"


@pytest.mark.parametrize(
    ("mode", "score", "status", "feedback"),
    [
        ("raise", None, "crashed", "Grader failed: grader blew up on purpose\nTraceback"),
        ("exit", None, "crashed", "Grader process exited without returning a result"),
        ("none", None, "crashed", "explicit None\neval: no score for this one"),
        ("nan", None, "crashed", "the score is no number: nan"),
        ("bytes", None, "crashed", "eval: ? is no text"),
        ("number", 7.0, "improved", ""),
        ("late", None, "crashed", "eval: Evaluation timed out after 1s"),
        ("hang", None, "timeout", "Eval timed out after 1s."),
        ("secret", 1.0, "improved", "eval: only the grader knows"),
    ],
)
def test_whatever_the_grader_does(tmp_path: Path, mode: str, score: float | None, status: str, feedback: str) -> None:
    settings = EmbeddedSettings(grading_grace_seconds=0.3 if mode == "hang" else 60)
    teacher = open_teacher(tmp_path, mode=mode, timeout=1, settings=settings, sign=str(tmp_path / "sign"))
    with teacher.fork(edge(0), None, threading.Event()) as fork:
        turn = fork.run_turn(1)
    assert (turn.score, turn.status) == (score, status)
    assert (turn.feedback or "").startswith(feedback)
    (record,) = (
        json.loads(path.read_text())
        for path in (tmp_path / "work" / "states" / "0-1" / "shared" / "attempts").iterdir()
        if path.stem != ROOT_COMMIT
    )
    broken = mode in {"raise", "exit", "hang"}
    assert (record["score"], record["status"]) == (score, status)
    assert record["metadata"]["budget_class"] == ("grader_error" if broken else "real")
    assert living(FAMILIES, tmp_path) == []


def test_another_package_named_coral_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "coral"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "types.py").write_text("raise RuntimeError('not the one')")
    monkeypatch.syspath_prepend(package.parent)
    with open_teacher(tmp_path).fork(edge(0), None, threading.Event()) as fork:
        assert fork.run_turn(1).score is not None


def test_the_score_is_the_graders_whatever_the_program_writes(tmp_path: Path) -> None:
    """It forges attempts wherever it runs, prints 100 MB, and tries every descriptor that might lead to the teacher."""
    program = """
import json, os, sys
VALUES = [0.5, 0.5, 0.5]
for folder in (".opencode/attempts", "../shared/attempts", "../../shared/attempts"):
    if os.path.isdir(folder):
        for name in [*os.listdir(folder), "f" * 40 + ".json"]:
            with open(f"{folder}/{name}", "w") as forged:
                json.dump({"commit_hash": name[:40], "score": 999.0, "status": "improved", "feedback": ""}, forged)
for descriptor in range(3, 64):
    try:
        os.write(descriptor, b'{"score": 999.0, "feedback": "", "metadata": {}}')
    except OSError:
        pass
for _ in range(100):
    print("x" * 10**6)
"""
    teacher = open_teacher(tmp_path, program)
    with teacher.fork(edge(0), None, threading.Event()) as fork:
        turn = fork.run_turn(1)
    assert turn.score is not None and -1 < turn.score < 0
    attempt = tmp_path / "work" / "states" / "0-1" / "shared" / "attempts" / f"{turn.commit_hash}.json"
    assert json.loads(attempt.read_text())["score"] == turn.score
    assert len(session_texts(turn)) < 50_000, "what programs print is cut"


def test_a_program_that_does_not_load_is_not_submitted(tmp_path: Path) -> None:
    """It asserts that nothing was changed, so every change breaks it: the agent gives up and there is no eval."""
    teacher = open_teacher(
        tmp_path, "VALUES = [0.5, 0.5, 0.5]\nassert VALUES == VALUES[:1] * 3 and VALUES[0] == 1 / 2\n"
    )
    first, second = explore(teacher, edge(0))
    for turn in (first, second):
        assert (turn.score, turn.status, turn.commit_hash) == (None, None, None)
        assert "AssertionError" in session_texts(turn)
        assert "Nothing to commit" in session_texts(turn)
    assert not [part for m in second.messages if m.role == "system" for part in m.content]


def test_without_anything_to_change_there_is_no_eval(tmp_path: Path) -> None:
    teacher = open_teacher(tmp_path, "VALUES = list(map(float, '123'))\n")
    (turn, _) = explore(teacher, edge(0))
    assert (turn.score, turn.status, turn.commit_hash) == (None, None, None)
    assert turn.tool_calls > 0


def test_a_program_that_never_ends_is_given_up(tmp_path: Path) -> None:
    program = "import time\nVALUES = [0.5]\nif VALUES != [0.5]:\n    time.sleep(600)\n"
    teacher = open_teacher(tmp_path, program, settings=EmbeddedSettings(load_seconds=0.5))
    with teacher.fork(edge(0), None, threading.Event()) as fork:
        turn = fork.run_turn(1)
    assert turn.score is None
    assert "exceeding timeout 500 ms" in session_texts(turn)
    assert living(FAMILIES, tmp_path) == []


def test_what_a_program_starts_ends_with_the_turn(tmp_path: Path) -> None:
    program = (
        "import subprocess, time, os\nVALUES = [0.5, 0.5, 0.5]\n"
        "subprocess.Popen(['sh', '-c', 'exec >sign 2>&1; sleep 600'], start_new_session=True)\n"
        "while not os.path.exists('sign'): time.sleep(0.01)\n"
    )
    teacher = open_teacher(tmp_path, program)
    with teacher.fork(edge(0), None, threading.Event()) as fork:
        fork.run_turn(1)
        assert living(FAMILIES, tmp_path) == [], "before the state is frozen, not only when the fork is left"


def test_stop_ends_a_turn_and_all_its_processes(tmp_path: Path) -> None:
    """The grader hangs, and has started a process in a session of its own."""
    sign, stop = tmp_path / "sign", threading.Event()
    teacher = open_teacher(tmp_path, mode="hang", timeout=600, sign=str(sign))

    def stop_in_mid_turn() -> None:
        until(sign.exists, "the grader is at work")
        stop.set()

    stopper = threading.Thread(target=stop_in_mid_turn)
    stopper.start()
    with pytest.raises(Stopped), teacher.fork(edge(0), None, stop) as fork:
        fork.run_turn(1)
    stopper.join()
    assert living(FAMILIES, tmp_path) == []
    assert not (tmp_path / "work" / "states" / "0-1").exists()


KILLED = """
import sys, threading
from pathlib import Path
from coral_pipeline.teacher.embedded import EmbeddedTeacher
from coral_pipeline.teacher.protocol import EdgeRequest

place = Path(sys.argv[1])
teacher = EmbeddedTeacher.open(place / "root", place / "task", place / "work", 0)
with teacher.fork(EdgeRequest(root="root", path=(), expansion=0), None, threading.Event()) as fork:
    fork.run_turn(1)
"""


def test_what_a_killed_process_left_running_is_ended_by_the_next(tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    write_task(tmp_path / "task", "hang", 600, sign=str(sign))
    write_root(tmp_path / "root")
    process = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path])
    try:
        until(sign.exists, "the grader is at work")
    finally:
        process.kill()
        process.wait()
    until(lambda: living(FAMILIES, tmp_path) == ["sleep 600"], "the grader has ended too, but not what it started")
    teacher = EmbeddedTeacher.open(tmp_path / "root", tmp_path / "task", tmp_path / "work", 0)
    assert living(FAMILIES, tmp_path) == ["sleep 600"], "not before the first fork: the tree may be another process's"
    with teacher.fork(edge(1), None, threading.Event()):
        assert living(FAMILIES, tmp_path) == []


def test_other_trees_processes_are_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"], env={MARKER_VARIABLE: f"{FAMILIES}another-tree-0;"}) as other:
        teacher = open_teacher(tmp_path)
        explore(teacher, edge(0))
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize("when", ["at the beginning", "at the end"])
def test_a_full_disk_is_a_fault_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """While the state is copied, or while, the new state being in its place, what is left of the turn is deleted."""
    teacher = open_teacher(tmp_path)
    undisturbed = [lasting(turn) for turn in explore(teacher, edge(0))]

    def full(source: Path, target: Path) -> list[str]:
        target.mkdir()
        raise OSError(errno.ENOSPC, "No space left on device")

    def failing(folder: Path) -> None:
        if folder.name == "0-1" and (tmp_path / "work" / "states" / "0-1").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        remove_tree(folder)

    with teacher.fork(edge(0), None, threading.Event()) as fork:
        if when == "at the beginning":
            monkeypatch.setattr(states, "copy_tree", full)
        else:
            monkeypatch.setattr(states, "remove_tree", failing)
        with pytest.raises(InfrastructureFault, match="disk full"):
            fork.run_turn(1)
        monkeypatch.undo()
        assert [lasting(fork.run_turn(number)) for number in (1, 2)] == undisturbed, "tried again, it goes on"


def test_a_turn_on_a_nearly_full_disk_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room when the turn begins and none when it ends."""
    teacher = open_teacher(tmp_path)
    rooms = iter([1 << 40, 1 << 10])
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=next(rooms)))
    with (
        teacher.fork(edge(0), None, threading.Event()) as fork,
        pytest.raises(InfrastructureFault, match=r"disk full: 1\.02 kB are free"),
    ):
        fork.run_turn(1)
    assert not (tmp_path / "work" / "states" / "0-1").exists()


def test_a_tree_beyond_its_bound_begins_no_turn_and_says_which_setting_to_raise(tmp_path: Path) -> None:
    teacher = open_teacher(tmp_path, settings=EmbeddedSettings(max_tree_bytes=1 << 20))
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "earlier").write_bytes(os.urandom(2 << 20))
    with (
        teacher.fork(edge(0), None, threading.Event()) as fork,
        pytest.raises(InfrastructureFault, match=r"work: the tree takes .* MB of disk, embedded\.max_tree_bytes"),
    ):
        fork.run_turn(1)


def test_the_root_state_is_released_too_and_does_not_come_back(tmp_path: Path) -> None:
    teacher = open_teacher(tmp_path)
    [first, _] = explore(teacher, edge(0))
    teacher.release(None)
    assert not (tmp_path / "work" / "states" / "root").exists()
    resumed = EmbeddedTeacher.open(tmp_path / "root", tmp_path / "task", tmp_path / "work", 0)
    with resumed.fork(edge(0, 0), first.state, threading.Event()) as fork:
        fork.run_turn(1)
    assert not (tmp_path / "work" / "states" / "root").exists()


def test_a_program_that_does_away_with_its_fork_ends_without_a_score(tmp_path: Path) -> None:
    program = (
        "import shutil\nVALUES = [0.5, 0.5, 0.5]\n"
        "for folder in ('.git', '../shared/attempts', '../shared/notes'): shutil.rmtree(folder, ignore_errors=True)\n"
    )
    for turn in explore(open_teacher(tmp_path, program), edge(0)):
        assert (turn.score, turn.commit_hash) == (None, None)


def test_the_direction_may_be_given(tmp_path: Path) -> None:
    """The task says that 7 is better than the root's -0.12; told otherwise, the teacher takes it for worse."""
    write_task(tmp_path / "task", "number")
    write_root(tmp_path / "root")
    teacher = EmbeddedTeacher.open(tmp_path / "root", tmp_path / "task", tmp_path / "work", 0, direction="minimize")
    with teacher.fork(edge(0), None, threading.Event()) as fork:
        assert fork.run_turn(1).status == "regressed"


def test_released_states_are_gone_and_may_be_released_again(tmp_path: Path) -> None:
    teacher = open_teacher(tmp_path)
    first, second = explore(teacher, edge(0))
    for _ in range(2):
        teacher.release(first.state or "")
    assert not (tmp_path / "work" / "states" / "0-1").exists()
    explore(teacher, edge(0, 0), second.state)
    with pytest.raises(TeacherError, match="the state is gone"):
        explore(teacher, edge(0, 1), first.state)


def test_opening_leaves_the_work_folder_alone(tmp_path: Path) -> None:
    open_teacher(tmp_path)
    assert not (tmp_path / "work").exists()


def test_the_states_of_another_root_are_refused(tmp_path: Path) -> None:
    explore(open_teacher(tmp_path), edge(0))
    other = write_root(tmp_path / "other")
    (other / "metadata.json").write_text('{"commit_hash": "another", "score": 1.0}')
    teacher = EmbeddedTeacher.open(other, tmp_path / "task", tmp_path / "work", 0)
    with pytest.raises(BadInput, match="states of another root"):
        explore(teacher, edge(0))


def test_what_describes_a_teacher_decides_its_answers(tmp_path: Path) -> None:
    """Seed, settings, and every byte of the task and its grader's folder; no path of this machine."""
    teacher = open_teacher(tmp_path)
    described = teacher.describe()
    assert str(tmp_path) not in json.dumps(described)

    def again(seed: int = 0) -> dict[str, Any]:
        return EmbeddedTeacher.open(tmp_path / "root", tmp_path / "task", tmp_path / "elsewhere", seed).describe()

    assert again() == described
    assert again(seed=1) != described
    (tmp_path / "task" / "grader" / "secret.txt").write_text("changed")
    assert again() != described


def test_a_root_without_a_score_or_attempt_can_be_explored(tmp_path: Path) -> None:
    write_root(tmp_path / "root", score=None)
    (tmp_path / "root" / "shared" / "attempts" / f"{ROOT_COMMIT}.json").unlink()
    write_task(tmp_path / "task")
    teacher = EmbeddedTeacher.open(tmp_path / "root", tmp_path / "task", tmp_path / "work", 0)
    first, _ = explore(teacher, edge(0))
    assert first.status == "improved", "the first score of all"


@pytest.mark.parametrize(
    ("missing", "problem"),
    [
        ("root/metadata.json", "holds no metadata.json"),
        ("root/code", "holds no code/"),
        ("root/shared", "holds no shared/"),
        ("task/task.yaml", "holds no task.yaml"),
        ("task/grader", "holds no grader"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, missing: str, problem: str) -> None:
    write_root(tmp_path / "root")
    write_task(tmp_path / "task")
    (tmp_path / missing).rename(tmp_path / "away")
    with pytest.raises(BadInput, match=problem):
        EmbeddedTeacher.open(tmp_path / "root", tmp_path / "task", tmp_path / "work", 0)


@pytest.mark.parametrize("text", ["grader: {direction: sideways}", "grader: [", "- a list", "grader: {timeout: soon}"])
def test_a_malformed_task_is_refused(tmp_path: Path, text: str) -> None:
    write_task(tmp_path / "task")
    (tmp_path / "task" / "task.yaml").write_text(text)
    with pytest.raises(BadInput, match=r"task\.yaml"):
        EmbeddedTeacher.open(write_root(tmp_path / "root"), tmp_path / "task", tmp_path / "work", 0)


def test_what_a_task_leaves_empty_has_its_default(tmp_path: Path) -> None:
    write_task(tmp_path / "task")
    (tmp_path / "task" / "task.yaml").write_text("task: {description: null}\ngrader: {args: null, timeout: null}\n")
    teacher = EmbeddedTeacher.open(write_root(tmp_path / "root"), tmp_path / "task", tmp_path / "work", 0)
    with teacher.fork(edge(0), None, threading.Event()) as fork:
        assert fork.run_turn(1).score is not None


def test_without_a_task_the_mend_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no task\.yaml near it"):
        EmbeddedTeacher.open(write_root(tmp_path / "root"), None, tmp_path / "work", 0)
