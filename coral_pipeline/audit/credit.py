"""What is made of a finished tree: ranked paths and advantage batches (method P1–P3, C1–C7)."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from coral_pipeline import tables
from coral_pipeline.audit.compare import REORDERED, compare_json, compare_lines, compare_tables
from coral_pipeline.audit.findings import Review
from coral_pipeline.conversations import Conversations
from coral_pipeline.credit.batch import DESCRIPTION_FILE, Batch
from coral_pipeline.credit.checkpoints import Checkpoint
from coral_pipeline.credit.message_graph import TRACES_FILE, write_trace
from coral_pipeline.credit.named import estimator_named
from coral_pipeline.credit.preparation import prepare
from coral_pipeline.credit.token_table import TOKENIZER_KEY, TokenTable
from coral_pipeline.credit.tokenizers import BYTE, load_tokenizer, name_of
from coral_pipeline.credit.tokens import tokens_of_messages
from coral_pipeline.credit.value_models import Constant, ValueModel
from coral_pipeline.errors import BadInput
from coral_pipeline.message_links import Row
from coral_pipeline.paths.rank import rank_paths
from coral_pipeline.settings import CreditSettings, PathSettings


def verify_ranked_paths(review: Review, folder: Path, tree: Path, settings: PathSettings) -> None:
    """``ranked_paths`` in ``folder``: every field of every path computed anew, the best ``top_k`` selected."""
    with review.guarded(tables.RANKED_PATHS.file_name):
        found = tables.RANKED_PATHS.read(folder)
        compare_tables(review, tables.RANKED_PATHS, found, rank_paths(tree, settings))
        flags = found.select(["candidate", "selected"]).to_pylist()
        candidates = sum(row["candidate"] for row in flags)
        selected = sum(row["selected"] for row in flags)
        if selected != min(settings.top_k, candidates):
            problem = (
                f"{selected} paths selected, expected {min(settings.top_k, candidates)} of {candidates} candidates"
            )
            review.find(tables.RANKED_PATHS.file_name, f"{problem} (P3)")


class Stored(ValueModel):
    """Predicts what ``critic_targets.parquet`` says was predicted: a critic cannot be asked again."""

    def __init__(self, name: str, by_node: dict[int, float | None]) -> None:
        """``name``: of the model that did predict."""
        self.name = name
        self._by_node = by_node

    def predict(self, checkpoints: Sequence[Checkpoint]) -> list[float | None]:
        """The stored predictions."""
        return [self._by_node.get(checkpoint.node.node_id) for checkpoint in checkpoints]


def verify_credit(review: Review, folder: Path, tree: Path, settings: CreditSettings) -> None:
    """Advantages and critic targets in ``folder``: rewards, values, targets and advantages computed anew (C1–C6).

    Predictions are computed anew where they are a constant, and taken as they are stored otherwise.
    """
    with review.guarded(tables.CREDIT_EDGES.file_name):
        found, targets = tables.CREDIT_EDGES.read(folder), tables.CRITIC_TARGETS.read(folder)
        for row, advantage in enumerate(found["advantage"].to_pylist()):
            if advantage is not None and not np.isfinite(advantage):
                review.find(f"{tables.CREDIT_EDGES.file_name}, row {row}, advantage", f"is {advantage}: not finite")
        batch = _batch_again(tree, targets, settings)
        compare_tables(review, tables.CREDIT_EDGES, found, batch.edge_table(), REORDERED)
        compare_tables(review, tables.CRITIC_TARGETS, targets, batch.critic_table(), REORDERED)
        described = json.loads((folder / DESCRIPTION_FILE).read_bytes())
        compare_json(review, DESCRIPTION_FILE, described, batch.describe(), REORDERED)


def _batch_again(tree: Path, targets: pa.Table, settings: CreditSettings) -> Batch:
    model: ValueModel = Constant.from_settings(settings)
    if settings.value_model != Constant.name:
        by_node = dict(zip(targets["node_id"].to_pylist(), targets["prior"].to_pylist(), strict=True))
        model = Stored(settings.value_model, by_node)
    return prepare(tree, estimator_named(settings.estimator, settings), settings.rewards, model)


def verify_tokens(review: Review, folder: Path, tree: Path, recorded: str, at_hand: str | None) -> None:
    """The tokens in ``folder``: each message's tokens, mask and log-probabilities anew, its edge's advantage on them.

    ``recorded``: name of the tokenizer they were made with; ``at_hand``: a tokenizer, which may be that one.
    A message that the Teacher sampled carries its edge's advantage on every sampled token, in the compact layout;
    all others, and those of edges without an advantage, carry none (C7).
    """
    file = tables.TOKENS.file_name
    with review.guarded(file):
        tokens, conversations = TokenTable.read(folder), Conversations.read(tree)
        if tokens.tokenizer != recorded:
            review.find(f"{file}, {TOKENIZER_KEY}", f"is {tokens.tokenizer!r}, expected {recorded!r}")
        edges = tables.CREDIT_EDGES.read(folder)
        advantages = dict(zip(edges["edge_id"].to_pylist(), edges["advantage"].to_pylist(), strict=True))
        expected: dict[str, pa.Array] = _links(conversations)
        credit = [_credit(row, tokens, advantages) for row in conversations.rows]
        expected["advantages"] = pa.array(credit, pa.list_(pa.float64()))
        expected |= _rendered(review, conversations, recorded, at_hand)
        compare_tables(review, tables.TOKENS, tokens.table, pa.table(expected))


def _links(conversations: Conversations) -> dict[str, pa.Array]:
    names = ("message_id", "parent_message_id")
    return {name: pa.array([row[name] for row in conversations.rows], pa.string()) for name in names}


def _credit(row: Row, tokens: TokenTable, advantages: Mapping[int, float | None]) -> list[float] | None:
    """What the tokens of a message should carry; None as well where the message is not in the table."""
    advantage, place = advantages.get(row["edge_id"]), tokens.place_of.get(row["message_id"])
    if not row["sampled"] or advantage is None or place is None:
        return None
    return [advantage] * int(np.count_nonzero(tokens.mask(place)))


def _rendered(review: Review, conversations: Conversations, recorded: str, at_hand: str | None) -> dict[str, pa.Array]:
    """The columns a tokenizer gives; none where it is not to be had here."""
    try:
        tokenizer = load_tokenizer(_found(recorded, at_hand))
    except BadInput as error:
        review.notes.append(f"token ids were not computed anew: {error}")
        return {}
    made = tokens_of_messages(conversations, tokenizer)
    return {
        "token_ids": pa.array([message.rendered.token_ids for message in made], pa.list_(pa.int32())),
        "mask": pa.array([message.rendered.mask for message in made], pa.list_(pa.bool_())),
        "logprobs": pa.array([message.logprobs for message in made], pa.list_(pa.float64())),
        "token_source": pa.array([message.source for message in made], pa.string()),
    }


def _found(recorded: str, at_hand: str | None) -> str:
    """Where the tokenizer of that name is. Raises ``BadInput`` where that may have been a folder, and is not at hand.

    The hub is asked for ``owner/name`` alone: what else it has by the name of a folder is another tokenizer.
    """
    if at_hand is not None and name_of(at_hand) == recorded:
        return at_hand
    if recorded == BYTE or ("/" in recorded and name_of(recorded) == recorded):
        return recorded
    problem = "may be the name of a folder, which is not known here"
    raise BadInput(f"tokenizer {recorded}", problem, "name it with --tokenizer, or in the settings")


def verify_trace(review: Review, folder: Path, tree: Path) -> None:
    """``traces.jsonl`` in ``folder`` is what messages and tokens give."""
    with review.guarded(TRACES_FILE):
        conversations = Conversations.read(tree)
        with tempfile.TemporaryDirectory() as name:
            write_trace(conversations, TokenTable.read(folder), conversations.leaf_paths(), Path(name))
            compare_lines(review, TRACES_FILE, folder / TRACES_FILE, Path(name) / TRACES_FILE)
