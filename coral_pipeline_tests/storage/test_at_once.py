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
from coral_pipeline.storage import Storage, is_url, open_storage
from coral_pipeline_tests.storage.writing import ASSET, FILES, PARTITION, read, who_wrote, write

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


def test_readers_and_writers_at_once(output: str, tmp_path: Path) -> None:
    write(open_storage(output), dict.fromkeys(FILES, "first"))
    stop = tmp_path / "stop"
    writers = [start(output, "write", name, str(stop)) for name in ("one", "two")]
    ended(start(output, "read", "one", "two"))
    stop.touch()
    for writer in writers:
        ended(writer)
    require_whole(open_storage(output))


def test_a_killed_writer_leaves_what_the_next_one_can_replace(output: str, tmp_path: Path) -> None:
    storage = open_storage(output)
    for _ in range(3):
        writer = start(output, "write", "one", str(tmp_path / "never"))
        while who_wrote(storage) != "one":
            assert writer.poll() is None
            time.sleep(0.01)
        writer.send_signal(signal.SIGKILL)  # in the middle of any step of a later writing
        writer.communicate()
        write(storage, dict.fromkeys(FILES, "mine"))
        assert read(storage) == dict.fromkeys(FILES, "mine")
        require_whole(storage)
    left = [path for top in _tops(output) for path in top.rglob(".writing-*")]
    assert not left, "workshops of processes that were killed"


def test_a_writer_killed_at_any_step_leaves_nothing_half_written(output: str) -> None:
    storage = open_storage(output)
    for step in itertools.count(1):
        write(storage, dict.fromkeys(FILES, "mine"))
        writer = start(output, "killed", str(step))
        writer.communicate()
        if is_url(output):  # there every reader has all of one version at any instant
            assert who_wrote(storage) in ("mine", "killed")
            require_whole(storage)
        write(storage, dict.fromkeys(FILES, "mine"))
        assert read(storage) == dict.fromkeys(FILES, "mine")
        if writer.returncode == 0:
            assert step > (7 if is_url(output) else 2), "none was killed"
            return
        assert writer.returncode == -signal.SIGKILL


def _tops(output: str) -> list[Path]:
    scratch = Path(os.environ["CORAL_PIPELINE_SCRATCH"])
    return [scratch] if is_url(output) else [Path(output)]
