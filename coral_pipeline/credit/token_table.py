"""Reading the token table (method C7): each message's tokens and credit, lengths checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from coral_pipeline import tables
from coral_pipeline.credit.tokenizers import Mask, TokenIds
from coral_pipeline.errors import BadInput
from coral_pipeline.message_links import Row

Floats = NDArray[np.float64]

TOKENIZER_KEY = "tokenizer"
"""Key of the Parquet file's metadata under which the tokenizer's name is kept."""

AGAIN = "compute credit again"


@dataclass(frozen=True)
class TokenTable:
    """``tokens.parquet``, its lengths checked. A *place* is a row number."""

    file: Path
    table: pa.Table
    tokenizer: str
    """Name of the tokenizer; empty where the file does not say."""

    @staticmethod
    def read(folder: Path) -> TokenTable:
        """The table in ``folder``.

        Raises ``BadInput`` naming the message where mask, log-probabilities and advantages do not fit its tokens.
        """
        columns = [column.name for column in tables.TOKENS.columns]
        arrow = tables.TOKENS.read(folder).select(columns).combine_chunks()
        file = folder / tables.TOKENS.file_name
        metadata = pq.read_metadata(file).metadata or {}
        table = TokenTable(file, arrow, metadata.get(TOKENIZER_KEY.encode(), b"").decode())
        table._check()
        return table

    @cached_property
    def place_of(self) -> Mapping[str, int]:
        """Row number by message id."""
        return {message_id: place for place, message_id in enumerate(self.table.column("message_id").to_pylist())}

    def places(self, rows: Iterable[Row]) -> list[int]:
        """Row numbers of messages; ``BadInput`` where one is not in the table."""
        places = []
        for row in rows:
            if row["message_id"] not in self.place_of:
                raise BadInput(self.file, f"lacks message {row['message_id']} of the tree", AGAIN)
            places.append(self.place_of[row["message_id"]])
        return places

    def token_ids(self, place: int) -> TokenIds:
        """The tokens the message adds."""
        return np.asarray(self._list("token_ids", place))

    def mask(self, place: int) -> Mask:
        """Parallel to ``token_ids``: which were sampled."""
        return np.asarray(self._list("mask", place))

    def logprobs(self, place: int) -> Floats | None:
        """One per true mask entry; None where none were recorded."""
        return self._floats("logprobs", place)

    def advantages(self, place: int) -> Floats | None:
        """One per true mask entry; None where unassigned."""
        return self._floats("advantages", place)

    def _list(self, name: str, place: int) -> NDArray[Any] | None:
        value = self.table.column(name)[place]
        return np.asarray(value.values.to_numpy(zero_copy_only=False)) if value.is_valid else None

    def _floats(self, name: str, place: int) -> Floats | None:
        values = self._list(name, place)
        return None if values is None else values.astype(np.float64, copy=False)

    def _check(self) -> None:
        for name in ("message_id", "token_ids", "mask"):
            if self.table.column(name).null_count:
                raise BadInput(self.file, f"{name} has nulls", AGAIN)
        for place in range(self.table.num_rows):
            message = f"{self.file}, message {self.table.column('message_id')[place]}"
            tokens, mask = len(self.token_ids(place)), self.mask(place)
            if len(mask) != tokens:
                raise BadInput(message, f"has {tokens} tokens but {len(mask)} mask entries", AGAIN)
            sampled = int(mask.sum())
            for name in ("logprobs", "advantages"):
                values = self._floats(name, place)
                if values is not None and len(values) != sampled:
                    raise BadInput(message, f"has {sampled} sampled tokens but {len(values)} {name}", AGAIN)
                if values is not None and not np.isfinite(values).all():
                    raise BadInput(message, f"has {name} that are not finite", AGAIN)
