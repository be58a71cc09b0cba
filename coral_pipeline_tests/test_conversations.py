"""The messages of a tree as conversations along its edges, and what is no such thing."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coral_pipeline import tables
from coral_pipeline.chat import chat_messages, parse_arguments
from coral_pipeline.conversations import Conversations, shared_prefixes
from coral_pipeline.errors import BadInput
from coral_pipeline_tests.transcripts import (
    call,
    changed,
    message,
    part,
    result,
    talking_rows,
    text,
    thought,
    write_ranked,
    write_talking_tree,
)


def read(tmp_path: Path, rows: list[dict[str, Any]]) -> Conversations:
    return Conversations.read(write_talking_tree(tmp_path, rows))


def test_a_path_is_what_its_edges_added_one_after_another(tmp_path: Path) -> None:
    conversations = read(tmp_path, talking_rows())
    ids = [conversations.rows[position]["message_id"] for position in conversations.path((0, 3))]
    assert ids == [f"e0.{place}" for place in range(10)] + [f"e3.{place}" for place in range(10)]


def test_the_order_of_the_rows_does_not_matter(tmp_path: Path) -> None:
    rows = talking_rows()
    random.Random(5).shuffle(rows)
    conversations = read(tmp_path, rows)
    ids = [conversations.rows[position]["message_id"] for position in conversations.path((1, 4))]
    assert ids == [f"e1.{place}" for place in range(10)] + [f"e4.{place}" for place in range(10)]


def test_every_childless_node_ends_a_path(tmp_path: Path) -> None:
    paths = read(tmp_path, talking_rows()).leaf_paths()
    assert [(path.leaf_id, path.edge_ids) for path in paths] == [(3, (0, 2)), (4, (0, 3)), (5, (1, 4))]


def test_selected_paths_come_best_first_with_their_scores(tmp_path: Path) -> None:
    conversations = read(tmp_path / "tree", talking_rows())
    paths = conversations.selected_paths(write_ranked(conversations.folder, tmp_path / "ranked"))
    assert [(path.leaf_id, path.edge_ids, path.columns["rank"]) for path in paths] == [(4, (0, 3), 1), (3, (0, 2), 2)]


def test_paths_ranked_on_another_tree_are_refused(tmp_path: Path) -> None:
    conversations = read(tmp_path / "tree", talking_rows())
    ranked = write_ranked(conversations.folder, tmp_path / "ranked")
    rows = [row | {"edge_ids": [1, 3]} for row in tables.RANKED_PATHS.rows(ranked)]
    tables.RANKED_PATHS.write(rows, ranked)
    with pytest.raises(BadInput, match=r"leaf 4: its edges \[1, 3\] are no path"):
        conversations.selected_paths(ranked)


def test_messages_two_paths_share_are_the_first_of_both() -> None:
    assert shared_prefixes([[0, 1, 2], [0, 1, 3, 4], [5], [0, 1, 3, 4, 6]]) == [0, 2, 0, 4]


ROWS = talking_rows()


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (changed(ROWS, "e0.3", parent_message_id="gone"), "message e0.3: follows message gone, which is not there"),
        (changed(ROWS, "e0.1", parent_message_id="e0.4"), "message e0.5: follows the same message of its edge as e0.1"),
        (changed(ROWS, "e0.0", parent_message_id="e0.9"), "message e0.0: is linked in a circle"),
        (changed(ROWS, "e0.9", parent_message_id="e0.9"), "message e0.9: is linked in a circle"),
        (changed(ROWS, "e2.0", parent_message_id="e0.8"), "message e2.0: follows e0.8: the first .* must follow e0.9"),
        (changed(ROWS, "e2.0", parent_message_id=None), "message e2.0: follows nothing: the first .* must follow e0.9"),
        (changed(ROWS, "e1.0", parent_message_id="e0.9"), "message e1.0: follows e0.9: the first .* must begin a conv"),
        (changed(ROWS, "e0.3", edge_id=77), "message e0.3: belongs to edge 77, which the tree does not have"),
        ([*ROWS, ROWS[3]], "message e0.3: appears more than once"),
        (changed(ROWS, "e0.3", role="critic"), "message e0.3: has the unknown role 'critic'"),
        (changed(ROWS, "e0.3", content=[part("image")]), "message e0.3: has a part of the unknown type 'image'"),
        (changed(ROWS, "e0.0", content=[call("a", "b", {})]), "message e0.0: tool_call in a message of role user"),
        (changed(ROWS, "e0.3", content=[call("a", "", {})]), "message e0.3: has a tool call without a name"),
        (changed(ROWS, "e0.2", content=[]), "message e0.2: has role tool but no tool_result"),
        (changed(ROWS, "e0.0", sampled=True), "message e0.0: is sampled but its role is user"),
    ],
)
def test_messages_that_are_no_conversation_are_refused_and_one_is_named(
    tmp_path: Path, rows: list[dict[str, Any]], problem: str
) -> None:
    with pytest.raises(BadInput, match=problem):
        read(tmp_path, rows)


def test_an_edge_of_which_nothing_is_told_adds_nothing_and_the_next_goes_on_from_before_it(tmp_path: Path) -> None:
    rows = [row for row in changed(ROWS, "e4.0", parent_message_id=None) if row["edge_id"] not in (1, 3)]
    conversations = read(tmp_path, rows)
    assert conversations.path((0, 3)) == conversations.path((0,)) == list(range(10))
    ids = [conversations.rows[position]["message_id"] for position in conversations.path((1, 4))]
    assert ids == [f"e4.{place}" for place in range(10)]


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    tree = write_talking_tree(tmp_path)
    table = tables.MESSAGES.read(tree)
    broken = pa.array([b"\xff\xfe"] * len(table), pa.binary()).view(pa.string())
    index = table.column_names.index("message_id")
    pq.write_table(table.set_column(index, table.schema.field("message_id"), broken), tree / "messages.parquet")
    with pytest.raises(BadInput, match=r"messages\.parquet: holds text that is not UTF-8"):
        Conversations.read(tree)


class TestChatMessages:
    def test_an_assistant_has_reasoning_and_calls_only_where_it_made_some(self) -> None:
        row = message("m", None, 0, "assistant", text("a"), text("b"))
        assert chat_messages(row) == [{"role": "assistant", "content": "a\nb"}]

    def test_arguments_are_objects(self) -> None:
        row = message("m", None, 0, "assistant", thought("t"), call("id", "ls", '{"a": [1, null]}'))
        function = {"name": "ls", "arguments": {"a": [1, None]}}
        assert chat_messages(row) == [
            {
                "role": "assistant",
                "content": "",
                "reasoning_content": "t",
                "tool_calls": [{"id": "id", "type": "function", "function": function}],
            }
        ]

    def test_arguments_that_are_no_json_object_are_kept_as_text_in_one(self) -> None:
        row = message("m", None, 0, "assistant", call("id", "ls", '{"a": '))
        (made,) = chat_messages(row)
        assert made["tool_calls"][0]["function"]["arguments"] == {"unparsed_arguments": '{"a": '}

    def test_several_results_make_several_messages(self) -> None:
        row = message("m", None, 0, "tool", result("a", "ls", "x"), result("b", "cat", ""))
        assert chat_messages(row) == [
            {"role": "tool", "content": "x", "tool_call_id": "a", "name": "ls"},
            {"role": "tool", "content": "", "tool_call_id": "b", "name": "cat"},
        ]

    @pytest.mark.parametrize("written", ["[1]", "1", '"x"', "{", "NaN", '{"a": NaN}', '{"a": 1e999}', "[" * 100_000])
    def test_what_is_no_json_object_is_not_parsed(self, written: str) -> None:
        assert parse_arguments(written) is None

    @pytest.mark.parametrize("written", ["", None])
    def test_no_arguments_are_an_empty_object(self, written: str | None) -> None:
        assert parse_arguments(written) == {}
