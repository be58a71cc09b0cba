"""Advantages as a table and as a picture."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from rich.console import Console

from coral_pipeline.credit import Batch, DirectBranchTd, Grpo, prepare
from coral_pipeline.report.advantages import advantage_histogram_svg, batch_table
from coral_pipeline_tests.trees import N, explored

NODES = [N(score=1.0), N(0, 2.0), N(0, 0.0), N(1, 3.0), N(1, 1.0, leaf="open")]


def picture(batch: Batch) -> str:
    return " ".join(ET.fromstring(advantage_histogram_svg(batch.edge_table())).itertext())


def test_the_terminal_table_tells_counts_and_spread() -> None:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(batch_table(prepare(explored(NODES), Grpo()).describe()))
    text = capture.get()
    assert "grpo over 4 edges, 5 nodes, 2 good leaves" in text
    assert "advantages: 2 positive, 1 negative, 0 zero, 1 unassigned" in text
    assert [line.split()[:2] for line in text.splitlines() if "targets" in line] == [["targets", "2"]]
    assert "· mean_return" in text


def test_a_tree_without_advantages_shows_dashes() -> None:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(batch_table(prepare(explored([N(score=1.0), N(0, 1.0, leaf="open")]), Grpo()).describe()))
    (line,) = [line for line in capture.get().splitlines() if line.strip().startswith("advantages ")]
    assert line.split() == ["advantages", "0", "–", "–", "–", "–"]


def test_the_histogram_counts_signs_and_unassigned_edges() -> None:
    text = picture(prepare(explored(NODES), Grpo()))
    assert "grpo: 3 edges, 1 unassigned" in text
    assert all(label in text for label in ("positive (2)", "negative (1)", "zero (0)", "mean"))


def test_the_histogram_of_nothing_and_of_zeros() -> None:
    assert "no advantage assigned" in picture(prepare(explored([N(score=1.0), N(0, 1.0, leaf="open")]), Grpo()))
    assert "no edges" in picture(prepare(explored([N(score=1.0, leaf="open")]), DirectBranchTd()))
    zeros = picture(prepare(explored([N(score=1.0), N(0, 1.0), N(0, 1.0)]), Grpo()))
    assert "zero (2)" in zeros
