"""Which turns are run, what fails, what is kept, what may grow, when to stop (method T3, T4, T11, T13, T14)."""

from __future__ import annotations

from collections.abc import Sequence

from coral_pipeline.search.tree import (
    TURNS_PER_EDGE,
    EdgeFigures,
    FailureReason,
    KeptBy,
    LeafKind,
    Node,
    StopReason,
    Tree,
)
from coral_pipeline.settings import SearchSettings
from coral_pipeline.teacher.protocol import Turn


def next_turn(turns: Sequence[Turn], prunable: bool) -> int | None:
    """Number of the turn to run after those that were run; None where the edge has ended.

    A prunable edge whose first turn has no score has failed already: its second turn is not run (T3).
    """
    if len(turns) == TURNS_PER_EDGE or (prunable and turns and turns[-1].score is None):
        return None
    return len(turns) + 1


def failure_reason(turns: Sequence[Turn], figures: EdgeFigures, settings: SearchSettings) -> FailureReason | None:
    """Why the edge fails; None where it passes (T3). A missing score is named before tool errors."""
    if len(turns) < TURNS_PER_EDGE or any(turn.score is None for turn in turns):
        return "no_score"
    return "tool_errors" if figures.tool_error_rate > settings.max_tool_error_rate else None


def kept_if_failed(depth: int, last_try: bool, settings: SearchSettings) -> KeptBy | None:
    """What lets an edge that makes a node of this depth give a child even where it fails (T4).

    ``last_try``: a direction from the root is not tried again after this.
    """
    if depth == settings.exempt_depth:
        return "exemption"
    return "fallback" if last_try else None


def child_limit(node: Node, settings: SearchSettings) -> int:
    """Most children the node may have."""
    return settings.root_children if node.depth == 0 else settings.max_children_per_non_root_node


def is_candidate(node: Node, settings: SearchSettings) -> bool:
    """Whether the node is an active candidate (T11). Failures never close the root (T4)."""
    return (
        node.depth < settings.max_depth
        and node.max_token_total < settings.hard_token_limit
        and node.children < child_limit(node, settings)
        and (node.depth == 0 or node.failed_expansions < settings.max_failed_expansions)
    )


def leaf_kind(node: Node, settings: SearchSettings) -> LeafKind | None:
    """How the path to a childless node ends, ``open`` where it could grow; None for a node with children (T14)."""
    if node.children:
        return None
    if node.max_token_total >= settings.hard_token_limit:
        return "token_limit"
    if node.depth >= settings.max_depth:
        return "depth_limit"
    return "exhausted" if node.failed_expansions >= settings.max_failed_expansions else "open"


def good_leaves(tree: Tree) -> int:
    """Leaves whose paths have ended normally (T14)."""
    return sum(leaf_kind(node, tree.settings) not in (None, "open") for node in tree.nodes)


def stop_reason(tree: Tree) -> StopReason | None:
    """Why the search ends after the round just applied; None: it goes on (T13)."""
    if good_leaves(tree) >= tree.settings.target_good_leaf_count:
        return "leaf_target"
    if tree.valid_edges >= tree.settings.max_logical_edges:
        return "edge_budget"
    return None if any(is_candidate(node, tree.settings) for node in tree.nodes) else "exhausted"
