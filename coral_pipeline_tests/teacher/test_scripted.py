"""The scripted teacher: what a script says, and what is wrong with one."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from coral_pipeline.errors import BadInput
from coral_pipeline.teacher.protocol import EdgeRequest, TeacherError
from coral_pipeline.teacher.scripted import ScriptedTeacher

TURN = {
    "score": 0.5,
    "tool_calls": 12,
    "failed_tool_calls": 1,
    "knowledge_read": True,
    "knowledge_write": False,
    "step_turns": 9,
    "context_tokens": 21000,
    "seconds": 31.0,
}
EDGE = {"path": [0, 2], "expansion": 1, "turns": [TURN, {"score": None}]}


def script(folder: Path, *lines: Any) -> Path:
    path = folder / "script.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


def edge(*path: int, expansion: int) -> EdgeRequest:
    return EdgeRequest(root="eval-1", path=path, expansion=expansion)


def ask(teacher: ScriptedTeacher, request: EdgeRequest, number: int) -> Any:
    with teacher.fork(request, None, threading.Event()) as fork:
        return fork.run_turn(number)


def test_a_turn_is_answered_as_it_is_written(tmp_path: Path) -> None:
    teacher = ScriptedTeacher(script(tmp_path, {"path": [], "expansion": 0, "turns": [{}]}, "", EDGE))
    turn = ask(teacher, edge(0, 2, expansion=1), 1)
    assert {name: getattr(turn, name) for name in TURN} == TURN
    assert ask(teacher, edge(0, 2, expansion=1), 2).score is None


def test_what_is_left_out_is_nothing(tmp_path: Path) -> None:
    turn = ask(ScriptedTeacher(script(tmp_path, {"path": [], "expansion": 0, "turns": [{}]})), edge(expansion=0), 1)
    assert (turn.score, turn.tool_calls, turn.failed_tool_calls, turn.context_tokens) == (None, 0, 0, 0)
    assert (turn.knowledge_read, turn.knowledge_write, turn.step_turns, turn.seconds) == (False, False, 1, 0.0)
    assert turn.messages == ()


@pytest.mark.parametrize("score", ["NaN", "Infinity", "-Infinity", "null", "true", '"0.5"', "1e999"])
def test_what_is_not_numeric_is_no_score(tmp_path: Path, score: str) -> None:
    line = f'{{"path": [], "expansion": 0, "turns": [{{"score": {score}}}]}}'
    assert ask(ScriptedTeacher(script(tmp_path, line)), edge(expansion=0), 1).score is None


def test_messages_may_be_scripted(tmp_path: Path) -> None:
    message = {"role": "assistant", "content": [{"type": "text", "text": "done"}], "sampled": True}
    line = {"path": [], "expansion": 0, "turns": [{"messages": [message]}]}
    (said,) = ask(ScriptedTeacher(script(tmp_path, line)), edge(expansion=0), 1).messages
    assert (said.role, said.content[0].text, said.sampled) == ("assistant", "done", True)


def test_an_edge_that_is_missing_is_an_error_that_names_it(tmp_path: Path) -> None:
    teacher = ScriptedTeacher(script(tmp_path, EDGE))
    with pytest.raises(TeacherError, match=r'script\.jsonl has no line for "path": \[0\], "expansion": 3; add one'):
        ask(teacher, edge(0, expansion=3), 1)


def test_a_turn_that_is_missing_is_an_error_that_names_it(tmp_path: Path) -> None:
    teacher = ScriptedTeacher(script(tmp_path, {"path": [], "expansion": 0, "turns": [TURN]}))
    assert ask(teacher, edge(expansion=0), 1).score == 0.5
    with pytest.raises(TeacherError, match=r'script\.jsonl: "path": \[\], "expansion": 0 has no turn 2'):
        ask(teacher, edge(expansion=0), 2)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"path": [0]', "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "object"),
        ({"path": [0], "turns": [{}]}, "expansion: Field required"),
        ({**EDGE, "path": [-1]}, "path.0: Input should be greater than or equal to 0"),
        ({**EDGE, "path": 0}, "path"),
        ({**EDGE, "turns": []}, "turns"),
        ({**EDGE, "turns": [{}, {}, {}]}, "turns"),
        ({**EDGE, "turns": [{"conext_tokens": 5}]}, "turns.0.conext_tokens: Extra inputs are not permitted"),
        ({**EDGE, "turns": [{"tool_calls": 1, "failed_tool_calls": 2}]}, "turns.0: Value error, failed_tool_calls"),
        ({**EDGE, "turns": [{"tool_calls": -1}]}, "turns.0.tool_calls"),
        ({**EDGE, "turns": [{"context_tokens": 1e30}]}, "turns.0.context_tokens"),
        (EDGE, "answers the same edge as line 1"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(tmp_path: Path, line: Any, told: str) -> None:
    with pytest.raises(BadInput) as refused:
        ScriptedTeacher(script(tmp_path, EDGE, line))
    assert f"{tmp_path / 'script.jsonl'}, line 2: " in str(refused.value)
    assert told in str(refused.value)


def test_a_script_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.jsonl: cannot be read"):
        ScriptedTeacher(tmp_path / "none.jsonl")
    with pytest.raises(BadInput, match="cannot be read"):
        ScriptedTeacher(tmp_path)
    (tmp_path / "latin").write_bytes("é".encode("latin-1"))
    with pytest.raises(BadInput, match="is not UTF-8"):
        ScriptedTeacher(tmp_path / "latin")
