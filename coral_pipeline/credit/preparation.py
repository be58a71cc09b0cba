"""From a finished tree to a batch: rewards, priors, values, and the recipe's advantages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from coral_pipeline.credit.batch import Batch
from coral_pipeline.credit.checks import as_list, number
from coral_pipeline.credit.columns import AdvantageColumns, TreeEdges
from coral_pipeline.credit.direct_branch_td import DirectBranchTd
from coral_pipeline.credit.estimator import Advantage, Estimator
from coral_pipeline.credit.rewards import edge_rewards
from coral_pipeline.credit.value_models import Constant, ValueModel, priors
from coral_pipeline.credit.values import MissingValue, TreeValues, tree_values
from coral_pipeline.errors import BadInput
from coral_pipeline.explored import BoolArray, ExploredTree, FloatArray
from coral_pipeline.settings import RewardConfig

GIVE = "advantages() must give a finite number, an Advantage or None per edge, in order"


def prepare(
    tree: ExploredTree | Path,
    estimator: Estimator = DirectBranchTd(),
    rewards: RewardConfig = RewardConfig(),
    value_model: ValueModel = Constant(),
) -> Batch:
    """The batch of a tree, given as such or as the folder ``explore`` wrote.

    Values and critic targets are computed before the estimator is asked and do not depend on it (method C5).
    Raises ``BadInput`` where the tree cannot be used, and, naming estimator, root and edge, where the
    estimator gives something else than one coefficient per edge or needs a prediction that is not there.
    """
    if isinstance(tree, Path):
        tree = ExploredTree.read(tree)
    reward = edge_rewards(tree, rewards)
    values = tree_values(tree, reward, priors(tree, value_model), rewards)
    edges = TreeEdges(tree, reward, tree.edge_order)
    return Batch(
        tree=tree,
        estimator=_name(estimator),
        value_model=value_model.name or type(value_model).__name__,
        rewards=rewards,
        edges=edges,
        advantages=_advantages(estimator, edges, values),
        values=values,
    )


def _name(estimator: Estimator) -> str:
    return estimator.name or type(estimator).__name__


def _advantages(estimator: Estimator, edges: TreeEdges, values: TreeValues) -> AdvantageColumns:
    """The estimator's advantages, over all edges."""
    if not estimator.requires_completed_paths:
        return _ask(estimator, edges, values) if len(edges) else AdvantageColumns(np.zeros(0))
    completed = _on_completed_path(edges.tree)[edges.positions]
    if not completed.any():
        return AdvantageColumns(np.full(len(edges), np.nan))
    return _ask(estimator, edges.at(edges.positions[completed]), values).spread(completed)


def _on_completed_path(tree: ExploredTree) -> BoolArray:
    """By position: the node is a good leaf, or one lies below it."""
    completed = tree.good_leaf.copy()
    for level in tree.levels[:0:-1]:
        completed[tree.parent[level][completed[level]]] = True
    return completed


def _ask(estimator: Estimator, edges: TreeEdges, values: TreeValues) -> AdvantageColumns:
    """The estimator's answer about these edges, checked."""
    try:
        answer = estimator.advantages(edges, values)
    except MissingValue as missing:
        raise _missing(estimator, edges, values, missing) from missing
    given = answer if isinstance(answer, AdvantageColumns) else as_list(answer)
    if given is None or len(given) != len(edges):
        gave = f"a {type(answer).__name__}" if given is None else f"{len(given)} advantages"
        at = min(len(given or ()), len(edges) - 1)
        raise BadInput(_thing(estimator, edges, at), f"gave {gave} for {len(edges)} edges", GIVE)
    columns = given if isinstance(given, AdvantageColumns) else _columns(estimator, edges, given)
    infinite = np.flatnonzero(np.isinf(columns.values))
    if len(infinite):
        raise BadInput(_thing(estimator, edges, int(infinite[0])), "gave an infinite advantage", GIVE)
    return columns


def _columns(estimator: Estimator, edges: TreeEdges, given: Sequence[object]) -> AdvantageColumns:
    """Advantages given one by one, in columns."""
    values = np.full(len(given), np.nan)
    diagnostics: dict[str, FloatArray] = {}
    for place, item in enumerate(given):
        if item is None:
            continue
        value = number(item.value if isinstance(item, Advantage) else item)
        if value is None or math.isnan(value):
            raise BadInput(_thing(estimator, edges, place), f"gave {item!r}", GIVE)
        values[place] = value
        for name, diagnostic in (item.diagnostics if isinstance(item, Advantage) else {}).items():
            found = number(diagnostic)
            if found is None or not math.isfinite(found):
                problem = f"gave the diagnostic {name!r} = {diagnostic!r}"
                raise BadInput(_thing(estimator, edges, place), problem, "diagnostics are finite numbers by name")
            diagnostics.setdefault(name, np.full(len(given), np.nan))[place] = found
    return AdvantageColumns(values, diagnostics)


def _missing(estimator: Estimator, edges: TreeEdges, values: TreeValues, missing: MissingValue) -> BadInput:
    """The error for a value the estimator needed; a prediction that is not there may be further down the tree."""
    thing = _thing(estimator, edges, _first_use(edges, missing.node_id))
    problem, mend = f"node {missing.node_id} has no {missing.kind} value", "a leaf has no backup: ask with get()"
    unpredicted = edges.tree.node_id[np.isnan(values.prior.by_position)]
    if len(unpredicted):
        mend = "use a value model that predicts it, or an estimator that does without, such as grpo"
        if missing.kind != "prior":
            problem += f" (no prior at node {unpredicted[0]})"
    return BadInput(thing, problem, mend)


def _first_use(edges: TreeEdges, node_id: int) -> int:
    """Place of the first edge out of a node, or else of the one that leads to it."""
    out_of, to = edges.parent_id == node_id, edges.child_id == node_id
    return int(np.argmax(out_of if out_of.any() else to))


def _thing(estimator: Estimator, edges: TreeEdges, place: int) -> str:
    """What an error names."""
    edge_id, parent, child = (column[place] for column in (edges.edge_id, edges.parent_id, edges.child_id))
    return f"estimator {_name(estimator)}, root {edges.tree.name}, edge {edge_id} (node {parent} to node {child})"
