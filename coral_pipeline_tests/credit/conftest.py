"""What several tests of credit start from."""

from __future__ import annotations

from pathlib import Path

import pytest

from coral_pipeline_tests.transcripts import write_talking_tree


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with transcripts; not to be changed."""
    return write_talking_tree(tmp_path_factory.mktemp("tree"))
