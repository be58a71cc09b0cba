"""A root's tree as pictures: the tree itself, and score against depth."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from coral_pipeline.report.svg import drawable, svg_text
from coral_pipeline.settings import Direction

Row = dict[str, Any]
Place = tuple[float, float]
"""Where a mark stands: x in leaves from the left, y in depths from the root."""

CORNERS = {"token_limit": (4, 0), "depth_limit": (4, 45), "exhausted": (3, -90), "open": (6, 0)}
"""Shape by ``leaf_kind``: corners, and by how many degrees the first is turned; inner nodes are circles."""
EDGE_STYLES = {
    "passed": 'stroke="#8a8f98" stroke-width="1.6"',
    "kept": 'stroke="#d9822b" stroke-width="2" stroke-dasharray="7 4"',
    "failed": 'stroke="#c23030" stroke-width="1.5" stroke-dasharray="2 3"',
    "selected": 'stroke="#0f9960" stroke-width="6" stroke-opacity="0.5"',
}
EDGE_MEANINGS = {"passed": "passed", "kept": "failed, but kept", "failed": "failed"}
COLUMN, ROW, RADIUS = 46, 96, 11
"""Pixels between leaves and between depths, and of a node."""
LEFT, TOP, RIGHT, BOTTOM = 96, 92, 120, 48
"""Margins in pixels: depths, legend, scale, ranks."""
SCALE_STEPS = 16


def tree_svg(
    nodes: pa.Table, edges: pa.Table, direction: Direction, selected: Mapping[int, Sequence[int]] | None = None
) -> str:
    """The tree, root on top: nodes coloured by raw score, kept edges dashed, failed ones as lines to a cross.

    ``nodes`` and ``edges`` as in ``tables.NODES`` and ``tables.EDGES``. ``selected`` maps the rank of a
    selected path (1 is the best) to its node ids, root first; these paths are underlaid in green. Written by
    hand: Matplotlib takes a hundred times as long for five times as many bytes.

    A page that the picture is part of finds the nodes by ``data-node`` and the failed edges by ``data-edge``,
    and what has the colour of the paper by the classes ``paper`` and ``halo``.
    """
    rows = _rows(nodes)
    failed: dict[int, list[int]] = defaultdict(list)
    for edge in edges.to_pylist():
        if edge["child_id"] is None:
            failed[edge["parent_id"]].append(edge["edge_id"])
    places, crosses = _places(rows, failed)
    colours = _Colours([row["score"] for row in rows.values() if row["score"] is not None], direction)
    marks = [*places.values(), *crosses]
    depths = 1 + int(max(y for _, y in marks))
    width = max(760, LEFT + COLUMN * max(x for x, _ in marks) + RIGHT)
    height = TOP + ROW * (depths - 1) + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" font-size="11" '
        'font-family="DejaVu Sans, sans-serif" text-anchor="middle">',
        '<rect width="100%" height="100%" fill="white" class="paper"/>',
        *(_text(LEFT / 2 - 8, TOP + ROW * depth + 4, f"depth {depth}", size=13) for depth in range(depths)),
        *_selected(selected or {}, places),
        *(
            _line("kept" if row["kept_by"] else "passed", places[row["parent_id"]], places[row["node_id"]])
            for row in rows.values()
            if row["parent_id"] is not None
        ),
        *(_failed(edge, places[parent], cross) for cross, (parent, edge) in crosses.items()),
        *(part for node, row in rows.items() for part in _node(row, places[node], colours)),
        *_legend(bool(selected), width),
        *colours.scale(width - 62, TOP + 10, min(300, height - TOP - BOTTOM - 10)),
        "</svg>",
    ]
    return "\n".join(parts)


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
            row["score"] = drawable(row["score"])
    return rows


def _places(
    rows: Mapping[int, Row], failed: Mapping[int, Sequence[int]]
) -> tuple[dict[int, Place], dict[Place, tuple[int, int]]]:
    """Where each node stands, and where the cross of each failed edge, with the node it was forked from and its id.

    ``failed``: the ids of the failed edges by the node they were forked from.

    Leaves and crosses stand side by side in depth-first order, parents over the middle of their children.
    """
    children: dict[int | None, list[int]] = defaultdict(list)
    for row in rows.values():
        children[row["parent_id"]].append(row["node_id"])
    places: dict[int, Place] = {}
    crosses: dict[Place, tuple[int, int]] = {}
    columns = itertools.count()

    def place(node: int) -> float:
        depth = rows[node]["depth"]
        below = [place(child) for child in children[node]]
        for edge in failed.get(node, ()):
            below.append(float(next(columns)))
            crosses[below[-1], depth + 1.0] = (node, edge)
        x = sum(below) / len(below) if below else float(next(columns))
        places[node] = (x, float(depth))
        return x

    place(0)
    return places, crosses


class _Colours:
    """Colours of scores; the bright end is the better one."""

    def __init__(self, scores: Sequence[float], direction: Direction) -> None:
        import matplotlib

        self._low, self._high = min(scores), max(scores)
        self._direction = direction
        self._map = matplotlib.colormaps["viridis" if direction == "maximize" else "viridis_r"]

    def __call__(self, score: float) -> tuple[str, bool]:
        """The colour, and whether black can be read on it."""
        span = self._high / 2 - self._low / 2  # halves, since the difference may be beyond the largest float
        red, green, blue, _ = self._map((score / 2 - self._low / 2) / span if span else 0.5)
        return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}", red + green + blue > 1.3

    def scale(self, x: float, y: float, height: float) -> Iterator[str]:
        """The scale, the best score on top, with its numbers."""
        best, worst = (self._high, self._low) if self._direction == "maximize" else (self._low, self._high)
        yield _text(x, y - 12, f"score ({self._direction})", size=12)
        for step in range(SCALE_STEPS):
            colour, _ = self(best + (worst / SCALE_STEPS - best / SCALE_STEPS) * (step + 0.5))
            top, tall = y + height * step / SCALE_STEPS, height / SCALE_STEPS
            yield f'<rect x="{x - 40:g}" y="{top:.1f}" width="18" height="{tall + 0.5:.1f}" fill="{colour}"/>'
        for share in (0.0, 0.25, 0.5, 0.75, 1.0) if best != worst else (0.5,):
            number = best * (1 - share) + worst * share
            yield _text(x - 16, y + height * share + 4, f"{number:.4g}", extra='text-anchor="start"')


def _at(place: Place) -> tuple[float, float]:
    """Pixels of a place."""
    return LEFT + COLUMN * place[0], TOP + ROW * place[1]


def _text(x: float, y: float, text: str, *, size: int = 11, colour: str = "currentColor", extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" {extra}>{text}</text>'


def _line(style: str, *places: Place) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(_at, places))
    return f'<polyline points="{points}" fill="none" {EDGE_STYLES[style]}/>'


def _failed(edge: int, parent: Place, cross: Place) -> str:
    x, y = _at(cross)
    return f'<g data-edge="{edge}">{_line("failed", parent, cross)}{_cross(x, y)}</g>'


def _cross(x: float, y: float) -> str:
    return f'<path d="M{x - 5:.1f} {y - 5:.1f}l10 10m0 -10l-10 10" stroke="#c23030" stroke-width="2"/>'


def _shape(leaf_kind: str | None, x: float, y: float, looks: str) -> str:
    """The mark of a node: a circle, or a polygon of about its size."""
    if leaf_kind is None:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}" {looks}/>'
    corners, turn = CORNERS[leaf_kind]
    angles = [math.radians(turn + 360 * corner / corners) for corner in range(corners)]
    radius = RADIUS * {3: 1.4, 4: 1.3, 6: 1.1}[corners]
    points = " ".join(f"{x + radius * math.cos(a):.1f},{y + radius * math.sin(a):.1f}" for a in angles)
    return f'<polygon points="{points}" {looks}/>'


def _node(row: Row, place: Place, colours: _Colours) -> Iterator[str]:
    x, y = _at(place)
    score = row["score"]
    face, is_bright = ("white", True) if score is None else colours(score)
    rim = "#d9822b" if row["kept_by"] else "#30363d"
    yield f'<g data-node="{row["node_id"]}">'
    yield _shape(row["leaf_kind"], x, y, f'fill="{face}" stroke="{rim}" stroke-width="1.5"')
    yield _text(x, y + 4, str(row["node_id"]), size=10, colour="black" if is_bright else "white")
    halo = 'stroke="white" stroke-width="3" paint-order="stroke" class="halo"'
    yield _text(x, y + RADIUS + 14, "no score" if score is None else f"{score:.4g}", size=10, extra=halo)
    yield "</g>"


def _selected(selected: Mapping[int, Sequence[int]], places: Mapping[int, Place]) -> Iterator[str]:
    for rank, path in sorted(selected.items()):
        yield _line("selected", *(places[node] for node in path))
        x, y = _at(places[path[-1]])
        yield _text(x, y + RADIUS + 30, f"#{rank}", size=13, colour="#0a6640", extra='font-weight="bold" class="rank"')


def _legend(with_selected: bool, width: float) -> Iterator[str]:
    """What lines and shapes mean, in two rows."""
    meanings = EDGE_MEANINGS | ({"selected": "selected path, with its rank"} if with_selected else {})
    left = width / 2 - 330
    for place, (style, meaning) in enumerate(meanings.items()):
        x = left + 150 * place
        yield f'<path d="M{x:.1f} 18h30" {EDGE_STYLES[style]}/>'
        yield _text(x + 38, 22, meaning, extra='text-anchor="start"')
    for place, kind in enumerate((None, *CORNERS)):
        x = left + 15 + 140 * place
        yield _shape(kind, x, 44, 'fill="white" stroke="#30363d"')
        yield _text(x + 20, 48, f"leaf: {kind}" if kind else "inner node", extra='text-anchor="start"')
