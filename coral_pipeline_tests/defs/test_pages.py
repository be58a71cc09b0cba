"""What the page of a tree says while it grows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coral_pipeline.defs.pages import GLANCE, RESULT, against_root, gain
from coral_pipeline.defs.progress import progress_page
from coral_pipeline.search.progress import progress_of
from coral_pipeline.search.tree import Tree
from coral_pipeline.settings import Direction, SearchSettings
from coral_pipeline_tests.search.growing import ROOT

SETTINGS = SearchSettings(max_logical_edges=40, target_good_leaf_count=12)


@pytest.mark.parametrize(
    ("direction", "best", "better_by", "sentence"),
    [
        ("maximize", 1.25, 0.25, "best score 1.25 against the root's 1 (higher is better)"),
        ("minimize", 0.75, 0.25, "best score 0.75 against the root's 1 (lower is better)"),
        ("minimize", 1.0, 0.0, "nothing better than the root's 1 (lower is better)"),
    ],
)
def test_a_tree_is_held_against_its_root(direction: Direction, best: float, better_by: float, sentence: str) -> None:
    assert gain(best, ROOT.score, direction) == better_by
    assert against_root(best, ROOT.score, direction) == sentence


def test_a_growing_tree_says_how_far_it_is_and_how_long_it_will_take() -> None:
    # 10 of 40 edges in 60 seconds: 30 more take 180 seconds.
    begun = progress_of(Tree(ROOT, "maximize", SETTINGS))
    progress = replace(begun, round=2, valid_edges=10, fraction=0.25, best_score=1.5, running={"a": 1, "b": 2})
    page = progress_page(progress, 60.0)
    assert page[RESULT] == (
        "25% done: round 2, 10 of at most 40 edges, 0 of 12 good leaves; "
        "best score 1.5 against the root's 1 (higher is better)"
    )
    assert page["figures"].startswith("2 edges under way, 0 failed, 0 tokens")
    assert page["minutes left, about"] == 3.0
    assert "data:image/svg+xml" in page[GLANCE].md_str


def test_what_an_earlier_try_had_done_does_not_make_this_one_look_faster() -> None:
    # A quarter was done when this try began; another quarter took it 60 seconds, so the other half takes 120.
    progress = replace(progress_of(Tree(ROOT, "maximize", SETTINGS)), fraction=0.5)
    assert progress_page(progress, 60.0, before=0.25)["minutes left, about"] == 2.0


def test_nothing_is_foretold_before_anything_was_done() -> None:
    page = progress_page(progress_of(Tree(ROOT, "maximize", SETTINGS)), 60.0)
    assert "minutes left, about" not in page and page["done, percent"] == 0
