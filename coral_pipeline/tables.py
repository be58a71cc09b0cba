"""Every Parquet table of the pipeline, declared once: columns, types, units, meaning.

These schemas are the contract between the stages and for anyone who reads the files without this
package. Nothing else may write or check a column. Descriptions are stored in the files themselves
(field metadata ``description``) and shown in the Dagster UI.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from coral_pipeline.errors import BadInput

STRING, INT, FLOAT, BOOL = pa.string(), pa.int64(), pa.float64(), pa.bool_()
JSON_LIST = pa.list_(pa.json_())
"""JSON texts; ``datasets`` (4.7 on) reads them as objects, each with just the keys it has."""

CONTENT_PART = pa.struct(
    [
        pa.field("type", STRING, nullable=False),
        pa.field("text", STRING),
        pa.field("tool_call_id", STRING),
        pa.field("name", STRING),
        pa.field("arguments", STRING),
        pa.field("is_error", BOOL),
    ]
)
"""One part of a message: ``text`` | ``reasoning`` (text), ``tool_call`` (tool_call_id, name, arguments as a
JSON string), ``tool_result`` (tool_call_id, name, text, is_error)."""


@dataclass(frozen=True)
class Column:
    """One column: name, Arrow type, what it means; ``nullable`` where null is a value with a meaning."""

    name: str
    type: pa.DataType
    description: str
    nullable: bool = False
    joined_later: bool = False
    """Files of earlier versions lack it: it reads as null there."""


def optional(name: str, type: pa.DataType, description: str) -> Column:
    """A nullable column; the description says what null means."""
    return Column(name, type, description, nullable=True)


@dataclass(frozen=True)
class Table:
    """A table of the contract; ``<name>.parquet`` in the folder of its asset and partition."""

    name: str
    description: str
    columns: tuple[Column, ...]

    @property
    def file_name(self) -> str:
        """The file's name inside the folder of its asset and partition."""
        return f"{self.name}.parquet"

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema, descriptions in the fields' metadata."""
        fields = [
            pa.field(c.name, c.type, nullable=c.nullable, metadata={"description": c.description}) for c in self.columns
        ]
        return pa.schema(fields, metadata={"description": self.description})

    def build(self, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
        """Rows (one mapping per row, each with exactly this table's columns) as an Arrow table.

        Raises ``ValueError`` naming table, row and column where a column is missing, unknown, null
        without being nullable, or of another type.
        """
        rows = list(rows)
        names = [c.name for c in self.columns]
        expected = set(names)
        for index, row in enumerate(rows):
            if row.keys() != expected:
                missing, unknown = sorted(expected - row.keys()), sorted(row.keys() - expected)
                raise ValueError(f"table {self.name}, row {index}: missing columns {missing}, unknown {unknown}")
            for column in self.columns:
                if row[column.name] is None and not column.nullable:
                    raise ValueError(f"table {self.name}, row {index}: {column.name} is null")
        arrays = []
        for column in self.columns:
            try:
                stored = pa.list_(STRING) if column.type == JSON_LIST else column.type
                arrays.append(pa.array([row[column.name] for row in rows], type=stored).cast(column.type))
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                raise ValueError(f"table {self.name}, column {column.name}: {error}") from error
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def write(self, rows: Iterable[Mapping[str, Any]] | pa.Table, folder: Path) -> Path:
        """Write the table into ``folder``, whole or not at all; returns the file."""
        table = rows if isinstance(rows, pa.Table) else self.build(rows)
        with self.writer(folder) as writer:
            writer.write_table(table)
        return folder / self.file_name

    @contextlib.contextmanager
    def writer(self, folder: Path, plain: Sequence[str] = ()) -> Iterator[pq.ParquetWriter]:
        """A Parquet writer for tables too large to hold; the file appears only when the block ends well.

        ``plain``: columns not to be dictionary-encoded. Token ids are a third smaller so: packed into an odd
        number of bits, their repeats are hidden from zstd.
        """
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / self.file_name
        leaves = [f"{c.name}.list.element" if pa.types.is_list(c.type) else c.name for c in self.columns]
        encoded: bool | list[str] = [leaf for leaf in leaves if leaf.split(".")[0] not in plain] if plain else True
        with (
            replaced_when_done(target) as partial,
            pq.ParquetWriter(partial, self.schema, compression="zstd", use_dictionary=encoded) as writer,
        ):
            yield writer

    def read(self, folder: Path, only: Collection[str] | None = None, filters: Any = None) -> pa.Table:
        """The table from ``folder``, its columns checked against the contract (more columns may be there).

        ``only``: read these columns alone; ``filters``: these rows, as ``pyarrow.parquet.read_table`` takes it. Raises
        ``BadInput`` where the file is missing, is not Parquet, or lacks a column or its type.
        """
        columns = [column for column in self.columns if only is None or column.name in only]
        with self._file(folder) as path:
            names = None if only is None else sorted({*only}.intersection(pq.read_schema(path).names))
            table = pq.read_table(path, columns=names, filters=filters)
        for column in columns:
            if column.name not in table.column_names and column.joined_later:
                table = table.append_column(column.name, pa.nulls(len(table), column.type))
            if column.name not in table.column_names:
                raise BadInput(path, f"lacks the column {column.name}", "make it again with this version")
            found = table.schema.field(column.name).type
            if not found.equals(column.type):
                try:
                    index = table.column_names.index(column.name)
                    table = table.set_column(index, column.name, table.column(column.name).cast(column.type))
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                    raise BadInput(
                        path, f"column {column.name} is {found}, expected {column.type}", "make it again"
                    ) from error
        return table

    def batches(self, folder: Path, rows: int) -> Iterator[pa.RecordBatch]:
        """The table as it lies in ``folder``, whatever its columns are, at most so many rows at a time.

        Raises ``BadInput`` where the file is missing or is not Parquet.
        """
        with self._file(folder) as path, pq.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=rows)

    @contextlib.contextmanager
    def _file(self, folder: Path) -> Iterator[Path]:
        """The file, which is read in the block."""
        path = folder / self.file_name
        if not path.is_file():
            raise BadInput(path, "no such table", f"make it first: it is part of {self.description}")
        try:
            yield path
        except (pa.ArrowException, OSError) as error:
            raise BadInput(path, f"cannot be read as Parquet ({error})", "make it again") from error

    def rows(self, folder: Path) -> list[dict[str, Any]]:
        """The table from ``folder`` as one dict per row, with plain Python values."""
        rows: list[dict[str, Any]] = self.read(folder).select([c.name for c in self.columns]).to_pylist()
        return rows


