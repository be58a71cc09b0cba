"""Tokenizers that say which tokens each message of a conversation adds (method C7).

``byte`` needs no download. Anything else names a Hugging Face tokenizer, see ``coral_pipeline.credit.hub``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from coral_pipeline.errors import BadInput
from coral_pipeline.message_links import Row

TokenIds = NDArray[np.int32]
Mask = NDArray[np.bool_]

BYTE = "byte"
"""Name of the built-in tokenizer."""


@dataclass(frozen=True)
class Rendered:
    """The tokens a message adds to the sequence of its path."""

    token_ids: TokenIds
    mask: Mask
    """Parallel: True where a model that samples this message would sample the token."""

    def same(self, other: Rendered) -> bool:
        """Whether both have the same tokens and mask."""
        return np.array_equal(self.token_ids, other.token_ids) and np.array_equal(self.mask, other.mask)


class Tokenizer(Protocol):
    """Renders whole conversations."""

    name: str
    vocab_size: int
    """Ids are below this."""
    stop_ids: frozenset[int]
    """Tokens with which a model ends its message."""

    def render(self, path: Sequence[Row], tools: list[Any] | None = None) -> list[Rendered]:
        """The tokens each message of a path adds; one after another they are the rendering of the whole path.

        ``path``: rows of ``tables.MESSAGES`` from the first message on. ``tools``: definitions of the tools
        the model was given, where known. Raises ``BadInput`` for a conversation that cannot be rendered so.
        """

    def decode(self, token_ids: Sequence[int] | TokenIds) -> str:
        """The tokens as text, special tokens by their names."""


SPECIAL_TOKENS = (
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|tool|>",
    "<|text|>",
    "<|reasoning|>",
    "<|tool_call|>",
    "<|arguments|>",
    "<|tool_result|>",
    "<|tool_error|>",
    "<|end|>",
)


class ByteTokenizer:
    r"""Ids 0–255 are the bytes of UTF-8 text, 256 and up ``SPECIAL_TOKENS`` in their order.

    A message is its role's token, its parts, and ``<|end|>``. A part is a token for its type, then bytes:

    - ``<|text|>`` or ``<|reasoning|>`` and the text;
    - ``<|tool_call|>``, the tool's name, ``<|arguments|>``, the arguments as the Teacher wrote them;
    - ``<|tool_result|>``, or ``<|tool_error|>`` where the call itself failed, and the output.

    No message depends on another, so every template question has one answer. Of a sampled message all but
    the role's token is sampled. Tool call ids and tool definitions are not rendered.
    """

    name = BYTE
    vocab_size = 256 + len(SPECIAL_TOKENS)
    ids: Mapping[str, int] = {token: 256 + index for index, token in enumerate(SPECIAL_TOKENS)}
    stop_ids = frozenset({ids["<|end|>"]})

    def render(self, path: Sequence[Row], tools: list[Any] | None = None) -> list[Rendered]:
        """See ``Tokenizer.render``."""
        return [self._message(row) for row in path]

    def decode(self, token_ids: Sequence[int] | TokenIds) -> str:
        """See ``Tokenizer.decode``. Bytes that are not UTF-8 are shown as U+FFFD."""
        ids = np.asarray(token_ids, dtype=np.int64)
        if ids.size and (ids.min() < 0 or ids.max() >= self.vocab_size):
            raise ValueError(f"not ids of the {self.name} tokenizer: {ids.min()}–{ids.max()}")
        text = []
        for run in np.split(ids, np.flatnonzero(np.diff(ids >= 256)) + 1):
            if run.size and run[0] >= 256:
                text += [SPECIAL_TOKENS[index - 256] for index in run]
            else:
                text.append(run.astype(np.uint8).tobytes().decode(errors="replace"))
        return "".join(text)

    def _message(self, row: Row) -> Rendered:
        pieces: list[TokenIds] = [self._special(row["role"])]
        for part in row["content"] or ():
            pieces += self._part(part)
        pieces.append(self._special("end"))
        token_ids = np.concatenate(pieces)
        mask = np.full(len(token_ids), bool(row["sampled"]))
        mask[0] = False
        return Rendered(token_ids, mask)

    def _part(self, part: Mapping[str, Any]) -> list[TokenIds]:
        if part["type"] == "tool_call":
            name, arguments = self._bytes(part["name"]), self._bytes(part["arguments"])
            return [self._special("tool_call"), name, self._special("arguments"), arguments]
        kind = "tool_error" if part["type"] == "tool_result" and part["is_error"] else part["type"]
        return [self._special(kind), self._bytes(part["text"])]

    def _special(self, name: str) -> TokenIds:
        return np.array([self.ids[f"<|{name}|>"]], dtype=np.int32)

    @staticmethod
    def _bytes(text: str | None) -> TokenIds:
        return np.frombuffer((text or "").encode(), dtype=np.uint8).astype(np.int32)


def name_of(spec: str) -> str:
    """What is written of a tokenizer: of a folder its own name, not where it lies on this machine; else ``spec``."""
    name, at, renderer = spec.partition("@")
    return f"{Path(name).resolve().name}{at}{renderer}" if Path(name).is_dir() else spec


def load_tokenizer(spec: str) -> Tokenizer:
    """The tokenizer of that name: ``byte``, or a Hugging Face directory or name, perhaps with ``@RENDERER``.

    Raises ``BadInput`` where there is none.
    """
    if spec == BYTE:
        return ByteTokenizer()
    if not spec.strip():
        raise BadInput("tokenizer", "the name is empty", f"name {BYTE} or a Hugging Face tokenizer")
    from coral_pipeline.credit.hub import load_template_tokenizer

    return load_template_tokenizer(spec)
