"""The picture of a Student run: what it shows, and that odd runs can be drawn."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from coral_pipeline.report.score_curve import STAGE_SHADES, score_curve_svg
from coral_pipeline.settings import SelectionSettings
from coral_pipeline.student_run.roots import select_roots
from coral_pipeline.student_run.stages import label_stages
from coral_pipeline_tests.student_runs import filtered_table

SETTINGS = SelectionSettings(num_roots=6)
CLIMB = [1.0, None, 1.5, 3.0, 4.0, 6.0, 7.0, None, 9.0, 9.5, 9.5, 9.6, 9.6]


def draw(scores: list[Any], with_roots: bool = True) -> str:
    filtered = filtered_table(scores)
    labels = label_stages(filtered, "maximize", SETTINGS)
    roots = select_roots(labels, filtered, "run", SETTINGS) if with_roots else None
    svg = score_curve_svg(labels, roots, "maximize")
    ElementTree.fromstring(svg)
    return svg


def test_it_names_everything_it_shows() -> None:
    svg = draw(CLIMB)
    labels = ["early stage", "middle stage", "late stage", "score of one eval", "smoothed score", "eval without score"]
    for text in [*labels, "root (quota)", "score (maximize)", "kept snapshot"]:
        assert f">{text}" in svg
    for shade in STAGE_SHADES.values():
        assert shade in svg


def test_what_there_is_none_of_is_not_named() -> None:
    svg = draw([1.0, 2.0, 3.0], with_roots=False)
    assert "root (" not in svg and "eval without score" not in svg


def test_backfilled_roots_have_a_mark_of_their_own() -> None:
    # By position 2, 4 and 6 snapshots; quotas 1, 3, 2: late's two are filled by middle's and early's unpicked.
    assert "root (backfill)" in draw([1.0] * 6 + [None] * 6)


def test_scores_of_a_minimised_run_are_drawn_as_they_are() -> None:
    """A tick label is a score of the run, not its negative."""
    filtered = filtered_table([12.0, 11.0, 10.0, 9.0])
    svg = score_curve_svg(label_stages(filtered, "minimize", SETTINGS), None, "minimize")
    assert ">10.0<" in svg and "score (minimize)" in svg


def test_the_same_run_gives_the_same_picture() -> None:
    assert draw(CLIMB) == draw(CLIMB)


@pytest.mark.parametrize(
    "scores",
    [[1.0], [5.0] * 40, [None, None, 1.0], [sys.float_info.max, -sys.float_info.max, 0.0], [5e-324, 0.0]],
    ids=["one snapshot", "plateau", "one score", "largest floats", "smallest floats"],
)
def test_odd_runs_can_be_drawn(scores: list[Any]) -> None:
    assert draw(scores)


def test_the_picture_of_a_long_run_stays_small() -> None:
    assert len(draw([float(i % 97) for i in range(3000)])) < 500_000