@contextlib.contextmanager
def replaced_when_done(target: Path) -> Iterator[Path]:
    """A path to write instead of ``target``; it takes target's place, flushed to disk, when the block ends well."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        yield partial
        with partial.open("rb+") as written:
            os.fsync(written.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def remove_partial(folder: Path) -> None:
    """Remove what killed processes left half-written in ``folder``, where nobody may be writing now."""
    for partial in folder.glob(".*.partial"):
        partial.unlink()


@contextlib.contextmanager
def text_file(target: Path) -> Iterator[TextIO]:
    """A UTF-8 text file to write; it appears only when the block ends well."""
    with replaced_when_done(target) as partial, partial.open("w", encoding="utf-8") as file:
        yield file
        file.flush()


SNAPSHOT = Column("snapshot", STRING, "Snapshot folder name, eval-<global index>-<agent id>-<12 hex>")
GLOBAL_INDEX = Column("global_index", INT, "Order in which the run's snapshots were kept, over all agents")
AGENT_ID = Column("agent_id", STRING, "CORAL agent that made the attempt")
COMMIT_HASH = Column("commit_hash", STRING, "Commit of the attempt, as metadata.json gives it")
ELIGIBLE = Column("eligible", BOOL, "May become a root: eval_ok is true and the score is numeric (method S4)")
SCORE = optional("score", FLOAT, "Raw score of the attempt, in the task's own direction; null: no numeric score")
STAGE = Column("stage", STRING, "early | middle | late (method S8)")
EVAL_OK = Column("eval_ok", BOOL, "metadata.json's eval_ok is exactly true; any other value reads as false (method S4)")

FILTERED_SNAPSHOTS = Table(
    "filtered_snapshots",
    "filtered_snapshots: the snapshots of a Student run that were kept, by global_index (method S1–S6)",
    (
        SNAPSHOT,
        GLOBAL_INDEX,
        AGENT_ID,
        COMMIT_HASH,
        EVAL_OK,
        optional("eval_count", INT, "metadata.json's eval_count: evals so far; null: absent"),
        SCORE,
        optional("status", STRING, "Status of the attempt (improved, regressed, crashed, …); null: no attempt file"),
        optional("feedback", STRING, "Feedback of the grader; null: none"),
        ELIGIBLE,
        Column("metadata_sha256", STRING, "SHA-256 of metadata.json, in hex"),
        optional("attempt_sha256", STRING, "SHA-256 of the attempt record used, in hex; null: none was"),
    ),
)
REJECTED_SNAPSHOTS = Table(
    "rejected_snapshots",
    "filtered_snapshots: the folders that are no usable snapshot, each with its reason (method S2)",
    (
        Column("snapshot", STRING, "Name of the entry under all_snapshots"),
        Column("reason", STRING, "name | folder | metadata | pending: which of them could not be used (method S2)"),
        Column("detail", STRING, "What was found, in one line"),
    ),
)
IMPORT_REPORT = Table(
    "import_report",
    "Student run: what import-run made of each attempt of the CORAL run, in run order; unusable records last",
    (
        Column("attempt", STRING, "File name of the attempt's record in the CORAL run"),
        optional("snapshot", STRING, "Folder name of the snapshot; null: the record names none"),
        optional("commit_hash", STRING, "Commit of the attempt; null: the record names none"),
        Column("outcome", STRING, "imported | rejected"),
        optional("reason", STRING, "record | objects | names: rejected; checkpoint | left_out: imported, but differs"),
        optional("detail", STRING, "What was found, in one line; null: imported as it was"),
    ),
)
STAGE_LABELS = Table(
    "stage_labels",
    "stage_labels: smoothed score and stage of each kept snapshot, in run order (method S5–S8)",
    (
        SNAPSHOT,
        GLOBAL_INDEX,
        AGENT_ID,
        EVAL_OK,
        ELIGIBLE,
        SCORE,
        Column("score_for_stage", FLOAT, "Own score, else the nearest earlier, else the nearest later one (S5)"),
        Column("oriented_score", FLOAT, "score_for_stage turned so that higher is better (S7)"),
        Column("smooth_score", FLOAT, "Centred moving average of oriented_score (S7)"),
        optional("gain", FLOAT, "c_i, share of the run's gain reached, in [0, 1]; null: staged by position (S8)"),
        STAGE,
        Column("staged_by", STRING, "gain | position (S8)"),
    ),
)
SELECTED_ROOTS = Table(
    "selected_roots",
    "selected_roots: the snapshots chosen as roots, in run order; their copied folders lie beside it (method S9–S12)",
    (
        Column("root", STRING, "Snapshot folder name of the root"),
        Column("student_run", STRING, "Folder name of the Student run"),
        GLOBAL_INDEX,
        AGENT_ID,
        COMMIT_HASH,
        Column("score", FLOAT, "Raw score of the root's attempt"),
        STAGE,
        Column("selection_reason", STRING, "quota | backfill (method S11)"),
    ),
)

EDGE_ID = Column("edge_id", INT, "Edge, counted from 0 in the order in which results were applied (method T12)")
TURN = Column("turn", INT, "Rollout Turn of the edge, 1 or 2")
STEP_TURNS = Column("step_turns", INT, "Model calls (assistant steps)")
TOOL_CALLS = Column("tool_calls", INT, "Tool calls made")
FAILED_TOOL_CALLS = Column("failed_tool_calls", INT, "Tool calls the runtime itself reported as errors (method T2)")
CODE_DIFF = Column(
    "code_diff",
    STRING,
    "Unified diff of the graded commit against the code the turn began with (turn 1: the parent node's), cut "
    "where it says so; null: no commit, or the Teacher told none",
    nullable=True,
    joined_later=True,
)
KEPT_BY = optional("kept_by", STRING, "fallback | exemption: failed but kept (method T4); null: passed or pruned")

NODES = Table(
    "nodes",
    "explored_trees: the nodes of a root's tree, root first (method T1–T14)",
    (
        Column("node_id", INT, "Node, counted from 0 (the root) in the order of T12"),
        optional("parent_id", INT, "Parent node; null: the root"),
        Column("depth", INT, "Logical edges from the root"),
        optional("score", FLOAT, "Raw score, best of the edge's two turns; null: a kept child without one"),
        Column("path_best_score", FLOAT, "Best raw score on the path from the root to here (T10)"),
        Column("max_token_total", INT, "Context tokens of the session at the end of the edge; 0 at the root"),
        Column("valid_children", INT, "Children in the tree"),
        Column("failed_expansions", INT, "Edges out of this node that failed and made no child"),
        optional("leaf_kind", STRING, "token_limit | depth_limit | exhausted | open (T14); null: has children"),
        KEPT_BY,
        optional("commit_hash", STRING, "Commit of the code state; null: the teacher makes no commits"),
        optional("session_id", STRING, "Agent session that ends here; null: none"),
    ),
)
EDGES = Table(
    "edges",
    "explored_trees: the logical edges of a root's tree, valid, kept and failed",
    (
        EDGE_ID,
        Column("parent_id", INT, "Node the edge was forked from"),
        optional("child_id", INT, "Node it made; null: failed"),
        Column("depth", INT, "Depth of the node it makes"),
        Column("round", INT, "Round in which it was dispatched, from 1"),
        Column("expansion", INT, "Ordinal of this fork among all forks taken from the parent, from 0"),
        optional("failure_reason", STRING, "no_score | tool_errors (T3); null: passed"),
        KEPT_BY,
        optional("best_score", FLOAT, "Better of the two turns' raw scores; null: neither has one"),
        Column("improved", BOOL, "best_score beats the parent's score (T6)"),
        STEP_TURNS,
        TOOL_CALLS,
        FAILED_TOOL_CALLS,
        Column("tool_error_rate", FLOAT, "failed_tool_calls / tool_calls; 0 without calls"),
        Column("max_token_total", INT, "Context tokens of the session when the edge ended"),
        Column("has_knowledge_action", BOOL, "Both turns read or wrote shared knowledge (T8)"),
        Column("regressed_rate", FLOAT, "Share of the two turns that regressed (T7); a turn not run counts as one"),
        optional("outcome", FLOAT, "Outcome part of soft; null: the edge made no child"),
        optional("cleanliness", FLOAT, "Cleanliness part of soft; null: the edge made no child"),
        optional("knowledge", FLOAT, "Knowledge part of soft; null: the edge made no child"),
        optional("soft", FLOAT, "Soft verifier score (T9); null: the edge made no child"),
        Column("seconds", FLOAT, "Wall-clock seconds of its turns"),
    ),
)
TURNS = Table(
    "turns",
    "explored_trees: the Rollout Turns of every edge",
    (
        EDGE_ID,
        TURN,
        optional("score", FLOAT, "Raw score the grader gave; null: no numeric score"),
        optional("status", STRING, "Status of the attempt; null: no eval was made"),
        optional("commit_hash", STRING, "Commit that was graded; null: none"),
        optional("feedback", STRING, "Feedback of the grader; null: none"),
        CODE_DIFF,
        STEP_TURNS,
        TOOL_CALLS,
        FAILED_TOOL_CALLS,
        Column("knowledge_read", BOOL, "Shared knowledge was read (T8)"),
        Column("knowledge_write", BOOL, "Shared knowledge was written (T8)"),
        Column("context_tokens", INT, "Context tokens of the session at the end of the turn"),
        Column("seconds", FLOAT, "Wall-clock seconds"),
    ),
)
ROUNDS = Table(
    "rounds",
    "explored_trees: every selection, one row per active candidate and round (method T10–T12)",
    (
        Column("round", INT, "Round, from 1"),
        Column("node_id", INT, "Candidate node"),
        Column("score_rank", FLOAT, "Percentile rank of the node's score in the tree; 0 without score"),
        Column("best_rank", FLOAT, "Percentile rank of the path's best score in the tree"),
        Column("process", FLOAT, "Mean soft over the path's edges"),
        Column("q", FLOAT, "Q(n): weighted sum of score_rank, best_rank and process"),
        Column("t", FLOAT, "T(n): percentile rank of the token count among the candidates, fewer is better"),
        Column("select", FLOAT, "Q(n) + alpha * T(n): the highest are expanded (T12)"),
        Column("expansions", INT, "Forks dispatched from the node in this round, second tries of round 1 included"),
    ),
)
MESSAGE_ID = Column("message_id", STRING, "Message, unique in the tree and the same in every run of it")
PARENT_MESSAGE_ID = optional("parent_message_id", STRING, "Message before it in the session; null: the first")
MESSAGES = Table(
    "messages",
    "explored_trees: every message of every session, each once; forks share their parent's",
    (
        MESSAGE_ID,
        PARENT_MESSAGE_ID,
        EDGE_ID,
        TURN,
        Column("role", STRING, "system | user | assistant | tool"),
        Column("content", pa.list_(CONTENT_PART), "Typed parts: text, reasoning, tool_call, tool_result"),
        Column("sampled", BOOL, "The Teacher's model (or agent) produced it"),
        optional("input_tokens", INT, "Prompt tokens of the model call; null: not a model call, or not reported"),
        optional("output_tokens", INT, "Tokens sampled in the model call; null likewise"),
        optional("sampled_token_ids", pa.list_(pa.int32()), "Token ids recorded at the model endpoint; null: none"),
        optional("sampled_logprobs", pa.list_(FLOAT), "Log-probabilities of those tokens; null: none recorded"),
        optional("created_ms", INT, "Unix time in milliseconds at which it began; null: unknown"),
        optional("completed_ms", INT, "Unix time in milliseconds at which it was complete; null: unknown"),
    ),
)

RANKED_PATHS = Table(
    "ranked_paths",
    "ranked_paths: every root-to-leaf path of a tree, candidates by rank first (method P1–P3)",
    (
        Column("leaf_id", INT, "Leaf node the path ends in"),
        Column("node_ids", pa.list_(INT), "Nodes on the path, root first"),
        Column("edge_ids", pa.list_(INT), "Edges on the path, from the root down"),
        Column("candidate", BOOL, "Takes part in the ranking (P1)"),
        optional("excluded_reason", STRING, "open_leaf | missing_score; null: a candidate"),
        optional("avg_cleanliness", FLOAT, "Mean cleanliness of the edges; null: not a candidate"),
        optional("avg_knowledge", FLOAT, "Mean knowledge of the edges; null: not a candidate"),
        optional("avg_score", FLOAT, "Mean raw score of the non-root nodes; null: not a candidate"),
        optional("avg_score_rank", FLOAT, "Percentile rank of avg_score among the candidates; null likewise"),
        optional("max_score", FLOAT, "Best raw score of the non-root nodes (P2); null: not a candidate"),
        optional("max_score_rank", FLOAT, "Percentile rank of max_score among the candidates; null likewise"),
        optional(
            "PathScore",
            FLOAT,
            "Weighted sum of the two ranks, avg_cleanliness and avg_knowledge (seed 3.3); null: not a candidate",
        ),
        optional("rank", INT, "Place among the candidates, from 1 (P3); null: not a candidate"),
        Column("selected", BOOL, "Among the best top_k"),
    ),
)

CREDIT_EDGES = Table(
    "edges",
    "advantage_batches: reward and advantage of every searched edge (method C1–C4)",
    (
        EDGE_ID,
        Column("parent_id", INT, "Parent node"),
        Column("child_id", INT, "Child node"),
        Column("estimator", STRING, "Name of the estimator that gave the advantage"),
        Column("reward", FLOAT, "R: gain in score rank over the parent node, and soft, both weighted (C1)"),
        Column("duration", INT, "d: model calls (step turns) of the edge, by which later values are discounted"),
        optional("advantage", FLOAT, "Actor coefficient; null: unassigned, which is not zero (C4)"),
        Column("diagnostics", pa.map_(STRING, FLOAT), "Numbers the estimator attached; never part of the loss"),
    ),
)
CRITIC_TARGETS = Table(
    "critic_targets",
    "advantage_batches: values of every node of a tree and the critic's targets (method C2)",
    (
        Column("node_id", INT, "Node (checkpoint)"),
        optional("prior", FLOAT, "V_phi, what the value model predicts; 0 at a good leaf; null: no prediction"),
        optional(
            "target", FLOAT, "Critic target, mean backup of the direct branches; null: none, or one lacks a prior"
        ),
        optional(
            "refined",
            FLOAT,
            "Prior and target weighted by how many branches there are; null: needs a prior that is not there",
        ),
        Column("direct_branches", INT, "n: children of the node"),
    ),
)
TOKENS = Table(
    "tokens",
    "advantage_batches: the tokens each message adds, each message once (method C7)",
    (
        MESSAGE_ID,
        PARENT_MESSAGE_ID,
        Column("token_ids", pa.list_(pa.int32()), "Tokens this message adds to the sequence of its path"),
        Column("mask", pa.list_(BOOL), "Parallel to token_ids: true where the Teacher sampled the token"),
        optional("logprobs", pa.list_(FLOAT), "One per true mask entry; null: none were recorded"),
        optional("advantages", pa.list_(FLOAT), "One per true mask entry; null: unassigned, which is not zero"),
        Column("token_source", STRING, "sampled: recorded at the endpoint | rendered: from a tokenizer"),
    ),
)

STUDENT_RUN = Column("student_run", STRING, "Folder name of the Student run")
ROOT = Column("root", STRING, "Snapshot folder name of the root")
ROOT_STAGE = Column("stage", STRING, "early | middle | late (method S8) | unknown")
PATH_IDENTITY = (
    STUDENT_RUN,
    ROOT,
    ROOT_STAGE,
    Column("leaf_id", INT, "Leaf node the path ends in"),
    Column("rank", INT, "Place among the root's candidate paths, from 1 (P3); earlier branches have a lower rank"),
    Column("PathScore", FLOAT, "Weighted sum of the two ranks, avg_cleanliness and avg_knowledge (seed 3.3)"),
)
SFT_SAMPLES = Table(
    "sft",
    "sft_dataset: one sample per selected path, best first within a root, as OpenAI chat messages",
    (
        Column("messages", JSON_LIST, "OpenAI chat messages as JSON, each with a weight: 1 to train on, 0 not to"),
        Column("tools", STRING, "Tools as a JSON array of OpenAI function definitions"),
        *PATH_IDENTITY,
        Column("avg_cleanliness", FLOAT, "Mean cleanliness of the edges"),
        Column("avg_knowledge", FLOAT, "Mean knowledge of the edges"),
        Column("avg_score", FLOAT, "Mean raw score of the non-root nodes"),
        Column("avg_score_rank", FLOAT, "Percentile rank of avg_score among the root's candidates"),
        Column("max_score", FLOAT, "Best raw score of the non-root nodes"),
        Column("max_score_rank", FLOAT, "Percentile rank of max_score among the root's candidates"),
        Column("node_ids", pa.list_(INT), "Nodes on the path, root first"),
        Column("edge_ids", pa.list_(INT), "Edges on the path, from the root down"),
        Column("message_ids", pa.list_(STRING), "Parallel to messages: message of messages.parquet it was made from"),
        Column("shared_messages", INT, "Leading messages that an earlier sample of the root already carries"),
    ),
)
BRANCHES = Table(
    "branches",
    "sft_dataset: one flat token stream per selected path, best first within a root",
    (
        *PATH_IDENTITY,
        Column("tokenizer", STRING, "Tokenizer whose ids input_ids are; empty: tokens.parquet does not say"),
        Column("edge_ids", pa.list_(INT), "Edges on the path, from the root down"),
        Column("message_ids", pa.list_(STRING), "Messages of messages.parquet on the path"),
        Column("message_lengths", pa.list_(INT), "Parallel to message_ids: tokens each adds"),
        Column("input_ids", pa.list_(pa.int32()), "Tokens of the path"),
        Column("labels", pa.list_(pa.int32()), "input_ids where to train; -100 where unsampled or in shared_tokens"),
        Column("mask", pa.list_(BOOL), "Parallel to input_ids: true where the Teacher sampled the token"),
        optional(
            "advantages", pa.list_(FLOAT), "Parallel to input_ids, 0 where unsampled or unassigned; null: all are"
        ),
        optional("logprobs", pa.list_(FLOAT), "Parallel to input_ids, null where none was recorded; null: all are"),
        Column("shared_tokens", INT, "Leading tokens that an earlier branch of the root already carries"),
    ),
)

TABLES: dict[str, tuple[Table, ...]] = {
    "filtered_snapshots": (FILTERED_SNAPSHOTS, REJECTED_SNAPSHOTS),
    "stage_labels": (STAGE_LABELS,),
    "selected_roots": (SELECTED_ROOTS,),
    "explored_trees": (NODES, EDGES, TURNS, ROUNDS, MESSAGES),
    "ranked_paths": (RANKED_PATHS,),
    "advantage_batches": (CREDIT_EDGES, CRITIC_TARGETS, TOKENS),
    "sft_dataset": (SFT_SAMPLES, BRANCHES),
}
"""The tables of each asset."""
PER_ROOT = ("explored_trees", "ranked_paths", "advantage_batches")
"""Assets of a root, each made from the ones before it; the first from the root's copied folder."""
