"""The score over a Student run, its stages and the roots chosen from it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coral_pipeline.report.svg import drawable, svg_text
from coral_pipeline.settings import Direction, orient

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STAGE_SHADES = {"early": "#f4f1e8", "middle": "#d9e6f2", "late": "#b4c8dc"}
"""Later is darker, so that the stages are told apart without colour."""
ROOT_MARKERS = {"quota": "o", "backfill": "D"}
RASTERISE_OVER = 1000
"""Marks beyond which they are drawn as one image, or the picture grows by a hundred bytes each."""


def score_curve_svg(labels: pa.Table, roots: pa.Table | None, direction: Direction) -> str:
    """Raw scores, smoothed score, shaded stages, failed evals as ticks and, where given, the roots.

    ``labels`` and ``roots`` as in ``tables.STAGE_LABELS`` and ``tables.SELECTED_ROOTS``. Scores are drawn as
    the task gives them: for ``minimize`` a good run falls.
    """
    from matplotlib.figure import Figure

    rows = labels.to_pylist()
    figure = Figure(figsize=(8.3, 4.4), layout="constrained")
    axes = figure.add_subplot()
    _shade_stages(axes, [row["stage"] for row in rows])
    scored = [(i, row["score"]) for i, row in enumerate(rows, 1) if row["score"] is not None]
    axes.plot(
        *_points(scored), ".", color="#4d5560", ms=5, label="score of one eval", rasterized=len(rows) > RASTERISE_OVER
    )
    smooth = [(i, orient(row["smooth_score"], direction)) for i, row in enumerate(rows, 1)]
    axes.plot(*_points(smooth), color="#1f3a5f", lw=2, label="smoothed score")
    failed = [i for i, row in enumerate(rows, 1) if row["score"] is None]
    if failed:
        bottom = axes.get_xaxis_transform()
        axes.plot(
            failed,
            [0.015] * len(failed),
            "|",
            color="#b3261e",
            ms=9,
            mew=1.5,
            transform=bottom,
            label="eval without score",
        )
    if roots is not None:
        _mark_roots(axes, rows, roots.to_pylist())
    axes.set(
        xlim=(0.5, len(rows) + 0.5), xlabel="kept snapshot, in the order of the run", ylabel=f"score ({direction})"
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.legend(loc="outside upper center", ncols=4, frameon=False)
    return svg_text(figure)


def _points(points: list[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [x for x, _ in points], [drawable(y) for _, y in points]


def _shade_stages(axes: Axes, stages: list[str]) -> None:
    """A band behind each stretch of one stage; the stages may take turns where the score wavers."""
    labelled = set()
    start = 1
    for stage, stretch in itertools.groupby(stages):
        end = start + len(list(stretch))
        axes.axvspan(
            start - 0.5,
            end - 0.5,
            color=STAGE_SHADES[stage],
            lw=0,
            label=None if stage in labelled else f"{stage} stage",
        )
        labelled.add(stage)
        start = end


def _mark_roots(axes: Axes, rows: list[dict[str, Any]], roots: list[dict[str, Any]]) -> None:
    position = {row["snapshot"]: i for i, row in enumerate(rows, 1)}
    for reason, marker in ROOT_MARKERS.items():
        points = [(position[root["root"]], root["score"]) for root in roots if root["selection_reason"] == reason]
        if points:
            axes.plot(
                *_points(points),
                marker,
                ms=7,
                mfc="#f2a33a",
                mec="#5c3a00",
                label=f"root ({reason})",
                zorder=4,
                clip_on=False,
            )
