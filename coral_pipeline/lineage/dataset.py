"""A row of the dataset, or one message or token in it, and what of its root's tree it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from coral_pipeline import tables
from coral_pipeline.audit.sources import Source
from coral_pipeline.content import digest_of
from coral_pipeline.errors import BadInput
from coral_pipeline.lineage.reference import Reference
from coral_pipeline.lineage.steps import Records, Step

_FACTS = ("student_run", "root", "stage", "rank", "leaf_id", "PathScore", "node_ids", "edge_ids")


@dataclass(frozen=True)
class Sample:
    """What a reference into the dataset names."""

    step: Step
    made_from: Reference
    """The path, or the message or token of its tree."""


def find_in_dataset(reference: Reference, run: str, source: Source, records: Records) -> Sample:
    """What ``reference``, of the kind ``sft`` or ``branches``, names. Raises ``BadInput`` that says what there is."""
    table = tables.SFT_SAMPLES if reference.kind == "sft" else tables.BRANCHES
    rows, number = table.read(source.fetch("sft_dataset", run)), int(reference.name)
    if number >= rows.num_rows:
        there = f"there are 0 to {rows.num_rows - 1}" if rows.num_rows else "it has none"
        raise BadInput(f"row {number} of {table.file_name}", f"is not in the dataset of {run}", there)
    row = rows.slice(number, 1).to_pylist()[0]
    what = f"row {number} of {table.file_name}"
    facts = {name: row[name] for name in _FACTS if name in row}
    if reference.kind == "sft":
        facts |= {"messages": len(row["messages"]), "of an earlier sample": row["shared_messages"]}
    else:
        facts |= {"tokens": len(row["input_ids"]), "of an earlier stream": row["shared_tokens"]}
    made_from = Reference(run, "path", row["root"], str(row["rank"]))
    if reference.position is not None:
        facts, made_from = facts | _there(reference, row, what), _made_from(reference, run, row)
    record = records.of("sft_dataset", run)
    return Sample(Step(what, facts, content=digest_of(row), records=(record,)), made_from)


def _there(reference: Reference, row: Mapping[str, Any], what: str) -> dict[str, Any]:
    """What stands at the position. Raises ``BadInput`` where nothing does."""
    place, column = reference.position or 0, "messages" if reference.kind == "sft" else "input_ids"
    if place >= len(row[column]):
        raise BadInput(f"position {place} of {what}", "is not there", f"there are 0 to {len(row[column]) - 1}")
    if reference.kind == "sft":
        return {f"message {place}": row["messages"][place]}
    found = {"id": row["input_ids"][place], "label": row["labels"][place], "sampled": row["mask"][place]}
    return {f"token {place}": found | {"advantage": row["advantages"] and row["advantages"][place]}}


def _made_from(reference: Reference, run: str, row: Mapping[str, Any]) -> Reference:
    place = reference.position or 0
    if reference.kind == "sft":
        return Reference(run, "message", row["root"], row["message_ids"][place])
    ends = list(accumulate(row["message_lengths"]))
    index = next(index for index, end in enumerate(ends) if place < end)
    begin = ends[index] - row["message_lengths"][index]
    return Reference(run, "token", row["root"], row["message_ids"][index], place - begin)
