"""The token table: what each message adds to the sequence of its path, and the credit it carries (method C7)."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coral_pipeline import tables
from coral_pipeline.conversations import Conversations
from coral_pipeline.credit.message_graph import write_trace
from coral_pipeline.credit.token_table import TOKENIZER_KEY, Floats, TokenTable
from coral_pipeline.credit.tokenizers import BYTE, Rendered, Tokenizer, load_tokenizer
from coral_pipeline.errors import BadInput
from coral_pipeline.message_links import Row

logger = logging.getLogger(__name__)

SAMPLED, RENDERED = "sampled", "rendered"
"""``token_source``: recorded at the model endpoint, or made by a tokenizer."""

MESSAGES_PER_GROUP = 4096
"""Messages held as Arrow arrays at a time, and in one row group of the file."""


@dataclass(frozen=True)
class TokenSummary:
    """What ``write_tokens`` wrote."""

    messages: int
    tokens: int
    sampled_tokens: int
    """Tokens that carry credit, or would: the true entries of the masks."""
    recorded_messages: int
    """Messages whose ids were recorded at the model endpoint."""
    unknown_ids: int
    """Recorded ids the tokenizer does not have: not 0 means it is not the model's."""


@dataclass(frozen=True)
class MessageTokens:
    """The tokens one message adds, and where they come from."""

    rendered: Rendered
    logprobs: Floats | None
    """One per true mask entry; None: none were recorded."""
    source: str


def write_tokens(
    tree_dir: Path, advantages: Mapping[int, float | None], out: Path, tokenizer: str = BYTE
) -> TokenSummary:
    """Write ``tokens.parquet`` and the same graph as a verifiers trace (``traces.jsonl``) into ``out``.

    ``advantages``: by edge id, exactly the edges that made a child; None is unassigned, which is not 0.
    A message the Teacher sampled carries its edge's advantage on each sampled token. Messages of failed
    edges are in the table too, unassigned (C1: they are no searched edges), but not in the trace.
    Raises ``BadInput``.
    """
    conversations = Conversations.read(tree_dir)
    _check_advantages(conversations, advantages)
    summary = _write_table(conversations, advantages, out, load_tokenizer(tokenizer))
    write_trace(conversations, TokenTable.read(out), conversations.leaf_paths(), out)
    return summary


def _check_advantages(conversations: Conversations, advantages: Mapping[int, float | None]) -> None:
    wrong = sorted(conversations.searched ^ advantages.keys())
    if wrong:
        problem = "has no advantage" if wrong[0] in conversations.searched else "has an advantage but made no child"
        raise BadInput(f"{conversations.folder}, edge {wrong[0]}", problem, "give one (or None) per searched edge")
    for edge_id, advantage in advantages.items():
        if advantage is not None and not math.isfinite(advantage):
            raise BadInput(f"{conversations.folder}, edge {edge_id}", f"advantage {advantage}", "give finite numbers")


def _write_table(
    conversations: Conversations, advantages: Mapping[int, float | None], out: Path, tokenizer: Tokenizer
) -> TokenSummary:
    tokens = tokens_of_messages(conversations, tokenizer)
    unknown = 0
    with tables.TOKENS.writer(out, plain=["token_ids"]) as writer:
        for start in range(0, len(tokens), MESSAGES_PER_GROUP):
            group = slice(start, start + MESSAGES_PER_GROUP)
            writer.write_table(_arrow(conversations.rows[group], tokens[group], advantages))
        writer.add_key_value_metadata({TOKENIZER_KEY: tokenizer.name})
    for row, message in zip(conversations.rows, tokens, strict=True):
        if message.source == SAMPLED:
            ids = np.asarray(row["sampled_token_ids"])
            unknown += int((ids >= tokenizer.vocab_size).sum())
    if unknown:
        logger.warning(
            "%s: %d recorded token ids are not ids of the tokenizer %s; give the one of the model that sampled them",
            conversations.folder,
            unknown,
            tokenizer.name,
        )
    return TokenSummary(
        messages=len(tokens),
        tokens=sum(len(message.rendered.token_ids) for message in tokens),
        sampled_tokens=sum(int(message.rendered.mask.sum()) for message in tokens),
        recorded_messages=sum(message.source == SAMPLED for message in tokens),
        unknown_ids=unknown,
    )


