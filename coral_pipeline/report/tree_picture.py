"""A root's tree as pictures: the tree itself, and score against depth."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coral_pipeline.report.score_curve import DRAWABLE
from coral_pipeline.report.svg import svg_text
from coral_pipeline.settings import Direction

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

Row = dict[str, Any]
Style = dict[str, Any]
"""Keywords of a Matplotlib call."""

LEAF_MARKERS = {"token_limit": "D", "depth_limit": "s", "exhausted": "^", "open": "h"}
"""Marker by ``leaf_kind``; inner nodes are circles."""
EDGE_STYLES: dict[str, Style] = {
    "passed": {"color": "#8a8f98", "linewidth": 1.4, "linestyle": "-"},
    "kept": {"color": "#d9822b", "linewidth": 1.6, "linestyle": (0, (4, 2))},
    "failed": {"color": "#c23030", "linewidth": 1.2, "linestyle": (0, (1, 1.5))},
    "selected": {"color": "#0f9960", "linewidth": 4.5, "linestyle": "-"},
}
Place = tuple[float, float]
"""Where a mark stands: x in leaves from the left, y = -depth."""


def tree_svg(
    nodes: pa.Table, edges: pa.Table, direction: Direction, selected: Mapping[int, Sequence[int]] | None = None
) -> str:
    """The tree, root on top: nodes coloured by raw score, kept edges dashed, failed ones as lines to a cross.

    ``nodes`` and ``edges`` as in ``tables.NODES`` and ``tables.EDGES``. ``selected`` maps the rank of a
    selected path (1 is the best) to its node ids, root first; these paths are underlaid in green.
    """
    rows = _rows(nodes)
    failed = Counter(edge["parent_id"] for edge in edges.to_pylist() if edge["child_id"] is None)
    places, crosses = _places(rows, failed)
    figure, axes = _canvas([*places.values(), *crosses])
    for rank, path in sorted((selected or {}).items()):
        axes.plot(*zip(*(places[n] for n in path), strict=True), **EDGE_STYLES["selected"], alpha=0.5, zorder=1)
        below: Style = {"xytext": (0, -30), "textcoords": "offset points", "ha": "center", "color": "#0a6640"}
        axes.annotate(f"#{rank}", places[path[-1]], weight="bold", **below)
    _draw_edges(axes, rows, places, crosses)
    colours = _draw_nodes(axes, rows, places, direction)
    _legend(figure, bool(selected))
    scale = figure.colorbar(colours, ax=axes, label=f"score ({direction})", shrink=0.7, pad=0.01, fraction=0.03)
    if direction == "minimize":
        scale.ax.invert_yaxis()
    return svg_text(figure)


def score_by_depth_svg(nodes: pa.Table, direction: Direction) -> str:
    """Raw score of every scored node against its depth, edges as lines, the best score so far per depth as steps."""
    from matplotlib.figure import Figure

    rows = _rows(nodes)
    figure = Figure(figsize=(6.5, 3.6))
    axes = figure.add_axes((0.14, 0.15, 0.83, 0.81))
    scored = [row for row in rows.values() if row["score"] is not None]
    for row in scored:
        parent = rows.get(row["parent_id"])
        if parent is not None and parent["score"] is not None:
            axes.plot([parent["depth"], row["depth"]], [parent["score"], row["score"]], color="#c5cbd3", lw=1, zorder=1)
    axes.scatter([r["depth"] for r in scored], [r["score"] for r in scored], color="#2965cc", s=26, zorder=2)
    depths = range(1 + max(row["depth"] for row in rows.values()))
    better = max if direction == "maximize" else min
    best = [better(r["score"] for r in scored if r["depth"] <= depth) for depth in depths]
    axes.step(depths, best, where="post", color="#0f9960", label="best so far")
    axes.axhline(rows[0]["score"], color="#8a8f98", ls=":", label="root")
    axes.set_xticks(list(depths))
    axes.set(xlabel="depth (logical edges)", ylabel=f"score ({direction})")
    axes.legend(frameon=False)
    return svg_text(figure)


def _rows(nodes: pa.Table) -> dict[int, Row]:
    """The nodes by id, with scores that can be drawn."""
    rows = {row["node_id"]: row for row in nodes.to_pylist()}
    for row in rows.values():
        if row["score"] is not None:
            row["score"] = max(-DRAWABLE, min(DRAWABLE, row["score"]))
    return rows


def _places(rows: Mapping[int, Row], failed: Mapping[int, int]) -> tuple[dict[int, Place], dict[Place, int]]:
    """Where each node stands, and where the cross of each failed edge, with the node it was forked from.

    Leaves and crosses stand side by side in depth-first order, parents over the middle of their children.
    """
    children: dict[int | None, list[int]] = defaultdict(list)
    for row in rows.values():
        children[row["parent_id"]].append(row["node_id"])
    places: dict[int, Place] = {}
    crosses: dict[Place, int] = {}
    columns = itertools.count()

    def place(node: int) -> float:
        depth = rows[node]["depth"]
        below = [place(child) for child in children[node]]
        for _ in range(failed.get(node, 0)):
            below.append(float(next(columns)))
            crosses[below[-1], -depth - 1.0] = node
        x = sum(below) / len(below) if below else float(next(columns))
        places[node] = (x, -float(depth))
        return x

    place(0)
    return places, crosses


def _canvas(marks: Sequence[Place]) -> tuple[Figure, Axes]:
    """Room for the marks, one row per depth. Laid out by hand: letting Matplotlib do it takes twice as long."""
    from matplotlib.figure import Figure

    right, bottom = max(x for x, _ in marks), min(y for _, y in marks)
    width, height = max(8.0, 0.58 * right + 3.3), 2.4 - 1.25 * bottom
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0.75 / width, 0.1 / height, 1 - 1.75 / width, 1 - 0.8 / height))
    axes.set(xlim=(-0.7, right + 0.7), ylim=(bottom - 0.5, 0.3), xticks=[])
    depths = range(1 - int(bottom))
    axes.set_yticks([-depth for depth in depths], [f"depth {depth}" for depth in depths])
    axes.spines[:].set_visible(False)
    return figure, axes


def _draw_edges(axes: Axes, rows: Mapping[int, Row], places: Mapping[int, Place], crosses: Mapping[Place, int]) -> None:
    from matplotlib.collections import LineCollection

    lines: dict[str, list[tuple[Place, Place]]] = {"passed": [], "kept": [], "failed": []}
    for row in rows.values():
        if row["parent_id"] is not None:
            lines["kept" if row["kept_by"] else "passed"].append((places[row["parent_id"]], places[row["node_id"]]))
    lines["failed"] = [(places[parent], cross) for cross, parent in crosses.items()]
    for style, segments in lines.items():
        axes.add_collection(LineCollection(segments, **EDGE_STYLES[style], zorder=2))
    if crosses:
        x, y = zip(*crosses, strict=True)
        axes.scatter(x, y, marker="x", color=EDGE_STYLES["failed"]["color"], s=60, zorder=3)


def _draw_nodes(
    axes: Axes, rows: Mapping[int, Row], places: Mapping[int, Place], direction: Direction
) -> ScalarMappable:
    """Draw the nodes and return their colour scale, whose bright end is the better one."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    scores = [row["score"] for row in rows.values() if row["score"] is not None]
    colours = ScalarMappable(Normalize(min(scores), max(scores)), "viridis" if direction == "maximize" else "viridis_r")
    label: Style = {"ha": "center", "va": "center", "size": 7, "zorder": 5}
    behind: Style = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.8}
    faces: dict[int, Any] = {
        n: "white" if row["score"] is None else colours.to_rgba(row["score"]) for n, row in rows.items()
    }
    for marker in ("o", *LEAF_MARKERS.values()):
        alike = [n for n, row in rows.items() if LEAF_MARKERS.get(row["leaf_kind"], "o") == marker]
        rims = [EDGE_STYLES["kept"]["color"] if rows[n]["kept_by"] else "#30363d" for n in alike]
        x, y = ([places[n][axis] for n in alike] for axis in (0, 1))
        axes.scatter(x, y, s=210, marker=marker, facecolors=[faces[n] for n in alike], edgecolors=rims, zorder=4)
    for node, row in rows.items():
        dark = row["score"] is not None and sum(faces[node][:3]) < 1.3
        axes.text(*places[node], str(node), color="white" if dark else "black", **label)
        text = "no score" if row["score"] is None else f"{row['score']:.4g}"
        axes.annotate(text, places[node], (0, -14), textcoords="offset points", bbox=behind, **label)
    return colours


def _legend(figure: Figure, with_selected: bool) -> None:
    from matplotlib.lines import Line2D

    lines = {"passed": "passed", "kept": "failed, but kept", "failed": "failed"}
    if with_selected:
        lines["selected"] = "selected path, with its rank"
    handles = [Line2D([], [], **EDGE_STYLES[style], label=label) for style, label in lines.items()]
    markers = {"inner node": "o", **{f"leaf: {kind}": marker for kind, marker in LEAF_MARKERS.items()}}
    handles += [
        Line2D([], [], marker=marker, ls="none", mfc="white", mec="#30363d", ms=8, label=label)
        for label, marker in markers.items()
    ]
    figure.legend(handles=handles, loc="upper center", ncols=3, frameon=False, fontsize=8)
