"""Texts of agents and tools, as they come into the page."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coral_pipeline.report.page.texts import Shown, TextPool, visible


def test_terminal_colours_go_and_other_control_characters_are_seen() -> None:
    assert visible("\x1b[1;31mred\x1b[0m\x00\x07\x1b[2Jend\rover") == "red␀␇␛[2Jend␍over"
    assert visible("one\r\ntwo\tthree\n") == "one\ntwo\tthree\n"


def test_characters_that_turn_the_text_around_are_seen() -> None:
    assert visible("if admin\u202e # nimda ton\u2066") == "if admin⟨U+202E⟩ # nimda ton⟨U+2066⟩"


@pytest.mark.parametrize(
    "code",
    [0xAD, 0x34F, 0x180E, 0x200B, 0x200C, 0x200D, 0x2061, 0x2064, 0x2065, 0x206F, 0xFEFF, 0xE0001, 0xE0041, 0xE007F]
    + [0x115F, 0x1160, 0x3164, 0xFFA0, 0x180B, 0xFE00, 0xE0100, 0x1D173],
    ids=hex,
)
def test_characters_that_are_not_seen_are_seen(code: int) -> None:
    """Tags, joiners, fillers, selectors of variants: a text can be hidden in them."""
    assert visible(f"a{chr(code)}b") == f"a⟨U+{code:04X}⟩b"


def test_of_emoji_the_joined_fall_apart() -> None:
    assert visible("⚠\ufe0f ❤\ufe0e 👩\u200d💻") == "⚠\ufe0f ❤\ufe0e 👩⟨U+200D⟩💻"


@settings(max_examples=200)
@given(st.text())
def test_nothing_unseen_is_left(text: str) -> None:
    shown = visible(text)
    assert {unicodedata.category(c) for c in shown if c not in "\t\n"}.isdisjoint({"Cc", "Cf", "Cs", "Zl", "Zp"})
    assert {unicodedata.bidirectional(c) for c in shown}.isdisjoint(
        {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    )
    assert visible(shown) == shown
    shown.encode()  # can be written


def test_a_text_is_kept_once() -> None:
    pool = TextPool(100)
    assert [pool.put(text) for text in ("a", "b", "a")] == [0, 1, 0]
    assert pool.shown(100) == ["a", "b"]


def test_a_long_text_loses_its_middle_and_says_how_much() -> None:
    """Of 1000 characters 100 are kept: the first 75 and the last 25."""
    pool = TextPool(100)
    pool.put("x" * 500 + "y" * 500)
    assert pool.shown(100) == [("x" * 75, 900, "y" * 25)]


@settings(max_examples=100)
@given(st.text(min_size=101), st.integers(100, 120))
def test_what_is_kept_and_what_is_left_out_add_up(text: str, limit: int) -> None:
    pool = TextPool(limit)
    pool.put(text)
    (kept,) = pool.shown(limit)
    if isinstance(kept, str):
        assert len(text) <= limit and kept == visible(text)
    else:
        head, missing, tail = kept
        assert len(text) > limit and missing == len(text) - limit
        assert visible(text[: limit - limit // 4]) == head and visible(text[-(limit // 4) :]) == tail


@settings(max_examples=100)
@given(st.lists(st.text(min_size=50, max_size=400)), st.integers(100, 300), st.integers(100, 300))
def test_cut_bit_by_bit_texts_come_out_as_cut_at_once(texts: list[str], first: int, then: int) -> None:
    least = min(first, then)

    def shown(pool: TextPool) -> list[Shown]:
        places = [pool.put(text) for text in texts]
        return [pool.shown(least)[place] for place in places]

    assert shown(TextPool(max(first, then))) == shown(TextPool(least))
