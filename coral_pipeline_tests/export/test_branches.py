"""Flat token streams: input_ids, labels, mask and advantages side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coral_pipeline import tables
from coral_pipeline.conversations import Conversations
from coral_pipeline.credit.token_table import TokenTable
from coral_pipeline.credit.tokens import write_tokens
from coral_pipeline.export.branches import branch_rows
from coral_pipeline_tests.export.conftest import Exported
from coral_pipeline_tests.transcripts import (
    ADVANTAGES,
    changed,
    talking_rows,
    write_ranked,
    write_talking_tree,
)


@pytest.fixture(scope="module")
def rows(exported: Exported) -> list[dict[str, Any]]:
    return tables.BRANCHES.rows(exported.out)


def streams(tmp_path: Path, messages: Any, advantages: dict[int, float | None]) -> list[dict[str, Any]]:
    tree = write_talking_tree(tmp_path / "tree", messages)
    write_tokens(tree, advantages, tmp_path / "credit")
    conversations = Conversations.read(tree)
    paths = conversations.selected_paths(write_ranked(tree, tmp_path / "ranked"))
    return list(branch_rows(conversations, TokenTable.read(tmp_path / "credit"), paths))


def test_there_is_one_stream_per_selected_path_best_first(rows: list[dict[str, Any]]) -> None:
    assert [(row["leaf_id"], row["rank"], row["edge_ids"]) for row in rows] == [(4, 1, [0, 3]), (3, 2, [0, 2])]
    assert {(row["stage"], row["tokenizer"]) for row in rows} == {("middle", "byte")}


def test_all_lists_of_a_stream_have_its_length_and_its_messages_add_up_to_it(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        lengths = {len(row[name]) for name in ("input_ids", "labels", "mask", "advantages")}
        assert lengths == {sum(row["message_lengths"])}
        assert len(row["message_ids"]) == len(row["message_lengths"]) == 20


def test_each_token_is_the_one_its_message_adds(exported: Exported, rows: list[dict[str, Any]]) -> None:
    assert exported.roots.credit is not None
    stored = {row["message_id"]: row for row in tables.TOKENS.rows(exported.roots.credit)}
    for row in rows:
        assert row["input_ids"] == [i for name in row["message_ids"] for i in stored[name]["token_ids"]]
        assert row["mask"] == [m for name in row["message_ids"] for m in stored[name]["mask"]]


def test_a_label_is_the_token_where_sampled_and_not_carried_before(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        for place, (label, token, sampled) in enumerate(zip(row["labels"], row["input_ids"], row["mask"], strict=True)):
            assert label == (token if sampled and place >= row["shared_tokens"] else -100)
    assert [row["shared_tokens"] for row in rows] == [0, sum(rows[0]["message_lengths"][:10])]


def test_over_all_streams_every_sampled_token_of_the_selected_paths_is_trained_once(
    exported: Exported, rows: list[dict[str, Any]]
) -> None:
    assert exported.roots.credit is not None
    on_paths = {name for row in rows for name in row["message_ids"]}
    sampled = sum(
        sum(row["mask"]) for row in tables.TOKENS.rows(exported.roots.credit) if row["message_id"] in on_paths
    )
    assert sum(label != -100 for row in rows for label in row["labels"]) == sampled


def test_advantages_are_the_edges_to_the_last_digit_and_zero_elsewhere(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        edges = np.repeat([int(name[1]) for name in row["message_ids"]], row["message_lengths"]).tolist()
        expected = [(ADVANTAGES[e] or 0.0) if sampled else 0.0 for e, sampled in zip(edges, row["mask"], strict=True)]
        assert row["advantages"] == expected


def test_a_path_without_any_credit_has_no_advantages_and_one_of_zeros_has_zeros(tmp_path: Path) -> None:
    unassigned, zeros = streams(tmp_path, None, {0: None, 1: None, 2: 0.0, 3: None, 4: None})
    assert unassigned["advantages"] is None
    assert set(zeros["advantages"].tolist()) == {0.0}


def test_log_probabilities_stand_where_they_were_recorded_and_nowhere_else(tmp_path: Path) -> None:
    messages = changed(talking_rows(), "e2.9", sampled_token_ids=[1, 2], sampled_logprobs=[-1 / 3, 0.0])
    without, partly = streams(tmp_path, messages, ADVANTAGES)
    assert without["logprobs"] is None
    known = [(i, value) for i, value in enumerate(partly["logprobs"]) if value is not None]
    begin = sum(partly["message_lengths"][:19]) + 1
    assert known == [(begin, -1 / 3), (begin + 1, 0.0)]


def test_a_path_that_adds_nothing_to_an_earlier_one_has_no_stream(tmp_path: Path) -> None:
    rows = streams(tmp_path, [row for row in talking_rows() if row["edge_id"] != 2], ADVANTAGES)
    assert [row["leaf_id"] for row in rows] == [4]


def test_a_tree_without_transcripts_has_no_streams(tmp_path: Path) -> None:
    assert streams(tmp_path, [], ADVANTAGES) == []
