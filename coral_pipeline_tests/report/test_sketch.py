"""Small pictures: short enough to be painted in a page, whatever is drawn, and saying the right thing."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coral_pipeline.report.sketch import (
    GREEN,
    GREY,
    HEIGHT,
    MARGIN,
    MAX_CHARACTERS,
    RED,
    advantage_sketch,
    as_markdown,
    bars_sketch,
    paths_sketch,
    score_sketch,
    scores_sketch,
    tree_sketch,
)

finite = st.floats(allow_nan=False, allow_infinity=False)
stages = st.sampled_from(["early", "middle", "late"])
SVG = "{http://www.w3.org/2000/svg}"


def labels(rows: list[tuple[float, str]]) -> pa.Table:
    columns: dict[str, list[Any]] = {
        "snapshot": [f"s{index}" for index in range(len(rows))],
        "smooth_score": [score for score, _ in rows],
        "score_for_stage": [score for score, _ in rows],
        "stage": [stage for _, stage in rows],
    }
    return pa.table(columns)


def nodes(parents: list[int], scores: list[float | None]) -> list[dict[str, Any]]:
    """Node ``n + 1`` under ``parents[n]``, node 0 the root."""
    rows: list[dict[str, Any]] = [{"node_id": 0, "parent_id": None, "depth": 0, "score": scores[0]}]
    for parent, score in zip(parents, scores[1:], strict=True):
        depth = rows[parent]["depth"] + 1
        rows.append({"node_id": len(rows), "parent_id": parent, "depth": depth, "score": score})
    return rows


def paths(in_order: list[tuple[float, bool]]) -> pa.Table:
    columns = {
        "candidate": [True] * len(in_order),
        "selected": [selected for _, selected in in_order],
        "PathScore": [score for score, _ in in_order],
    }
    return pa.table(columns, pa.schema({"candidate": pa.bool_(), "selected": pa.bool_(), "PathScore": pa.float64()}))


def strokes(svg: str, colour: str) -> str:
    """What is drawn in a colour, as path data."""
    found = ElementTree.fromstring(svg).iter(f"{SVG}path")
    return "".join(path.get("d", "") for path in found if path.get("stroke") == colour)


def texts(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def assert_fits(svg: str) -> None:
    ElementTree.fromstring(svg)
    assert len(as_markdown(svg)) <= MAX_CHARACTERS
    assert "nan" not in svg and "inf" not in svg


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(finite, stages), min_size=1, max_size=400), st.integers(0, 300))
def test_a_score_curve_fits_whatever_the_scores_and_stages(rows: list[tuple[float, str]], chosen: int) -> None:
    roots = pa.table({"root": [f"s{index}" for index in range(0, len(rows), 1 + chosen)]})
    for direction in ("maximize", "minimize"):
        assert_fits(score_sketch(labels(rows), roots, direction))  # type: ignore[arg-type]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.none() | finite, max_size=400))
def test_raw_scores_fit_with_and_without_holes(scores: list[float | None]) -> None:
    assert_fits(scores_sketch(pa.table({"score": pa.array(scores, pa.float64())}), "minimize"))


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(0, 120), finite)
def test_a_tree_fits_whatever_its_shape(data: st.DataObject, edges: int, root: float) -> None:
    parents = [data.draw(st.integers(0, made)) for made in range(edges)]
    scores = [root, *data.draw(st.lists(st.none() | finite, min_size=edges, max_size=edges))]
    assert_fits(tree_sketch(nodes(parents, scores), "maximize"))


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(0, 1.2), max_size=200),
    st.lists(st.none() | st.floats(-1e6, 1e6), max_size=200),
    st.lists(st.tuples(*[st.integers(0, 10**6)] * 5), min_size=1, max_size=3),
)
def test_paths_advantages_and_bars_fit(
    scores: list[float], advantages: list[float | None], counts: list[tuple[int, ...]]
) -> None:
    ranked = sorted(scores, reverse=True)
    assert_fits(paths_sketch(paths([(score, place < 6) for place, score in enumerate(ranked)])))
    assert_fits(advantage_sketch(pa.table({"advantage": pa.array(advantages, pa.float64())})))
    names = dict(
        zip(
            ("done", "growing", "stopped", "failed", "to do"), ("green", "blue", "orange", "red", "silver"), strict=True
        )
    )
    assert_fits(bars_sketch(dict(zip(("early", "middle", "late"), counts, strict=False)), names))


@pytest.mark.parametrize(("direction", "best"), [("maximize", "3"), ("minimize", "1")])
def test_the_way_to_the_best_node_is_green_and_better_is_up(direction: Any, best: str) -> None:
    # Root 2; children 3 and 1. The best one is at the top, one margin from the edge, and its score is told.
    svg = tree_sketch(nodes([0, 0], [2.0, 3.0, 1.0]), direction)
    middle = HEIGHT // 2
    assert strokes(svg, GREEN) == f"M{MARGIN} {middle}l284{MARGIN - middle}"
    assert texts(svg) == [best, "2"]


def test_a_tree_in_which_nothing_is_better_shows_its_root_alone() -> None:
    svg = tree_sketch(nodes([0], [2.0, 1.0]), "maximize")
    assert strokes(svg, GREEN) == f"M{MARGIN} {MARGIN}h0"
    assert texts(svg) == ["2"]


def test_selected_paths_are_green_and_told_from_the_first_to_the_last() -> None:
    svg = paths_sketch(paths([(0.9, True), (0.8, True), (0.5, False)]))
    assert len(re.findall("M", strokes(svg, GREEN))) == 2 and len(re.findall("M", strokes(svg, GREY))) == 1
    assert texts(svg) == ["0.9", "0.8"]
    assert texts(paths_sketch(paths([]))) == ["no candidate paths"]


def test_advantages_below_zero_are_red_and_those_without_one_are_left_out() -> None:
    svg = advantage_sketch(pa.table({"advantage": [-0.5, 0.25, None]}))
    assert len(re.findall("M", strokes(svg, RED))) == 1 and len(re.findall("M", strokes(svg, GREEN))) == 1
    assert strokes(svg, GREY) == ""
    assert texts(svg) == ["-0.5", "0", "0.5"]


def test_a_bar_is_as_long_as_its_count_and_says_how_many_of_all() -> None:
    # The longest row, four of one kind, takes all of the 236 pixels between its name and its number.
    svg = bars_sketch({"early": [1, 1], "late": [4, 0]}, {"done": GREEN, "to do": GREY})
    assert strokes(svg, GREEN) == "M60 28H119M60 48H296"
    assert strokes(svg, GREY) == "M119 28H178"
    assert texts(svg) == ["done", "to do", "early", "late", "1 of 2", "4 of 4"]
