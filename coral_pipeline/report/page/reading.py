"""What a report is made from: the tables of one Student run, as far as they are there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coral_pipeline import provenance, tables
from coral_pipeline.errors import BadInput
from coral_pipeline.export.branches import IGNORED
from coral_pipeline.provenance import MAKE_AGAIN, Input
from coral_pipeline.settings import Direction
from coral_pipeline.storage import SEPARATOR
from coral_pipeline.tree_file import read_tree_info

Row = dict[str, Any]
_AT_ONCE = 64
"""Rows of a large table that are in memory together."""


@dataclass(frozen=True)
class Outputs:
    """Where the assets of one Student run lie: ``OUTPUT/<asset>/<student_run>[/<root>]``."""

    output: Path
    student_run: str

    def folder(self, asset: str, root: str = "") -> Path:
        """The folder of an asset's partition, there or not."""
        return self.output / asset / self.student_run / root

    def has(self, table: tables.Table, asset: str) -> bool:
        """Whether the table was written."""
        return (self.folder(asset) / table.file_name).is_file()

    def is_made(self, asset: str, root: str = "") -> bool:
        """Whether the partition was made, from what is there now: what is left of an earlier tree does not count."""
        made = provenance.read(self.folder(asset, root))
        return made is not None and all(map(self._is_of_now, made.inputs))

    def _is_of_now(self, source: Input) -> bool:
        if source.asset == "student_run":  # lies elsewhere
            return True
        _, _, root = source.partition.partition(SEPARATOR)
        if source.asset == tables.SELECTED_ROOTS.name:
            made = provenance.read(self.folder(source.asset))
            return made is not None and source.version == (made.folders.get(root) if root else made.version)
        made = provenance.read(self.folder(source.asset, root))
        return made is not None and source.version == made.version


@dataclass(frozen=True)
class RootReading:
    """One chosen root, and what was made from it so far."""

    chosen: Row
    """Its row of ``tables.SELECTED_ROOTS``."""
    folder: Path
    """Of its tree."""
    done: bool
    """Whether its tree is finished; the tables are empty unless it is."""
    info: Row
    """``tree.json``."""
    nodes: pa.Table
    edges: pa.Table
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

    def rows(self, table: tables.Table, *columns: str) -> Iterator[Row]:
        """These columns of a large table of the tree, a few rows at a time in memory."""
        for batch in _batches(table, self.folder, *columns):
            yield from batch.to_pylist()


@dataclass(frozen=True)
class DatasetCounts:
    """What there is to train on."""

    samples: int
    """SFT samples."""
    messages: int
    """In them; those that several samples of a root share count once."""
    tokens: int
    """In the token streams."""
    trained_tokens: int
    """Of these, the ones a label asks for; shared ones count once."""


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
    dataset: DatasetCounts | None
    """None: not made yet."""


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
    if outputs.is_made("selected_roots"):
        selected = tables.SELECTED_ROOTS.read(outputs.folder("selected_roots"))
    return RunReading(
        outputs=outputs,
        direction=_direction(labels),
        labels=labels,
        snapshots=len(labels) + len(rejected),
        rejected=rejected,
        selected=selected,
        roots=[] if selected is None else [_read_root(outputs, row) for row in selected.to_pylist()],
        dataset=_read_dataset(outputs.folder("sft_dataset")) if outputs.is_made("sft_dataset") else None,
    )


def _direction(labels: pa.Table) -> Direction:
    """Which scores are better, from the sign they were turned by (method S7)."""
    pairs = zip(labels["score_for_stage"].to_pylist(), labels["oriented_score"].to_pylist(), strict=True)
    return "minimize" if any(score != oriented for score, oriented in pairs) else "maximize"


def _read_root(outputs: Outputs, chosen: Row) -> RootReading:
    root = chosen["root"]
    folder = outputs.folder("explored_trees", root)
    if not outputs.is_made("explored_trees", root):
        none = {table.name: table.build(()) for table in (tables.NODES, tables.EDGES)}
        return RootReading(chosen, folder, False, {}, none["nodes"], none["edges"], (), None, None, ())
    is_ranked, is_credited = (outputs.is_made(asset, root) for asset in ("ranked_paths", "advantage_batches"))
    batch = outputs.folder("advantage_batches", root)
    return RootReading(
        chosen=chosen,
        folder=folder,
        done=True,
        info=read_tree_info(folder, "stop_reason"),
        nodes=tables.NODES.read(folder),
        edges=tables.EDGES.read(folder),
        rounds=tables.ROUNDS.rows(folder),
        ranked=tables.RANKED_PATHS.read(outputs.folder("ranked_paths", root)) if is_ranked else None,
        credit=tables.CREDIT_EDGES.read(batch) if is_credited else None,
        values=tables.CRITIC_TARGETS.rows(batch) if is_credited else (),
    )


def _read_dataset(folder: Path) -> DatasetCounts:
    samples = messages = tokens = trained = 0
    for batch in _batches(tables.SFT_SAMPLES, folder, "message_ids", "shared_messages"):
        samples += len(batch)
        messages += len(batch["message_ids"].flatten()) - pc.sum(batch["shared_messages"]).as_py()
    for batch in _batches(tables.BRANCHES, folder, "labels"):
        labels = batch["labels"].flatten()
        tokens += len(labels)
        trained += pc.sum(pc.not_equal(labels, IGNORED)).as_py() or 0
    return DatasetCounts(samples, messages, tokens, trained)


def _batches(table: tables.Table, folder: Path, *columns: str) -> Iterator[pa.RecordBatch]:
    """A table piece by piece: those of a large run do not fit into memory."""
    path = folder / table.file_name
    try:
        with pq.ParquetFile(path) as file:
            if missing := set(columns) - set(file.schema_arrow.names):
                raise BadInput(path, f"lacks the column {min(missing)}", "make it again with this version")
            yield from file.iter_batches(_AT_ONCE, columns=columns)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise BadInput(path, f"cannot be read ({error})", MAKE_AGAIN) from error
