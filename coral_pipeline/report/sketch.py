"""Small pictures, of so few characters that the Dagster UI paints them in the page itself: larger ones it hides.

Each shows at a glance what the large picture of the same thing tells in full. Better is up, whatever the direction.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from coral_pipeline.report.svg import drawable
from coral_pipeline.settings import Direction, orient

Row = Mapping[str, Any]
Point = tuple[int, int]

TITLE = "at a glance"
MAX_CHARACTERS = 999
"""The longest Markdown that the UI paints without a click."""
DETAILS = (64, 40, 24, 12, 6)
"""How many marks of a kind are drawn, from the most on, until the picture is short enough."""
WIDTH, HEIGHT, MARGIN = 360, 110, 12
"""Pixels; the UI's column is some 400 wide."""
RIGHT = WIDTH - 64
"""Where the numbers at the side begin."""
LINE = 15
"""Pixels between two lines of text."""
GREEN, GREY, RED, BLUE, ORANGE = "green", "silver", "red", "blue", "orange"
"""Names, which are shorter than numbers."""
_SHADES = {"early": "linen", "middle": "lavender", "late": "lightsteelblue"}
_ENCODED = {"%": "%25", "<": "%3C", ">": "%3E", "#": "%23"}


def as_markdown(svg: str, title: str = TITLE) -> str:
    """The picture as a Markdown image; not in base64, which makes it a third longer."""
    return f"![{title}](<data:image/svg+xml,{''.join(_ENCODED.get(c, c) for c in svg)}>)"


def scores_sketch(snapshots: pa.Table, direction: Direction) -> str:
    """Every raw score of the run as a dot, the best one so far as a line, ticks below where there is none.

    ``snapshots`` as in ``tables.FILTERED_SNAPSHOTS``. The number is the best score.
    """
    scores = [None if s is None else orient(s, direction) for s in snapshots["score"].to_pylist()]
    scored = [(index, score) for index, score in enumerate(scores) if score is not None]
    if not scored:
        return _picture(30, _text(MARGIN, 18, "no snapshot has a score"))
    levels = _Levels([score for _, score in scored])
    wide = (RIGHT - MARGIN) / max(1, len(scores) - 1)
    best = list(itertools.accumulate((score for _, score in scored), max))

    def draw(detail: int) -> str:
        step = max(1, math.ceil(len(scored) / detail))
        shown = [*range(0, len(scored), step)]
        places = [(round(MARGIN + wide * scored[n][0]), levels(scored[n][1])) for n in shown]
        line = [(x, levels(best[n])) for (x, _), n in zip(places, shown, strict=True)] + [(RIGHT, levels(best[-1]))]
        ticks = dict.fromkeys(round(MARGIN + wide * i) for i, s in enumerate(scores) if s is None)
        return _picture(
            HEIGHT,
            _path(GREEN, 1, _line(line)),
            _path("gray", 4, "".join(f"M{x} {y}h0" for x, y in places), round_=True),
            *([_path(RED, 1, "".join(f"M{x} {HEIGHT}v-6" for x in list(ticks)[:detail]))] if ticks else ()),
            _text(RIGHT + 4, levels(best[-1]) + 4, _number(orient(best[-1], direction)), GREEN),
        )

    return _fitting(draw)


