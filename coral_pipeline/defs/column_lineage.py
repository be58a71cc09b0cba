"""From which columns each column of each table is made, declared once, and what Dagster is told of it.

A column of the same name in another table is the same value carried along, unless the column's description says
more. What a row is chosen by counts only in the columns that say so (``stage``, ``selected``, …). Nothing stands for
what comes from outside: the Student run's files, the Teacher's answers, a partition key, an ordinal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import dagster as dg
import pyarrow as pa

from coral_pipeline.tables import TABLES, Table

Source = tuple[str, str, str]
"""Asset, table, column."""
Sources = tuple[Source, ...]


def _columns_of(asset: str, table: str) -> Callable[..., Sources]:
    return lambda *columns: tuple((asset, table, column) for column in columns)


_snapshots = _columns_of("filtered_snapshots", "filtered_snapshots")
_labels = _columns_of("stage_labels", "stage_labels")
_roots = _columns_of("selected_roots", "selected_roots")
_nodes = _columns_of("explored_trees", "nodes")
_edges = _columns_of("explored_trees", "edges")
_turns = _columns_of("explored_trees", "turns")
_rounds = _columns_of("explored_trees", "rounds")
_messages = _columns_of("explored_trees", "messages")
_paths = _columns_of("ranked_paths", "ranked_paths")
_credit = _columns_of("advantage_batches", "edges")
_critic = _columns_of("advantage_batches", "critic_targets")
_tokens = _columns_of("advantage_batches", "tokens")
_OUTSIDE: Sources = ()


def _same(of: Callable[..., Sources], *columns: str) -> dict[str, Sources]:
    """Columns carried along under their own names."""
    return {column: of(column) for column in columns}


def _outside(*columns: str) -> dict[str, Sources]:
    return dict.fromkeys(columns, _OUTSIDE)


_ADVANTAGE = (*_credit("reward", "duration"), *_critic("refined"), *_nodes("parent_id", "leaf_kind"))
"""Of both estimators: DirectBranchTd uses the refined values (C3), Grpo the good leaves (C4)."""
_PATH = {
    "student_run": _roots("student_run"),
    "root": _roots("root"),
    "stage": _roots("stage"),
    **_same(_paths, "leaf_id", "rank", "PathScore"),
}

LINEAGE: Mapping[str, Mapping[str, Mapping[str, Sources]]] = {
    "filtered_snapshots": {
        "filtered_snapshots": {
            **_outside("snapshot", "global_index", "agent_id", "commit_hash", "eval_ok", "eval_count"),
            **_outside("score", "status", "feedback", "metadata_sha256", "attempt_sha256"),
            "eligible": _snapshots("eval_ok", "score"),
        },
        "rejected_snapshots": _outside("snapshot", "reason", "detail"),
    },
    "stage_labels": {
        "stage_labels": {
            **_same(_snapshots, "snapshot", "global_index", "agent_id", "eval_ok", "eligible", "score"),
            "score_for_stage": _snapshots("score", "global_index", "agent_id", "commit_hash"),
            "oriented_score": _labels("score_for_stage"),
            "smooth_score": _labels("oriented_score"),
            "gain": _labels("smooth_score"),
            "stage": _labels("gain", "global_index"),
            "staged_by": _labels("smooth_score"),
        }
    },
    "selected_roots": {
        "selected_roots": {
            "root": _labels("snapshot", "stage", "eligible"),
            "student_run": _OUTSIDE,
            **_same(_labels, "global_index", "agent_id", "score", "stage"),
            "commit_hash": _snapshots("commit_hash"),
            "selection_reason": _labels("stage", "eligible"),
        }
    },
    "explored_trees": {
        "nodes": {
            "node_id": _OUTSIDE,
            "parent_id": _nodes("node_id"),
            "depth": _nodes("parent_id"),
            "score": (*_roots("score"), *_edges("best_score")),
            "path_best_score": _nodes("score", "parent_id"),
            "max_token_total": _edges("max_token_total"),
            "valid_children": _nodes("parent_id"),
            "failed_expansions": _edges("parent_id", "child_id"),
            "leaf_kind": _nodes("max_token_total", "depth", "valid_children", "failed_expansions"),
            "kept_by": _edges("kept_by"),
            "commit_hash": (*_roots("commit_hash"), *_turns("commit_hash")),
            "session_id": _OUTSIDE,
        },
        "edges": {
            **_outside("edge_id", "expansion"),
            "parent_id": _nodes("node_id"),
            "child_id": _nodes("node_id"),
            "depth": _nodes("depth"),
            "round": _rounds("round"),
            "failure_reason": (*_turns("score"), *_edges("tool_error_rate")),
            "kept_by": _edges("failure_reason", "depth", "expansion"),
            "best_score": _turns("score"),
            "improved": (*_edges("best_score"), *_nodes("score")),
            **_same(_turns, "step_turns", "tool_calls", "failed_tool_calls"),
            "tool_error_rate": _edges("failed_tool_calls", "tool_calls"),
            "max_token_total": _turns("context_tokens"),
            "has_knowledge_action": _turns("knowledge_read", "knowledge_write"),
            "regressed_rate": (*_turns("score"), *_nodes("path_best_score")),
            "outcome": (*_edges("improved", "best_score"), *_nodes("score")),
            "cleanliness": _edges("tool_error_rate"),
            "knowledge": _edges("improved", "has_knowledge_action"),
            "soft": _edges("outcome", "cleanliness", "knowledge", "regressed_rate"),
            "seconds": _turns("seconds"),
        },
        "turns": {
            "edge_id": _edges("edge_id"),
            **_outside("turn", "score", "status", "commit_hash", "feedback", "code_diff", "step_turns"),
            **_outside("tool_calls", "failed_tool_calls", "knowledge_read", "knowledge_write"),
            **_outside("context_tokens", "seconds"),
        },
        "rounds": {
            "round": _OUTSIDE,
            "node_id": _nodes("node_id"),
            "score_rank": _nodes("score"),
            "best_rank": _nodes("path_best_score"),
            "process": _edges("soft"),
            "q": _rounds("score_rank", "best_rank", "process"),
            "t": _nodes("max_token_total"),
            "select": _rounds("q", "t"),
            "expansions": _edges("parent_id", "round"),
        },
        "messages": {
            **_outside("message_id", "parent_message_id", "role", "content", "sampled", "input_tokens"),
            **_outside("output_tokens", "sampled_token_ids", "sampled_logprobs", "created_ms", "completed_ms"),
            "edge_id": _edges("edge_id"),
            "turn": _turns("turn"),
        },
    },
    "ranked_paths": {
        "ranked_paths": {
            "leaf_id": _nodes("node_id", "leaf_kind"),
            "node_ids": _nodes("node_id", "parent_id"),
            "edge_ids": _edges("edge_id", "child_id"),
            "candidate": _nodes("leaf_kind", "score"),
            "excluded_reason": _nodes("leaf_kind", "score"),
            "avg_cleanliness": _edges("cleanliness"),
            "avg_knowledge": _edges("knowledge"),
            "avg_score": _nodes("score"),
            "avg_score_rank": _paths("avg_score", "candidate"),
            "max_score": _nodes("score"),
            "max_score_rank": _paths("max_score", "candidate"),
            "PathScore": _paths("max_score_rank", "avg_score_rank", "avg_cleanliness", "avg_knowledge"),
            "rank": _paths("PathScore", "max_score", "avg_cleanliness", "leaf_id"),
            "selected": _paths("rank"),
        }
    },
    "advantage_batches": {
        "edges": {
            **_same(_edges, "edge_id", "parent_id", "child_id"),
            "estimator": _OUTSIDE,
            "reward": (*_nodes("score", "parent_id"), *_edges("soft")),
            "duration": _edges("step_turns"),
            "advantage": _ADVANTAGE,
            "diagnostics": _ADVANTAGE,
        },
        "critic_targets": {
            "node_id": _nodes("node_id"),
            "prior": (*_nodes("leaf_kind"), *_messages("role", "content")),
            "target": (*_credit("reward", "duration"), *_critic("prior")),
            "refined": _critic("prior", "target", "direct_branches"),
            "direct_branches": _nodes("valid_children"),
        },
        "tokens": {
            **_same(_messages, "message_id", "parent_message_id"),
            "token_ids": _messages("role", "content", "sampled_token_ids"),
            "mask": _messages("sampled", "sampled_token_ids"),
            "logprobs": _messages("sampled_logprobs"),
            "advantages": (*_credit("advantage"), *_messages("edge_id")),
            "token_source": _messages("sampled_token_ids"),
        },
    },
    "sft_dataset": {
        "sft": {
            "messages": (*_messages("role", "content", "sampled"), *_paths("edge_ids")),
            "tools": _messages("content"),
            **_PATH,
            **_same(_paths, "avg_cleanliness", "avg_knowledge", "avg_score", "avg_score_rank"),
            **_same(_paths, "max_score", "max_score_rank", "node_ids", "edge_ids"),
            "message_ids": _messages("message_id", "parent_message_id"),
            "shared_messages": (*_messages("message_id"), *_paths("rank")),
        },
        "branches": {
            **_PATH,
            "tokenizer": _tokens("token_source"),
            "edge_ids": _paths("edge_ids"),
            "message_ids": _tokens("message_id", "parent_message_id"),
            "message_lengths": _tokens("token_ids"),
            "input_ids": _tokens("token_ids"),
            "labels": (*_tokens("token_ids", "mask"), *_paths("rank")),
            "mask": _tokens("mask"),
            "advantages": _tokens("advantages"),
            "logprobs": _tokens("logprobs"),
            "shared_tokens": (*_tokens("message_id", "token_ids"), *_paths("rank")),
        },
    },
}
"""By asset, table and column."""


def shown_name(asset: str, table: str, column: str) -> str:
    """A column's name in Dagster, which knows one list of columns per asset: with the table's where there are more."""
    return column if len(TABLES[asset]) == 1 else f"{table}.{column}"


def upstream(asset: str, table: str, column: str) -> Sources:
    """The columns of other assets that a column is made from, through the columns of its own asset between them."""
    found: dict[Source, None] = {}
    seen: set[Source] = set()

    def follow(sources: Sources) -> None:
        for source in sources:
            if source[0] != asset:
                found[source] = None
            elif source not in seen:
                seen.add(source)
                follow(LINEAGE[asset][source[1]][source[2]])

    follow(LINEAGE[asset][table][column])
    return tuple(found)


def column_lineage(asset: str) -> dg.TableColumnLineage:
    """What Dagster is told of an asset's columns."""
    return dg.TableColumnLineage(
        {
            shown_name(asset, table, column): [
                dg.TableColumnDep(dg.AssetKey(before), shown_name(before, its_table, its_column))
                for before, its_table, its_column in upstream(asset, table, column)
            ]
            for table, columns in LINEAGE[asset].items()
            for column in columns
        }
    )


