"""The two kinds of storage: a folder, and a URL that is reached as an object store is."""

from __future__ import annotations

from pathlib import Path

import pytest

from coral_pipeline.storage import SCRATCH, Storage, open_storage


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This machine's folder for what is fetched."""
    monkeypatch.setenv(SCRATCH, str(tmp_path / "scratch"))
    return tmp_path / "scratch"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store in a folder, whose objects can be looked at."""
    return f"file://{tmp_path}/store"


@pytest.fixture(params=["folder", "url"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, url: str) -> Storage:
    return open_storage(tmp_path / "output" if request.param == "folder" else url)


@pytest.fixture
def remote(url: str) -> Storage:
    return open_storage(url)
