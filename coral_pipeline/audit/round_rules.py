"""The rounds of a tree against the rules of the method: candidates, ranks, dispatch, end (T10–T13).

Written from the method and not from ``search/``, like ``tree_rules``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coral_pipeline.audit.findings import Review
from coral_pipeline.audit.tree_tables import NONE, Columns, TreeTables
from coral_pipeline.explored import BoolArray, FloatArray, IntArray


def verify_rounds(review: Review, folder: Path) -> None:
    """The rounds of the tree in ``folder`` keep T10–T13, and it stopped where and why it should."""
    with review.guarded("rounds.parquet"):
        tree = TreeTables.read(folder)
        process = _process(tree)
        last = int(tree.edges["round"].max(initial=1))
        numbers = tree.rounds["round"]
        tree.rounds.require(review, (numbers >= 1) & (numbers <= last), f"round is not one of 1 to {last}")
        tree.rounds.require(review, np.diff(numbers, prepend=1) >= 0, "is of an earlier round than the row before it")
        for number in range(1, last + 1):
            before = Before(tree, number)
            if number > 1 and (reason := before.stop_reason()) is not None:
                review.find(
                    f"rounds.parquet, round {number}", f"the search should have stopped before it: {reason} (T13)"
                )
            _verify_round(review, tree, before, process)
        reason = Before(tree, last + 1).stop_reason()
        if tree.info.get("stop_reason") != reason:
            review.find("tree.json, stop_reason", f"is {tree.info.get('stop_reason')!r}, expected {reason!r} (T13)")
        if len(tree.made) > tree.settings.max_logical_edges:
            review.find(
                "edges.parquet", f"{len(tree.made)} valid edges, {tree.settings.max_logical_edges} allowed (T13)"
            )


class Before:
    """The tree as it stood before a round."""

    def __init__(self, tree: TreeTables, number: int) -> None:
        """``number``: of the round, from 1."""
        self.tree, self.number, settings = tree, number, tree.settings
        nodes, edges = tree.nodes, tree.edges
        self.is_there = tree.made_in < number
        earlier = edges["round"] < number
        self.valid_edges = int((earlier & (edges["child_id"] != NONE)).sum())
        self.children = self._count(earlier & (edges["child_id"] != NONE))
        self.failed = self._count(earlier & (edges["child_id"] == NONE))
        is_root = nodes["node_id"] == 0
        self.limit = np.where(is_root, settings.root_children, settings.max_children_per_non_root_node)
        self.candidate: BoolArray = (
            self.is_there
            & (nodes["depth"] < settings.max_depth)
            & (nodes["max_token_total"] < settings.hard_token_limit)
            & (self.children < self.limit)
            & (is_root | (self.failed < settings.max_failed_expansions))
        )
        """T11."""

    def _count(self, edges: BoolArray) -> IntArray:
        """Per node, how many of these edges leave it."""
        return np.bincount(self.tree.edges["parent_id"][edges], minlength=len(self.tree.nodes))

    def stop_reason(self) -> str | None:
        """Why no further round follows (T13)."""
        nodes, settings = self.tree.nodes, self.tree.settings
        ended = (
            (nodes["max_token_total"] >= settings.hard_token_limit)
            | (nodes["depth"] >= settings.max_depth)
            | (self.failed >= settings.max_failed_expansions)
        )
        if int((self.is_there & (self.children == 0) & ended).sum()) >= settings.target_good_leaf_count:
            return "leaf_target"
        if self.valid_edges >= settings.max_logical_edges:
            return "edge_budget"
        return None if self.candidate.any() else "exhausted"


def _process(tree: TreeTables) -> FloatArray:
    """Per node, the mean soft over the path's edges; at the root what the settings say (T10)."""
    parent, soft = tree.nodes["parent_id"], np.zeros(len(tree.nodes))
    soft[tree.edges["child_id"][tree.made]] = tree.edges["soft"][tree.made]
    for level in tree.levels:
        soft[level] += soft[parent[level]]
    depth = tree.nodes["depth"]
    mean: FloatArray = np.divide(soft, depth, out=np.full(len(soft), tree.settings.root_process), where=depth > 0)
    return mean


