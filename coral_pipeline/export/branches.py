"""Flat token streams: one per selected path, with labels, mask and advantages side by side, for trainers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from coral_pipeline.conversations import Conversations, TreePath, shared_prefixes
from coral_pipeline.credit.token_table import Floats, TokenTable
from coral_pipeline.credit.tokenizers import Mask
from coral_pipeline.export.sft import path_identity

IGNORED = -100
"""Label of a token that is not trained, as PyTorch's cross entropy has it."""


def branch_rows(
    conversations: Conversations, tokens: TokenTable, paths: Sequence[TreePath], stage: str | None = None
) -> Iterator[dict[str, Any]]:
    """The streams of one root, best path first: rows of ``tables.BRANCHES``.

    A path on which there is nothing to train that an earlier one does not carry makes none.
    """
    routes = [conversations.path(path.edge_ids) for path in paths]
    for path, route, shared in zip(paths, routes, shared_prefixes(routes), strict=True):
        rows = [conversations.rows[position] for position in route]
        stream = _stream(tokens, tokens.places(rows), shared) if rows else None
        if stream is not None and (stream["labels"] != IGNORED).any():
            lineage = {"edge_ids": list(path.edge_ids), "message_ids": [row["message_id"] for row in rows]}
            yield path_identity(conversations, path, stage) | {"tokenizer": tokens.tokenizer} | lineage | stream


def _stream(tokens: TokenTable, places: Sequence[int], shared: int) -> dict[str, Any]:
    """The messages at ``places`` one after another; the first ``shared`` of them were in a stream before."""
    lengths = [len(tokens.token_ids(place)) for place in places]
    input_ids = np.concatenate([tokens.token_ids(place) for place in places])
    mask = np.concatenate([tokens.mask(place) for place in places])
    shared_tokens = sum(lengths[:shared])
    trained = mask & (np.arange(len(mask)) >= shared_tokens)
    advantages = _spread(mask, places, tokens, "advantages", 0.0)
    logprobs = _spread(mask, places, tokens, "logprobs", np.nan)
    return {
        "message_lengths": lengths,
        "input_ids": input_ids,
        "labels": np.where(trained, input_ids, IGNORED),
        "mask": mask,
        "advantages": advantages,
        "logprobs": None if logprobs is None else [None if np.isnan(value) else value for value in logprobs.tolist()],
        "shared_tokens": shared_tokens,
    }


def _spread(mask: Mask, places: Sequence[int], tokens: TokenTable, name: str, filler: float) -> Floats | None:
    """A compact column widened to the tokens of the path, ``filler`` elsewhere; None where no message has any."""
    read = tokens.advantages if name == "advantages" else tokens.logprobs
    values = [read(place) for place in places]
    if all(value is None for value in values):
        return None
    compact = [
        np.full(int(tokens.mask(place).sum()), filler) if value is None else value
        for place, value in zip(places, values, strict=True)
    ]
    wide = np.full(len(mask), filler)
    wide[mask] = np.concatenate(compact)
    return wide
