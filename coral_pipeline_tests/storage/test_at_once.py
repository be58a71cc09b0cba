"""Several processes at the same partition: what is read is all of one version, what is left is all of the last."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coral_pipeline import provenance
from coral_pipeline.storage import Storage, open_storage
from coral_pipeline_tests.storage.writing import ASSET, FILES, PARTITION, read, write

pytestmark = pytest.mark.slow


def start(output: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "coral_pipeline_tests.storage.writing", output, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out


@pytest.fixture(params=["folder", "url"])
def output(request: pytest.FixtureRequest, tmp_path: Path, url: str) -> str:
    return str(tmp_path / "output") if request.param == "folder" else url


def require_whole(storage: Storage) -> None:
    folder, made = storage.fetch(ASSET, PARTITION), storage.provenance(ASSET, PARTITION)
    assert made is not None and not list(provenance.changes(made, folder))
    assert len({(folder / name).read_text() for name in FILES}) == 1


def test_readers_and_writers_at_once(output: str) -> None:
    write(open_storage(output), dict.fromkeys(FILES, "first"))
    writers = [start(output, name, "60") for name in ("one", "two")]
    reader = start(output, "read", "4")
    for writer in writers:
        ended(writer)
    assert int(ended(reader)) > 0
    require_whole(open_storage(output))


def test_a_killed_writer_leaves_what_the_next_one_can_replace(output: str) -> None:
    storage = open_storage(output)
    for _ in range(3):
        writer = start(output, "one", "100000")
        time.sleep(1)  # in the middle of any step
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        write(storage, dict.fromkeys(FILES, "mine"))
        assert read(storage) == dict.fromkeys(FILES, "mine")
        require_whole(storage)
    left = [path for top in _tops(output) for path in top.rglob(".writing-*")]
    assert not left, "workshops of processes that were killed"


def test_a_writer_killed_at_any_flush_leaves_nothing_half_written(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    for flush in itertools.count(1):
        writer = start(str(tmp_path), "killed", str(flush))
        writer.communicate()
        write(storage, dict.fromkeys(FILES, "mine"))
        assert read(storage) == dict.fromkeys(FILES, "mine")
        if writer.returncode == 0:
            assert flush > 2, "none was killed"
            return
        assert writer.returncode == -signal.SIGKILL


def _tops(output: str) -> list[Path]:
    scratch = Path(os.environ["CORAL_PIPELINE_SCRATCH"])
    return [scratch] if "://" in output else [Path(output)]
