"""What the page's scripts are told of a tree."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

from coral_pipeline import tables
from coral_pipeline.report.page.reading import Outputs, RootReading, read_run
from coral_pipeline.report.page.texts import TextPool
from coral_pipeline.report.page.trees import pack_tree, placed_rounds, rows_of_tree, tree_data
from coral_pipeline.settings import ReportSettings
from coral_pipeline_tests.report.page.runs import RUN, saying, write_root, write_selection


def read_root(output: Path) -> RootReading:
    return read_run(Outputs(output, RUN)).roots[0]


def told(root: RootReading) -> Any:
    texts = TextPool(1000)
    return tree_data(root, texts) | {"texts": texts.shown(1000)}


def unpacked(data: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(data)))


def test_every_node_and_edge_is_told_with_its_turns_and_messages(tmp_path: Path) -> None:
    write_selection(tmp_path, roots=1)
    folder = write_root(tmp_path, turn=lambda row: {**row, "code_diff": f"diff of {row['edge_id']}/{row['turn']}"})
    data = told(read_root(tmp_path))
    assert data["nodes"] == tables.NODES.rows(folder)
    assert [edge["edge_id"] for edge in data["edges"]] == [row["edge_id"] for row in tables.EDGES.rows(folder)]
    diffs = {
        (edge["edge_id"], turn["turn"]): data["texts"][turn["code_diff"]]
        for edge in data["edges"]
        for turn in edge["turns"]
    }
    assert diffs == {key: f"diff of {key[0]}/{key[1]}" for key in diffs} and len(diffs) == 2 * len(data["edges"])
    ids = [message["message_id"] for edge in data["edges"] for message in edge["messages"]]
    assert ids == [row["message_id"] for row in tables.MESSAGES.rows(folder)], "each once"
    assert data["folder"] == f"explored_trees/{RUN}/{folder.name}"


def test_an_edge_tells_what_both_its_turns_changed(tmp_path: Path) -> None:
    """One diff of two; one turn's where the other made none; none where they cannot be made one, or are too long."""
    head = "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n"
    diffs = {
        0: (f"{head}-1\n+2\n", f"{head}-2\n+3\n"),
        1: (f"{head}-1\n+2\n", None),
        2: (f"{head}-1\n+2\n", f"{head}-1\n+2\n"),
        3: (f"{head}-1\n+{'2' * 2000}\n", f"{head}-{'2' * 2000}\n+3\n"),
        4: (f"{head}-1\n+2\n", f"{head}-2\n+1\n"),
    }
    write_selection(tmp_path, roots=1)
    write_root(
        tmp_path, turn=lambda row: {**row, "code_diff": diffs.get(row["edge_id"], (None, None))[row["turn"] - 1]}
    )
    data = told(read_root(tmp_path))
    shown = [None if edge["code_diff"] is None else data["texts"][edge["code_diff"]] for edge in data["edges"]]
    both = head.replace("@@ -1 +1 @@", "@@ -1,1 +1,1 @@") + "-1\n+3\n"
    assert shown == [both, f"{head}-1\n+2\n", None, None, "", None, None]


def test_a_commit_whose_diff_was_not_recorded_leaves_the_edge_s_untold(tmp_path: Path) -> None:
    """Only the second turn's is there, and both turns made a commit."""
    diff = "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-1\n+2\n"
    write_selection(tmp_path, roots=1)
    write_root(
        tmp_path,
        turn=lambda row: {**row, "commit_hash": "0" * 40, "code_diff": diff if row["turn"] == 2 else None},
    )
    assert {edge["code_diff"] for edge in told(read_root(tmp_path))["edges"]} == {None}


def test_a_prompt_that_every_turn_has_is_kept_once(tmp_path: Path) -> None:
    write_selection(tmp_path, roots=1)
    write_root(tmp_path, message=lambda row: saying(row, "the same"))
    assert told(read_root(tmp_path))["texts"].count("the same") == 1


def test_a_tree_is_cut_down_to_its_share_of_the_page(tmp_path: Path) -> None:
    """Texts that do not compress: 20 messages of 4000 characters; half a text after another is given up."""
    write_selection(tmp_path, roots=1)
    noise = iter(range(10**9))
    write_root(
        tmp_path, message=lambda row: saying(row, "".join(chr(0x4E00 + next(noise) * 7919 % 9973) for _ in range(4000)))
    )
    root = read_root(tmp_path)
    whole = pack_tree(root, ReportSettings(), 10**9)
    assert whole.cut == 0
    small = pack_tree(root, ReportSettings(), len(whole.data) // 3)
    assert len(small.data) <= len(whole.data) // 3
    assert small.cut == len(root.edges) * 4 - 8  # the two pruned forks have no messages
    assert {len(text[0]) + len(text[2]) for text in unpacked(small.data)["texts"]} == {small.limit}
    least = pack_tree(root, ReportSettings(), 1)
    assert least.limit == ReportSettings().min_text_characters, "no further"


def test_numbers_that_json_does_not_know_are_told_as_text(tmp_path: Path) -> None:
    write_selection(tmp_path, roots=1)
    folder = write_root(tmp_path)
    rows = tables.EDGES.rows(folder)
    tables.EDGES.write([{**row, "seconds": float("inf")} for row in rows], folder)
    data = unpacked(pack_tree(read_root(tmp_path), ReportSettings(), 10**9).data)
    assert {edge["seconds"] for edge in data["edges"]} == {"inf"}


def test_a_tree_is_listed_depth_first_with_its_pruned_forks(tmp_path: Path) -> None:
    """Node 1 has the children 4 and 5 and a pruned fork, node 2 a pruned fork; see ``runs.NODES``."""
    write_selection(tmp_path, roots=1)
    write_root(tmp_path)
    rows = [
        (
            row["level"],
            row["node"]["node_id"] if row["node"] else f"pruned {row['edge']['parent_id']}",
            row["place"],
            row["of"],
        )
        for row in rows_of_tree(read_root(tmp_path))
    ]
    assert rows == [
        (1, 0, 1, 1),
        (2, 1, 1, 3),
        (3, 4, 1, 3),
        (3, 5, 2, 3),
        (3, "pruned 1", 3, 3),
        (2, 2, 2, 3),
        (3, "pruned 2", 1, 1),
        (2, 3, 3, 3),
    ]


def test_candidates_have_their_place_in_the_round() -> None:
    rounds = [{"round": r, "node_id": n} for r, n in ((1, 0), (2, 3), (2, 1), (2, 2), (3, 1))]
    placed = [(row["round"], row["node_id"], row["place"], row["of"]) for row in placed_rounds(rounds)]
    assert placed == [(1, 0, 1, 1), (2, 3, 1, 3), (2, 1, 2, 3), (2, 2, 3, 3), (3, 1, 1, 1)]
