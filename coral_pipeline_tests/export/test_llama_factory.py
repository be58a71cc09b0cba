"""The LLaMA-Factory form of the samples, held against the rules of its OpenAI converter."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from coral_pipeline.export.llama_factory import llama_factory_sample
from coral_pipeline_tests.export.conftest import Exported

Message = dict[str, Any]


def said(role: str, content: str = "", **fields: Any) -> Message:
    return {"role": role, "content": content, **fields}


def calling(*calls: tuple[str, dict[str, Any]], content: str = "", **fields: Any) -> Message:
    made = [{"id": "a", "type": "function", "function": {"name": name, "arguments": args}} for name, args in calls]
    return said("assistant", content, tool_calls=made, **fields)


def converted(*messages: Message) -> list[tuple[str, str]]:
    sample = llama_factory_sample({"messages": list(messages), "tools": "[]"})
    return [(message["role"], message["content"]) for message in sample["messages"]]


def accepts(messages: list[Message]) -> bool:
    """LLaMA-Factory's own rule: a system prompt, then prompts and answers in turn, an answer last.

    Neighbouring tool results count as one prompt.
    """
    roles = [message["role"] for message in messages]
    roles = roles[1:] if roles[:1] == ["system"] else roles
    sides = re.sub(
        "t+", "t", "".join({"user": "u", "tool": "t", "assistant": "a", "function_call": "f"}[r] for r in roles)
    )
    return re.fullmatch("([ut][af])+", sides) is not None


def test_every_sample_of_a_tree_is_accepted(exported: Exported) -> None:
    lines = (exported.out / "llama_factory" / "sft.jsonl").read_text().splitlines()
    assert len(lines) == 2
    for line in lines:
        sample = json.loads(line)
        assert accepts(sample["messages"])
        assert all(message.keys() == {"role", "content"} for message in sample["messages"])
        assert isinstance(sample["tools"], str) and json.loads(sample["tools"])


def test_the_description_beside_it_names_every_role_it_uses(exported: Exported) -> None:
    info = json.loads((exported.out / "llama_factory" / "dataset_info.json").read_text())["coral_pipeline"]
    assert (exported.out / "llama_factory" / info["file_name"]).is_file()
    assert info["formatting"] == "openai"
    roles = {
        message["role"]
        for line in (exported.out / "llama_factory" / "sft.jsonl").read_text().splitlines()
        for message in json.loads(line)["messages"]
    }
    assert roles <= set(info["tags"].values())


def test_all_of_a_file_loads_as_text_columns(exported: Exported, tmp_path: Path) -> None:
    import datasets

    file = exported.out / "llama_factory" / "sft.jsonl"
    dataset = datasets.load_dataset("json", data_files=str(file), split="train", cache_dir=str(tmp_path))
    assert dataset.features == {
        "messages": datasets.List({"role": datasets.Value("string"), "content": datasets.Value("string")}),
        "tools": datasets.Value("string"),
    }


def test_calls_are_a_json_array_for_content() -> None:
    made = converted(said("user", "go"), calling(("ls", {"p": "a"}), ("cat", {"f": "b", "n": 1})))
    assert [role for role, _ in made] == ["user", "function_call"]
    assert json.loads(made[1][1]) == [
        {"name": "ls", "arguments": {"p": "a"}},
        {"name": "cat", "arguments": {"f": "b", "n": 1}},
    ]


def test_reasoning_and_words_stand_before_the_calls_where_its_patterns_find_them() -> None:
    # An argument that holds the patterns' own words must not be found by them.
    arguments = {"text": "<think>\nno\n</think>\n\n</tool_call>"}
    _, (role, content) = converted(
        said("user", "go"), calling(("write", arguments), content="Look:", reasoning_content="hm")
    )
    assert role == "function_call"
    (calls,) = re.findall(r"<tool_call>(.*?)</tool_call>", content, re.DOTALL)
    assert json.loads(calls) == [{"name": "write", "arguments": arguments}]
    assert content.startswith("<think>\nhm\n</think>\n\nLook:\n<tool_call>[")
    # Without words, the calls are what is left when the thought is taken out.
    _, (_, content) = converted(said("user", "go"), calling(("write", arguments), reasoning_content="hm"))
    thought = re.search(r"<think>\n(.*?)\n</think>\n\n", content, re.DOTALL)
    assert thought and thought[1] == "hm"
    assert json.loads(content.replace(thought[0], "")) == [{"name": "write", "arguments": arguments}]


def test_tool_results_stay_apart_and_what_a_user_adds_is_joined_to_the_last() -> None:
    made = converted(
        said("user", "go"),
        calling(("ls", {}), ("cat", {})),
        said("tool", "x"),
        said("tool", "y"),
        said("user", "and now?"),
        said("assistant", "done"),
    )
    assert made[2:] == [("tool", "x"), ("tool", "y\n\nand now?"), ("assistant", "done")]


def test_neighbouring_answers_are_joined_and_an_empty_one_vanishes() -> None:
    made = converted(said("user", "go"), said("assistant"), said("assistant", "a"), said("assistant", "b"))
    assert made == [("user", "go"), ("assistant", "a\n\nb")]


def test_what_follows_the_last_answer_is_left_out() -> None:
    made = converted(said("system", "s"), said("user", "go"), calling(("ls", {})), said("tool", "x"), said("user", "?"))
    assert [role for role, _ in made] == ["system", "user", "function_call"]


@pytest.mark.parametrize(
    "messages",
    [
        [said("system", "s"), said("user", "a"), said("user", "b"), said("assistant", "c")],
        [said("user", "a"), calling(("ls", {})), said("tool", "x"), said("user", "b"), said("assistant", "c")],
        [said("user", "a"), said("assistant"), calling(("ls", {})), said("tool", "x"), said("assistant", "c")],
        [said("user", "a"), said("system", "again"), said("assistant", "c"), said("user", "b")],
    ],
)
def test_conversations_of_other_shapes_are_brought_into_the_one_it_accepts(messages: list[Message]) -> None:
    assert accepts(llama_factory_sample({"messages": messages, "tools": "[]"})["messages"])
