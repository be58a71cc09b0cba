"""What an agent does to the machinery it runs on is its own doing: its turn ends, and the tree goes on."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from coral_pipeline.teacher.opencode.inside.entry import make_folder
from coral_pipeline.teacher.opencode.inside.kept import is_kept
from coral_pipeline.teacher.opencode.records import TURN_FILE
from coral_pipeline.teacher.protocol import Turn
from coral_pipeline_tests.teacher.opencode.lab import Lab, lab, submit
from coral_pipeline_tests.teacher.opencode.model_server import Answer, Policy, Say, bash, turn_of


def script(*turns: Answer) -> Policy:
    """One answer per turn, and ``done`` after it."""
    left = iter(turns)

    def policy(request: dict[str, Any]) -> Answer:
        _, step = turn_of(request)
        return Say("done") if step else next(left)

    return policy


def submit_and(value: float, harm: str) -> Say:
    [(tool, arguments)] = submit(value).calls
    assert isinstance(arguments, dict)
    return Say("submit", calls=((tool, {**arguments, "command": f"{arguments['command']}; {harm}"}),))


def ended_by(here: Lab, turn: Turn) -> str:
    return str(json.loads((here.store.place(str(turn.state)) / TURN_FILE).read_text())["ended_by"])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "harm",
    [
        "rm -rf /session/opencode",
        "cd /session/opencode; echo no database > opencode.db; rm opencode.db-*",
    ],
    ids=["deleted", "overwritten"],
)
def test_where_a_session_is_lost_the_next_turn_begins_another(tmp_path: Path, harm: str) -> None:
    with lab(tmp_path, script(submit_and(5.0, harm), submit(6.0))) as here:
        first, second = here.turns(0, turns=2)
        assert (first.score, second.score) == (5.0, 6.0)
        assert first.session_id and second.session_id and first.session_id != second.session_id
        assert second.messages[0].role == "user", "the path's system prompt is told once"
        assert first.tools and second.tools is None
        assert here.leftovers() == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_agent_may_end_every_python_and_put_a_file_in_its_worktrees_place(tmp_path: Path) -> None:
    # spelled so that the shell with this in its command line is not meant
    signals = "for signal in TERM INT HUP; do pkill -$signal -f '[p]ython'; done; echo survived"
    harm = "cd /; rm -rf /coral/agents; touch /coral/agents"
    say = Say("look", calls=(bash("ls -a; pwd"),))
    with lab(tmp_path, script(submit_and(5.0, f"{signals}; {harm}"), say)) as here:
        first, second = here.turns(0, turns=2)
        assert first.score == 5.0 and "survived" in here.result(first)
        assert second.score is None and second.session_id == first.session_id
        assert "/coral/agents/agent-1" in here.result(second)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("harm", ["kill -9 -1", "pkill opencode"])
def test_an_agent_that_kills_its_own_runtime_has_no_score_and_can_go_on(tmp_path: Path, harm: str) -> None:
    kill = Say("kill", calls=(bash(f"echo first; {harm}; sleep 5"),))
    with lab(tmp_path, script(kill, submit(5.0))) as here:
        first, second = here.turns(0, turns=2)
        assert first.score is None and ended_by(here, first) == "a signal to OpenCode"
        assert (first.step_turns, first.tool_calls) == (1, 1)
        assert second.score == 5.0 and second.session_id == first.session_id
        assert here.leftovers() == []


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Sessions as OpenCode keeps them."""
    path = tmp_path / "open code?.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE session (id text PRIMARY KEY)")
        connection.execute("CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL)")
        connection.execute("INSERT INTO session VALUES ('ses_1'), ('ses_2')")
        connection.execute("INSERT INTO message VALUES ('msg_1', 'ses_1'), ('msg_2', 'ses_2')")
    return path


def test_a_session_is_kept_where_a_whole_database_has_it_and_its_last_message(database: Path) -> None:
    assert is_kept(str(database), "ses_1", "msg_1") and is_kept(str(database), "ses_1", None)
    assert not is_kept(str(database), "ses_1", "msg_2") and not is_kept(str(database), "ses_3", None)


@pytest.mark.parametrize("harm", ["gone", "empty", "garbage", "folder", "no table", "damaged"])
def test_what_is_left_of_a_database_keeps_no_session(database: Path, harm: str) -> None:
    whole = database.read_bytes()
    if harm == "no table":
        with contextlib.closing(sqlite3.connect(database)) as connection, connection:
            connection.execute("DROP TABLE message")
    else:
        database.unlink()
        if harm == "folder":
            database.mkdir()
        elif harm != "gone":
            half = len(whole) // 2
            database.write_bytes(
                {"empty": b"", "garbage": b"x" * 9_999, "damaged": whole[:half] + b"\xff" * half}[harm]
            )
    assert not is_kept(str(database), "ses_1", "msg_1")


@pytest.mark.parametrize("what", ["nothing", "file", "link to nothing", "closed", "file above"])
def test_an_agent_begins_in_its_worktree_whatever_is_in_its_place(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "agents" / "agent-1"
    if what == "file above":
        folder.parent.touch()
    else:
        folder.parent.mkdir()
        if what == "file":
            folder.touch()
        elif what == "link to nothing":
            folder.symlink_to("nowhere")
        elif what == "closed":
            folder.mkdir(mode=0o000)
    make_folder(folder)
    assert folder.is_dir() and list(folder.iterdir()) == []
