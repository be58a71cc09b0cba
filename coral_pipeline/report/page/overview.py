"""What the page tells of the whole run: how its roots fared, what was selected, what it cost."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from coral_pipeline import tables
from coral_pipeline.report.page.reading import RootReading, Row, RunReading
from coral_pipeline.report.roots import RootReport, report_of
from coral_pipeline.settings import STAGES, orient

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class Costs:
    """What exploring cost, of one tree or of several."""

    edges: int
    turns: int
    model_calls: int
    tool_calls: int
    failed_tool_calls: int
    context_tokens: int
    """Tokens the edges, failed ones too, added to their parents' contexts."""
    prompt_tokens: int | None
    """Of all model calls, each prompt counted in full; None: the model endpoint reported none."""
    sampled_tokens: int | None
    """Likewise None."""
    hours: float
    """Wall-clock hours of all turns, summed: more than the search took where edges ran side by side."""

    @staticmethod
    def total(costs: Iterable[Costs]) -> Costs:
        """The sums; None only where none is known."""
        costs = list(costs)
        sums: dict[str, Any] = {}
        for each in fields(Costs):
            values = [value for cost in costs if (value := getattr(cost, each.name)) is not None]
            sums[each.name] = math.fsum(values) if each.name == "hours" else sum(values)
            if not values and each.name in ("prompt_tokens", "sampled_tokens"):
                sums[each.name] = None
        return Costs(**sums)


@dataclass(frozen=True)
class RootOverview:
    """One root in the few numbers a person looks at first."""

    reading: RootReading
    report: RootReport | None
    """None: its tree is not finished."""
    costs: Costs | None
    """None likewise."""

    @property
    def label(self) -> str:
        """A name short enough for a line: place in the run, and agent."""
        return f"{self.reading.chosen['global_index']} · {self.reading.chosen['agent_id']}"


def root_overview(root: RootReading) -> RootOverview:
    """The numbers of a root."""
    if not root.done:
        return RootOverview(root, None, None)
    return RootOverview(root, report_of(root.info, root.nodes, root.edges, root.ranked), _costs(root))


def _costs(root: RootReading) -> Costs:
    edges = root.edges.to_pylist()
    before = {node["node_id"]: node["max_token_total"] for node in root.nodes.to_pylist()}
    return Costs(
        edges=len(edges),
        turns=sum(1 for _ in root.rows(tables.TURNS, "turn")),
        model_calls=sum(edge["step_turns"] for edge in edges),
        tool_calls=sum(edge["tool_calls"] for edge in edges),
        failed_tool_calls=sum(edge["failed_tool_calls"] for edge in edges),
        context_tokens=sum(max(0, edge["max_token_total"] - before[edge["parent_id"]]) for edge in edges),
        prompt_tokens=_counted(root, "input_tokens"),
        sampled_tokens=_counted(root, "output_tokens"),
        hours=math.fsum(edge["seconds"] for edge in edges) / SECONDS_PER_HOUR,
    )


def _counted(root: RootReading, column: str) -> int | None:
    """Sum over the tree's messages; None where none has a number."""
    values = [row[column] for row in root.rows(tables.MESSAGES, column) if row[column] is not None]
    return sum(values) if values else None


@dataclass(frozen=True)
class Advantages:
    """Edges by the sign of their advantage."""

    positive: int
    negative: int
    zero: int
    unassigned: int
    estimators: Sequence[str]


def advantages(run: RunReading) -> Advantages:
    """Of all roots together."""
    credit = all_credit(run)
    signs = Counter(map(_sign, [] if credit is None else credit["advantage"].to_pylist()))
    return Advantages(
        **{sign: signs[sign] for sign in ("positive", "negative", "zero", "unassigned")},
        estimators=sorted(set([] if credit is None else credit["estimator"].to_pylist())),
    )


def all_credit(run: RunReading) -> pa.Table | None:
    """``tables.CREDIT_EDGES`` of all roots together; None where none has any."""
    parts = [root.credit for root in run.roots if root.credit is not None]
    return pa.concat_tables(parts) if parts else None


def _sign(advantage: float | None) -> str:
    if advantage is None:
        return "unassigned"
    return "positive" if advantage > 0 else "negative" if advantage < 0 else "zero"


def selected_paths(run: RunReading) -> list[Row]:
    """The selected paths of all roots, in run order, best first; ``place`` is the root's place in the page."""
    return [
        {**row, "place": place, "root": root}
        for place, root in enumerate(run.roots)
        if root.ranked is not None
        for row in sorted(root.ranked.to_pylist(), key=lambda row: (row["rank"] is None, row["rank"]))
        if row["selected"]
    ]


def stage_rows(run: RunReading) -> list[Row]:
    """Per stage: snapshots kept, how many of them may become roots, how many did, and the scores they span."""
    labels = run.labels.to_pylist()
    chosen = Counter(root.chosen["stage"] for root in run.roots)
    rows = []
    for stage in STAGES:
        own = [row for row in labels if row["stage"] == stage]
        scores = [row["score"] for row in own if row["score"] is not None]
        rows.append(
            {
                "stage": stage,
                "snapshots": len(own),
                "eligible": sum(row["eligible"] for row in own),
                "roots": chosen[stage],
                "best": max(scores, key=lambda score: orient(score, run.direction), default=None),
                "worst": min(scores, key=lambda score: orient(score, run.direction), default=None),
            }
        )
    return rows


def best_scores(run: RunReading, roots: Sequence[RootOverview]) -> tuple[float | None, float | None]:
    """Best raw score of the Student, and of the Teacher's trees."""
    student = [score for score in run.labels["score"].to_pylist() if score is not None]
    teacher = [root.report.best_score for root in roots if root.report]

    def best(scores: Sequence[float]) -> float | None:
        return max(scores, key=lambda score: orient(score, run.direction), default=None)

    return best(student), best(teacher)
