"""The byte tokenizer: its layout, worked by hand, and what must hold for any conversation."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coral_pipeline.credit.tokenizers import SPECIAL_TOKENS, ByteTokenizer, load_tokenizer
from coral_pipeline.errors import BadInput
from coral_pipeline_tests.transcripts import Row, call, message, part, result, text, thought

BYTE = ByteTokenizer()

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
parts = {
    "user": st.lists(words.map(text), max_size=3),
    "assistant": st.lists(
        st.one_of(words.map(text), words.map(thought), st.builds(call, words, words.filter(bool), words)), max_size=3
    ),
    "tool": st.lists(st.builds(result, words, words, words, st.booleans()), min_size=1, max_size=2),
}


@st.composite
def conversations(draw: st.DrawFn) -> list[Row]:
    roles = draw(st.lists(st.sampled_from(sorted(parts)), min_size=1, max_size=6))
    return [
        message(str(i), str(i - 1) if i else None, 0, role, *draw(parts[role]), sampled=role == "assistant")
        for i, role in enumerate(roles)
    ]


def test_the_layout_of_a_prompt() -> None:
    # <|user|> is 257, <|text|> 260, <|end|> 266; "é" is C3 A9.
    (rendered,) = BYTE.render([message("m", None, 0, "user", text("é!"))])
    assert rendered.token_ids.tolist() == [257, 260, 0xC3, 0xA9, 0x21, 266]
    assert not rendered.mask.any()


def test_the_layout_of_a_sampled_tool_call() -> None:
    # Only <|assistant|> is scaffold; the model says everything after it, the end included.
    row = message("m", None, 0, "assistant", thought("T"), call("id", "ls", '{"a": 1}'))
    (rendered,) = BYTE.render([row])
    assert rendered.token_ids.tolist() == [258, 261, ord("T"), 262, *b"ls", 263, *b'{"a": 1}', 266]
    assert rendered.mask.tolist() == [False] + [True] * 15


def test_the_output_of_a_call_that_failed_is_told_from_one_that_did_not() -> None:
    row = message("m", None, 0, "tool", result("a", "ls", "x"), result("b", "ls", "y", is_error=True))
    (rendered,) = BYTE.render([row])
    assert BYTE.decode(rendered.token_ids) == "<|tool|><|tool_result|>x<|tool_error|>y<|end|>"


def test_an_empty_message_is_its_scaffold() -> None:
    (rendered,) = BYTE.render([message("m", None, 0, "assistant")])
    assert BYTE.decode(rendered.token_ids) == "<|assistant|><|end|>"
    assert rendered.mask.tolist() == [False, True]


def test_an_assistant_message_nobody_sampled_is_not_trained() -> None:
    (rendered,) = BYTE.render([message("m", None, 0, "assistant", text("hi"), sampled=False)])
    assert not rendered.mask.any()


def test_text_that_looks_like_a_special_token_stays_bytes() -> None:
    (rendered,) = BYTE.render([message("m", None, 0, "user", text("<|end|>"))])
    assert rendered.token_ids.tolist() == [257, 260, *b"<|end|>", 266]


def test_a_large_message_is_rendered_whole() -> None:
    (rendered,) = BYTE.render([message("m", None, 0, "user", text("é" * 1_000_000))])
    assert len(rendered.token_ids) == 2_000_003


@settings(max_examples=60)
@given(conversations())
def test_the_bytes_of_every_part_can_be_read_back(path: list[Row]) -> None:
    for row, rendered in zip(path, BYTE.render(path), strict=True):
        runs = np.split(rendered.token_ids, np.flatnonzero(rendered.token_ids >= 256))[1:]
        found = [(SPECIAL_TOKENS[run[0] - 256], run[1:].astype(np.uint8).tobytes().decode()) for run in runs]
        assert found == [(f"<|{row['role']}|>", ""), *expected(row), ("<|end|>", "")]


def expected(row: Row) -> list[tuple[str, str]]:
    pairs = []
    for each in row["content"]:
        if each["type"] == "tool_call":
            pairs += [("<|tool_call|>", each["name"]), ("<|arguments|>", each["arguments"])]
        else:
            kind = "tool_error" if each["is_error"] else each["type"]
            pairs.append((f"<|{kind}|>", each["text"]))
    return pairs


@settings(max_examples=40)
@given(conversations(), st.integers(0, 6))
def test_what_follows_a_message_does_not_change_its_tokens(path: list[Row], upto: int) -> None:
    whole, start = BYTE.render(path), BYTE.render(path[:upto])
    assert all(a.same(b) for a, b in zip(whole[:upto], start, strict=True))


@settings(max_examples=40)
@given(conversations())
def test_only_what_the_teacher_sampled_is_in_the_mask(path: list[Row]) -> None:
    for row, rendered in zip(path, BYTE.render(path), strict=True):
        assert rendered.mask.any() == row["sampled"]
        assert not rendered.mask[0]


@pytest.mark.parametrize("wrong", [-1, BYTE.vocab_size])
def test_ids_of_another_tokenizer_are_not_decoded(wrong: int) -> None:
    with pytest.raises(ValueError, match="not ids of the byte tokenizer"):
        BYTE.decode([65, wrong])


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    assert BYTE.decode([0x41, 0xFF, 266]) == "A�<|end|>"
    assert BYTE.decode([]) == ""


@pytest.mark.parametrize("spec", ["", " "])
def test_an_empty_name_is_refused(spec: str) -> None:
    with pytest.raises(BadInput, match=re.escape("the name is empty")):
        load_tokenizer(spec)


def test_byte_is_the_name_of_this_one() -> None:
    assert isinstance(load_tokenizer("byte"), ByteTokenizer)


def test_missing_text_is_no_text() -> None:
    row: dict[str, Any] = message("m", None, 0, "user", part("text"))
    (rendered,) = BYTE.render([row])
    assert BYTE.decode(rendered.token_ids) == "<|user|><|text|><|end|>"
