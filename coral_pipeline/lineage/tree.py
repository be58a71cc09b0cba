"""Steps within the tree of one root: token, message, path, edges and nodes, up to the tree itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from coral_pipeline import tables
from coral_pipeline.audit.sources import Source
from coral_pipeline.content import digest_of
from coral_pipeline.errors import BadInput
from coral_pipeline.explored import ExploredTree
from coral_pipeline.lineage import numbers
from coral_pipeline.lineage.reference import Reference, some
from coral_pipeline.lineage.steps import Records, Step
from coral_pipeline.settings import PipelineSettings
from coral_pipeline.storage import SEPARATOR
from coral_pipeline.tables import Table
from coral_pipeline.tree_file import read_tree_info

Row = dict[str, Any]
TREES, PATHS, CREDIT = tables.PER_ROOT
_TEXT = 300
"""Characters of a message that are shown."""


class TreeChain:
    """The tree of one root and what was made of it."""

    def __init__(self, key: str, source: Source, records: Records) -> None:
        """``key``: its partition. Raises ``BadInput`` where the tables are no tree: every way back has an end."""
        self._key, self._source, self._records = key, source, records
        self._root = key.partition(SEPARATOR)[2]
        self._explored = ExploredTree.read(source.fetch(TREES, key))
        self._read: dict[tuple[str, str], list[Row]] = {}

    def of(self, reference: Reference) -> Iterator[Step]:
        """The steps from what ``reference`` names back to the tree. Raises ``BadInput`` that says what there is."""
        if reference.kind == "token":
            yield self._token(reference.name, reference.position or 0)
        if reference.kind in ("token", "message"):
            message = self._one(TREES, tables.MESSAGES, "message_id", reference.name)
            yield self._message(message)
            yield from self._back_from_edge(message["edge_id"])
        elif reference.kind == "path":
            path = self._one(PATHS, tables.RANKED_PATHS, "rank", int(reference.name))
            yield self._path(path)
            yield from self._back_from_edge(path["edge_ids"][-1])
        elif reference.kind == "edge":
            yield from self._back_from_edge(int(reference.name))
        elif reference.kind == "node":
            node = self._one(TREES, tables.NODES, "node_id", int(reference.name))
            yield from self._back_from_node(node["node_id"])
        yield self._tree()

    def _back_from_edge(self, edge_id: int) -> Iterator[Step]:
        edge = self._one(TREES, tables.EDGES, "edge_id", edge_id)
        yield self._edge(edge)
        yield from self._back_from_node(edge["parent_id"])

    def _back_from_node(self, node_id: int) -> Iterator[Step]:
        """The node, and the edge that made it, up to the root."""
        yield self._node(self._one(TREES, tables.NODES, "node_id", node_id))
        made_by = [row for row in self._rows(TREES, tables.EDGES) if row["child_id"] == node_id]
        if made_by:
            yield from self._back_from_edge(made_by[0]["edge_id"])

    def _token(self, message_id: str, place: int) -> Step:
        row = self._one(CREDIT, tables.TOKENS, "message_id", message_id)
        if place >= len(row["token_ids"]):
            there = f"it adds {len(row['token_ids'])}, counted from 0"
            raise BadInput(f"token {place} of message {message_id}", f"is not in {self._key}", there)
        facts = {"token id": row["token_ids"][place], "sampled": row["mask"][place], "source": row["token_source"]}
        lines: tuple[str, ...] = ("not sampled by the Teacher: nothing is trained on it",)
        if row["mask"][place]:
            nth = sum(row["mask"][:place])
            facts |= {name[:-1]: None if row[name] is None else row[name][nth] for name in ("logprobs", "advantages")}
            lines = ("advantage: that of the edge of its message (method C7)",)
        return self._step(f"token {place} of message {message_id}", CREDIT, facts, lines, row)

    def _message(self, row: Row) -> Step:
        text = " ".join(part["text"] or part["arguments"] or "" for part in row["content"])
        names = ("parent_message_id", "role", "sampled", "edge_id", "turn", "input_tokens", "output_tokens")
        facts = {name: row[name] for name in names}
        facts |= {"begins": " ".join(text[:_TEXT].split()), "characters": len(text)}
        return self._step(f"message {row['message_id']}", TREES, facts, (), row)

    def _path(self, row: Row) -> Step:
        names = ("leaf_id", "node_ids", "edge_ids", "selected", "rank", "PathScore", "max_score", "avg_score")
        candidates = sum(other["candidate"] for other in self._rows(PATHS, tables.RANKED_PATHS))
        lines = [f"rank {row['rank']} of {candidates} candidates by PathScore (method P3)"]
        settings = self._settings(PATHS)
        if settings:
            lines += [numbers.path_score(row, settings.paths), f"the best {settings.paths.top_k} are selected"]
        return self._step(f"path of rank {row['rank']}", PATHS, {name: row[name] for name in names}, lines, row)

    def _edge(self, row: Row) -> Step:
        turns = [turn for turn in self._rows(TREES, tables.TURNS) if turn["edge_id"] == row["edge_id"]]
        lines = [numbers.edge_score(row, turns)]
        settings = self._settings(TREES)
        if settings and row["soft"] is not None:
            lines.append(numbers.soft_score(row, settings.search))
        credit = list(self._credit(row["edge_id"]))
        names = ("parent_id", "child_id", "depth", "round", "expansion", "failure_reason", "kept_by", "improved")
        counts = ("step_turns", "tool_calls", "failed_tool_calls")
        commits = {f"commit of turn {turn['turn']}": turn["commit_hash"] for turn in turns}
        facts = {name: row[name] for name in (*names, *counts)} | commits
        return self._step(
            f"edge {row['edge_id']}",
            TREES,
            facts,
            lines + credit,
            {"edge": row, "turns": turns},
            [CREDIT] if credit else [],
        )

    def _credit(self, edge_id: int) -> Iterator[str]:
        """How reward and advantage came about, where they were computed and the edge is in them."""
        if self._source.storage.provenance(CREDIT, self._key) is None:
            return
        settings = self._settings(CREDIT)
        for row in self._rows(CREDIT, tables.CREDIT_EDGES) if settings else ():
            if row["edge_id"] == edge_id and settings:
                yield numbers.reward(row, self._explored, settings.credit)
                yield numbers.advantage(row, settings.credit)

    def _node(self, row: Row) -> Step:
        names = ("parent_id", "depth", "score", "path_best_score", "valid_children", "leaf_kind", "kept_by")
        facts = {name: row[name] for name in (*names, "commit_hash", "session_id")}
        rounds = [
            pick
            for pick in self._rows(TREES, tables.ROUNDS)
            if pick["node_id"] == row["node_id"] and pick["expansions"]
        ]
        lines = [
            f"round {pick['round']}: forked {pick['expansions']} times, select {pick['select']:.6g}" for pick in rounds
        ]
        return self._step(f"node {row['node_id']}", TREES, facts, lines, row)

    def _tree(self) -> Step:
        told = read_tree_info(self._source.fetch(TREES, self._key))
        facts = {name: told.get(name) for name in ("direction", "stop_reason", "root_fingerprint")}
        teacher = dict(told.get("configuration", {}).get("teacher", {}))
        teacher.pop("settings", None)  # they are among those of its record
        facts |= {"teacher": teacher, "versions": told.get("versions"), "counts": told.get("counts")}
        return self._step(f"tree of {self._root}", TREES, facts, (), told)

    def _step(
        self, title: str, asset: str, facts: Row, lines: Sequence[str], row: Any, others: Sequence[str] = ()
    ) -> Step:
        wrong = tuple(line for line in lines if numbers.WRONG in line)
        records = tuple(self._records.of(name, self._key) for name in (asset, *others))
        return Step(title, facts, tuple(lines), digest_of(row), records, wrong)

    def _settings(self, asset: str) -> PipelineSettings | None:
        """Those that the partition was made with; None where it has no record that tells."""
        if self._records.of(asset, self._key).made is None:
            return None
        return self._source.settings(asset, self._key)

    def _one(self, asset: str, table: Table, column: str, value: object) -> Row:
        rows = self._rows(asset, table)
        for row in rows:
            if row[column] == value:
                return row
        thing = "path of rank" if column == "rank" else column.removesuffix("_id")
        there = some([str(row[column]) for row in rows if row[column] is not None])
        raise BadInput(
            f"{thing} {value}", f"is not in {self._key}", f"there are {there}" if there else "there are none"
        )

    def _rows(self, asset: str, table: Table) -> list[Row]:
        if (asset, table.name) not in self._read:
            self._read[asset, table.name] = table.rows(self._source.fetch(asset, self._key))
        return self._read[asset, table.name]
