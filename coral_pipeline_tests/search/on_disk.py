"""Exploring into a folder in tests, with messages, and looking at what lies there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coral_pipeline.search.explore import TreeSummary, explore_root
from coral_pipeline.search.output import FILES
from coral_pipeline.search.tree import RootNode
from coral_pipeline.settings import Direction, RetrySettings, SearchSettings
from coral_pipeline.teacher.protocol import ContentPart, EdgeRequest, Message, Turn
from coral_pipeline_tests.search.growing import IMPATIENT, ROOT, AnswerTeacher
from coral_pipeline_tests.search.test_properties import Dice

DICE = Dice(seed=4, no_score=0.15, tool_errors=0.2, levels=9, growth=15_000)
SMALL: dict[str, Any] = {"max_logical_edges": 7, "parallel_width": 3}


def talkative(edge: EdgeRequest, number: int) -> Turn:
    """An answer with a transcript: a prompt, and a reply that names its place."""
    prompt = Message(role="user", content=(ContentPart(type="text", text="go on"),))
    said = ContentPart(type="text", text=f"edge {edge.name}, turn {number}: ë 🙂")
    call = ContentPart(type="tool_call", tool_call_id="c1", name="bash", arguments='{"command": "ls"}')
    reply = Message(
        role="assistant",
        content=(said, call),
        sampled=True,
        output_tokens=3,
        sampled_token_ids=(1, 2, 3),
        sampled_logprobs=(-0.1, float("-inf"), float("nan")),
    )
    return DICE(edge, number).model_copy(update={"messages": (prompt, reply)})


def explore(
    folder: Path,
    teacher: AnswerTeacher | None = None,
    *,
    root: RootNode = ROOT,
    direction: Direction = "maximize",
    retry: RetrySettings = IMPATIENT,
    resume: bool = True,
    **settings: Any,
) -> TreeSummary:
    """Explore into ``folder``; a small tree with transcripts unless told otherwise."""
    chosen = SearchSettings(**(SMALL | settings))
    return explore_root(root, direction, teacher or AnswerTeacher(talkative), folder, chosen, retry, resume=resume)


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of every file of a finished tree."""
    return {name: (folder / name).read_bytes() for name in FILES}


def journal(folder: Path) -> Path:
    return folder / "work" / "journal.jsonl"
