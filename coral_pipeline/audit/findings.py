"""What a verification looked at, and what it found to be wrong."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from coral_pipeline.errors import BadInput, PipelineError, is_unread

MOST_OF_A_KIND = 10
"""Findings of one kind (one column of one table, say) that are listed one by one; the rest are counted."""
SHOWN_CHARACTERS = 80
"""Of a value in a finding."""


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be."""

    asset: str
    partition: str
    """``student_run`` or ``student_run|root``."""
    where: str
    """File, and row and column where it is about one cell."""
    problem: str
    """What was found and what was expected; one line."""

    def __str__(self) -> str:
        """The line people read."""
        return f"{self.asset} {self.partition}: {self.where}: {self.problem}"


@dataclass
class Review:
    """One verification of one asset's partition: what it looked at, and its findings."""

    asset: str
    partition: str
    findings: list[Finding] = field(default_factory=list)
    looked_at: Counter[str] = field(default_factory=Counter)
    """How many rows, cells, files … were held against what they should be."""
    largest_difference: float = 0.0
    """Between two numbers that should be equal, those within the tolerance included."""
    notes: list[str] = field(default_factory=list)
    """What could not be verified, and why; no findings."""
    _of_a_kind: Counter[str] = field(default_factory=Counter, repr=False)

    def find(self, where: str, problem: str, kind: str | None = None) -> None:
        """Write down a finding. ``kind``: those alike are listed up to ``MOST_OF_A_KIND``, then only counted."""
        kind = kind or where
        self._of_a_kind[kind] += 1
        if self._of_a_kind[kind] <= MOST_OF_A_KIND:
            self.findings.append(Finding(self.asset, self.partition, where, " ".join(problem.split())))

    @property
    def total(self) -> int:
        """All findings, those that are only counted included."""
        return self._of_a_kind.total()

    def lines(self) -> Iterator[str]:
        """Every finding as its line, then how many more of a kind there are."""
        yield from map(str, self.findings)
        yield from self.unlisted()

    def unlisted(self) -> Iterator[str]:
        """One line per kind of which there are more findings than are listed."""
        for kind, count in self._of_a_kind.items():
            if count > MOST_OF_A_KIND:
                yield f"{self.asset} {self.partition}: {kind}: and {count - MOST_OF_A_KIND} more like these"

    @contextlib.contextmanager
    def guarded(self, what: str) -> Iterator[None]:
        """What the block cannot make sense of becomes a finding about ``what``.

        Tables that were tampered with can hold anything: references to rows that are not there, text that is no
        text, numbers out of range. The stages that read them raise whatever these lead to, not only ``BadInput``.
        An outage, a refusal, or ``Changed`` say nothing about ``what`` and are raised on.
        """
        try:
            yield
        except BadInput as error:
            if is_unread(error):
                raise
            self.find(error.thing, error.problem)
        except PipelineError as error:
            self.find(what, str(error))
        except (OSError, pa.ArrowException, ValueError, LookupError, ArithmeticError, TypeError) as error:
            if is_unread(error):
                raise
            self.find(what, f"makes no sense ({type(error).__name__}: {error})")


def shown(value: object) -> str:
    """A value as findings show it: numbers in full, long texts cut."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}… ({len(text)} characters)"
