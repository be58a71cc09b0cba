"""``parallel_width: auto``: a number that a tree keeps."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from coral_pipeline.errors import BadInput
from coral_pipeline.search.width import with_width
from coral_pipeline.settings import SearchSettings
from coral_pipeline_tests.search.on_disk import explore, journal

AUTO = SearchSettings(parallel_width="auto")


def never() -> NoReturn:
    raise AssertionError("asked though the width is known")


def test_a_number_is_as_it_is(tmp_path: Path) -> None:
    assert with_width(SearchSettings(parallel_width=5), tmp_path, never) == SearchSettings(parallel_width=5)


def test_a_tree_is_begun_with_what_fits_and_goes_on_with_it(tmp_path: Path) -> None:
    assert with_width(AUTO, tmp_path / "tree", lambda: 4) == SearchSettings(parallel_width=4)
    explore(tmp_path / "tree", parallel_width=4)
    assert with_width(AUTO, tmp_path / "tree", never).width == 4


@pytest.mark.parametrize("left", [b"", b'{"kind":"hea', b'{"kind":"done","crc":"00000000"}\n'])
def test_what_is_left_of_a_journal_that_never_began_says_no_width(tmp_path: Path, left: bytes) -> None:
    journal(tmp_path).parent.mkdir()
    journal(tmp_path).write_bytes(left)
    assert with_width(AUTO, tmp_path, lambda: 4).width == 4


def test_auto_is_no_number() -> None:
    with pytest.raises(BadInput, match=r"search\.parallel_width: is auto"):
        _ = AUTO.width
