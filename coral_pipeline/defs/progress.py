"""A growing tree in Dagster's event log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import dagster as dg

from coral_pipeline.search.progress import Progress

TURNS_BETWEEN, SECONDS_BETWEEN = 10, 30.0
"""An observation is made after so many turns or so many seconds: each costs up to 70 ms on a busy machine."""


@dataclass(frozen=True)
class SearchControl:
    """How the process that runs a search stops it and watches it."""

    stop: threading.Event = field(default_factory=threading.Event)
    watch: Callable[[str, Progress], None] = lambda root, progress: None
    """Called with the partition key and the progress whenever something has happened."""


class ProgressLog:
    """Observer of a search that writes observations of its partition."""

    def __init__(self, context: dg.AssetExecutionContext, control: SearchControl) -> None:
        """Begin the clock."""
        self._context = context
        self._watch = control.watch
        self._began = self._written = time.monotonic()
        self._turns: int | None = None

    def __call__(self, progress: Progress) -> None:
        """Take up what has happened; turns known from an earlier try cost nothing and are not counted."""
        self._watch(self._context.partition_key, progress)
        turns, now = sum(len(edge.turns) for edge in progress.tree.edges), time.monotonic()
        if self._turns is None:
            self._turns = turns
        if turns - self._turns >= TURNS_BETWEEN or now - self._written >= SECONDS_BETWEEN:
            self._turns, self._written = turns, now
            self._context.log_event(
                dg.AssetObservation(
                    self._context.asset_key,
                    partition=self._context.partition_key,
                    description=f"round {progress.round}, {progress.valid_edges} edges",
                    metadata=self._metadata(progress, now - self._began),
                )
            )

    def _metadata(self, progress: Progress, elapsed: float) -> dict[str, int | float]:
        left = elapsed / progress.fraction - elapsed if progress.fraction else None
        return {
            "round": progress.round,
            "edges": progress.valid_edges,
            "failed edges": progress.failed_edges,
            "good leaves": progress.good_leaves,
            "best score": progress.best_score,
            "tokens": progress.tokens,
            "seconds so far": round(elapsed, 1),
            **({} if left is None else {"seconds left, about": round(left, 1)}),
        }
