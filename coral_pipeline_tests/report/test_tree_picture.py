"""Pictures of a tree, read back as XML."""

from __future__ import annotations

import warnings
from pathlib import Path
from xml.etree import ElementTree

import pytest

from coral_pipeline import tables
from coral_pipeline.report.tree_picture import EDGE_STYLES, score_by_depth_svg, tree_svg
from coral_pipeline.settings import Direction
from coral_pipeline_tests.trees import Failed, N, write_tree

NODES = [N(score=1.0), N(0, 2.5), N(0, 3.25, leaf="open"), N(1, None, kept_by="exemption"), N(1, 4.125)]


def draw(folder: Path, nodes: list[N], failed: list[Failed] | None = None, direction: Direction = "maximize") -> str:
    tree = write_tree(folder / "tree", nodes, failed=failed or [], direction=direction)
    return tree_svg(tables.NODES.read(tree), tables.EDGES.read(tree), direction)


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return ["".join(element.itertext()).strip() for element in root.iter("{http://www.w3.org/2000/svg}text")]


def strokes(svg: str, style: str) -> int:
    """Lines drawn in an edge style, the legend's among them."""
    return svg.count(EDGE_STYLES[style])


def test_every_node_stands_there_with_its_id_and_score(tmp_path: Path) -> None:
    shown = texts(draw(tmp_path, NODES))
    for expected in ("0", "1", "2", "3", "4", "1", "2.5", "3.25", "no score", "4.125", "depth 0", "depth 2"):
        assert expected in shown
    assert "score (maximize)" in shown


def test_failed_edges_and_kept_ones_are_told_from_those_that_passed(tmp_path: Path) -> None:
    without = draw(tmp_path / "a", [N(score=1.0), N(0, 2.0), N(0, 2.0)])
    failed = draw(tmp_path / "b", [N(score=1.0), N(0, 2.0), N(0, 2.0)], [Failed(0), Failed(1)])
    kept = draw(tmp_path / "c", [N(score=1.0), N(0, 2.0), N(0, 2.0, kept_by="fallback")])
    assert strokes(failed, "failed") > strokes(without, "failed")
    assert strokes(failed, "passed") == strokes(without, "passed")
    assert strokes(kept, "kept") > strokes(without, "kept")
    assert strokes(kept, "passed") < strokes(without, "passed")


def test_selected_paths_are_marked_with_their_rank(tmp_path: Path) -> None:
    tree = write_tree(tmp_path, NODES)
    nodes, edges = tables.NODES.read(tree), tables.EDGES.read(tree)
    plain, marked = tree_svg(nodes, edges, "maximize"), tree_svg(nodes, edges, "maximize", {1: [0, 1, 4], 2: [0, 2]})
    assert {"#1", "#2"} <= set(texts(marked)) and not {"#1", "#2"} & set(texts(plain))
    assert "selected path, with its rank" in texts(marked) and "selected path, with its rank" not in texts(plain)


def test_the_same_tree_gives_the_same_bytes(tmp_path: Path) -> None:
    assert draw(tmp_path / "a", NODES) == draw(tmp_path / "b", NODES)


def test_the_better_end_of_the_scale_is_bright_and_on_top_for_both_directions(tmp_path: Path) -> None:
    assert "score (minimize)" in texts(draw(tmp_path / "a", NODES, direction="minimize"))
    nodes = [N(score=1.0), N(0, 2.0)]
    highest, lowest = draw(tmp_path / "b", nodes), draw(tmp_path / "c", nodes, [], "minimize")
    bright, dark = 'fill="#fde725"', 'fill="#440154"'  # the ends of viridis
    assert highest.index(dark) < highest.index(bright), "the root comes first"
    assert lowest.index(bright) < lowest.index(dark)
    assert texts(highest)[-5:] == ["2", "1.75", "1.5", "1.25", "1"]
    assert texts(lowest)[-5:] == ["1", "1.25", "1.5", "1.75", "2"]


@pytest.mark.parametrize(
    "nodes",
    [
        [N(score=1.0, leaf="open")],
        [N(score=1.0), N(0, 1.0)],
        [N(score=-1.7e308), N(0, 1.7e308)],
        [N(score=0.0), N(0, None), N(1, None), N(2, None)],
        [N(score=0.0), *[N(parent, float(parent)) for parent in range(20)]],
    ],
    ids=["root alone", "equal scores", "penalties", "no scores", "a long chain"],
)
@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_every_tree_can_be_drawn(tmp_path: Path, nodes: list[N], direction: Direction) -> None:
    tree = write_tree(tmp_path, nodes, direction=direction)
    table = tables.NODES.read(tree)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pictures = [tree_svg(table, tables.EDGES.read(tree), direction), score_by_depth_svg(table, direction)]
    for svg in pictures:
        ElementTree.fromstring(svg)


def test_score_by_depth_tells_the_root_and_the_best_so_far(tmp_path: Path) -> None:
    tree = write_tree(tmp_path, NODES)
    shown = texts(score_by_depth_svg(tables.NODES.read(tree), "maximize"))
    assert {"root", "best so far", "score (maximize)", "depth (logical edges)"} <= set(shown)