def tokens_of_messages(conversations: Conversations, tokenizer: Tokenizer) -> list[MessageTokens]:
    """The tokens of every message, in the order of the table.

    Paths are rendered whole; a message that gets other tokens on one path than on another is refused,
    since it is stored once.
    """
    rendered: list[Rendered | None] = [None] * len(conversations.rows)
    for edge_ids in _rendered_paths(conversations):
        path = conversations.path(edge_ids)
        made = tokenizer.render([conversations.rows[p] for p in path], conversations.tools)
        for position, message in zip(path, made, strict=True):
            known = rendered[position]
            if known is not None and not known.same(message):
                thing = f"{conversations.folder}, message {conversations.rows[position]['message_id']}"
                problem = f"the template of {tokenizer.name} renders it differently from path to path"
                raise BadInput(thing, problem, "use a tokenizer whose template leaves earlier messages as they are")
            rendered[position] = message
    return [
        _with_recorded(conversations.folder, row, message, tokenizer.stop_ids)
        for row, message in zip(conversations.rows, rendered, strict=True)
        if message is not None
    ]


def _rendered_paths(conversations: Conversations) -> Iterator[tuple[int, ...]]:
    """Paths that together hold every message: those of the edges no edge with messages continues."""
    speaking = {edge_id for edge_id, positions in conversations.of_edge.items() if positions}
    continued = {edge for edge_id in speaking for edge in conversations.edge_paths[edge_id][:-1]}
    # Depth first: a path has most in common with the one before it.
    yield from sorted(conversations.edge_paths[edge_id] for edge_id in speaking - continued)


def _with_recorded(folder: Path, row: Row, rendered: Rendered, stop_ids: frozenset[int]) -> MessageTokens:
    """The recorded ids in place of the rendered part a model samples; the scaffold around it stays as rendered.

    Where the recorded ids do not end with a stop token (cut off, or recorded without it) and the rendering
    does, that token is kept as scaffold, so that the message ends.
    """
    ids, logprobs = row["sampled_token_ids"], row["sampled_logprobs"]
    thing = f"{folder / tables.MESSAGES.file_name}, message {row['message_id']}"
    if ids is None:
        if logprobs is not None:
            raise BadInput(thing, "has log-probabilities but no token ids", "record both")
        return MessageTokens(rendered, None, RENDERED)
    if not row["sampled"]:
        raise BadInput(thing, "has recorded token ids but was not sampled", "record ids of sampled messages only")
    if any(token_id is None or token_id < 0 for token_id in ids):
        raise BadInput(thing, "has a token id that is none or negative", "record ids of 0 and up")
    if logprobs is not None and len(logprobs) != len(ids):
        raise BadInput(thing, f"has {len(ids)} token ids but {len(logprobs)} log-probabilities", "record one per token")
    if logprobs is not None and any(value is None or not math.isfinite(value) for value in logprobs):
        raise BadInput(thing, "has a log-probability that is not finite", "record finite numbers")
    places = np.flatnonzero(rendered.mask)
    first, after = (int(places[0]), int(places[-1]) + 1) if places.size else (len(rendered.mask), len(rendered.mask))
    if places.size and int(rendered.token_ids[after - 1]) in stop_ids and not (ids and ids[-1] in stop_ids):
        after -= 1
    recorded = np.array(ids, dtype=np.int32)
    token_ids = np.concatenate([rendered.token_ids[:first], recorded, rendered.token_ids[after:]])
    mask = np.zeros(len(token_ids), dtype=np.bool_)
    mask[first : first + len(recorded)] = True
    return MessageTokens(Rendered(token_ids, mask), None if logprobs is None else np.array(logprobs), SAMPLED)


def _arrow(rows: Sequence[Row], tokens: Sequence[MessageTokens], advantages: Mapping[int, float | None]) -> pa.Table:
    credit: list[Floats | None] = []
    for row, message in zip(rows, tokens, strict=True):
        advantage = advantages.get(row["edge_id"]) if row["sampled"] else None
        credit.append(None if advantage is None else np.full(int(message.rendered.mask.sum()), advantage))
    columns = {
        "message_id": pa.array([row["message_id"] for row in rows]),
        "parent_message_id": pa.array([row["parent_message_id"] for row in rows], pa.string()),
        "token_ids": _lists([message.rendered.token_ids for message in tokens], pa.int32()),
        "mask": _lists([message.rendered.mask for message in tokens], pa.bool_()),
        "logprobs": _lists([message.logprobs for message in tokens], pa.float64()),
        "advantages": _lists(credit, pa.float64()),
        "token_source": pa.array([message.source for message in tokens]),
    }
    return pa.Table.from_arrays([columns[c.name] for c in tables.TOKENS.columns], schema=tables.TOKENS.schema)


def _lists(arrays: Sequence[NDArray[Any] | None], type: pa.DataType) -> pa.ListArray:
    """One list per array, null where there is none; the values are not copied one by one."""
    lengths = [0 if array is None else len(array) for array in arrays]
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    present = [array for array in arrays if array is not None and len(array)]
    values = pa.array(np.concatenate(present), type) if present else pa.array([], type)
    null = pa.array([array is None for array in arrays], pa.bool_())
    return pa.ListArray.from_arrays(offsets, values, mask=null)
