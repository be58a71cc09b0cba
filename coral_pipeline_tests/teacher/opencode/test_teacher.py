"""The real Teacher on real parts: OpenCode, bubblewrap, git, the grader; only the model is scripted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from coral_pipeline.teacher import space
from coral_pipeline.teacher.opencode.calls import prompt_text
from coral_pipeline.teacher.opencode.records import SESSION_FILE, TURN_FILE
from coral_pipeline.teacher.opencode.states import FILES
from coral_pipeline.teacher.opencode.transcripts import parse_session
from coral_pipeline.teacher.protocol import InfrastructureFault, Stopped, TeacherError, Turn
from coral_pipeline_tests.teacher.opencode.lab import (
    KEY,
    UNISOLATED,
    Lab,
    climbing,
    files_with,
    lab,
    processes_of,
    submit,
)
from coral_pipeline_tests.teacher.opencode.model_server import Answer, Fault, Say, bash, steps, turn_of
from coral_pipeline_tests.teacher.opencode.test_forks import fingerprint

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def audit(laboratory: Lab, turn: Turn) -> dict[str, Any]:
    assert turn.state is not None
    numbers: dict[str, Any] = json.loads((laboratory.store.place(turn.state) / TURN_FILE).read_text())
    return numbers


def test_forks_at_once_stay_apart_and_go_on_where_their_parent_was(tmp_path: Path) -> None:
    with lab(tmp_path, climbing()) as here:
        [first, second] = here.turns(0, turns=2)
        assert first.score == 2.0 and second.score == 3.0 and first.session_id == second.session_id
        parent = {name: fingerprint(here.store.place(name) / FILES) for name in ("root", "0-t1", "0-t2")}
        one, other = here.at_once(
            lambda: here.turns(0, second.state, path=(0,)),
            lambda: here.turns(1, second.state, path=(0,)),
        )
        # each sees its parent's notes and its own, not its sibling's
        with here.store.fork(str(one[0].state), tmp_path / "look") as view:
            notes = {path.name for path in (view.files / "coral/.coral/public/notes").iterdir()}
            answer = (view.files / "coral/agents/agent-1/answer.py").read_text()
        own, siblings = f"x-{one[0].score}.md", f"x-{other[0].score}.md"
        assert {"first.md", "x-2.0.md", "x-3.0.md", own} <= notes and siblings not in notes
        assert answer == f"X = {one[0].score}\n"
        # the parents are what they were, to the byte
        assert parent == {name: fingerprint(here.store.place(name) / FILES) for name in parent}
        # the first request of every fork begins with its parent's last one
        before = prompt_text(here.calls(second.state)[1]["request"].encode())
        for turn in (one[0], other[0]):
            assert prompt_text(here.calls(turn.state)[0]["request"].encode()).startswith(before)
            assert audit(here, turn)["parent_prompt_kept"] == 1.0
        check_what_is_off(here, [first, second, one[0], other[0]])
        check_record(here, first)
        # what is graded is told apart from what it began with: the root's code, then the turn before
        assert first.code_diff is not None and "-X = 1.0\n+X = 2.0\n" in first.code_diff
        assert second.code_diff is not None and "-X = 2.0\n+X = 3.0\n" in second.code_diff
        assert {tool["function"]["name"] for tool in first.tools or ()} >= {"bash", "read"} and second.tools is None
        assert here.leftovers() == []


def check_what_is_off(here: Lab, turns: list[Turn]) -> None:
    """No compaction, no title calls, no subagents, no questions: every model call is a step of an agent."""
    asked = len(here.server.requests)
    assert asked == sum(turn.step_turns for turn in turns)
    offered = {tool["function"]["name"] for request in here.server.requests for tool in request["tools"]}
    assert offered >= {"bash", "read", "edit", "write", "glob", "grep"}
    assert not offered & {"task", "question", "skill", "webfetch", "websearch", "todowrite"}
    systems = {request["messages"][0]["content"] for request in here.server.requests}
    assert len(systems) == 1  # the same system prompt in every call of every fork
    [system] = systems
    assert "Set `X` in `answer.py` as high as you can." in system and str(here.folder) not in system
    keys = {headers["x-smg-routing-key"] for headers in here.server.headers}
    assert len(keys) == 1


def check_record(here: Lab, turn: Turn) -> None:
    """The turn says what happened."""
    assert (turn.step_turns, turn.tool_calls, turn.failed_tool_calls) == (2, 2, 0)
    assert turn.knowledge_read and turn.knowledge_write and turn.status == "improved"
    roles = [message.role for message in turn.messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool"]
    sampled = [message for message in turn.messages if message.sampled]
    assert all(m.sampled_token_ids and len(m.sampled_token_ids) == m.output_tokens for m in sampled)
    assert turn.context_tokens == (sampled[-1].input_tokens or 0) + (sampled[-1].output_tokens or 0)


MISCHIEF = (
    "(setsid sleep 4321 > /dev/null 2>&1 &)",
    "head -c 100000000 /dev/zero | tr '\\0' x",
    "head -c 3000000 /dev/zero 2>&1 > $TMPDIR/full",
    "ls /coral/.coral/private; cat /etc/shadow",
)
"""Commands, each its own call: of an output that is too long, OpenCode keeps only what it had read last."""


def test_mischief_in_the_sandbox_harms_nobody(tmp_path: Path) -> None:
    mischief = Say("mischief", calls=tuple(map(bash, MISCHIEF)))
    script = steps(mischief, submit(5.0), Say("on", calls=(bash("echo going on"),)))
    with lab(tmp_path, script, sandbox={"tmp_bytes": 1 << 20}) as here:
        [turn] = here.turns(0)
        assert turn.score == 5.0
        assert "going on" not in here.result(turn) and len(here.server.requests) == 2  # stopped at its eval
        assert "No space left" in here.result(turn) and len(here.result(turn)) < 200_000
        assert "secret.txt" not in here.result(turn)
        assert processes_of("4321") == [] and here.leftovers() == []


def test_an_agent_that_never_submits_has_no_score_and_its_ruins_can_be_worked_in(tmp_path: Path) -> None:
    ruin = "rm -rf /coral/agents/agent-1/* /coral/agents/agent-1/.[a-z]* /coral/repo/.git; rmdir /coral/agents/agent-1"
    with lab(tmp_path, steps(Say("ruin", calls=(bash(ruin),)), submit(5.0))) as here:
        first, second = here.turns(0, turns=2)
        assert (first.score, first.status, first.commit_hash) == (None, None, None)
        assert second.score is None and second.step_turns == 3
        assert here.leftovers() == []


def test_what_spoils_a_turn_is_an_infrastructure_fault_and_leaves_no_trace(tmp_path: Path) -> None:
    answers: dict[str, Answer] = {}

    def policy(request: dict[str, Any]) -> Answer:
        _, step = turn_of(request)
        return answers["next"] if step else Say("look", calls=(bash("ls; echo touched > answer.py"),))

    with lab(tmp_path, policy) as here:
        for fault in (Fault("drop"), Fault("status", 500)):
            answers["next"] = fault
            with pytest.raises(InfrastructureFault, match="model endpoint"):
                here.turns(0)
            assert here.leftovers() == [] and sorted(p.name for p in here.store.folder.iterdir()) == ["root"]
        answers["next"] = Fault("status", 401, '{"error": {"message": "no such key"}}')
        with pytest.raises(TeacherError, match=r"refuses.*no such key"):
            here.turns(0)
        # the same edge again, from the state before it
        answers["next"] = submit(4.0)
        [turn] = here.turns(0)
        assert turn.score == 4.0
        last = here.calls(turn.state)[0]["request"]
        assert "touched" not in last


def test_a_context_that_overflows_is_a_turn_without_a_score(tmp_path: Path) -> None:
    """And a key that the server repeats in its error is nowhere on disk."""
    said = f"This model's maximum context length is 9 tokens. Your key: {KEY}"
    overflow = Fault("status", 400, json.dumps({"error": {"message": said}}))

    def policy(request: dict[str, Any]) -> Answer:
        _, step = turn_of(request)
        return overflow if step else Say("look", calls=(bash("ls"),))

    with lab(tmp_path, policy) as here:
        [turn] = here.turns(0)
        assert turn.score is None and turn.step_turns == 1
        numbers = audit(here, turn)
        assert numbers["last_error"] in ("ContextOverflowError", "APIError") and numbers["calls"]["refused"] >= 1
        assert files_with(b"maximum context length", here.folder) and files_with(KEY.encode(), here.folder) == []


def test_limits_of_time_and_disk_end_a_turn(tmp_path: Path) -> None:
    hang = steps(Say("hang", calls=(bash("sleep 600"),)))
    with lab(tmp_path / "slow", hang, turn_seconds=20, settle_seconds=5) as here:
        [slow] = here.turns(0)
        assert slow.score is None and audit(here, slow)["ended_by"] == "the time limit"
        assert slow.failed_tool_calls == 0  # cut off, which is not the call's failure
        assert here.leftovers() == []
    # in its state or beside it
    files = "head -c 20000000 /dev/urandom > big; head -c 20000000 /dev/urandom > /opt/teacher/config/big"
    fill = steps(Say("fill", calls=(bash(f"{files}; sleep 600"),)))
    with lab(tmp_path / "large", fill, settle_seconds=5, max_state_bytes=30_000_000) as here:
        [large] = here.turns(0)
        assert large.score is None and audit(here, large)["ended_by"] == "the disk limit"
        assert here.leftovers() == []


def test_a_turn_in_which_the_disk_filled_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent, whose eval failed for want of room, is not to blame."""
    free = shutil.disk_usage(tmp_path)

    def policy(request: dict[str, Any]) -> Answer:
        monkeypatch.setattr(space.shutil, "disk_usage", lambda folder: free._replace(free=1_000))
        return Say("I cannot submit")

    with lab(tmp_path, policy, min_free_bytes=2_000) as here:
        with pytest.raises(InfrastructureFault, match="disk full"):
            here.turns(0)
        assert here.leftovers() == [] and sorted(path.name for path in here.store.folder.iterdir()) == ["root"]


