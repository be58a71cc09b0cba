"""What is kept of a finished turn: the Turn itself, the next state's record, and the files for an audit."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from coral_pipeline.settings import Direction, orient
from coral_pipeline.teacher.opencode.calls import Call, prompt_text, shared_share, with_tokens, write_calls
from coral_pipeline.teacher.opencode.packed import pack, unpacked
from coral_pipeline.teacher.opencode.states import PROMPT_FILE, ROOT, State
from coral_pipeline.teacher.opencode.turns import Worked
from coral_pipeline.teacher.protocol import ContentPart, Message, Turn

CALLS_FILE = "calls.jsonl.zst"
"""Every model call, see ``calls``."""
SESSION_FILE = "session.json.zst"
"""The whole session as OpenCode exports it."""
PATCH_FILE = "change.patch.zst"
"""What the graded commit changed, as git shows it."""
TURN_FILE = "turn.json"
"""Numbers of the turn that are in no table."""


def next_state(name: str, parent: State, worked: Worked, direction: Direction) -> State:
    """The record of the state after a turn."""
    graded = worked.graded
    scores = [parent.best_score, None if graded is None else graded.verdict.score]
    known = [score for score in scores if score is not None]
    entries = worked.session.messages
    return parent.model_copy(
        update={
            "name": name,
            "session_id": worked.session.info.id if worked.is_kept else None,
            "last_message": entries[-1].info.id if worked.is_kept else None,
            "best_score": max(known, key=lambda score: orient(score, direction), default=None),
            "commit_hash": parent.commit_hash if graded is None else graded.commit,
            "released": False,
            "reduced": False,
        }
    )


def turn_of(worked: Worked, state: State, messages: tuple[Message, ...], is_first: bool) -> Turn:
    """The Turn that the search is told of; the first one of a path also tells what tools there are."""
    graded, transcript = worked.graded, worked.transcript
    verdict = None if graded is None else graded.verdict
    return Turn(
        score=None if verdict is None else verdict.score,
        status=None if verdict is None else verdict.status,
        commit_hash=None if graded is None else graded.commit,
        feedback=None if verdict is None else verdict.feedback,
        code_diff=None if graded is None else graded.code_diff,
        step_turns=transcript.step_turns,
        tool_calls=transcript.tool_calls,
        failed_tool_calls=transcript.failed_tool_calls,
        knowledge_read=transcript.knowledge.read,
        knowledge_write=transcript.knowledge.write,
        context_tokens=worked.context_tokens,
        seconds=worked.seconds,
        session_id=worked.session.info.id,
        state=state.name,
        messages=messages,
        tools=_tools(worked) if is_first else None,
    )


def messages_of(worked: Worked, parent: State) -> tuple[Message, ...]:
    """The turn's messages with exact tokens; a path's first turn begins with the system prompt it was given."""
    messages = with_tokens(worked.transcript.messages, worked.calls)
    request = _first_request(worked)
    if parent.name != ROOT or not request:
        return messages
    first = request["messages"][0]
    if first["role"] != "system" or not isinstance(first["content"], str):
        return messages
    return (Message(role="system", content=(ContentPart(type="text", text=first["content"]),)), *messages)


def _tools(worked: Worked) -> tuple[dict[str, Any], ...] | None:
    tools = _first_request(worked).get("tools")
    return tuple(tools) if isinstance(tools, list) else None


def _first_request(worked: Worked) -> dict[str, Any]:
    """What the model was asked first; {} where it was not, or that was too much to keep."""
    request: dict[str, Any] = json.loads(worked.calls[0].request or b"{}") if worked.calls else {}
    return request


def keep_for_audit(place: Path, worked: Worked, parent_place: Path, key: str) -> None:
    """Put into ``place`` what tells how the turn came about. ``key`` appears in none of it."""
    write_calls(place / CALLS_FILE, worked.calls, key)
    pack(place / SESSION_FILE, worked.export)
    if worked.graded is not None:
        pack(place / PATCH_FILE, worked.graded.patch)
    answered = [call for call in worked.calls if call.outcome == "ok"]
    kept_whole = [call for call in answered if call.request]
    prompts = [prompt_text(call.request) for call in (kept_whole[:1] + kept_whole[-1:])]
    if prompts:
        pack(place / PROMPT_FILE, prompts[-1].encode("utf-8", "surrogatepass"))
    shared = kept = None
    if prompts and (parent_place / PROMPT_FILE).exists():
        parent_prompt = unpacked(parent_place / PROMPT_FILE).decode("utf-8", "surrogatepass")
        shared = shared_share(parent_prompt, prompts[0])
        kept = shared_share(prompts[0], parent_prompt)
    numbers = {**_numbers(worked, answered, shared), "parent_prompt_kept": kept}
    (place / TURN_FILE).write_text(json.dumps(numbers, indent=1))


def _numbers(worked: Worked, answered: list[Call], shared: float | None) -> dict[str, Any]:
    sampled = [call.sampled for call in answered if call.sampled is not None]
    first_tokens = sampled[0].prompt_tokens if sampled else None
    shared_tokens = None if shared is None or first_tokens is None else round(shared * first_tokens)
    return {
        "seconds": worked.seconds,
        "ended_by": worked.ended_by or "the agent",
        "title": None if worked.graded is None else worked.graded.title,
        "nonzero_exits": worked.transcript.nonzero_exits,
        "last_error": worked.transcript.last_error,
        "calls": dict(Counter(call.outcome for call in worked.calls)),
        "tries": sum(call.tries for call in worked.calls),
        "first_prompt_tokens": first_tokens,
        "first_prompt_tokens_of_parent": shared_tokens,
        "first_prompt_share_of_parent": shared,
        "cached_prompt_tokens": sum(answer.cached_tokens or 0 for answer in sampled),
        "prompt_tokens": sum(answer.prompt_tokens or 0 for answer in sampled),
        "sampled_tokens": sum(answer.completion_tokens or 0 for answer in sampled),
        "exact_tokens": all(answer.ids is not None for answer in sampled),
    }
