"""Expected failures, as Dagster shows them."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import dagster as dg

from coral_pipeline.errors import PipelineError

P = ParamSpec("P")
R = TypeVar("R")


def plainly(asset: Callable[P, R]) -> Callable[P, R]:
    """Let an asset's expected failures show as their one line.

    Dagster is kept from trying bad input again; what the disk refuses may work the next time.
    """

    @functools.wraps(asset)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return asset(*args, **kwargs)
        except PipelineError as error:
            raise dg.Failure(str(error), allow_retries=False) from error
        except OSError as error:
            problem = f"{error.filename or 'the disk'}: {error.strerror or error}; mend that and run it again"
            raise dg.Failure(problem) from error

    return run
