"""The page as a file, without a browser: what it says of what is there, and of what is not there yet."""

from __future__ import annotations

import json
import re
import shutil
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coral_pipeline import tables
from coral_pipeline.errors import BadInput
from coral_pipeline.report.page.page import report_page
from coral_pipeline.report.page.reading import Outputs, read_run
from coral_pipeline.settings import ReportSettings
from coral_pipeline_tests.report.page.runs import (
    NODES,
    RUN,
    root_name,
    saying,
    seal,
    write_credit,
    write_dataset,
    write_root,
    write_selection,
)

MADE = datetime(2026, 5, 1, 12, tzinfo=UTC)


def page(output: Path) -> str:
    return report_page(read_run(Outputs(output, RUN)), ReportSettings(), MADE)


def text(html: str) -> str:
    """What a reader without scripts sees, blanks made one."""

    class Reader(HTMLParser):
        skipped = 0

        def handle_starttag(self, tag: str, attrs: object) -> None:
            self.skipped += tag in ("script", "style")

        def handle_endtag(self, tag: str) -> None:
            self.skipped -= tag in ("script", "style")

        def handle_data(self, data: str) -> None:
            if not self.skipped:
                said.append(data)

    said: list[str] = []
    Reader().feed(html)
    return re.sub(r"\s+", " ", "".join(said))


def test_without_anything_of_the_run_the_mend_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nothing of a Student run 'run-a'.*coral-pipeline run"):
        read_run(Outputs(tmp_path, RUN))


def test_before_roots_are_chosen_there_is_the_run(tmp_path: Path) -> None:
    write_selection(tmp_path, roots=1)
    shutil.rmtree(tmp_path / "selected_roots")
    said = text(page(tmp_path))
    assert "6 snapshots of a run that is to raise its score. No roots were chosen yet." in said
    assert "No paths were ranked yet." in said and "No dataset was made yet." in said


def test_trees_that_are_not_done_are_shown_as_such(tmp_path: Path) -> None:
    write_selection(tmp_path, roots=4)
    write_root(tmp_path, 0)
    write_root(tmp_path, 1, rank=False)
    (tmp_path / "explored_trees" / RUN / root_name(2) / "work").mkdir(parents=True)
    said = text(page(tmp_path))
    assert "2 of 4 trees are finished" in said
    assert said.count("Its tree is not finished: nothing can be told of it yet.") == 2
    assert [line.count("Paths of this tree") for line in (page(tmp_path),)] == [1], "one tree is ranked"


def test_the_dataset_is_counted(tmp_path: Path) -> None:
    write_selection(tmp_path, roots=1)
    write_root(tmp_path)
    write_credit(tmp_path)
    write_dataset(tmp_path)
    said = text(page(tmp_path)).split("SFT samples")[-1]
    assert said.startswith("2 Messages in them3 Tokens5 Tokens to train on2 Positive advantages1 ")


def test_what_is_left_of_an_earlier_tree_is_not_told(tmp_path: Path) -> None:
    """The root is explored anew, to another and smaller tree; paths, advantages and dataset are still of the first."""
    write_selection(tmp_path, roots=1)
    write_root(tmp_path)
    write_credit(tmp_path)
    write_dataset(tmp_path)
    before = text(page(tmp_path))
    assert "No paths were ranked yet." not in before and "Advantages by td." in before
    write_root(tmp_path, nodes=NODES[:3], failed=(), rank=False)
    seal(tmp_path, "explored_trees", root_name(0), version="2", selected_roots="1")
    said = text(page(tmp_path))
    assert "all trees are finished" in said
    assert "No paths were ranked yet." in said and "No dataset was made yet." in said
    assert "Advantages by" not in said and "All 3 paths" not in said


def test_an_earlier_ranking_leaves_its_advantages_untold(tmp_path: Path) -> None:
    write_selection(tmp_path, roots=1)
    write_root(tmp_path)
    write_credit(tmp_path)
    seal(tmp_path, "ranked_paths", root_name(0), version="2", explored_trees="1")
    said = text(page(tmp_path))
    assert "No paths were ranked yet." not in said and "Advantages by" not in said


def test_roots_of_a_run_that_was_read_anew_are_not_told(tmp_path: Path) -> None:
    """Of its six snapshots the first is gone, which was a root."""
    write_selection(tmp_path, roots=1)
    write_root(tmp_path)
    folder = tmp_path / "stage_labels" / RUN
    tables.STAGE_LABELS.write(tables.STAGE_LABELS.rows(folder)[1:], folder)
    seal(tmp_path, "stage_labels", version="2")
    assert "5 snapshots of a run that is to raise its score. No roots were chosen yet." in text(page(tmp_path))


