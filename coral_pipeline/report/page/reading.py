"""What a report is made from: the tables of one Student run, as far as they are there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coral_pipeline import tables
from coral_pipeline.errors import BadInput
from coral_pipeline.explored import REMAKE, TREE_FILE
from coral_pipeline.settings import Direction

Row = dict[str, Any]
_MESSAGES_AT_ONCE = 64
_COUNTED_AT_ONCE = 1024


@dataclass(frozen=True)
class Outputs:
    """Where the assets of one Student run lie: ``OUTPUT/<asset>/<student_run>[/<root>]``."""

    output: Path
    student_run: str

    def folder(self, asset: str, root: str | None = None) -> Path:
        """The folder of an asset's partition, there or not."""
        return self.output / asset / self.student_run / (root or "")

    def has(self, table: tables.Table, asset: str, root: str | None = None) -> bool:
        """Whether the table was written."""
        return (self.folder(asset, root) / table.file_name).is_file()


@dataclass(frozen=True)
class RootReading:
    """One chosen root, and what was made from it so far."""

    chosen: Row
    """Its row of ``tables.SELECTED_ROOTS``."""
    folder: Path
    """Of its tree."""
    state: Literal["done", "growing", "waiting"]
    """Of its tree; the tables are empty unless it is done."""
    info: Row
    """``tree.json``."""
    nodes: pa.Table
    edges: pa.Table
    turns: Sequence[Row]
    rounds: Sequence[Row]
    ranked: pa.Table | None
    """``tables.RANKED_PATHS``; None: not made yet."""
    credit: pa.Table | None
    """``tables.CREDIT_EDGES``; None: not made yet."""
    values: Sequence[Row]
    """``tables.CRITIC_TARGETS``."""

    @property
    def name(self) -> str:
        """Snapshot folder name."""
        return str(self.chosen["root"])

    def messages(self) -> Iterator[Row]:
        """The messages, a few at a time in memory; token ids and log-probabilities left out."""
        wanted = [c.name for c in tables.MESSAGES.columns if not c.name.startswith("sampled_")]
        path = self.folder / tables.MESSAGES.file_name
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(_MESSAGES_AT_ONCE, columns=wanted):
                    yield from batch.to_pylist()
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise BadInput(path, f"cannot be read ({error})", REMAKE) from error


@dataclass(frozen=True)
class TokenCounts:
    """Tokens of the flat streams of the dataset."""

    streams: int
    tokens: int
    trained: int
    """Those a label asks for; shared ones count once."""


@dataclass(frozen=True)
class RunReading:
    """A Student run and all that was made of it so far."""

    outputs: Outputs
    direction: Direction
    labels: pa.Table
    snapshots: int
    """Folders seen: kept and rejected."""
    rejected: Sequence[Row]
    selected: pa.Table | None
    """``tables.SELECTED_ROOTS``; None: no roots were chosen yet."""
    roots: Sequence[RootReading]
    """In run order."""
    samples: Sequence[Row] | None
    """The columns of ``tables.SFT_SAMPLES`` that say which path a sample is and how long; None: no dataset yet."""
    streams: TokenCounts | None


def read_run(outputs: Outputs) -> RunReading:
    """Read what is there of the run. Raises ``BadInput`` where there is nothing yet, or a file is damaged."""
    name = outputs.student_run
    if not outputs.has(tables.STAGE_LABELS, "stage_labels"):
        raise BadInput(
            outputs.output,
            f"holds nothing of a Student run {name!r} (no {Path('stage_labels', name, tables.STAGE_LABELS.file_name)})",
            "make it with `coral-pipeline run STUDENT_RUN --out DIR`, or name its output folder with --out",
        )
    labels = tables.STAGE_LABELS.read(outputs.folder("stage_labels"))
    rejected: Sequence[Row] = ()
    if outputs.has(tables.REJECTED_SNAPSHOTS, "filtered_snapshots"):
        rejected = tables.REJECTED_SNAPSHOTS.rows(outputs.folder("filtered_snapshots"))
    selected = None
    if outputs.has(tables.SELECTED_ROOTS, "selected_roots"):
        selected = tables.SELECTED_ROOTS.read(outputs.folder("selected_roots"))
    chosen = [] if selected is None else selected.to_pylist()
    return RunReading(
        outputs=outputs,
        direction=_direction(labels),
        labels=labels,
        snapshots=len(labels) + len(rejected),
        rejected=rejected,
        selected=selected,
        roots=[_read_root(outputs, row) for row in chosen],
        samples=_samples(outputs),
        streams=_streams(outputs),
    )