def score_sketch(labels: pa.Table, roots: pa.Table | None, direction: Direction) -> str:
    """The smoothed score over the run, its stages as shades, its roots as dots; start and end as numbers.

    ``labels`` and ``roots`` as in ``tables.STAGE_LABELS`` and ``tables.SELECTED_ROOTS``.
    """
    rows = labels.select(["snapshot", "smooth_score", "score_for_stage", "stage"]).to_pylist()
    position = {row["snapshot"]: index for index, row in enumerate(rows)}
    chosen = [position[name] for name in roots["root"].to_pylist()] if roots is not None else []
    smooth = [row["smooth_score"] for row in rows]
    levels = _Levels([*smooth, *(orient(rows[index]["score_for_stage"], direction) for index in chosen)])

    def draw(detail: int) -> str:
        step = max(1, math.ceil(len(rows) / detail))
        shown = [*range(0, len(rows), step)]
        if shown[-1] != len(rows) - 1:
            shown.append(len(rows) - 1)
        wide = (RIGHT - MARGIN) / max(1, len(rows) - 1)
        x = {index: round(MARGIN + wide * index) for index in range(len(rows))}
        shades = []
        for stage, run in itertools.groupby(shown, lambda index: rows[index]["stage"]):
            first, *others = run
            end = x[min((others or [first])[-1] + step, len(rows) - 1)]
            shades.append((stage, f"M{x[first]} {HEIGHT // 2}H{end}"))
        dots = {
            (x[index // step * step], levels(orient(rows[index]["score_for_stage"], direction))) for index in chosen
        }
        return _picture(
            HEIGHT,
            *(
                _path(colour, HEIGHT, "".join(d for stage, d in shades if stage == name))
                for name, colour in _SHADES.items()
                if any(stage == name for stage, _ in shades)
            ),
            _path("navy", 2, _line([(x[index], levels(smooth[index])) for index in shown])),
            *([_path("darkorange", 7, "".join(f"M{a} {b}h0" for a, b in sorted(dots)), round_=True)] if dots else ()),
            _text(MARGIN, LINE - 3, _number(orient(smooth[0], direction))),
            _text(RIGHT + 4, levels(smooth[-1]) + 4, _number(orient(smooth[-1], direction))),
        )

    return _fitting(draw)


def tree_sketch(nodes: Iterable[Row], direction: Direction) -> str:
    """The tree by depth (to the right) and score (better is up): the way to its best node in green, the root dotted.

    ``nodes`` as rows of ``tables.NODES``.
    """
    scored = {row["node_id"]: row for row in nodes if row["score"] is not None}
    levels = _Levels([orient(row["score"], direction) for row in scored.values()])
    wide = (RIGHT - MARGIN) // max(1, max(row["depth"] for row in scored.values()))
    at = {node: (MARGIN + wide * row["depth"], levels(orient(row["score"], direction))) for node, row in scored.items()}
    best = max(scored, key=lambda node: (orient(scored[node]["score"], direction), -node))
    way, node = [at[best]], scored[best]["parent_id"]
    while node is not None and node in scored:
        way.append(at[node])
        node = scored[node]["parent_id"]
    lines = list(dict.fromkeys((at[row["parent_id"]], at[n]) for n, row in scored.items() if row["parent_id"] in at))
    root, top = at[0][1], at[best][1]
    label = root + 4 if abs(root - top) >= LINE else top + 4 + LINE

    def draw(detail: int) -> str:
        return _picture(
            HEIGHT,
            _path("gray", 1, f"M{MARGIN} {root}H{RIGHT}", extra=" stroke-dasharray='2 3'"),
            _path(GREY, 1, "".join(f"M{a} {b}l{c - a}{_signed(d - b)}" for (a, b), (c, d) in lines[:detail])),
            _path(GREEN, 3, _line(way[::-1]), round_=True),
            _text(RIGHT + 4, top + 4, _number(scored[best]["score"]), GREEN),
            *([_text(RIGHT + 4, label, _number(scored[0]["score"]))] if best else ()),
        )

    return _fitting(draw)


def paths_sketch(ranked: pa.Table) -> str:
    """PathScore of the candidates of ``tables.RANKED_PATHS``, best first: the selected ones green, with two numbers."""
    rows = [row for row in ranked.to_pylist() if row["candidate"]]
    selected = sum(row["selected"] for row in rows)
    wide = (RIGHT - MARGIN) / max([1.0, *(row["PathScore"] for row in rows)])

    def draw(detail: int) -> str:
        shown = rows[:detail]
        bars: dict[str, list[str]] = {GREEN: [], GREY: []}
        for place, row in enumerate(shown):
            bars[GREEN if row["selected"] else GREY].append(
                f"M{MARGIN} {9 + 9 * place}h{round(wide * row['PathScore'])}"
            )
        numbers = {0, selected - 1} & set(range(len(shown)))
        return _picture(
            18 + 9 * max(1, len(shown)),
            *(_path(colour, 7, "".join(d)) for colour, d in bars.items() if d),
            *(_text(RIGHT + 4, 13 + 9 * place, _number(shown[place]["PathScore"])) for place in sorted(numbers)),
            *([] if shown else [_text(MARGIN, 16, "no candidate paths")]),
        )

    return _fitting(draw)


def advantage_sketch(edges: pa.Table) -> str:
    """How the advantages of ``tables.CREDIT_EDGES`` are spread around 0: negative red, positive green."""
    values = [value for value in edges["advantage"].to_pylist() if value is not None]
    bound = max(map(abs, values), default=0.0) or 1.0
    sides = {-1: RED, 0: GREY, 1: GREEN}
    counts: dict[int, dict[int, int]] = {side: {} for side in sides}
    half = 10
    for value in values:
        side = (value > 0) - (value < 0)
        column = side * max(1, math.ceil(abs(value / bound) * half))
        counts[side][column] = counts[side].get(column, 0) + 1
    highest = max((n for part in counts.values() for n in part.values()), default=1)
    middle, base = WIDTH // 2, HEIGHT - LINE - 3

    def bars(part: Mapping[int, int]) -> str:
        return "".join(
            f"M{middle + 14 * column} {base}v-{max(2, round((base - 8) * count / highest))}"
            for column, count in sorted(part.items())
        )

    return _picture(
        HEIGHT,
        *(_path(sides[side], 12, bars(part)) for side, part in counts.items() if part),
        _path("gray", 1, f"M{MARGIN} {base}H{WIDTH - MARGIN}"),
        _text(middle - 14 * half, HEIGHT - 4, _number(-bound)),
        _text(middle - 3, HEIGHT - 4, "0"),
        _text(middle + 14 * half - 20, HEIGHT - 4, _number(bound)),
    )


def bars_sketch(rows: Mapping[str, Sequence[int]], series: Mapping[str, str]) -> str:
    """One bar per row, of a count per series (name to colour) put one after another; beside it the first of all."""
    left = 60
    wide = (RIGHT - left) / max([1, *(sum(counts) for counts in rows.values())])
    bars: dict[str, list[str]] = {name: [] for name in series}
    for place, counts in enumerate(rows.values()):
        ends = [round(left + wide * before) for before in itertools.accumulate(counts, initial=0)]
        for name, (start, end) in zip(series, itertools.pairwise(ends), strict=True):
            if end > start:
                bars[name].append(f"M{start} {28 + 20 * place}H{end}")
    places = itertools.accumulate((7 * len(name) + 12 for name in series), initial=left)
    legend = [
        _text(x, 12, name, "gray" if colour == GREY else colour)
        for x, (name, colour) in zip(places, series.items(), strict=False)
    ]

    def draw(detail: int) -> str:
        return _picture(
            24 + 20 * len(rows),
            *(legend if detail > DETAILS[-1] else ()),
            *(_path(series[name], 12, "".join(d)) for name, d in bars.items() if d),
            *(_text(4, 32 + 20 * place, name) for place, name in enumerate(rows)),
            *(_text(RIGHT + 4, 32 + 20 * place, f"{c[0]} of {sum(c)}") for place, c in enumerate(rows.values())),
        )

    return _fitting(draw)


class _Levels:
    """Heights of oriented scores in pixels, the best on top."""

    def __init__(self, scores: Sequence[float]) -> None:
        self._low, self._high = drawable(min(scores)), drawable(max(scores))

    def __call__(self, score: float) -> int:
        span = self._high / 2 - self._low / 2  # halves, since the difference may be beyond the largest float
        share = (drawable(score) / 2 - self._low / 2) / span if span else 0.5
        return round(HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * share)


def _fitting(draw: Callable[[int], str]) -> str:
    """The picture with as much detail as fits."""
    return next(
        (svg for svg in map(draw, DETAILS[:-1]) if len(as_markdown(svg)) <= MAX_CHARACTERS),
        draw(DETAILS[-1]),
    )


def _picture(height: int, *parts: str) -> str:
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{height}' style='background:white' "
        f"fill='none' font-family='sans-serif' font-size='11'>{''.join(parts)}</svg>"
    )


def _path(colour: str, width: int, d: str, *, round_: bool = False, extra: str = "") -> str:
    cap = " stroke-linecap='round'" if round_ else ""
    return f"<path stroke='{colour}' stroke-width='{width}'{cap}{extra} d='{d}'/>"


def _text(x: int, y: int, text: str, colour: str = "black") -> str:
    return f"<text x='{x}' y='{y}' fill='{colour}'>{text}</text>"


def _line(points: Sequence[Point]) -> str:
    """One line through all points."""
    (x, y), *_ = points
    return f"M{x} {y}l" + "".join(_steps(points)).lstrip() if len(points) > 1 else f"M{x} {y}h0"


def _steps(points: Sequence[Point]) -> Iterator[str]:
    for (a, b), (c, d) in itertools.pairwise(points):
        yield f"{_signed(c - a)}{_signed(d - b)}"


def _signed(number: int) -> str:
    """Behind another number: a minus parts them, too."""
    return str(number) if number < 0 else f" {number}"


def _number(value: float) -> str:
    return f"{value:.4g}"