def test_the_tree_of_an_earlier_root_of_the_name_is_not_told(tmp_path: Path) -> None:
    write_selection(tmp_path, roots=1)
    write_root(tmp_path)
    seal(tmp_path, "explored_trees", root_name(0), selected_roots="0")
    assert "0 of 1 trees are finished" in text(page(tmp_path))


def test_a_run_that_lowers_its_score_is_told_so(tmp_path: Path) -> None:
    write_selection(tmp_path, roots=1)
    folder = tmp_path / "stage_labels" / RUN
    rows = tables.STAGE_LABELS.rows(folder)
    tables.STAGE_LABELS.write([{**row, "oriented_score": -row["score_for_stage"]} for row in rows], folder)
    assert "a run that is to lower its score" in text(page(tmp_path))


def test_costs_are_added_up(tmp_path: Path) -> None:
    """A tree of five kept edges of 10 tool calls and 1 s and two failed ones of 10; tokens where a server counted."""
    write_selection(tmp_path, roots=2)
    write_root(tmp_path, 0)
    write_root(
        tmp_path, 1, message=lambda row: {**row, "output_tokens": 7, "input_tokens": 100} if row["sampled"] else row
    )
    rows = re.findall(
        r"<tr><th scope=\"row\">([^<]*)</th>((?:\s*<td>[^<]*</td>)+)\s*</tr>", page(tmp_path).split('id="costs"')[1]
    )
    cells = {name: re.findall(r"<td>([^<]*)</td>", line) for name, line in rows}
    # turns, model calls, tool calls, failed, context tokens, prompt tokens, sampled tokens, hours
    assert cells["0 · agent-1"] == ["14", "7", "70", "0", "7,000", "–", "–", "0.00"]
    assert cells["1 · agent-1"] == ["14", "7", "70", "0", "7,000", "1,000", "70", "0.00"]
    assert cells["All"] == ["28", "14", "140", "0", "14,000", "1,000", "70", "0.00"]


def test_the_same_run_gives_the_same_page(tmp_path: Path) -> None:
    write_selection(tmp_path, roots=1)
    write_root(tmp_path)
    assert page(tmp_path) == page(tmp_path)
    assert str(tmp_path) not in page(tmp_path)


def test_nothing_is_fetched_and_only_the_pages_own_script_may_run(tmp_path: Path) -> None:
    write_selection(tmp_path, roots=1)
    write_root(tmp_path)
    html = page(tmp_path)
    assert "default-src 'none'; script-src 'sha256-" in html
    assert not re.search(r"""(src|href)=["'](?!#)""", html), "links lead inside the page"
    assert "@import" not in html and "url(" not in html.replace("url(#", "")


def test_cut_texts_are_named_with_where_they_stand_in_full(tmp_path: Path) -> None:
    write_selection(tmp_path, roots=1)
    write_root(tmp_path, message=lambda row: saying(row, row["message_id"] * 5000))
    said = text(page(tmp_path))
    assert "20 long texts of this tree are shown without their middle, at most 20,000 characters of each" in said
    assert f"messages.parquet and turns.parquet of explored_trees/{RUN}/{root_name(0)}/" in said


@pytest.mark.parametrize("tree", ["{", "[]", '{"root": "r"}', '{"root": "r", "direction": "maximize"}'])
def test_a_tree_that_cannot_be_read_is_named(tmp_path: Path, tree: str) -> None:
    write_selection(tmp_path, roots=1)
    (write_root(tmp_path) / "tree.json").write_text(tree)
    with pytest.raises(BadInput, match=rf"{root_name(0)}.tree\.json: "):
        page(tmp_path)


@pytest.mark.parametrize("file", ["messages.parquet", "turns.parquet"])
def test_damaged_tables_are_named(tmp_path: Path, file: str) -> None:
    write_selection(tmp_path, roots=1)
    folder = write_root(tmp_path)
    pq.write_table(pa.table({"something": [1]}), folder / file)
    with pytest.raises(BadInput, match=rf"{file}: lacks the column"):
        page(tmp_path)
    (folder / file).write_bytes(b"PAR1")
    with pytest.raises(BadInput, match=rf"{file}: cannot be read"):
        page(tmp_path)


def test_settings_and_versions_are_told(tmp_path: Path) -> None:
    write_selection(tmp_path, roots=1)
    folder = write_root(tmp_path)
    info = json.loads((folder / "tree.json").read_text())
    info["configuration"] = {
        "search": {"max_depth": 4, "soft_weights": {"outcome": 0.3}},
        "teacher": {"name": "embedded"},
    }
    (folder / "tree.json").write_text(json.dumps(info))
    said = text(page(tmp_path))
    for line in ("search.max_depth 4", "search.soft_weights.outcome 0.3", "teacher.name embedded"):
        assert line.replace(" ", "") in said.replace(" ", "")
