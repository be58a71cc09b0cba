"""What each stage of a Student run contributes: roots, explored trees, candidate and selected paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from coral_pipeline.report.svg import svg_text
from coral_pipeline.settings import STAGES, Stage


@dataclass(frozen=True)
class StageCoverage:
    """Counts of one stage."""

    stage: Stage
    roots: int
    """Roots selected."""
    done: int
    """Of these, how many have ranked paths."""
    excluded: int
    """Paths that are no candidates."""
    candidates: int
    """Paths that took part in the ranking, the selected ones included."""
    selected: int


def stage_coverage(roots: pa.Table, ranked: Mapping[str, pa.Table]) -> list[StageCoverage]:
    """Counts by stage: ``roots`` as ``tables.SELECTED_ROOTS``; ``ranked`` by root, as ``tables.RANKED_PATHS``."""
    rows = []
    for stage in STAGES:
        names = [row["root"] for row in roots.select(["root", "stage"]).to_pylist() if row["stage"] == stage]
        paths = [path for name in names if name in ranked for path in ranked[name].to_pylist()]
        rows.append(
            StageCoverage(
                stage=stage,
                roots=len(names),
                done=sum(name in ranked for name in names),
                excluded=sum(not path["candidate"] for path in paths),
                candidates=sum(path["candidate"] for path in paths),
                selected=sum(path["selected"] for path in paths),
            )
        )
    return rows


def stage_coverage_svg(coverage: Sequence[StageCoverage]) -> str:
    """The counts as two rows of bars per stage: roots done and missing, paths selected, passed over and excluded."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(8.0, 2.6), layout="constrained")
    roots_axes, paths_axes = figure.subplots(1, 2, sharey=True)
    roots = {
        "done": ([row.done for row in coverage], "#2965cc"),
        "missing": ([row.roots - row.done for row in coverage], "#c5cbd3"),
    }
    paths = {
        "selected": ([row.selected for row in coverage], "#0f9960"),
        "passed over": ([row.candidates - row.selected for row in coverage], "#9bd3b8"),
        "excluded": ([row.excluded for row in coverage], "#d9822b"),
    }
    for axes, title, series in ((roots_axes, "roots", roots), (paths_axes, "paths", paths)):
        left = [0] * len(coverage)
        for label, (counts, colour) in series.items():
            bars = axes.barh(range(len(coverage)), counts, left=left, color=colour, label=label, height=0.6)
            texts = [str(count) if count else "" for count in counts]
            axes.bar_label(bars, texts, label_type="center", fontsize=8)
            left = [a + b for a, b in zip(left, counts, strict=True)]
        axes.set_title(title, fontsize=10)
        axes.set_yticks(range(len(coverage)), [row.stage for row in coverage])
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    roots_axes.invert_yaxis()
    return svg_text(figure)
