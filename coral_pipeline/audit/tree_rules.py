"""Edges and nodes of a tree against the rules of the method (T1–T9, T14).

Written from the method and not from ``search/``: that a replay agrees shows that the tables are those of our search;
that these rules hold shows that they are those of the method.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coral_pipeline.audit.findings import Review
from coral_pipeline.audit.tree_tables import NONE, TreeTables
from coral_pipeline.explored import BoolArray, FloatArray, IntArray


def verify_edges_and_nodes(review: Review, folder: Path) -> None:
    """The tables of the tree in ``folder`` keep T1–T9 and T14."""
    with review.guarded("tree"):
        tree = TreeTables.read(folder)
        last_try = _last_tries(tree)
        _turns_of_edges(review, tree, last_try)
        _sums(review, tree)
        _comparisons(review, tree)
        _failures(review, tree, last_try)
        _soft(review, tree)
        _links(review, tree)
        _nodes(review, tree)
        _leaves(review, tree)


def _last_tries(tree: TreeTables) -> BoolArray:
    """Per edge: it leaves the root and its direction is not tried again after it (T4).

    Each try of the directions forks those anew that made no child in the try before.
    """
    edges, settings = tree.edges, tree.settings
    from_root = np.flatnonzero(edges["parent_id"] == 0)
    failed = edges["child_id"][from_root] == NONE
    begin, size = 0, settings.root_children
    for _ in range(settings.direction_tries - 1):
        begin, size = begin + size, int(failed[begin : begin + size].sum())
    last = np.zeros(len(edges), dtype=np.bool_)
    last[from_root[begin : begin + size]] = True
    return last


def _exempt(tree: TreeTables) -> BoolArray:
    return np.asarray(tree.edges["depth"] == tree.settings.exempt_depth)


def _turn(tree: TreeTables, number: int, name: str, missing: float = np.nan) -> FloatArray:
    """A column of the first or second turn, by edge; ``missing`` where that turn was not run."""
    turns = tree.turns
    at = turns["turn"] == number
    values = np.full(len(tree.edges), missing, dtype=np.float64)
    values[turns["edge_id"][at]] = turns[name][at]
    return values


def _turns_of_edges(review: Review, tree: TreeTables, last_try: BoolArray) -> None:
    """Turns 1 and 2 once each; a prunable edge without a first score has no second one (T2, T3)."""
    turns, edges = tree.turns, tree.edges
    turns.require(review, np.isin(turns["turn"], (1, 2)), "is turn 1 or 2 of no edge (T2)")
    pairs = turns["edge_id"] * 2 + turns["turn"] - 1
    _, first, counts = np.unique(pairs, return_index=True, return_counts=True)
    once = np.ones(len(turns), dtype=np.bool_)
    once[first[counts > 1]] = False
    turns.require(review, once, "the same turn is there twice (T2)")
    prunable = ~(last_try | _exempt(tree))
    expected = np.where(prunable & np.isnan(_turn(tree, 1, "score")), 1, 2)
    count = np.bincount(turns["edge_id"], minlength=len(edges))
    edges.require(review, count == expected, "has more or fewer turns than are run (T3, T4)")
    turns.require(review, turns["failed_tool_calls"] <= turns["tool_calls"], "has more failed calls than calls (T2)")


def _sums(review: Review, tree: TreeTables) -> None:
    """An edge's figures from its turns (T2, T8)."""
    edges = tree.edges
    for name in ("step_turns", "tool_calls", "failed_tool_calls"):
        total = _turn(tree, 1, name, 0) + _turn(tree, 2, name, 0)
        edges.expect(review, name, total.astype(np.int64), "T2: the sum over its turns")
    edges.expect(review, "seconds", _turn(tree, 1, "seconds", 0) + _turn(tree, 2, "seconds", 0), "the sum of its turns")
    calls, failed = edges["tool_calls"], edges["failed_tool_calls"]
    rate = np.divide(failed, calls, out=np.zeros(len(edges)), where=calls > 0)
    edges.expect(review, "tool_error_rate", rate, "T2: failed / total tool calls")
    context = np.where(_ran_second(tree), _turn(tree, 2, "context_tokens", 0), _turn(tree, 1, "context_tokens", 0))
    edges.expect(review, "max_token_total", context.astype(np.int64), "T2: context when the edge ends")
    knows = [(_turn(tree, n, "knowledge_read", 0) + _turn(tree, n, "knowledge_write", 0)) > 0 for n in (1, 2)]
    edges.expect(review, "has_knowledge_action", knows[0] & knows[1], "T8: both turns read or wrote")


