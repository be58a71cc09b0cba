"""From OpenCode's own session exports to messages and a turn's numbers (method T2, T8)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from coral_pipeline.teacher.knowledge import READ, Touch
from coral_pipeline.teacher.opencode.transcripts import INTERRUPTED, Session, parse_session, read_turn
from coral_pipeline.teacher.protocol import TeacherError

EXPORTS = Path(__file__).parent / "fixtures" / "opencode"


def exported(name: str) -> Session:
    return parse_session((EXPORTS / name).read_bytes())


def session_of(*entries: dict[str, Any]) -> Session:
    return parse_session(json.dumps({"info": {"id": "ses_1"}, "messages": entries}))


def entry(identity: str, role: str, *parts: dict[str, Any], **info: Any) -> dict[str, Any]:
    return {"info": {"id": identity, "role": role, **info}, "parts": list(parts)}


def call(tool: str, status: str, **state: Any) -> dict[str, Any]:
    return {"type": "tool", "tool": tool, "callID": "call_1", "state": {"status": status, **state}}


def test_only_what_the_runtime_calls_an_error_is_a_failed_call() -> None:
    # 13 calls: two reads and an edit are errors; `exit 3` and `exit 1` ran; the killed sleep has no exit code;
    # unknown tools (`invalid`) and everything else completed.
    turn = read_turn(exported("export_tool_errors.json"), None)
    assert (turn.tool_calls, turn.failed_tool_calls, turn.nonzero_exits) == (13, 3, 2)
    assert turn.knowledge == READ
    assert turn.step_turns == 13


def test_a_turn_is_what_came_after_its_starting_point() -> None:
    session = exported("export_two_forked_turns.json")
    # four turns of: prompt, then read, change, eval, note, closing words
    starts = [index for index, message in enumerate(session.messages) if message.info.role == "user"]
    assert starts == [0, 6, 12, 18]
    last = read_turn(session, session.messages[17].info.id)
    assert (last.step_turns, last.tool_calls, last.failed_tool_calls) == (5, 4, 0)
    assert last.context_tokens == 16271  # prompt and completion of the last model call
    assert last.knowledge == Touch(read=True, write=True)
    roles = Counter(message.role for message in last.messages)
    assert roles == {"user": 1, "assistant": 5, "tool": 4}


def test_messages_keep_order_text_calls_results_and_tokens() -> None:
    session = exported("export_two_forked_turns.json")
    messages = read_turn(session, session.messages[5].info.id).messages
    prompt, first, result = messages[:3]
    assert prompt.role == "user" and not prompt.sampled
    assert first.sampled and [part.type for part in first.content] == ["text", "tool_call"]
    spoken, made = first.content
    assert spoken.text == "Next step. "
    assert made.name == "read"
    # OpenCode sends arguments back without blanks: `{"a": 1}` becomes `{"a":1}`
    assert made.arguments == '{"filePath":"/coral/agents/agent-1/params.py"}'
    assert result.role == "tool" and result.content[0].tool_call_id == made.tool_call_id
    assert result.content[0].is_error is False
    assert result.content[0].text is not None and result.content[0].text.startswith("<path>")
    tokens = session.messages[7].info.tokens
    assert first.input_tokens == tokens.input + tokens.cache.read
    assert first.output_tokens == 20
    assert first.created_ms is not None and first.completed_ms is not None and first.created_ms < first.completed_ms


def test_turns_put_end_to_end_are_the_session() -> None:
    session = exported("export_two_forked_turns.json")
    ends = [None, *(session.messages[index].info.id for index in (5, 11, 17))]
    counts = [len(read_turn(session, end).messages) for end in ends]
    assert counts == [40, 30, 20, 10]


def test_an_empty_answer_is_no_step_and_no_message() -> None:
    session = session_of(
        entry("m1", "user", {"type": "text", "text": "go"}),
        entry("m2", "assistant", {"type": "text", "text": "done"}, tokens={"total": 30, "input": 20, "output": 10}),
        entry("m3", "assistant", {"type": "step-start"}, {"type": "step-finish"}, tokens={"total": 0}),
    )
    turn = read_turn(session, None)
    assert [message.role for message in turn.messages] == ["user", "assistant"]
    assert (turn.step_turns, turn.context_tokens) == (1, 30)


def test_without_usage_there_is_no_context_length() -> None:
    session = session_of(entry("m1", "assistant", {"type": "text", "text": "done"}))
    turn = read_turn(session, None)
    assert turn.context_tokens == 0
    assert turn.messages[0].input_tokens is None and turn.messages[0].output_tokens is None


def test_a_call_cut_off_is_counted_but_did_not_fail() -> None:
    session = session_of(
        entry(
            "m1",
            "assistant",
            call("bash", "running", input={"command": "coral notes; sleep 99"}),
            call("bash", "error", input={}, error="Tool execution aborted", metadata={"interrupted": True}),
            call("read", "error", input={"filePath": ".opencode/notes/a.md"}, error="File not found"),
        )
    )
    turn = read_turn(session, None)
    assert (turn.tool_calls, turn.failed_tool_calls) == (3, 1)
    assert turn.knowledge == READ  # the running one read; the refused read did nothing
    assert turn.messages[1].content[0].text == INTERRUPTED
    assert turn.messages[3].content[0].is_error is True


def test_reasoning_is_kept_apart_from_text() -> None:
    session = session_of(
        entry("m1", "assistant", {"type": "reasoning", "text": "hmm"}, {"type": "text", "text": "so"}),
        entry("m2", "user", {"type": "text", "text": "hidden", "ignored": True}, {"type": "text", "text": "seen"}),
    )
    first, second = read_turn(session, None).messages
    assert [(part.type, part.text) for part in first.content] == [("reasoning", "hmm"), ("text", "so")]
    assert [part.text for part in second.content] == ["seen"]


def test_the_error_a_turn_ended_with_is_named() -> None:
    error = {"name": "ContextOverflowError", "data": {"message": "too long"}}
    session = session_of(entry("m1", "user"), entry("m2", "assistant", error=error))
    assert read_turn(session, None).last_error == "ContextOverflowError"


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"info": {"id": "s"}, "messages": [{"parts": []}]}', "\x00"])
def test_what_is_no_export_is_refused_by_name(text: str) -> None:
    with pytest.raises(TeacherError, match="OpenCode session export"):
        parse_session(text)


def test_a_session_tells_whether_it_lost_its_history() -> None:
    lost = session_of()
    assert lost.has(None) and not lost.has("m1")
    kept = parse_session(json.dumps({"info": {"id": "ses_1"}, "messages": [{"info": {"id": "m1", "role": "user"}}]}))
    assert kept.has("m1") and read_turn(kept, "m1").messages == ()
