"""The token table: each message once, credit on sampled tokens, recorded ids in place of rendered ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coral_pipeline import tables
from coral_pipeline.conversations import Conversations
from coral_pipeline.credit.token_table import TokenTable
from coral_pipeline.credit.tokenizers import ByteTokenizer
from coral_pipeline.credit.tokens import write_tokens
from coral_pipeline.errors import BadInput
from coral_pipeline_tests.transcripts import (
    ADVANTAGES,
    changed,
    message,
    talking_rows,
    text,
    write_talking_tree,
)
from coral_pipeline_tests.trees import N, write_tree

END = ByteTokenizer.ids["<|end|>"]


@pytest.fixture(scope="module")
def written(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("credit")
    write_tokens(tree, ADVANTAGES, out)
    return out


def rows_of(out: Path) -> dict[str, dict[str, Any]]:
    return {row["message_id"]: row for row in tables.TOKENS.rows(out)}


def test_every_message_of_the_tree_is_in_the_table_once_and_in_the_same_order(tree: Path, written: Path) -> None:
    assert [row["message_id"] for row in tables.TOKENS.rows(written)] == [
        row["message_id"] for row in tables.MESSAGES.rows(tree)
    ]
    assert [row["parent_message_id"] for row in tables.TOKENS.rows(written)] == [
        row["parent_message_id"] for row in tables.MESSAGES.rows(tree)
    ]


def test_the_tokens_of_a_path_are_the_rendering_of_its_whole_conversation(tree: Path, written: Path) -> None:
    conversations, table = Conversations.read(tree), TokenTable.read(written)
    tokenizer = ByteTokenizer()
    for path in conversations.leaf_paths():
        rows = [conversations.rows[position] for position in conversations.path(path.edge_ids)]
        stored = np.concatenate([table.token_ids(place) for place in table.places(rows)])
        whole = np.concatenate([rendered.token_ids for rendered in tokenizer.render(rows)])
        assert stored.tolist() == whole.tolist()


def test_a_sampled_message_carries_its_edges_advantage_on_each_sampled_token_to_the_last_digit(written: Path) -> None:
    for row in rows_of(written).values():
        edge_id = int(row["message_id"][1])
        advantage = ADVANTAGES.get(edge_id)
        if sum(row["mask"]) == 0 or advantage is None:
            assert row["advantages"] is None
        else:
            assert row["advantages"] == [advantage] * sum(row["mask"])


def test_zero_credit_is_zeros_and_unassigned_credit_is_null(written: Path) -> None:
    rows = rows_of(written)
    assert rows["e1.9"]["advantages"] == [0.0] * sum(rows["e1.9"]["mask"])
    assert rows["e3.9"]["advantages"] is None


def test_messages_of_a_failed_edge_are_kept_without_credit(written: Path) -> None:
    rows = rows_of(written)
    assert sum(rows["e5.1"]["mask"]) > 0
    assert rows["e5.1"]["advantages"] is None


def test_rendered_tokens_get_no_log_probabilities(written: Path) -> None:
    for row in tables.TOKENS.rows(written):
        assert (row["token_source"], row["logprobs"]) == ("rendered", None)


def test_prompts_and_tool_results_are_masked_out(written: Path) -> None:
    rows = rows_of(written)
    assert not any(rows["e0.0"]["mask"]) and not any(rows["e0.2"]["mask"])
    assert rows["e0.9"]["mask"] == [False] + [True] * (len(rows["e0.9"]["token_ids"]) - 1)


def test_the_summary_counts_what_was_written(tree: Path, tmp_path: Path) -> None:
    rows = changed(talking_rows(), "e0.9", sampled_token_ids=[70, 71])
    summary = write_tokens(write_talking_tree(tmp_path / "tree", rows), ADVANTAGES, tmp_path / "out")
    stored = tables.TOKENS.rows(tmp_path / "out")
    assert summary.messages == len(stored) == 60
    assert summary.tokens == sum(len(row["token_ids"]) for row in stored)
    assert summary.sampled_tokens == sum(sum(row["mask"]) for row in stored)
    assert (summary.recorded_messages, summary.unknown_ids) == (1, 0)


class TestRecordedIds:
    """``e0.9`` says "Done.": rendered it is <|assistant|> <|text|> D o n e . <|end|>, all but the first sampled."""

    def write(self, tmp_path: Path, **recorded: Any) -> dict[str, Any]:
        tree = write_talking_tree(tmp_path / "tree", changed(talking_rows(), "e0.9", **recorded))
        write_tokens(tree, ADVANTAGES, tmp_path / "out")
        return rows_of(tmp_path / "out")["e0.9"]

    def test_they_stand_in_for_the_rendered_ones_between_the_scaffold(self, tmp_path: Path) -> None:
        row = self.write(tmp_path, sampled_token_ids=[9, 8, END], sampled_logprobs=[-0.5, -1 / 3, 0.0])
        assert row["token_ids"] == [ByteTokenizer.ids["<|assistant|>"], 9, 8, END]
        assert row["mask"] == [False, True, True, True]
        assert row["logprobs"] == [-0.5, -1 / 3, 0.0]
        assert row["advantages"] == [0.1] * 3
        assert row["token_source"] == "sampled"

    def test_a_message_recorded_without_its_end_is_ended_by_an_unsampled_token(self, tmp_path: Path) -> None:
        row = self.write(tmp_path, sampled_token_ids=[9, 8])
        assert row["token_ids"] == [ByteTokenizer.ids["<|assistant|>"], 9, 8, END]
        assert row["mask"] == [False, True, True, False]
        assert row["advantages"] == [0.1, 0.1]
        assert row["logprobs"] is None

    def test_ids_that_are_not_the_tokenizers_are_written_and_warned_about(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        tree = write_talking_tree(tmp_path / "tree", changed(talking_rows(), "e0.9", sampled_token_ids=[151_644, 7]))
        summary = write_tokens(tree, ADVANTAGES, tmp_path / "out")
        assert rows_of(tmp_path / "out")["e0.9"]["token_ids"][1:3] == [151_644, 7]
        assert summary.unknown_ids == 1
        assert "1 recorded token ids are not ids of the tokenizer byte" in caplog.text

    @pytest.mark.parametrize(
        ("recorded", "problem"),
        [
            ({"sampled_token_ids": [1, 2], "sampled_logprobs": [-1.0]}, "2 token ids but 1 log-probabilities"),
            ({"sampled_logprobs": [-1.0]}, "log-probabilities but no token ids"),
            ({"sampled_token_ids": [-1]}, "token id that is none or negative"),
            ({"sampled_token_ids": [1, None]}, "token id that is none or negative"),
            ({"sampled_token_ids": [1], "sampled_logprobs": [None]}, "not finite"),
            ({"sampled_token_ids": [1], "sampled_logprobs": [float("-inf")]}, "not finite"),
            ({"sampled_token_ids": [1], "sampled": False}, "was not sampled"),
        ],
    )
    def test_what_cannot_be_is_refused_and_the_message_named(
        self, tmp_path: Path, recorded: dict[str, Any], problem: str
    ) -> None:
        with pytest.raises(BadInput, match=rf"message e0\.9: .*{problem}"):
            self.write(tmp_path, **recorded)
        assert not (tmp_path / "out" / "tokens.parquet").exists()


@pytest.mark.parametrize(
    ("advantages", "problem"),
    [
        ({**ADVANTAGES, 7: 1.0}, "edge 7: has an advantage but made no child"),
        ({**ADVANTAGES, 5: 1.0}, "edge 5: has an advantage but made no child"),
        ({0: 1.0}, "edge 1: has no advantage"),
        ({**ADVANTAGES, 2: float("nan")}, "edge 2: advantage nan"),
        ({**ADVANTAGES, 2: float("inf")}, "edge 2: advantage inf"),
    ],
)
def test_advantages_that_do_not_fit_the_tree_are_refused(
    tree: Path, tmp_path: Path, advantages: dict[int, float | None], problem: str
) -> None:
    with pytest.raises(BadInput, match=problem):
        write_tokens(tree, advantages, tmp_path)


def test_a_tree_without_transcripts_makes_an_empty_table(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", [N(score=1.0), N(0, 2.0)])
    tables.MESSAGES.write([], tree)
    assert write_tokens(tree, {0: 1.0}, tmp_path / "out").messages == 0
    assert tables.TOKENS.rows(tmp_path / "out") == []


def test_many_messages_are_written_group_by_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coral_pipeline.credit.tokens.MESSAGES_PER_GROUP", 10)
    rows = [message(str(i), str(i - 1) if i else None, 0, "user", text("x")) for i in range(25)]
    tree = write_tree(tmp_path / "tree", [N(score=1.0), N(0, 2.0)])
    tables.MESSAGES.write(rows, tree)
    write_tokens(tree, {0: 1.0}, tmp_path / "out")
    assert pq.ParquetFile(tmp_path / "out" / "tokens.parquet").num_row_groups == 3
    assert [row["message_id"] for row in tables.TOKENS.rows(tmp_path / "out")] == [str(i) for i in range(25)]


class TestReading:
    """``TokenTable.read`` checks what verifiers does not."""

    def tamper(self, written: Path, out: Path, **columns: Any) -> None:
        rows = [row | columns if row["message_id"] == "e0.9" else row for row in tables.TOKENS.rows(written)]
        tables.TOKENS.write(rows, out)

    @pytest.mark.parametrize(
        ("columns", "problem"),
        [
            ({"mask": [True]}, "8 tokens but 1 mask entries"),
            ({"advantages": [0.1] * 6}, "7 sampled tokens but 6 advantages"),
            ({"logprobs": [0.1] * 8}, "7 sampled tokens but 8 logprobs"),
            ({"advantages": [float("nan")] * 7}, "advantages that are not finite"),
        ],
    )
    def test_lengths_that_do_not_fit_are_refused_and_the_message_named(
        self, written: Path, tmp_path: Path, columns: dict[str, Any], problem: str
    ) -> None:
        self.tamper(written, tmp_path, **columns)
        with pytest.raises(BadInput, match=rf"message e0\.9: has {problem}"):
            TokenTable.read(tmp_path)

    def test_the_table_of_another_tree_is_refused(self, written: Path) -> None:
        with pytest.raises(BadInput, match="lacks message of-another-tree"):
            TokenTable.read(written).places([{"message_id": "of-another-tree"}])

    def test_it_knows_its_tokenizer(self, written: Path) -> None:
        assert TokenTable.read(written).tokenizer == "byte"

    def test_a_file_with_nulls_where_none_can_be_is_refused(self, written: Path, tmp_path: Path) -> None:
        table = tables.TOKENS.read(written)
        index = table.column_names.index("mask")
        nulls = pa.nulls(len(table), table.schema.field("mask").type)
        pq.write_table(table.set_column(index, "mask", nulls), tmp_path / "tokens.parquet")
        with pytest.raises(BadInput, match="mask has nulls"):
            TokenTable.read(tmp_path)
