"""A chain as people read it."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from coral_pipeline.lineage.steps import Record, Step

_WIDTH = 118
_MARGIN = " " * 6


def lines_of(steps: Sequence[Step]) -> Iterator[str]:
    """The lines of all steps, each record where it is first needed, and a verdict."""
    told: set[tuple[str, str]] = set()
    for place, step in enumerate(steps):
        yield f"{'<- ' if place else '   '}{step.title}: {'ok' if step.is_intact else 'CHANGED'}"
        yield from _wrapped("", _pairs(step.facts))
        for line in step.numbers:
            yield from _wrapped("", line)
        if step.content:
            yield f"{_MARGIN}content {step.content}"
        for problem in step.problems:
            yield from _wrapped("CHANGED: ", problem)
        for record in step.records:
            if (record.asset, record.partition) in told:
                yield f"{_MARGIN}in {record.asset} {record.partition}, above"
            else:
                told.add((record.asset, record.partition))
                yield from _record(record)
    broken = [step.title for step in steps if not step.is_intact]
    yield f"CHANGED since it was made: {', '.join(broken)}" if broken else f"all {len(steps)} steps are as recorded"


def _record(record: Record) -> Iterator[str]:
    yield f"{_MARGIN}in {record.asset} {record.partition}: {record.address}"
    made = record.made
    if made is not None:
        software = ", ".join(f"{name} {version}" for name, version in made.software.items())
        run = f"Dagster run {made.run_id}, " if made.run_id else ""
        yield from _wrapped("  made ", f"{made.made_at:%Y-%m-%d %H:%M:%S %Z}, {run}code {made.code}, {software}")
        yield f"{_MARGIN}  version {made.version}, provenance {made.seal[:16]}…"
        if made.settings:
            yield from _wrapped("  settings ", _pairs(dict(_flat(made.settings))))
        for source in made.inputs:
            yield f"{_MARGIN}  from {source.asset} {source.partition}, version {source.version}"
        for name, checksum in made.files.items():
            yield f"{_MARGIN}  {name}: {checksum.bytes:,} bytes, SHA-256 {checksum.sha256}"
    for problem in record.problems:
        yield from _wrapped("  CHANGED: ", problem)


def _pairs(values: Mapping[str, Any]) -> str:
    return "; ".join(f"{name} {_value(value)}" for name, value in values.items())


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{name} {_value(inside)}" for name, inside in value.items()) + ")"
    return value if isinstance(value, str) else json.dumps(value)


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings by dotted names."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _wrapped(label: str, text: str) -> Iterator[str]:
    following = _MARGIN + " " * len(label)
    yield from textwrap.wrap(
        text, _WIDTH, initial_indent=_MARGIN + label, subsequent_indent=following, break_on_hyphens=False
    )