def _ran_second(tree: TreeTables) -> BoolArray:
    ran = np.zeros(len(tree.edges), dtype=np.bool_)
    ran[tree.turns["edge_id"][tree.turns["turn"] == 2]] = True
    return ran


def _comparisons(review: Review, tree: TreeTables) -> None:
    """Scores against the parent's and the path's (T2, T6, T7)."""
    edges, parent = tree.edges, tree.edges["parent_id"]
    first, second = (tree.sign * _turn(tree, number, "score") for number in (1, 2))
    best = np.fmax(first, second)
    edges.expect(review, "best_score", tree.sign * best, "T2: the better of its turns' scores")
    before = tree.inherited(tree.sign * tree.nodes["score"])[parent]
    edges.expect(review, "improved", np.asarray(best > before), "T6: best score against the parent's")
    reached = tree.best_on_path[parent]
    held = (first >= reached).astype(np.int64) + (second >= np.fmax(reached, first))
    edges.expect(review, "regressed_rate", (2 - held) / 2, "T7: share of its two turns that regressed")


def _failures(review: Review, tree: TreeTables, last_try: BoolArray) -> None:
    """Which edges fail, and which of those make a child all the same (T3, T4)."""
    edges = tree.edges
    unscored = np.isnan(_turn(tree, 1, "score")) | np.isnan(_turn(tree, 2, "score"))
    errors = edges["tool_error_rate"] > tree.settings.max_tool_error_rate
    reason = _words(len(edges), ((errors, "tool_errors"), (unscored, "no_score")))
    edges.expect(review, "failure_reason", reason, "T3")
    failed = unscored | errors
    exempt = _exempt(tree)
    edges.expect(
        review, "kept_by", _words(len(edges), ((failed & last_try, "fallback"), (failed & exempt, "exemption"))), "T4"
    )
    makes = ~failed | last_try | exempt
    edges.require(
        review, (edges["child_id"] != NONE) == makes, "made a child and should not have, or the other way (T4)"
    )


def _words(rows: int, words: Sequence[tuple[BoolArray, str]]) -> NDArray[Any]:
    """A column of texts: each word where it applies, later ones over earlier ones, None elsewhere."""
    column = np.full(rows, None, dtype=object)
    for at, word in words:
        column[at] = word
    return column


def _soft(review: Review, tree: TreeTables) -> None:
    """The soft verifier score and its parts, of edges that made a child; none of the others (T9, seed 1.7)."""
    edges, settings = tree.edges, tree.settings
    improved, knows, rate = edges["improved"], edges["has_knowledge_action"], edges["tool_error_rate"]
    scores, weights = settings.knowledge_scores, settings.soft_weights
    outcome = np.where(improved, settings.outcome_improved, settings.outcome_otherwise)
    lost = settings.cleanliness_slope * (rate / settings.max_tool_error_rate)
    clean = np.where(rate == 0, 1.0, np.maximum(settings.cleanliness_floor, settings.cleanliness_base - lost))
    with_knowledge = np.where(improved, scores.improved_with_knowledge, scores.knowledge)
    knowledge = np.where(knows, with_knowledge, np.where(improved, scores.improved, scores.neither))
    soft = (
        weights.outcome * outcome
        + weights.cleanliness * clean
        + weights.knowledge * knowledge
        + weights.regression_stability * (1 - edges["regressed_rate"])
    )
    childless = edges["child_id"] == NONE
    for name, values in (("outcome", outcome), ("cleanliness", clean), ("knowledge", knowledge), ("soft", soft)):
        edges.expect(review, name, np.where(childless, np.nan, values), "T9")


