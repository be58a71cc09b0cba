"""The steps of a chain, and the files that each is read from, verified now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coral_pipeline import provenance
from coral_pipeline.audit.chain import verify_copied_root, verify_files, verify_inputs
from coral_pipeline.audit.findings import Review
from coral_pipeline.audit.sources import Source
from coral_pipeline.errors import BadInput
from coral_pipeline.provenance import Provenance


@dataclass(frozen=True)
class Record:
    """What stands behind the files that a step is read from, as their provenance says, and whether it still holds."""

    asset: str
    partition: str
    address: str
    made: Provenance | None
    """None where it is missing or damaged; then ``problems`` says so."""
    problems: tuple[str, ...]
    """What is no longer as it was recorded, one line each."""

    def as_json(self) -> dict[str, Any]:
        """With JSON values alone."""
        made = None if self.made is None else self.made.model_dump(mode="json")
        return {
            "asset": self.asset,
            "partition": self.partition,
            "address": self.address,
            "provenance": made,
            "problems": list(self.problems),
        }


@dataclass(frozen=True)
class Step:
    """One thing of the chain; the next one is what it came from."""

    title: str
    facts: dict[str, Any]
    """By name, JSON values; None where the tables say nothing."""
    numbers: tuple[str, ...] = ()
    """How its numbers came about, a line each."""
    content: str | None = None
    """Version of the row or folder that it is: the same contents, the same version."""
    records: tuple[Record, ...] = ()
    """Of the partitions that it is read from."""
    problems: tuple[str, ...] = ()
    """What is wrong with it besides its records, one line each."""

    @property
    def is_intact(self) -> bool:
        """Whether all that could be verified is as it was."""
        return not self.problems and not any(record.problems for record in self.records)

    def as_json(self) -> dict[str, Any]:
        """With JSON values alone."""
        values = {name: getattr(self, name) for name in ("title", "facts", "numbers", "content", "problems")}
        return values | {"records": [record.as_json() for record in self.records], "intact": self.is_intact}


class Records:
    """Records by partition, each verified once."""

    def __init__(self, source: Source) -> None:
        """``source``: where the partitions lie."""
        self._source = source
        self._records: dict[tuple[str, str], Record] = {}

    def of(self, asset: str, partition: str) -> Record:
        """The record of a partition: the bytes of its files, and that what it was made from is still there."""
        key = (asset, partition)
        if key not in self._records:
            review = Review(asset, partition)
            verify_files(review, self._source, partition)
            made = self._made(asset, partition)
            if made is not None:
                verify_inputs(review, self._source, partition)
            self._records[key] = Record(
                asset, partition, self._source.storage.address(asset, partition), made, _lines(review)
            )
        return self._records[key]

    def problems_of_root(self, partition: str) -> tuple[str, ...]:
        """How the copied folder of a root differs from what was copied."""
        review = Review("root_folders", partition)
        verify_copied_root(review, self._source, partition)
        return _lines(review)

    def _made(self, asset: str, partition: str) -> Provenance | None:
        try:
            return provenance.read(self._source.fetch(asset, partition))
        except BadInput:
            return None


def _lines(review: Review) -> tuple[str, ...]:
    return tuple(f"{finding.where}: {finding.problem}" for finding in review.findings)
