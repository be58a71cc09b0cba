"""Expected failures, as Dagster shows them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Concatenate, ParamSpec, TypeVar

import dagster as dg

from coral_pipeline.defs.retries import RunContext, forget_earlier_mark, mark_run
from coral_pipeline.defs.workers import note_worker
from coral_pipeline.errors import PipelineError, told

P = ParamSpec("P")
R = TypeVar("R")
Asset = Callable[Concatenate[dg.AssetExecutionContext, P], R]
"""What computes an asset, its context first."""


def plainly(asset: Asset[P, R]) -> Asset[P, R]:
    """Let an asset's expected failures show as their one line, and be tried again where that may help."""

    @functools.wraps(asset)
    def run(context: dg.AssetExecutionContext, /, *args: P.args, **kwargs: P.kwargs) -> R:
        note_worker(context)
        with failing_plainly(context):
            return asset(context, *args, **kwargs)

    return run


@contextlib.contextmanager
def failing_plainly(context: RunContext) -> Iterator[None]:
    """The same for a part of a step."""
    forget_earlier_mark(context)
    try:
        yield
    except PipelineError as error:
        mark_run(context, error)
        raise dg.Failure(str(error)) from error
    except OSError as error:
        mark_run(context, error)
        raise dg.Failure(told(error)) from error