def _direction(labels: pa.Table) -> Direction:
    """Which scores are better, from the sign they were turned by (method S7)."""
    pairs = zip(labels["score_for_stage"].to_pylist(), labels["oriented_score"].to_pylist(), strict=True)
    return "minimize" if any(score != oriented for score, oriented in pairs) else "maximize"


def _read_root(outputs: Outputs, chosen: Row) -> RootReading:
    root = chosen["root"]
    folder = outputs.folder("explored_trees", root)
    if not (folder / TREE_FILE).is_file():
        state: Literal["growing", "waiting"] = "growing" if folder.is_dir() else "waiting"
        none = {table.name: table.build(()) for table in (tables.NODES, tables.EDGES)}
        return RootReading(chosen, folder, state, {}, none["nodes"], none["edges"], (), (), None, None, ())
    try:
        info = json.loads((folder / TREE_FILE).read_bytes())
    except ValueError as error:
        raise BadInput(folder / TREE_FILE, f"is not JSON ({error})", REMAKE) from error
    ranked = credit = None
    values: Sequence[Row] = ()
    if outputs.has(tables.RANKED_PATHS, "ranked_paths", root):
        ranked = tables.RANKED_PATHS.read(outputs.folder("ranked_paths", root))
    if outputs.has(tables.CREDIT_EDGES, "advantage_batches", root):
        credit = tables.CREDIT_EDGES.read(outputs.folder("advantage_batches", root))
    if outputs.has(tables.CRITIC_TARGETS, "advantage_batches", root):
        values = tables.CRITIC_TARGETS.rows(outputs.folder("advantage_batches", root))
    return RootReading(
        chosen=chosen,
        folder=folder,
        state="done",
        info=info if isinstance(info, dict) else {},
        nodes=tables.NODES.read(folder),
        edges=tables.EDGES.read(folder),
        turns=tables.TURNS.rows(folder),
        rounds=tables.ROUNDS.rows(folder),
        ranked=ranked,
        credit=credit,
        values=values,
    )


def _samples(outputs: Outputs) -> list[Row] | None:
    if not outputs.has(tables.SFT_SAMPLES, "sft_dataset"):
        return None
    path = outputs.folder("sft_dataset") / tables.SFT_SAMPLES.file_name
    try:
        rows: list[Row] = pq.read_table(path, columns=["root", "leaf_id", "message_ids", "shared_messages"]).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise BadInput(path, f"cannot be read ({error})", "make it again") from error
    return rows


def _streams(outputs: Outputs) -> TokenCounts | None:
    """Counted piece by piece: the streams of a large run do not fit into memory."""
    if not outputs.has(tables.BRANCHES, "sft_dataset"):
        return None
    path = outputs.folder("sft_dataset") / tables.BRANCHES.file_name
    streams = tokens = trained = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_COUNTED_AT_ONCE, columns=["labels"]):
                labels = batch.column(0).flatten()
                streams += len(batch)
                tokens += len(labels)
                trained += pc.sum(pc.not_equal(labels, -100)).as_py() or 0
    except (pa.ArrowException, OSError) as error:
        raise BadInput(path, f"cannot be read ({error})", "make it again") from error
    return TokenCounts(streams, tokens, trained)
