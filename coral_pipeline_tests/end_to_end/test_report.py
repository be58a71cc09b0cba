"""The report of the bundled run, as a person who was sent it reads it: from the file, without a network."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from coral_pipeline import tables
from coral_pipeline.report.page.diffs import combined
from coral_pipeline_tests.browser import SCREENSHOTS, opened, sideways
from coral_pipeline_tests.end_to_end.conftest import TOUR, Finished, coral_pipeline

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def report(bundled: Finished, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("sent") / "tour.html"
    ended = coral_pipeline("report", TOUR, "--out", bundled.out, "--html", file)
    assert ended.code == 0, ended.err
    assert ended.out.startswith(f"{file}: 0.") and ended.out.endswith("2 of 2 trees are finished\n")
    return file


def added(diff: str) -> list[str]:
    """The lines it adds."""
    return [f"{line}\n" for line in diff.splitlines() if line.startswith("+") and not line.startswith("+++")]


def test_it_is_small_enough_to_send(bundled: Finished, report: Path) -> None:
    """What each edge of these small trees takes leaves the whole bundled run, six trees of 33 edges, under 5 MB."""
    page = report.read_text(encoding="utf-8")
    of_trees = sum(len(tree.encode()) for tree in re.findall(r"<article.*?</article>", page, re.DOTALL))
    trees = (file.parent for file in bundled.out.glob("explored_trees/tour/*/tree.json"))
    edges = sum(len(tables.EDGES.read(tree)) for tree in trees)
    assert edges >= 10 and of_trees > 10_000
    assert report.stat().st_size - of_trees + of_trees / edges * 6 * 33 < 5_000_000


@pytest.mark.parametrize("width", [400, 1400])
def test_a_node_is_clicked_its_diff_and_its_transcript_are_read(
    browser: Browser, bundled: Finished, report: Path, width: int
) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    root = tables.SELECTED_ROOTS.rows(bundled.out / "selected_roots" / "tour")[0]["root"]
    tree = bundled.out / "explored_trees" / "tour" / root
    edge = next(row for row in tables.EDGES.rows(tree) if row["child_id"] == 1)
    diffs = [row["code_diff"] for row in tables.TURNS.rows(tree) if row["edge_id"] == edge["edge_id"]]
    whole = combined(*diffs)
    assert whole is not None
    with opened(browser, report, width=width) as found:
        page = found.page
        page.locator("#r0 .details h4").wait_for()
        page.screenshot(path=SCREENSHOTS / f"report {width} top.png")
        page.locator("#r0 .tree a", has_text="Node 1").first.click()
        details = page.locator("#r0 .details")
        details.locator("h4", has_text="Node 1").wait_for()
        assert details.get_by_text("Code diff against the root", exact=True).first.is_visible()
        assert details.locator(".diff").first.locator("ins").all_text_contents() == added(whole)
        details.locator(".turn").first.get_by_text("Code diff against the root").click()
        assert details.locator(".turn").first.locator("ins").all_text_contents() == added(diffs[0])
        details.locator(".transcript summary").first.click()
        messages = [row for row in tables.MESSAGES.rows(tree) if (row["edge_id"], row["turn"]) == (edge["edge_id"], 1)]
        details.locator(".message").first.wait_for()
        assert details.locator(".turn").first.locator(".message").count() == len(messages)
        said = details.locator(".turn").first.locator(".message.assistant .text pre").all_text_contents()
        assert said == [row["content"][0]["text"] for row in messages if row["role"] == "assistant"]
        details.locator(".diff").first.scroll_into_view_if_needed()
        page.screenshot(path=SCREENSHOTS / f"report {width} node.png")
        page.locator("#trees").scroll_into_view_if_needed()
        page.screenshot(path=SCREENSHOTS / f"report {width}.png", full_page=True)
        assert sideways(page) == 0
        assert found.console == [] and found.requests == [report.as_uri()]


def test_what_cannot_be_reported_is_told_in_one_line(bundled: Finished, tmp_path: Path) -> None:
    nothing = coral_pipeline("report", "no-such-run", "--out", bundled.out)
    assert nothing.code == 1 and "holds nothing of a Student run 'no-such-run'" in nothing.err
    nowhere = coral_pipeline("report", "tour", "--out", bundled.out, "--html", tmp_path / "no" / "such" / "folder.html")
    assert nowhere.code == 1 and nowhere.err.endswith("choose another --html\n")
    assert nothing.err.count("\n") == nowhere.err.count("\n") == 1
