"""All roots of a Student run at a glance: which trees are done, growing, failed or yet to be grown, and what they gave.

Every tree leaves its state in its latest observation; a few questions to Dagster gather those of a whole run.
They are shown on the page of ``selected_roots``, above what its own materialization says.
"""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec, TypeVar

import dagster as dg

from coral_pipeline.defs.failures import Asset
from coral_pipeline.defs.folders import TREES
from coral_pipeline.defs.latest import latest_observations
from coral_pipeline.defs.metadata import at_a_glance, table_of
from coral_pipeline.defs.partitions import RootKey, roots_of
from coral_pipeline.defs.under_way import partitions_under_way
from coral_pipeline.report import sketch
from coral_pipeline.settings import STAGES
from coral_pipeline.student_run.layout import parse_snapshot_name

State = Literal["done", "growing", "stopped", "failed", "to do"]
COLOURS: Mapping[State, str] = {
    "done": sketch.GREEN,
    "growing": sketch.BLUE,
    "stopped": sketch.ORANGE,
    "failed": sketch.RED,
    "to do": sketch.GREY,
}
STAGE, SCORE = "stage", "score"
"""Metadata of the observations of ``root_folders``."""
STATE, EDGES, BEST = "state", "edges", "best score"
"""Metadata of the observations of ``explored_trees``."""
SHOWN_ON = dg.AssetKey("selected_roots")
"""Whose page shows them."""

P = ParamSpec("P")
Grown = TypeVar("Grown", bound=dg.MaterializeResult[Any])


@dataclass(frozen=True)
class RootState:
    """A root and its tree."""

    root: RootKey
    stage: str
    """As in ``tables.SELECTED_ROOTS``; empty: chosen before stages were told."""
    state: State
    edges: int | None
    best_score: float | None
    root_score: float | None
    """None: not known."""


def watched(asset: Asset[P, Grown]) -> Asset[P, Grown]:
    """Let an asset that grows trees tell how it ended, however it did; that one grows is told by ``progress``."""

    @functools.wraps(asset)
    def run(context: dg.AssetExecutionContext, /, *args: P.args, **kwargs: P.kwargs) -> Grown:
        ended: dict[str, Any] = {STATE: "failed"}
        try:
            made = asset(context, *args, **kwargs)
            told = made.metadata or {}
            ended = {STATE: "done", EDGES: told[EDGES], BEST: told[BEST]}
        except dg.DagsterExecutionInterruptedError:
            ended = {STATE: "stopped"}
            raise
        finally:
            _tell_end(context, ended)
            tell_overview(context)
        return made

    return run


def _tell_end(context: dg.AssetExecutionContext, ended: Mapping[str, Any]) -> None:
    """``ended``: the state, and what the tree gave; where that is not there, it is what was told last."""
    key = context.partition_key
    told = _told(TREES, [key], context.instance).get(key, {})
    metadata = {name: told[name] for name in (EDGES, BEST) if name in told} | dict(ended)
    context.log_event(dg.AssetObservation(TREES, partition=key, description=ended[STATE], metadata=metadata))


def tell_overview(context: dg.AssetExecutionContext, min_age: float = 0.0) -> None:
    """Show how far all trees of the Student run are whose root the context's partition is.

    Not where it was shown less than ``min_age`` seconds ago, whichever tree did: a table of hundreds of roots is not
    written by every one of those that grow.
    """
    student_run = RootKey.parse(context.partition_key).student_run
    if min_age and _is_told_since(time.time() - min_age, student_run, context.instance):
        return
    states = list(root_states(student_run, context.instance))
    context.log_event(
        dg.AssetObservation(
            SHOWN_ON,
            partition=student_run,
            description=_in_words(states),
            metadata={
                "trees so far": _in_words(states),
                "trees at a glance": at_a_glance(_picture(states)),
                "trees by root": table_of(map(_row, states)),
            },
        )
    )


def _is_told_since(timestamp: float, student_run: str, instance: dg.DagsterInstance) -> bool:
    told = dg.AssetRecordsFilter(SHOWN_ON, asset_partitions=[student_run], after_timestamp=timestamp)
    return bool(instance.fetch_observations(told, limit=1).records)


def root_states(student_run: str, instance: dg.DagsterInstance) -> Iterator[RootState]:
    """The roots of a Student run in run order."""
    keys = {str(root): root for root in roots_of(student_run, instance)}
    folders, trees = _told("root_folders", keys, instance), _told(TREES, keys, instance)
    under_way, grown = partitions_under_way(instance), instance.get_materialized_partitions(dg.AssetKey(TREES))
    for name, key in keys.items():
        root, tree = folders.get(name, {}), trees.get(name, {})
        yield RootState(
            root=key,
            stage=str(root.get(STAGE, "")),
            state=_state(tree.get(STATE), name in under_way, name in grown),
            edges=tree.get(EDGES),
            best_score=tree.get(BEST),
            root_score=root.get(SCORE),
        )


def _told(asset: str, keys: Collection[str], instance: dg.DagsterInstance) -> dict[str, dict[str, Any]]:
    """Metadata of the latest observation of each partition that has one."""
    latest = latest_observations(asset, keys, instance)
    return {key: {name: value.value for name, value in told.metadata.items()} for key, told in latest.items()}


def _state(told: object, is_under_way: bool, is_grown: bool) -> State:
    """What was told last, unless the process that told it was killed; of earlier versions' trees nothing is told."""
    if told == "growing":
        return "growing" if is_under_way else "stopped"
    return next((state for state in COLOURS if state == told), "done" if is_grown else "to do")


def _in_words(states: list[RootState]) -> str:
    counts = Counter(state.state for state in states)
    others = (f"{counts[state]} {state}" for state in COLOURS if state != "done" and counts[state])
    return ", ".join((f"{counts['done']} of {len(states)} trees done", *others))


def _picture(states: list[RootState]) -> str:
    counts = Counter((state.stage, state.state) for state in states)
    stages = [*STAGES, ""] if any(not state.stage for state in states) else STAGES
    shown = [state for state in COLOURS if any(counts[stage, state] for stage in stages) or state == "done"]
    bars = {stage: [counts[stage, state] for state in shown] for stage in stages}
    return sketch.bars_sketch(bars, {state: COLOURS[state] for state in shown})


def _row(state: RootState) -> dict[str, Any]:
    parts = parse_snapshot_name(state.root.root)
    return {
        "root": f"{parts.global_index} {parts.agent_id}" if parts else state.root.root,
        "stage": state.stage,
        "tree": state.state,
        "edges": state.edges,
        "root score": state.root_score,
        "best score": state.best_score,
    }
