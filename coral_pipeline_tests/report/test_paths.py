"""Ranked paths as a table and as a picture."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pyarrow as pa
from rich.console import Console

from coral_pipeline.paths.rank import rank_tree
from coral_pipeline.report.paths import path_scores_svg, path_table
from coral_pipeline.settings import PathSettings
from coral_pipeline_tests.trees import N, explored

SETTINGS = PathSettings(top_k=1)


def ranked(*children: N) -> pa.Table:
    return rank_tree(explored([N(score=1.0), *children]), SETTINGS)


THREE = ranked(N(0, 2.0), N(0, -123456.789), N(0, None))


def printed(table: pa.Table) -> list[str]:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(path_table(table))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_the_terminal_table_tells_rank_score_and_why_a_path_is_out() -> None:
    lines = printed(THREE)
    assert lines[0].split() == ["#", "leaf", "PathScore", "max", "rank", "avg", "rank", "clean", "knowl", "selected"]
    assert lines[2].split() == ["1", "1", "0.7300", "2", "0.750", "2", "0.750", "1.000", "0.400", "yes"]
    assert lines[3].split()[2:4] == ["0.4300", "-1.2346e+05"]
    assert lines[3].endswith("no")
    assert lines[4].split() == ["–", "3"] + ["–"] * 7 + ["missing_score"]
    assert "…" not in "".join(lines), "nothing is cut off in 80 characters"


def test_the_picture_names_every_candidate_and_its_score() -> None:
    text = " ".join(ET.fromstring(path_scores_svg(THREE, SETTINGS)).itertext())
    assert "#1  leaf 1" in text
    assert "0.730" in text
    assert "0.35 · max_score_rank" in text
    assert "leaf 3" not in text, "not a candidate"
    assert path_scores_svg(THREE, SETTINGS) == path_scores_svg(THREE, SETTINGS), "the same in every run"


def test_no_candidates_are_a_picture_that_says_so() -> None:
    assert "no candidate paths" in path_scores_svg(ranked(N(0, 1.0, leaf="open")), SETTINGS)
