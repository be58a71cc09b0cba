"""Early, middle and late: where in the Student run each snapshot lies (seed 2.2–2.4, method S5–S8)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import pyarrow as pa

from coral_pipeline import tables
from coral_pipeline.errors import BadInput
from coral_pipeline.scores import mean
from coral_pipeline.settings import Direction, SelectionSettings, Stage, orient


def label_stages(
    filtered: pa.Table, direction: Direction, settings: SelectionSettings, *, student_run: object = "Student run"
) -> pa.Table:
    """``tables.STAGE_LABELS``: one row per row of ``filtered``, in its order (run order, S6).

    Raises ``BadInput``, naming ``student_run``, where no snapshot was kept or none has a numeric score.
    """
    rows = filtered.to_pylist()
    if not rows:
        raise BadInput(student_run, "no snapshot was kept", "see the reasons in rejected_snapshots.parquet")
    scores = fill_missing_scores([row["score"] for row in rows])
    if scores is None:
        raise BadInput(
            student_run,
            f"none of the {len(rows)} kept snapshots has a numeric score, so it has no stages",
            "choose a run in which at least one eval succeeded",
        )
    oriented = [orient(score, direction) for score in scores]
    smooth = smooth_scores(oriented, settings.smooth_window)
    gains = gain_shares(smooth, settings)
    if gains is None:
        stages = stages_by_position(len(rows), settings)
    else:
        stages = [stage_by_gain(gain, settings) for gain in gains]
    return tables.STAGE_LABELS.build(
        {
            **{key: row[key] for key in ("snapshot", "global_index", "agent_id", "eval_ok", "eligible", "score")},
            "score_for_stage": scores[i],
            "oriented_score": oriented[i],
            "smooth_score": smooth[i],
            "gain": None if gains is None else gains[i],
            "stage": stages[i],
            "staged_by": "position" if gains is None else "gain",
        }
        for i, row in enumerate(rows)
    )


def fill_missing_scores(scores: Sequence[float | None]) -> list[float] | None:
    """Each missing score replaced by the nearest earlier one, else the nearest later; None where all miss (S5)."""
    latest = next((score for score in scores if score is not None), None)
    if latest is None:
        return None
    filled = []
    for score in scores:
        latest = latest if score is None else score
        filled.append(latest)
    return filled


def smooth_scores(scores: Sequence[float], window: int) -> list[float]:
    """Centred moving average over ``window`` (odd) scores, cut at both ends (S7)."""
    half = window // 2
    return [mean(scores[max(0, i - half) : i + half + 1]) for i in range(len(scores))]


def gain_shares(smooth: Sequence[float], settings: SelectionSettings) -> list[float] | None:
    """c_i of each snapshot, in [0, 1]: the share of the run's gain reached; None without an upward trend (S8)."""
    start = mean(smooth[: count_of_share(settings.start_fraction, len(smooth))])
    final = mean(smooth[-count_of_share(settings.final_fraction, len(smooth)) :])
    if final - start <= settings.trend_tolerance * max(1.0, abs(start), abs(final)):
        return None
    # Scores near the largest float (a penalty, say) have gains beyond it; halves have the same shares.
    unit = 1.0 if math.isfinite(final - start) else 0.5
    return [min(1.0, max(0.0, (unit * s - unit * start) / (unit * final - unit * start))) for s in smooth]


def stage_by_gain(gain: float, settings: SelectionSettings) -> Stage:
    """The stage at which ``gain`` of the run's gain is reached (S8)."""
    if gain < settings.middle_gain:
        return "early"
    return "middle" if gain < settings.late_gain else "late"


def stages_by_position(snapshots: int, settings: SelectionSettings) -> list[Stage]:
    """The stages of a run of ``snapshots`` without a trend, by position (S8)."""
    # A position is under a share iff it is under the share rounded up.
    middle = count_of_share(settings.middle_position, snapshots)
    late = count_of_share(settings.late_position, snapshots)
    return ["early" if i < middle else "middle" if i < late else "late" for i in range(snapshots)]


def count_of_share(fraction: float, snapshots: int) -> int:
    """``fraction`` of the snapshots, rounded up; exact for the decimal it is written as (0.07 of 100 is 7, not 8)."""
    return math.ceil(Fraction(str(fraction)) * snapshots)
