"""Killed, terminated, interrupted: nothing is lost, nothing is left behind, and the tree comes out the same."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from coral_pipeline.cli import app
from coral_pipeline.search.records import decode
from coral_pipeline.teacher.protocol import EdgeRequest, Turn
from coral_pipeline.teacher.registry import TEACHERS
from coral_pipeline_tests.search.growing import AnswerTeacher
from coral_pipeline_tests.search.killable import StubbornTeacher
from coral_pipeline_tests.search.on_disk import contents, explore, journal, talkative

KILLS = 50
SETTINGS: dict[str, Any] = {"max_logical_edges": 40, "parallel_width": 4}


def journaled(folder: Path) -> set[str]:
    """The turns whose records are whole, as ``edge turn``."""
    if not journal(folder).exists():
        return set()
    records = [decode(line) for line in journal(folder).read_bytes().splitlines(keepends=True)]
    return {f"{r['edge']} {r['turn']}" for r in records if r and r["kind"] == "turn"}


@pytest.mark.slow
def test_killed_at_random_instants_the_tree_comes_out_the_same(tmp_path: Path) -> None:
    explore(tmp_path / "whole", AnswerTeacher(talkative), **SETTINGS)
    expected = contents(tmp_path / "whole")
    seed = random.randrange(10**9)
    rng = random.Random(seed)
    kills = trees = 0
    with Nursery() as nursery:
        while kills < KILLS:
            folder = tmp_path / f"killed-{trees}"
            exit_code, patience = -1, 0.0
            while exit_code != 0:
                known, log = journaled(folder), tmp_path / f"began-{trees}-{kills}"
                patience += 0.05  # so that every tree is finished some time, its tables written
                exit_code = nursery.explore_and_kill(folder, log, after_seconds=rng.uniform(0, patience))
                assert exit_code in (0, -signal.SIGKILL), f"seed {seed}"
                began = log.read_text().splitlines() if log.exists() else []
                assert len(began) == len(set(began)) and not known & set(began), (
                    f"a finished turn ran again, seed {seed}"
                )
                assert len(set(began) - journaled(folder)) <= SETTINGS["parallel_width"], f"seed {seed}"
                kills += exit_code != 0
            trees += 1
            assert contents(folder) == expected, f"seed {seed}"


class Nursery:
    """A process that forks searches, see ``killable.nursery``."""

    def __enter__(self) -> Nursery:
        command = [sys.executable, "-m", "coral_pipeline_tests.search.killable", "nursery"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()

    def explore_and_kill(self, folder: Path, log: Path, after_seconds: float) -> int:
        """Exit code of a search that is killed after so long, unless it ended before: then 0."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps([str(folder), str(log), SETTINGS]) + "\n")
        self._process.stdin.flush()
        child = int(self._process.stdout.readline())
        time.sleep(after_seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        return int(self._process.stdout.readline())


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_ends_every_process_and_leaves_a_tree_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    root, out, pids = tmp_path / "eval-000001-agent-1-0123456789ab", tmp_path / "tree", tmp_path / "pids"
    root.mkdir()
    (root / "metadata.json").write_text(json.dumps({"commit_hash": "0123456789abcdef", "score": 1.0}))
    arguments = ["explore", str(root), "--teacher", "stubborn", "--out"]
    process = subprocess.Popen(
        [sys.executable, "-m", "coral_pipeline_tests.search.killable", *arguments, str(out)],
        env=os.environ | {"STUBBORN": str(pids)},
        stderr=subprocess.PIPE,
        text=True,
    )
    while not pids.exists() or len(pids.read_text().split()) < 6:  # round 2: six edges are in flight
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == code
    assert "--resume" in stderr and "Traceback" not in stderr
    assert not any(map(psutil.pid_exists, map(int, pids.read_text().split())))

    monkeypatch.setitem(TEACHERS, "stubborn", lambda request: StubbornTeacher(talkative))
    run = CliRunner()
    assert "--resume" in str(run.invoke(app, [*arguments, str(out)]).exception), "not without being told to"
    assert run.invoke(app, [*arguments, str(out), "--resume"]).exit_code == 0
    assert run.invoke(app, [*arguments, str(tmp_path / "whole")]).exit_code == 0
    assert contents(out) == contents(tmp_path / "whole")


class Interrupted(BaseException):
    """Like the exception by which Dagster ends a step: raised into the main thread, not an ``Exception``."""


def test_an_exception_raised_into_the_main_thread_ends_the_edges_and_frees_the_tree(tmp_path: Path) -> None:
    began = threading.Event()

    class Waiting(AnswerTeacher):
        def fork(self, edge, state, stop):
            self.stop = stop
            return super().fork(edge, state, stop)

    def answer(edge: EdgeRequest, number: int) -> Turn:
        if (edge.name, number) == ("0", 2):
            began.set()
            assert waiting.stop.wait(60), "told to stop"
        return talkative(edge, number)

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    waiting = Waiting(answer)
    before = signal.signal(signal.SIGUSR1, interrupt)
    sender = threading.Thread(target=lambda: (began.wait(), os.kill(os.getpid(), signal.SIGUSR1)))
    sender.start()
    try:
        with pytest.raises(Interrupted):
            explore(tmp_path / "tree", waiting)
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("edge")]

    again = AnswerTeacher(talkative)
    explore(tmp_path / "tree", again)
    assert ("0", 2) not in again.asked, "the turn that ended while stopping was kept"
    explore(tmp_path / "whole")
    assert contents(tmp_path / "tree") == contents(tmp_path / "whole")
