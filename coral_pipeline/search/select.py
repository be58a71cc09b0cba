"""The ranking of the active candidates and the expansions of a round (method T10–T12; seed 1.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from coral_pipeline.ranks import PercentileRank
from coral_pipeline.search.rules import child_limit, is_candidate
from coral_pipeline.search.tree import Node, Selection, Tree
from coral_pipeline.settings import SearchSettings, orient


def rank_candidates(tree: Tree) -> list[Selection]:
    """The active candidates, the one to expand first at the front (T12); no expansions given yet.

    Every population is sorted once, so a round costs O(N log N) in the nodes of the tree.
    """
    settings = tree.settings
    scores = PercentileRank([orient(n.score, tree.direction) for n in tree.nodes if n.score is not None])
    bests = PercentileRank([orient(n.path_best_score, tree.direction) for n in tree.nodes])
    candidates = [node for node in tree.nodes if is_candidate(node, settings)]
    shortness = PercentileRank([-node.max_token_total for node in candidates])

    def selection(node: Node) -> Selection:
        score_rank = 0.0 if node.score is None else scores(orient(node.score, tree.direction))
        best_rank = bests(orient(node.path_best_score, tree.direction))
        q = (
            settings.score_rank_weight * score_rank
            + settings.best_rank_weight * best_rank
            + settings.process_weight * node.process
        )
        t = shortness(-node.max_token_total)
        return Selection(
            tree.round, node.node_id, score_rank, best_rank, node.process, q, t, q + settings.token_bonus * t
        )

    def order(selected: Selection) -> tuple[float, int, int]:
        node = tree.nodes[selected.node_id]
        return (-round(selected.select, settings.tie_decimals), node.depth, node.node_id)

    return sorted(map(selection, candidates), key=order)


def dispatch(ranked: Sequence[Node], valid_edges: int, settings: SearchSettings) -> list[Node]:
    """The nodes to expand this round, in dispatch order, a node once per expansion (T12).

    One expansion to each, best first; then again in the same order to those with room for another child,
    while slots are left. Never more than ``max_logical_edges`` allows.
    """
    slots = min(settings.width, settings.max_logical_edges - valid_edges)
    dispatched: list[Node] = []
    given: Counter[int] = Counter()
    while len(dispatched) < slots:
        room = [node for node in ranked if node.children + given[node.node_id] < child_limit(node, settings)]
        chosen = room[: slots - len(dispatched)]
        if not chosen:
            break
        dispatched += chosen
        given.update(node.node_id for node in chosen)
    return dispatched
