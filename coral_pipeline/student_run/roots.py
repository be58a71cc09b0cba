"""The choice of roots: even over time within each stage, most from the middle (seed 2.5, method S9–S11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from coral_pipeline import tables
from coral_pipeline.settings import STAGES, SelectionSettings, Stage, StageWeights

T = TypeVar("T")


def select_roots(labels: pa.Table, filtered: pa.Table, student_run_name: str, settings: SelectionSettings) -> pa.Table:
    """``tables.SELECTED_ROOTS``, in run order: at most ``num_roots``, all eligible ones where there are fewer (S11).

    ``labels`` and ``filtered`` are the same run's stage labels and kept snapshots.
    """
    rows = labels.to_pylist()
    commits = dict(
        zip(filtered.column("snapshot").to_pylist(), filtered.column("commit_hash").to_pylist(), strict=True)
    )
    eligible = {
        stage: [i for i, row in enumerate(rows) if row["eligible"] and row["stage"] == stage] for stage in STAGES
    }
    reasons = choose(eligible, settings)
    return tables.SELECTED_ROOTS.build(
        {
            "root": rows[i]["snapshot"],
            "student_run": student_run_name,
            **{key: rows[i][key] for key in ("global_index", "agent_id", "score", "stage")},
            "commit_hash": commits[rows[i]["snapshot"]],
            "selection_reason": reasons[i],
        }
        for i in sorted(reasons)
    )


def choose(eligible: dict[Stage, list[int]], settings: SelectionSettings) -> dict[int, str]:
    """The chosen items of each stage's ordered eligible ones, each with its selection reason (S11)."""
    reasons: dict[int, str] = {}
    for stage, quota in stage_quotas(settings.num_roots, settings.quota_weights).items():
        for item in pick_evenly(eligible[stage], min(quota, len(eligible[stage]))):
            reasons[item] = "quota"
    for stage in settings.backfill_order:
        unpicked = [item for item in eligible[stage] if item not in reasons]
        for item in pick_evenly(unpicked, min(settings.num_roots - len(reasons), len(unpicked))):
            reasons[item] = "backfill"
    return reasons


def stage_quotas(num_roots: int, weights: StageWeights) -> dict[Stage, int]:
    """``num_roots`` split by ``weights`` with the largest remainder; ties go early, middle, late (S9)."""
    parts: dict[Stage, int] = {"early": weights.early, "middle": weights.middle, "late": weights.late}
    total = sum(parts.values())
    quotas = {stage: num_roots * weight // total for stage, weight in parts.items()}
    by_remainder = sorted(STAGES, key=lambda stage: -(num_roots * parts[stage] % total))
    for stage in by_remainder[: num_roots - sum(quotas.values())]:
        quotas[stage] += 1
    return quotas


def pick_evenly(items: Sequence[T], q: int) -> list[T]:
    """``q`` of the ordered ``items``, evenly spaced, first and last among them where q > 1 (S10)."""
    n = len(items)
    if not 0 <= q <= n:
        raise ValueError(f"cannot pick {q} of {n}")
    if q == 0:
        return []
    if q == 1:
        return [items[(n - 1) // 2]]
    # floor(k * (n - 1) / (q - 1) + 0.5), in whole numbers
    return [items[(2 * k * (n - 1) + q - 1) // (2 * (q - 1))] for k in range(q)]


@dataclass(frozen=True)
class StageAccount:
    """What one stage was asked for and gave."""

    stage: Stage
    snapshots: int
    """Kept snapshots of the stage."""
    eligible: int
    quota: int
    by_quota: int
    """Roots picked within the quota."""
    by_backfill: int
    """Roots picked to fill a shortage, another stage's or the run's."""


def account(labels: pa.Table, roots: pa.Table, settings: SelectionSettings) -> list[StageAccount]:
    """Per stage, early to late: snapshots, quota, roots."""
    rows: list[dict[str, Any]] = labels.select(["stage", "eligible"]).to_pylist()
    chosen: list[dict[str, Any]] = roots.select(["stage", "selection_reason"]).to_pylist()
    quotas = stage_quotas(settings.num_roots, settings.quota_weights)
    return [
        StageAccount(
            stage=stage,
            snapshots=sum(row["stage"] == stage for row in rows),
            eligible=sum(row["stage"] == stage and row["eligible"] for row in rows),
            quota=quotas[stage],
            by_quota=chosen.count({"stage": stage, "selection_reason": "quota"}),
            by_backfill=chosen.count({"stage": stage, "selection_reason": "backfill"}),
        )
        for stage in STAGES
    ]


def shortages(accounts: Sequence[StageAccount], settings: SelectionSettings) -> list[str]:
    """One sentence per stage that could not fill its quota, and one where the run has too few roots in all."""
    sentences = [
        f"{stage.stage} stage: quota {stage.quota}, eligible {stage.eligible}"
        for stage in accounts
        if stage.eligible < stage.quota
    ]
    eligible = sum(stage.eligible for stage in accounts)
    if eligible < settings.num_roots:
        sentences.append(
            f"roots asked for: {settings.num_roots}, eligible snapshots: {eligible}; all of them were chosen"
        )
    return sentences
