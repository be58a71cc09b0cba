"""What people see in the Dagster UI, with a real webserver, daemon and browser."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page

from coral_pipeline import tables
from coral_pipeline.defs.column_lineage import column_schema
from coral_pipeline.defs.pages import GLANCE
from coral_pipeline_tests.browser import SCREENSHOTS, chromium
from coral_pipeline_tests.end_to_end.conftest import SMALL, Finished, environment
from coral_pipeline_tests.end_to_end.painted import assert_painted
from coral_pipeline_tests.end_to_end.webserver import Dagster, dagster_dev

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # a busy machine needs minutes to start all that runs here

PICTURES: dict[str, list[str]] = {
    "filtered_snapshots": [],
    "stage_labels": ["score curve"],
    "selected_roots": ["score curve with roots"],
    "explored_trees": ["tree", "score by depth"],
    "ranked_paths": ["PathScore", "tree with the selected paths"],
    "advantage_batches": ["advantages"],
    "sft_dataset": ["coverage by stage"],
}
PER_ROOT = ("explored_trees", "ranked_paths", "advantage_batches")
EXPECTED_WARNINGS = ("Function `dev_command` is superseded", "No cursor for event type DagsterEventType.")
"""Dagster's own about ``dagster dev`` and about a home in which its daemon has not run yet."""


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
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1500, "height": 1300})
        page.set_default_timeout(90_000)
        yield page


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
    assert [line for line in suspicious if not any(known in line for known in EXPECTED_WARNINGS)] == []


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


def open_partition(page: Page, dagster: Dagster, asset: str, key: str) -> None:
    page.goto(f"{dagster.address}/assets/{asset}?view=partitions&partition={quote(key, safe='')}")
    page.get_by_text("Materialized", exact=True).first.wait_for()


def row(page: Page, label: str) -> Locator:
    """The row of a metadata entry."""
    return page.locator("tr").filter(has=page.get_by_text(label, exact=True))


def assert_picture_opens(page: Page, label: str, screenshot: Path) -> None:
    """A large picture is painted in the window that a click opens."""
    row(page, label).get_by_text("[Show Markdown]").click()
    assert_painted(page.get_by_alt_text(label, exact=True))
    page.screenshot(path=screenshot)
    page.get_by_text("Close", exact=True).click()


@pytest.mark.parametrize("asset", tables.TABLES)
def test_pictures_are_really_painted(dagster: Dagster, page: Page, out: Path, asset: str) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    open_partition(page, dagster, asset, partition(asset, out))
    glance = row(page, GLANCE).get_by_role("img")
    assert_painted(glance)
    inside, cell = glance.bounding_box(), row(page, GLANCE).bounding_box()
    assert inside and cell and inside["x"] + inside["width"] <= cell["x"] + cell["width"]
    page.screenshot(path=SCREENSHOTS / f"{asset}.png")
    for label in PICTURES[asset]:
        assert_picture_opens(page, label, SCREENSHOTS / f"{asset} {label}.png")


@pytest.mark.parametrize("asset", ["selected_roots", "explored_trees"])
def test_the_overview_tells_every_column_and_what_it_is_made_from(dagster: Dagster, page: Page, asset: str) -> None:
    page.goto(f"{dagster.address}/assets/{asset}?view=overview")
    page.get_by_text(tables.TABLES[asset][-1].file_name, exact=True).wait_for()
    for column in column_schema(asset).columns:
        name = page.locator("td:first-child").get_by_text(column.name, exact=True)
        described = page.locator("tr").filter(has=name)
        text = (column.description or "").partition(" ← ")[0].replace("\\", "")
        assert text in described.inner_text()
    page.screenshot(path=SCREENSHOTS / f"{asset} overview.png")


def test_a_tree_is_seen_while_it_grows_and_the_run_at_a_glance(dagster: Dagster, page: Page, out: Path) -> None:
    key = root(out)
    config = {
        "resources": {"settings": {"config": {"search": SMALL["search"] | {"max_logical_edges": 39, "max_depth": 4}}}}
    }
    run = dagster.launch(["explored_trees"], key, config)
    while edges_so_far(dagster, key, run) < 3:
        assert dagster.status(run) not in ("FAILURE", "CANCELED", "SUCCESS")
        time.sleep(0.2)

    with dagster.held(run):
        open_partition(page, dagster, "explored_trees", key)
        assert "growing" in row(page, "state").inner_text()
        assert "of at most 39 edges" in row(page, "result").inner_text()
        assert_painted(row(page, GLANCE).get_by_role("img"))
        page.screenshot(path=SCREENSHOTS / "explored_trees growing.png")
        assert_picture_opens(page, "tree so far", SCREENSHOTS / "explored_trees tree so far.png")
    dagster.terminate(run)
    assert dagster.wait_until_ended(run) == "CANCELED"
    open_partition(page, dagster, "selected_roots", key.partition("|")[0])
    assert "1 of 2 trees done, 1 stopped" in row(page, "trees so far").inner_text()
    assert_painted(row(page, "trees at a glance").get_by_role("img"))
    page.screenshot(path=SCREENSHOTS / "selected_roots trees at a glance.png")


def edges_so_far(dagster: Dagster, key: str, run: str) -> int:
    """What the latest observation of a tree says, if the run has made it."""
    query = """query($p: [String!]) {assetOrError(assetKey: {path: ["explored_trees"]}) {... on Asset {
        assetObservations(partitions: $p, limit: 1) {
            runId metadataEntries {label ... on IntMetadataEntry {intValue}}
        }}}}"""
    observations = dagster.ask(query, p=[key])["assetOrError"]["assetObservations"]
    if not observations or observations[0]["runId"] != run:
        return 0
    return next((int(e["intValue"]) for e in observations[0]["metadataEntries"] if e["label"] == "edges"), 0)


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
    dagster.terminate(run)
    assert dagster.wait_until_ended(run) == "CANCELED"
    assert not (folder / "tree.json").exists()
    before = journal.read_text()

    again = dagster.launch(PER_ROOT, key, config)
    assert dagster.wait_until_ended(again) == "SUCCESS"
    assert journal.read_text().startswith(before) and (folder / "tree.json").exists()