def column_schema(asset: str) -> dg.TableSchema:
    """The columns of all tables of an asset, each told with what it is made from."""
    return dg.TableSchema([column for table in TABLES[asset] for column in _schema_columns(asset, table)])


def described_with_tables(spec: dg.AssetSpec) -> str:
    """An asset's description, and the tables it is stored in."""
    tables = TABLES[spec.key.to_user_string()]
    told = (f"- `{table.file_name}`: {table.description.partition(': ')[2]}" for table in tables)
    return "\n".join((spec.description or "", "", *told))


def _schema_columns(asset: str, table: Table) -> Iterator[dg.TableColumn]:
    for column in table.columns:
        sources = LINEAGE[asset][table.name][column.name]
        made_from = ", ".join(f"`{_told_in(asset, table.name, source)}`" for source in sources)
        yield dg.TableColumn(
            shown_name(asset, table.name, column.name),
            _type_name(column.type),
            f"{_as_markdown(column.description)} ← {made_from}" if sources else _as_markdown(column.description),
            dg.TableColumnConstraints(nullable=column.nullable),
        )


def _type_name(type: pa.DataType) -> str:
    """The type as the UI has room for it, beside descriptions: in pyarrow's words, less what is in a struct."""
    if pa.types.is_list(type):
        return f"list<{_type_name(type.value_type)}>"
    if pa.types.is_struct(type):
        return "struct"
    return "json" if type == pa.json_() else str(type)


def _told_in(asset: str, table: str, source: Source) -> str:
    """How a source is named in the description of a column: as briefly as it can be told apart."""
    if source[:2] == (asset, table):
        return source[2]
    if source[0] == asset:
        return ".".join(source[1:])
    return ".".join((source[0], shown_name(*source)))


def _as_markdown(text: str) -> str:
    """The text with what Markdown would take for emphasis left as it is."""
    return text.replace("_", r"\_").replace("*", r"\*").replace("<", r"\<")
