"""A growing tree in Dagster's event log."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from coral_pipeline import tables
from coral_pipeline.defs.metadata import at_a_glance, number, picture
from coral_pipeline.defs.overview import BEST, EDGES, STATE, tell_overview
from coral_pipeline.defs.pages import GLANCE, RESULT, against_root
from coral_pipeline.disk_use import readable
from coral_pipeline.report.sketch import tree_sketch
from coral_pipeline.report.tree_picture import tree_svg
from coral_pipeline.search.output import edge_rows, node_rows
from coral_pipeline.search.progress import Progress

TURNS_BETWEEN, SECONDS_BETWEEN = 10, 30.0
"""An observation is made after so many turns or so many seconds: each costs up to 70 ms on a busy machine."""
SECONDS_BETWEEN_OVERVIEWS = 300.0
"""All roots of the Student run are shown so often, by any of its trees, beside the begin and end of each."""
PICTURE = "tree so far"


@dataclass(frozen=True)
class SearchControl:
    """How the process that runs a search stops it and watches it."""

    stop: threading.Event = field(default_factory=threading.Event)
    watch: Callable[[str, Progress], None] = lambda root, progress: None
    """Called with the partition key and the progress whenever something has happened."""


class ProgressLog:
    """Observer of a search that writes observations of its partition.

    Each has its figures and a small picture, about 2 kB; the tree in full, ten times that, only where it has grown.
    """

    def __init__(self, context: dg.AssetExecutionContext, control: SearchControl) -> None:
        """Begin the clock."""
        self._context = context
        self._watch = control.watch
        self._began = time.monotonic()
        self._written = self._overview = -math.inf
        self._turns = 0
        self._drawn = 0
        self._fraction: float | None = None

    def __call__(self, progress: Progress) -> None:
        """Take up what has happened: where it goes on at first, then what is new since the last observation."""
        self._watch(self._context.partition_key, progress)
        turns, now = sum(len(edge.turns) for edge in progress.tree.edges), time.monotonic()
        if self._fraction is None:
            self._turns, self._fraction = turns, progress.fraction
        if turns - self._turns >= TURNS_BETWEEN or now - self._written >= SECONDS_BETWEEN:
            self._turns, self._written = turns, now
            self._context.log_event(
                dg.AssetObservation(
                    self._context.asset_key,
                    partition=self._context.partition_key,
                    description=f"round {progress.round}, {progress.valid_edges} edges",
                    metadata=progress_page(progress, now - self._began, self._fraction) | self._picture(progress),
                )
            )
        if now - self._overview >= SECONDS_BETWEEN_OVERVIEWS:
            is_begin = math.isinf(self._overview)
            tell_overview(self._context, 0.0 if is_begin else SECONDS_BETWEEN_OVERVIEWS)
            self._overview = time.monotonic()

    def _picture(self, progress: Progress) -> dict[str, Any]:
        tree = progress.tree
        if len(tree.edges) <= self._drawn:
            return {}
        self._drawn = len(tree.edges)
        return {
            PICTURE: picture(
                PICTURE,
                tree_svg(tables.NODES.build(node_rows(tree)), tables.EDGES.build(edge_rows(tree)), tree.direction),
            )
        }


def progress_page(progress: Progress, elapsed: float, before: float = 0.0) -> dict[str, Any]:
    """What the page of a tree tells while it grows, after ``elapsed`` seconds of this try.

    ``before``: the share of the search that was done when this try began.
    """
    tree = progress.tree
    root, done = tree.root.score, progress.fraction - before
    figures = (
        f"{len(progress.running)} edges under way",
        f"{progress.failed_edges} failed",
        f"{progress.tokens:,} tokens",
        f"{readable(progress.disk_bytes)} on disk",
        f"{elapsed / 60:.1f} minutes so far",
    )
    left = elapsed / done * (1 - progress.fraction) / 60 if done > 0 else None
    return {
        STATE: "growing",
        RESULT: f"{progress.fraction:.0%} done: round {progress.round}, "
        f"{progress.valid_edges} of at most {progress.max_logical_edges} edges, {progress.good_leaves} of "
        f"{progress.target_good_leaf_count} good leaves; {against_root(progress.best_score, root, tree.direction)}",
        GLANCE: at_a_glance(tree_sketch(node_rows(tree), tree.direction)),
        "figures": ", ".join(figures),
        "done, percent": round(100 * progress.fraction),
        **({} if left is None else {"minutes left, about": round(left, 1)}),
        EDGES: progress.valid_edges,
        BEST: number(progress.best_score),
        "root score": number(root),
    }