def _links(review: Review, tree: TreeTables) -> None:
    """One edge leads to each node but the root, from its parent; forks of a node are counted in order (T12)."""
    nodes, edges, made = tree.nodes, tree.edges, tree.made
    children = edges["child_id"][made]
    leading = np.bincount(children, minlength=len(nodes))
    nodes.require(review, leading == (nodes["node_id"] > 0), "is not made by exactly one edge")
    parent = np.full(len(nodes), NONE)
    parent[children] = edges["parent_id"][made]
    nodes.expect(review, "parent_id", parent, "where its edge comes from")
    edges.expect(review, "depth", nodes["depth"][edges["parent_id"]] + 1, "one more than its parent's")
    edges.expect(review, "expansion", _ordinals(edges["parent_id"]), "T12: forks of a node, counted from 0")
    later = tree.made_in[children] > 1
    ordered = np.ones(len(edges), dtype=np.bool_)
    ordered[made[later][1:]] = np.diff(children[later]) > 0
    edges.require(review, ordered, "its child's id is not in dispatch order (T12)")
    edges.require(
        review, np.diff(edges["round"], prepend=1) >= 0, "is of an earlier round than the edge before it (T12)"
    )


def _ordinals(values: IntArray) -> IntArray:
    """Per entry, how many equal ones come before it."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(values) else np.zeros(0, int)
    ordinals = np.empty(len(values), dtype=np.int64)
    lengths = np.diff(np.append(starts, len(values)))
    ordinals[order] = np.arange(len(values)) - np.repeat(starts, lengths)
    return ordinals


def _nodes(review: Review, tree: TreeTables) -> None:
    """What a node takes from its edge, and the root from nothing (T1, T2, T4, T10)."""
    nodes, edges, made = tree.nodes, tree.edges, tree.made
    children = edges["child_id"][made]
    below = nodes["node_id"] > 0

    def of_edges(name: str, at_root: float) -> FloatArray:
        values = np.full(len(nodes), at_root, dtype=np.float64)
        values[children] = edges[name][made]
        return values

    nodes.expect(review, "score", of_edges("best_score", np.nan), "T2: best score of its edge", at=below)
    nodes.require(review, below | np.isfinite(nodes["score"]), "the root has no score (T1)")
    tokens = of_edges("max_token_total", 0).astype(np.int64)
    nodes.expect(review, "max_token_total", tokens, "T1, T2: context at the end of its edge")
    nodes.expect(review, "depth", of_edges("depth", 0).astype(np.int64), "T1: edges from the root")
    kept = np.full(len(nodes), None, dtype=object)
    kept[children] = edges["kept_by"][made]
    nodes.expect(review, "kept_by", kept, "T4: as its edge was kept")
    nodes.expect(review, "path_best_score", tree.sign * tree.best_on_path, "T10: best from the root to here")
    count = np.bincount(edges["parent_id"][made], minlength=len(nodes))
    nodes.expect(review, "valid_children", count, "edges out of it that made a child")
    failed = np.bincount(edges["parent_id"][edges["child_id"] == NONE], minlength=len(nodes))
    nodes.expect(review, "failed_expansions", failed, "edges out of it that made none")
    commits = _commits(tree)
    at = np.zeros(len(nodes), dtype=np.bool_)
    at[children] = True
    nodes.expect(review, "commit_hash", commits, "the last commit its edge's turns had graded", at=at)


def _commits(tree: TreeTables) -> NDArray[Any]:
    """Per node, the commit of the later of its edge's turns that has one."""
    turns = tree.turns
    by_edge = np.full(len(tree.edges), None, dtype=object)
    for number in (1, 2):
        at = (turns["turn"] == number) & np.array([bool(commit) for commit in turns["commit_hash"]], dtype=np.bool_)
        by_edge[turns["edge_id"][at]] = turns["commit_hash"][at]
    commits = np.full(len(tree.nodes), None, dtype=object)
    commits[tree.edges["child_id"][tree.made]] = by_edge[tree.made]
    return commits


def _leaves(review: Review, tree: TreeTables) -> None:
    """How each childless node ends (T14)."""
    nodes, settings = tree.nodes, tree.settings
    leaf = nodes["valid_children"] == 0
    kinds = (
        (leaf, "open"),
        (leaf & (nodes["failed_expansions"] >= settings.max_failed_expansions), "exhausted"),
        (leaf & (nodes["depth"] >= settings.max_depth), "depth_limit"),
        (leaf & (nodes["max_token_total"] >= settings.hard_token_limit), "token_limit"),
    )
    nodes.expect(review, "leaf_kind", _words(len(nodes), kinds), "T14")
