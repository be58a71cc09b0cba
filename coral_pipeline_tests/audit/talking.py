"""A teacher whose transcripts, token ids and counts fit together, with failures of every kind among its edges."""

from __future__ import annotations

import json
from typing import Any

from coral_pipeline.teacher.protocol import ContentPart, EdgeRequest, Message, Turn
from coral_pipeline_tests.search.test_properties import Dice

DICE = Dice(seed=11, no_score=0.15, tool_errors=0.1, levels=40, growth=9_000)
SETTINGS: dict[str, Any] = {
    "selection": {"num_roots": 2},
    "search": {"max_depth": 3, "max_logical_edges": 10, "parallel_width": 3},
}


def _text(words: str) -> ContentPart:
    return ContentPart(type="text", text=words)


def _calls(name: str, count: int, failed: int) -> list[Message]:
    messages = []
    for number in range(count):
        call_id, tool = f"{name}-{number}", ("read", "bash")[number % 2]
        arguments = json.dumps({"path": f"file-{number}.py"})
        call = ContentPart(type="tool_call", tool_call_id=call_id, name=tool, arguments=arguments)
        result = ContentPart(
            type="tool_result", tool_call_id=call_id, name=tool, text=f"line {number}", is_error=number < failed
        )
        asked = Message(
            role="assistant",
            content=(call,),
            sampled=True,
            input_tokens=100 + number,
            output_tokens=7,
            created_ms=1000 * number,
            completed_ms=1000 * number + 9,
        )
        messages.append(asked)
        messages.append(Message(role="tool", content=(result,)))
    return messages


def talk(edge: EdgeRequest, number: int) -> Turn:
    """An answer with all that a real agent's turn has, the same whenever it is asked for."""
    turn = DICE(edge, number)
    begin = [Message(role="system", content=(_text("You improve programs."),))] if not edge.path and number == 1 else []
    prompt = Message(role="user", content=(_text(f"edge {edge.name}, turn {number}"),))
    last = Message(
        role="assistant",
        content=(ContentPart(type="reasoning", text="Done?"), _text("Done.")),
        sampled=True,
        sampled_token_ids=(68, 111, 110, 101, 46),
        sampled_logprobs=(-0.5, -0.25, -0.125, -1.0, -2.0),
    )
    messages = (*begin, prompt, *_calls(f"{edge.name}/{number}", turn.tool_calls, turn.failed_tool_calls), last)
    told = {
        "status": "crashed" if turn.score is None else "improved",
        "commit_hash": f"{abs(hash_of(edge.name, number)):040x}",
        "feedback": f"feedback on {edge.name}/{number}",
        "code_diff": f"--- a/solve.py\n+++ b/solve.py\n+{edge.name}\n",
        "session_id": f"session-{edge.name}",
        "step_turns": turn.tool_calls + 1,
    }
    return turn.model_copy(update={"messages": messages, **told})


def hash_of(name: str, number: int) -> int:
    """A number that is the same in every process."""
    return int.from_bytes(f"{name}/{number}".encode(), "big") % 2**160
