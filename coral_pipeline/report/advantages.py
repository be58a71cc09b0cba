"""Advantages of a tree for a reader: statistics as a table, and their distribution as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coral_pipeline.report.svg import svg_text

if TYPE_CHECKING:
    from rich.table import Table

STATISTICS = ("count", "mean", "std", "min", "max")
SIGN_COLOURS = {"negative": "#c23030", "zero": "#8a8f98", "positive": "#0f9960"}


def batch_table(description: Mapping[str, Any]) -> Table:
    """``Batch.describe()`` as a table for a terminal: one row per kind of number, counts in the title and caption."""
    from rich import box
    from rich.table import Table

    title = "{estimator} over {edges} edges, {nodes} nodes, {good_leaves} good leaves".format_map(description)
    signs = "advantages: {positive} positive, {negative} negative, {zero} zero, {unassigned} unassigned"
    table = Table("", *STATISTICS, title=title, caption=signs.format_map(description), box=box.SIMPLE_HEAD)
    spreads = {name: description[name] for name in ("rewards", "advantages", "targets")}
    spreads |= {f"· {name}": spread for name, spread in description["diagnostics"].items()}
    for name, spread in spreads.items():
        cells = ["–" if spread[key] is None else f"{spread[key]:.4g}" for key in STATISTICS[1:]]
        table.add_row(name, str(spread["count"]), *cells)
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def advantage_histogram_svg(edges: pa.Table) -> str:
    """How the advantages of ``tables.CREDIT_EDGES`` are spread; edges without one are counted in the title."""
    import numpy as np
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    column = edges.column("advantage")
    values = column.drop_null().to_numpy()
    figure = Figure(figsize=(6.5, 3.2), layout="constrained")
    axes = figure.add_subplot()
    if len(values):
        bound = float(np.abs(values).max()) or 1.0
        bins = np.linspace(-bound, bound, 2 * int(np.clip(np.sqrt(len(values)), 5, 25)) + 2)  # one bin is around 0
        below = np.zeros(len(bins) - 1)
        for label, part in (("negative", values < 0), ("zero", values == 0), ("positive", values > 0)):
            counts, _ = np.histogram(values[part], bins)
            name = f"{label} ({np.count_nonzero(part)})"
            colour, widths = SIGN_COLOURS[label], np.diff(bins)
            axes.bar(bins[:-1], counts, widths, below, align="edge", label=name, color=colour, edgecolor="white")
            below += counts
        mean = float(values.mean())
        axes.axvline(mean, color="#394b59", lw=1.2, ls=(0, (4, 2)), label=f"mean {mean:.3g}")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylim(0, 1.08 * float(below.max()))
        figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    else:
        axes.text(0.5, 0.5, "no advantage assigned", ha="center", va="center", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
    names = sorted(set(edges.column("estimator").to_pylist()))
    axes.set_title(
        f"{', '.join(names) or 'no edges'}: {len(values)} edges, {column.null_count} unassigned", fontsize=10
    )
    axes.set(xlabel="advantage", ylabel="edges")
    axes.spines[["top", "right"]].set_visible(False)
    return svg_text(figure)
