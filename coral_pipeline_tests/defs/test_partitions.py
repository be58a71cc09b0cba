"""Partition keys: what may be one."""

from __future__ import annotations

import pytest

from coral_pipeline.defs.partitions import MAX_KEY_LENGTH, RootKey, student_run_key
from coral_pipeline.errors import BadInput

UNUSABLE = ["", ".", "..", ".hidden", "-x", "a b", "a/b", "a|b", "a,b", "a[0]", "a...b/c", "ä", "a\n", "a:b"]


def test_a_root_key_is_run_and_root_and_is_read_back() -> None:
    key = RootKey("tour", "eval-000015-agent-2-3b50950be166")
    assert str(key) == "tour|eval-000015-agent-2-3b50950be166"
    assert RootKey.parse(str(key)) == key


@pytest.mark.parametrize("name", UNUSABLE)
def test_names_that_dagster_would_trip_over_are_refused_with_a_mend(name: str) -> None:
    with pytest.raises(BadInput, match="use letters, digits"):
        student_run_key(name)
    with pytest.raises(BadInput, match="use letters, digits"):
        RootKey("tour", name)


@pytest.mark.parametrize("key", ["tour", "tour|a|b", "|a", "tour|"])
def test_a_key_without_exactly_one_separator_names_no_root(key: str) -> None:
    with pytest.raises(BadInput):
        RootKey.parse(key)


def test_the_whole_key_is_bounded_not_its_parts() -> None:
    longest = "a" * (MAX_KEY_LENGTH - len("tour|"))
    assert len(str(RootKey("tour", longest))) == MAX_KEY_LENGTH
    with pytest.raises(BadInput, match="shorten"):
        RootKey("tour", longest + "a")
    with pytest.raises(BadInput, match="shorten"):
        student_run_key("a" * (MAX_KEY_LENGTH + 1))
