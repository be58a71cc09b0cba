"""SFT samples for LLaMA-Factory, in its OpenAI format (``formatting: openai``).

Its readers pin ``datasets`` to releases that would fill the keys of all tools into the arguments of every
call, so here everything is text: a message that calls tools has the role ``function_call`` and the calls as
a JSON array for content, which is what its converter makes of ``tool_calls`` itself. It accepts only
conversations in which prompts and answers alternate and that end with an answer, so neighbours of one
side are joined, and what follows the last answer is left out. It knows no weights: answers that several
samples share are trained in each (``sft.jsonl`` and ``branches.parquet`` say which).

``dataset_info.json`` describes the file; train with ``dataset_dir`` on this folder and
``dataset: coral_pipeline``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

DATASET_INFO = {
    "coral_pipeline": {
        "file_name": "sft.jsonl",
        "formatting": "openai",
        "columns": {"messages": "messages", "tools": "tools"},
        "tags": {
            "role_tag": "role",
            "content_tag": "content",
            "user_tag": "user",
            "assistant_tag": "assistant",
            "observation_tag": "tool",
            "function_tag": "function_call",
            "system_tag": "system",
        },
    }
}
"""The ``dataset_info.json`` of the folder."""

THOUGHT = "<think>\n{}\n</think>\n\n"
CALLS = "<tool_call>{}</tool_call>"
"""How LLaMA-Factory tells tool calls from text beside them."""


def llama_factory_sample(sample: Mapping[str, Any]) -> dict[str, Any]:
    """A sample of ``export.sft`` as LLaMA-Factory's OpenAI format takes it."""
    first, *others = sample["messages"]
    system = [{"role": "system", "content": first["content"]}] if first["role"] == "system" else []
    messages: list[dict[str, str]] = []
    for answers, group in groupby(others if system else sample["messages"], key=_is_answer):
        neighbours = list(group)
        messages += [_answer(neighbours)] if answers else _prompts(neighbours)
    while messages and messages[-1]["role"] not in ("assistant", "function_call"):
        messages.pop()
    return {"messages": system + messages, "tools": sample["tools"]}


def _is_answer(message: Mapping[str, Any]) -> bool:
    return bool(message["role"] == "assistant")


def _prompts(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Tool results as they are (the converter joins neighbours itself); other prompts joined to what comes before."""
    prompts: list[dict[str, str]] = []
    for message in messages:
        role = "tool" if message["role"] == "tool" else "user"
        if prompts and not role == prompts[-1]["role"] == "tool":
            prompts[-1]["content"] += "\n\n" + message["content"]
        else:
            prompts.append({"role": role, "content": message["content"]})
    return prompts


def _answer(messages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Neighbouring assistant messages as one, reasoning before text before tool calls."""
    thoughts = "".join(THOUGHT.format(m["reasoning_content"]) for m in messages if m.get("reasoning_content"))
    text = "\n\n".join(message["content"] for message in messages if message["content"])
    calls = [call["function"] for message in messages for call in message.get("tool_calls", ())]
    if not calls:
        return {"role": "assistant", "content": thoughts + text}
    # LLaMA-Factory looks for <think> and <tool_call> with regular expressions: none may stand inside the calls.
    content = json.dumps(calls, ensure_ascii=False).replace("<", "\\u003c")
    if text:
        content = text + "\n" + CALLS.format(content)
    return {"role": "function_call", "content": thoughts + content}
