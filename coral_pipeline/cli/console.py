"""What every command says to the person at the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from coral_pipeline.errors import BadInput

T = TypeVar("T")

stderr = Console(stderr=True)
stdout = Console()


def track(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """Yield the items behind a progress bar on stderr; silent where stderr is no terminal."""
    with progress_bar() as progress:
        yield from progress.track(items, description=description, total=total)


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A rich progress bar on stderr that shows nothing where stderr is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr, disable=not stderr.is_terminal, transient=True) as progress:
        yield progress


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """While writing into ``out``: what the disk refuses as ``BadInput`` naming the file."""
    try:
        yield
    except OSError as error:
        thing, problem = error.filename or out, f"cannot be written ({error.strerror})"
        raise BadInput(thing, problem, "choose another --out") from error
