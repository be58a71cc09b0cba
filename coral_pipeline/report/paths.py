"""Ranked paths of a tree for a reader: a table of the parts of PathScore, and a picture of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coral_pipeline.report.svg import svg_text
from coral_pipeline.settings import PathSettings

if TYPE_CHECKING:
    from rich.table import Table

Row = Mapping[str, Any]

_NUMBERS = {
    "PathScore": "{:.4f}",
    "max_score": "{:.5g}",
    "max_score_rank": "{:.3f}",
    "avg_score": "{:.5g}",
    "avg_score_rank": "{:.3f}",
    "avg_cleanliness": "{:.3f}",
    "avg_knowledge": "{:.3f}",
}
"""Columns that hold numbers, with their format."""
_SHORT = ("#", "leaf", "PathScore", "max", "rank", "avg", "rank", "clean", "knowl", "selected")


def path_table(ranked: pa.Table) -> Table:
    """The rows of ``tables.RANKED_PATHS`` as a table for a terminal of 80 characters."""
    from rich import box
    from rich.table import Table

    table = Table(*_SHORT, box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    for column in table.columns:
        column.justify = "left" if column.header == "selected" else "right"
        column.no_wrap = True
    for row in ranked.to_pylist():
        table.add_row(*_cells(row), style=None if row["selected"] else "dim")
    return table


def _cells(row: Row) -> list[str]:
    numbers = ["–" if row[name] is None else form.format(row[name]) for name, form in _NUMBERS.items()]
    verdict = row["excluded_reason"] or ("yes" if row["selected"] else "no")
    return ["–" if row["rank"] is None else str(row["rank"]), str(row["leaf_id"]), *numbers, verdict]


def path_scores_svg(ranked: pa.Table, settings: PathSettings) -> str:
    """PathScore of every candidate as one bar, stacked from its four weighted parts; a line under the last selected.

    ``settings`` are those the paths were ranked with.
    """
    from matplotlib.figure import Figure

    rows = [row for row in ranked.to_pylist() if row["candidate"]]
    figure = Figure(figsize=(7.5, 1.5 + 0.32 * max(len(rows), 1)), layout="constrained")
    axes = figure.add_subplot()
    parts = {
        "max_score_rank": (settings.max_score_rank_weight, "#0f9960"),
        "avg_score_rank": (settings.avg_score_rank_weight, "#2965cc"),
        "avg_cleanliness": (settings.cleanliness_weight, "#d9822b"),
        "avg_knowledge": (settings.knowledge_weight, "#8f398f"),
    }
    left = [0.0] * len(rows)
    for name, (weight, colour) in parts.items():
        widths = [weight * row[name] for row in rows]
        bars = axes.barh(range(len(rows)), widths, left=left, color=colour, label=f"{weight:g} · {name}", height=0.72)
        for bar, row in zip(bars, rows, strict=True):
            bar.set_alpha(1.0 if row["selected"] else 0.35)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    for place, row in enumerate(rows):
        axes.text(left[place] + 0.008, place, f"{row['PathScore']:.3f}", va="center", fontsize=8)
    selected = sum(row["selected"] for row in rows)
    if 0 < selected < len(rows):
        axes.axhline(selected - 0.5, color="#394b59", lw=1, ls=(0, (4, 2)))
    axes.set_yticks(range(len(rows)), [f"#{row['rank']}  leaf {row['leaf_id']}" for row in rows])
    axes.set(xlabel="PathScore", xlim=(0, 1.08 * max([1.0, *left])), ylim=(max(len(rows), 1) - 0.4, -0.6))
    axes.spines[["top", "right"]].set_visible(False)
    if rows:
        figure.legend(loc="outside upper center", ncols=4, frameon=False, fontsize=8)
    else:
        axes.text(0.5, 0, "no candidate paths", ha="center", va="center", transform=axes.get_yaxis_transform())
    return svg_text(figure)