def test_a_stop_and_a_killed_sandbox_end_a_turn_at_once(tmp_path: Path) -> None:
    with lab(tmp_path, steps(Say("wait", calls=(bash("sleep 600"),)))) as here:

        def when_asked(act: Any) -> threading.Thread:
            seen = len(here.server.requests)

            def wait() -> None:
                while len(here.server.requests) == seen:
                    time.sleep(0.05)
                act()

            thread = threading.Thread(target=wait)
            thread.start()
            return thread

        def kill_server() -> None:
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit():
                    try:
                        command = (entry / "cmdline").read_bytes()
                    except OSError:
                        continue
                    if str(tmp_path).encode() in command and command.startswith(b"bwrap"):
                        os.kill(int(entry.name), signal.SIGKILL)

        killer = when_asked(kill_server)
        with pytest.raises(InfrastructureFault, match="sandbox ended"):
            here.turns(0)
        killer.join()
        stopper = when_asked(here.stop.set)
        with pytest.raises(Stopped):
            here.turns(0)
        stopper.join()
        assert here.leftovers() == []


def contents(folder: Path) -> dict[str, str]:
    """As ``fingerprint``, without the times: git renews those of objects it needs again."""
    return {name: found.split()[-1] for name, found in fingerprint(folder).items()}


@pytest.mark.parametrize("method", ["copy", "auto"])
def test_unisolated_agents_work_in_rewritten_paths_and_the_tree_says_so(tmp_path: Path, method: str) -> None:
    with lab(tmp_path, climbing(), sandbox=UNISOLATED, fork_method=method) as here:
        described = here.teacher.describe()
        assert described["isolation"] == "none" and described["fork_method"] == here.store.method.name
        [first] = here.turns(0)
        before = contents(here.store.place(str(first.state)) / FILES)
        [second] = here.turns(0, first.state, path=(0,))
        assert (first.score, second.score) == (2.0, 3.0)
        assert contents(here.store.place(str(first.state)) / FILES) == before
        assert first.session_id == second.session_id
        assert here.leftovers() == []


def test_a_session_can_be_read_from_its_audit(tmp_path: Path) -> None:
    import pyarrow as pa

    with lab(tmp_path, climbing()) as here:
        [turn] = here.turns(0)
        here.teacher.release(str(turn.state))
        place = here.store.place(str(turn.state))
        assert not (place / FILES).exists()
        with pa.CompressedInputStream(str(place / SESSION_FILE), "zstd") as file:
            assert parse_session(file.read()).info.id == turn.session_id
