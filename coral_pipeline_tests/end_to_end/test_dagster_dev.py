"""What people see in the Dagster UI, with a real webserver, daemon and browser."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from coral_pipeline import tables
from coral_pipeline_tests.end_to_end.conftest import SMALL, Finished, environment
from coral_pipeline_tests.end_to_end.webserver import CHECKOUT, Dagster, dagster_dev

pytestmark = pytest.mark.slow

PICTURES = {
    "stage_labels": ["score curve"],
    "selected_roots": ["score curve with roots"],
    "explored_trees": ["tree", "score by depth"],
    "ranked_paths": ["PathScore", "tree with the selected paths"],
    "advantage_batches": ["advantages"],
    "sft_dataset": ["coverage by stage"],
}
PER_ROOT = ("explored_trees", "ranked_paths", "advantage_batches")
SCREENSHOTS = CHECKOUT / "build" / "screenshots"
EXPECTED_WARNING = "Function `dev_command` is superseded"
"""Dagster's own about ``dagster dev``, whatever it opens."""


@pytest.fixture(scope="module")
def out(bundled: Finished, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the bundled run's output, to be changed here."""
    assert bundled.ended.code == 0, bundled.ended.err
    return shutil.copytree(bundled.out, tmp_path_factory.mktemp("served") / "out")


@pytest.fixture(scope="module")
def dagster(out: Path) -> Iterator[Dagster]:
    with dagster_dev(environment(out), out.parent / "dagster.log") as dagster:
        yield dagster


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    assert chromium, "install chromium: `make system-packages`"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        browser: Browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield browser.new_page(viewport={"width": 1500, "height": 1100})
        browser.close()


def root(out: Path) -> str:
    return "tour|" + str(tables.SELECTED_ROOTS.rows(out / "selected_roots" / "tour")[0]["root"])


def partition(asset: str, out: Path) -> str:
    return root(out) if asset in PER_ROOT else "tour"


def test_it_opens_without_an_error_or_a_warning(dagster: Dagster) -> None:
    workspace = dagster.ask(
        "{workspaceOrError {... on Workspace {locationEntries {name loadStatus locationOrLoadError {__typename}}}}}"
    )["workspaceOrError"]
    (location,) = workspace["locationEntries"]
    assert location == {
        "name": "coral_pipeline",
        "loadStatus": "LOADED",
        "locationOrLoadError": {"__typename": "RepositoryLocation"},
    }
    suspicious = [line for line in dagster.log.read_text().splitlines() if re.search("warning|error", line, re.I)]
    assert [line for line in suspicious if EXPECTED_WARNING not in line] == []


def test_all_that_the_command_made_is_there_and_fresh(dagster: Dagster, out: Path) -> None:
    query = "query($p: String!) {assetNodes {assetKey {path} staleStatus(partition: $p)}}"
    for asset in tables.TABLES:
        nodes = dagster.ask(query, p=partition(asset, out))["assetNodes"]
        status = {node["assetKey"]["path"][0]: node["staleStatus"] for node in nodes}
        assert status[asset] == "FRESH", asset
    statuses = {
        run["status"] for run in dagster.ask("{runsOrError {... on Runs {results {status}}}}")["runsOrError"]["results"]
    }
    assert statuses == {"SUCCESS"}


@pytest.mark.parametrize("asset", PICTURES)
def test_pictures_are_really_painted(dagster: Dagster, page: Page, out: Path, asset: str) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    key = quote(partition(asset, out), safe="")
    page.goto(f"{dagster.address}/assets/{asset}?view=partitions&partition={key}")
    page.get_by_text("Materialized", exact=True).first.wait_for()
    page.screenshot(path=SCREENSHOTS / f"{asset}.png")
    for picture in PICTURES[asset]:
        row = page.locator("tr").filter(has=page.get_by_text(picture, exact=True))
        row.get_by_text("[Show Markdown]").click()
        image = page.get_by_alt_text(picture, exact=True)
        image.wait_for()
        size: Any = image.evaluate("async image => (await image.decode(), [image.naturalWidth, image.naturalHeight])")
        assert min(size) > 100
        page.screenshot(path=SCREENSHOTS / f"{asset} {picture}.png")
        page.get_by_text("Close", exact=True).click()


def test_the_graph_is_painted(dagster: Dagster, page: Page) -> None:
    page.goto(f"{dagster.address}/asset-groups")
    page.get_by_text("student_run", exact=True).first.wait_for()
    page.keyboard.press("Alt+e")
    for asset in (*tables.TABLES, "root_folders", "finished_roots"):
        page.get_by_text(asset, exact=True).first.wait_for()
    page.screenshot(path=SCREENSHOTS / "graph.png")


def test_a_tree_that_is_terminated_in_the_ui_goes_on_when_it_is_launched_again(dagster: Dagster, out: Path) -> None:
    key = root(out)
    folder = out / "explored_trees" / Path(*key.split("|"))
    journal = folder / "work" / "journal.jsonl"
    config = {"resources": {"settings": {"config": {"search": SMALL["search"] | {"max_logical_edges": 7}}}}}

    def turns() -> int:
        """Of the tree that grows now: the one of before is moved aside."""
        known = journal.exists() and '"max_logical_edges":7' in journal.read_text()
        return journal.read_text().count('"kind":"turn"') if known else 0

    run = dagster.launch(["explored_trees"], key, config)
    while turns() < 3:
        assert dagster.status(run) not in ("FAILURE", "CANCELED")
        time.sleep(0.1)
    dagster.ask("mutation($r: String!) {terminateRun(runId: $r) {__typename}}", r=run)
    assert dagster.wait_until_ended(run) == "CANCELED"
    assert not (folder / "tree.json").exists()
    before = journal.read_text()

    again = dagster.launch(PER_ROOT, key, config)
    assert dagster.wait_until_ended(again) == "SUCCESS"
    assert journal.read_text().startswith(before) and (folder / "tree.json").exists()
