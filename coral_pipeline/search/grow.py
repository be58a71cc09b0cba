"""How a tree grows by a round: the expansions that are begun, and what their results make of it (method T3–T12)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from coral_pipeline.scores import mean
from coral_pipeline.search.rules import failure_reason, kept_if_failed
from coral_pipeline.search.select import dispatch, rank_candidates
from coral_pipeline.search.soft import edge_figures, soft_parts
from coral_pipeline.search.tree import Edge, FailureReason, Job, Node, Result, Tree
from coral_pipeline.teacher.protocol import EdgeRequest, Turn


def begin_first_round(tree: Tree) -> None:
    """Begin round 1, in which the root is the only candidate."""
    tree.round = 1
    tree.selections += rank_candidates(tree)


def direction_jobs(tree: Tree, directions: Sequence[int], last_try: bool) -> list[Job]:
    """A try of each of the directions, forked afresh from the root (T4)."""
    jobs = [_job(tree, tree.nodes[0], slot=direction, last_try=last_try) for direction in directions]
    tree.selections[0].expansions += len(jobs)
    return jobs


def begin_round(tree: Tree) -> list[Job]:
    """Begin a round after the first: rank the candidates, give out the expansions (T12)."""
    tree.round += 1
    ranked = rank_candidates(tree)
    nodes = dispatch([tree.nodes[selection.node_id] for selection in ranked], tree.valid_edges, tree.settings)
    given = Counter(node.node_id for node in nodes)
    for selection in ranked:
        selection.expansions = given[selection.node_id]
    tree.selections += ranked
    return [_job(tree, node, slot, last_try=False) for slot, node in enumerate(nodes)]


def _job(tree: Tree, parent: Node, slot: int, last_try: bool) -> Job:
    edge = EdgeRequest(root=tree.root.key, path=parent.path, expansion=parent.expansions)
    parent.expansions += 1
    depth = parent.depth + 1
    kept = kept_if_failed(depth, last_try, tree.settings)
    return Job(edge, parent.node_id, depth, slot, parent.state, kept)


def failure_of(tree: Tree, job: Job, turns: Sequence[Turn]) -> FailureReason | None:
    """Why the edge failed, kept or not; None where it passed."""
    figures = edge_figures(turns, tree.nodes[job.parent_id], tree.direction)
    return failure_reason(turns, figures, tree.settings)


def makes_child(tree: Tree, job: Job, turns: Sequence[Turn]) -> bool:
    """Whether the edge gives a child: it passed, or it is kept (T4)."""
    return job.kept_if_failed is not None or failure_of(tree, job, turns) is None


def apply_round(tree: Tree, results: Sequence[Result]) -> None:
    """Put a round's results, in dispatch order, into the tree.

    Edge ids are given in dispatch order, node ids in the order of the slots, which differs from it only
    where a direction from the root took a second try (T4, T12).
    """
    child_slots = sorted(job.slot for job, turns in results if makes_child(tree, job, turns))
    child_ids = {slot: len(tree.nodes) + place for place, slot in enumerate(child_slots)}
    made: list[Node] = []
    for job, turns in results:
        parent = tree.nodes[job.parent_id]
        child_id = child_ids[job.slot] if makes_child(tree, job, turns) else None
        edge = _edge(tree, job, turns, child_id)
        tree.edges.append(edge)
        if child_id is None:
            parent.failed_expansions += 1
        else:
            parent.children += 1
            made.append(_child(tree, job, edge, child_id))
    tree.nodes += sorted(made, key=lambda node: node.node_id)


def _edge(tree: Tree, job: Job, turns: tuple[Turn, ...], child_id: int | None) -> Edge:
    figures = edge_figures(turns, tree.nodes[job.parent_id], tree.direction)
    failure = failure_reason(turns, figures, tree.settings)
    return Edge(
        edge_id=len(tree.edges),
        name=job.edge.name,
        parent_id=job.parent_id,
        child_id=child_id,
        depth=job.depth,
        round=tree.round,
        expansion=job.edge.expansion,
        turns=turns,
        figures=figures,
        failure_reason=failure,
        kept_by=None if failure is None else job.kept_if_failed,
        soft=None if child_id is None else soft_parts(figures, tree.settings),
    )


def _child(tree: Tree, job: Job, edge: Edge, child_id: int) -> Node:
    parent, score = tree.nodes[edge.parent_id], edge.figures.best_score
    last = edge.turns[-1]
    return Node(
        node_id=child_id,
        parent_id=edge.parent_id,
        edge_id=edge.edge_id,
        depth=edge.depth,
        path=(*job.edge.path, job.edge.expansion),
        score=score,
        nearest_score=parent.nearest_score if score is None else score,
        path_best_score=parent.path_best_score if score is None else tree.better(parent.path_best_score, score),
        max_token_total=edge.figures.max_token_total,
        process=_process(tree, parent, edge),
        kept_by=edge.kept_by,
        commit_hash=next((turn.commit_hash for turn in reversed(edge.turns) if turn.commit_hash), None),
        session_id=last.session_id,
        state=last.state,
    )


def _process(tree: Tree, parent: Node, edge: Edge) -> float:
    """Mean soft score over the path that ``edge`` makes one longer (T10)."""
    softs = [each.soft.soft for each in (edge, *tree.path_edges(parent)) if each.soft is not None]
    return mean(softs)