def _rank(population: FloatArray, values: FloatArray) -> FloatArray:
    """Percentile ranks: (values below + half of the equal ones) / N."""
    ordered = np.sort(population)
    below, up_to = np.searchsorted(ordered, values, "left"), np.searchsorted(ordered, values, "right")
    ranks: FloatArray = (below + 0.5 * (up_to - below)) / max(1, len(ordered))
    return ranks


def _verify_round(review: Review, tree: TreeTables, before: Before, process: FloatArray) -> None:
    """One round: who the candidates are, their numbers, their order, and what each was given."""
    settings, nodes, number = tree.settings, tree.nodes, before.number
    first = int(np.searchsorted(tree.rounds["round"], number, "left"))
    after = int(np.searchsorted(tree.rounds["round"], number, "right"))
    rows = Columns(tree.rounds.table, tree.rounds.rows.slice(first, after - first), "node_id", f"round {number}")
    ids = rows["node_id"]
    where = f"rounds.parquet, round {number}"
    if sorted(ids.tolist()) != np.flatnonzero(before.candidate).tolist():
        there, should_be = set(ids.tolist()), set(np.flatnonzero(before.candidate).tolist())
        problem = f"candidates {sorted(there - should_be)} should not be there, {sorted(should_be - there)} are missing"
        review.find(where, f"{problem}, or one is there twice (T11)")
        return
    score = tree.sign * nodes["score"]
    scored = before.is_there & ~np.isnan(score)
    score_rank = np.where(np.isnan(score[ids]), 0.0, _rank(score[scored], np.nan_to_num(score[ids])))
    best_rank = _rank(tree.best_on_path[before.is_there], tree.best_on_path[ids])
    shortness = -nodes["max_token_total"].astype(np.float64)
    t = _rank(shortness[ids], shortness[ids])
    q = (
        settings.score_rank_weight * score_rank
        + settings.best_rank_weight * best_rank
        + settings.process_weight * process[ids]
    )
    rows.expect(review, "score_rank", score_rank, "T10")
    rows.expect(review, "best_rank", best_rank, "T10")
    rows.expect(review, "process", process[ids], "T10")
    rows.expect(review, "t", t, "T10")
    rows.expect(review, "q", q, "seed 1.3: Q(n)")
    rows.expect(review, "select", q + settings.token_bonus * t, "seed 1.3: Select(n)")
    order = np.lexsort((ids, nodes["depth"][ids], -np.round(rows["select"], settings.tie_decimals)))
    if (order != np.arange(len(ids))).any():
        review.find(where, f"candidates stand in the order {ids.tolist()}, expected {ids[order].tolist()} (T12)")
    given = _dispatched(tree, before, ids)
    rows.expect(review, "expansions", given, "T12")
    edges = tree.edges
    forked = np.bincount(edges["parent_id"][edges["round"] == number], minlength=len(nodes))
    rows.expect(review, "expansions", forked[ids], "forks of the round in edges.parquet")
    stray = np.setdiff1d(np.flatnonzero(forked), ids)
    if len(stray):
        review.find(where, f"edges leave nodes {stray.tolist()}, which are no candidates (T12)")


def _dispatched(tree: TreeTables, before: Before, ids: NDArray[np.int64]) -> IntArray:
    """Expansions each candidate gets, in the order of ``ids`` (T12); in round 1 every direction, second tries too."""
    if before.number == 1:
        first_round = tree.edges["round"] == 1
        tries = int(first_round.sum())
        directions = tree.settings.root_children
        return np.array([tries if directions <= tries <= directions * tree.settings.direction_tries else directions])
    given = np.zeros(len(ids), dtype=np.int64)
    room = (before.limit - before.children)[ids]
    slots = min(tree.settings.width, tree.settings.max_logical_edges - before.valid_edges)
    while slots > 0 and (given < room).any():
        takers = np.flatnonzero(given < room)[:slots]
        given[takers] += 1
        slots -= len(takers)
    return given
