"""What several tests of the search start from."""

from __future__ import annotations

from pathlib import Path

import pytest

from coral_pipeline_tests.search.on_disk import explore


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished tree of eight edges; not to be changed."""
    folder = tmp_path_factory.mktemp("finished")
    explore(folder)
    return folder
