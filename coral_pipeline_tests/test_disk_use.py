"""Disk space of folders: what is really taken, everything once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coral_pipeline.disk_use import disk_bytes, readable


def test_hard_links_count_once_and_holes_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "data").write_bytes(os.urandom(100_000))
    (tmp_path / "b").hardlink_to(tmp_path / "a" / "data")
    (tmp_path / "link").symlink_to(tmp_path / "a" / "data")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    assert 100_000 <= disk_bytes(tmp_path) < 200_000


def test_a_folder_that_is_not_there_takes_nothing(tmp_path: Path) -> None:
    assert disk_bytes(tmp_path / "none") == 0


@pytest.mark.parametrize(
    ("size", "said"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1 kB"), (640_000, "640 kB"), (999_600, "1 MB"), (2_130_000_000, "2.13 GB")],
)
def test_sizes_are_told_in_three_digits(size: int, said: str) -> None:
    assert readable(size) == said
