"""Expected failures, as Dagster shows them."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import dagster as dg

from coral_pipeline.errors import PipelineError

P = ParamSpec("P")
R = TypeVar("R")


def plainly(asset: Callable[P, R]) -> Callable[P, R]:
    """Let an asset's expected failures show as their one line, and keep Dagster from trying again: input is input."""

    @functools.wraps(asset)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return asset(*args, **kwargs)
        except PipelineError as error:
            raise dg.Failure(str(error), allow_retries=False) from error

    return run
