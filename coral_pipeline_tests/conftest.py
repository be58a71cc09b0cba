"""What several rooms of the tests start from: the genuine CORAL runs that come with the project, and a browser."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DATA = Path(__file__).parents[1] / "data"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first: one that is begun last would keep a single worker busy while the others wait."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def _unpacked(name: str, factory: pytest.TempPathFactory) -> Path:
    folder = factory.mktemp("coral_runs")
    with tarfile.open(DATA / "coral_runs" / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name


@pytest.fixture(scope="session")
def coral_run_tour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two agents, minimise a tour through 24 cities: 64 attempts, 6 of them crashed. Not to be written to."""
    return _unpacked("tour", tmp_path_factory)


@pytest.fixture(scope="session")
def coral_run_circle_packing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three agents, maximise the radii of ten circles: 108 attempts, 10 crashed, 2 without a checkpoint. Likewise."""
    return _unpacked("circle-packing", tmp_path_factory)


@pytest.fixture(scope="module")  # playwright's loop, while it runs, is in the way of others
def browser() -> Iterator[Browser]:
    """A Chromium without a network."""
    from coral_pipeline_tests.browser import chromium

    with chromium() as browser:
        yield browser
