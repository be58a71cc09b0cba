"""The sensor that sees Student runs arrive, tick by tick."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from coral_pipeline.defs.arrivals import Seen, arrivals_sensor, look_around
from coral_pipeline.settings import AutomationSettings
from coral_pipeline_tests.student_runs import snapshot_name, write_snapshot, write_student_run

QUIET = 60.0


class Ticks:
    """Looks at a folder at chosen times, each knowing what the last one has seen."""

    def __init__(self, student_runs: Path) -> None:
        self.student_runs = student_runs
        self.seen: dict[str, Seen] = {}
        self.waiting: list[str] = []

    def at(self, now: float) -> list[str]:
        looks = look_around(self.student_runs, self.seen, now, QUIET)
        self.seen, self.waiting = looks.seen, looks.waiting
        return list(looks.arrived)


def test_a_run_has_arrived_when_nothing_has_changed_for_the_quiet_time(tmp_path: Path) -> None:
    ticks = Ticks(tmp_path)
    assert ticks.at(0) == [] and ticks.waiting == []
    run = write_student_run(tmp_path / "run", [1.0, 2.0])
    assert ticks.at(30) == []
    assert ticks.at(60) == []
    (run / "all_snapshots" / snapshot_name(2) / "code" / "late.py").touch()
    assert ticks.at(90) == [], "it was still being copied"
    assert ticks.at(149) == []
    assert ticks.waiting == ["run: unchanged for 59 s of 60 s"]
    assert ticks.at(150) == ["run"]
    assert ticks.at(1_000) == [] and ticks.waiting == []


def test_a_run_that_has_grown_arrives_again(tmp_path: Path) -> None:
    run, ticks = write_student_run(tmp_path / "run", [1.0, 2.0]), Ticks(tmp_path)
    ticks.at(0)
    assert ticks.at(60) == ["run"]
    write_snapshot(run / "all_snapshots" / snapshot_name(3))
    assert ticks.at(90) == []
    assert ticks.at(150) == ["run"]


def test_what_cannot_be_used_is_told_and_stops_nobody(tmp_path: Path) -> None:
    for name in ("good", "no key|at all", "empty"):
        (tmp_path / name).mkdir()
    write_student_run(tmp_path / "good", [1.0])
    (tmp_path / "file").touch()
    (tmp_path / ".hidden").mkdir()
    ticks = Ticks(tmp_path)
    ticks.at(0)
    assert ticks.at(60) == ["good"]
    assert ticks.waiting == [
        "empty: has no all_snapshots/; copy it there",
        "folder name 'no key|at all': cannot be part of a partition key; "
        "use letters, digits, '.', '_' and '-', the first a letter, digit or '_'",
    ]


def test_runs_that_have_arrived_cost_a_glance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_student_run(tmp_path / "run", [1.0, 2.0])
    ticks = Ticks(tmp_path)
    ticks.at(0)
    ticks.at(60)
    monkeypatch.setattr("coral_pipeline.defs.arrivals.close_look", lambda folder: pytest.fail("looked closely"))
    ticks.at(90)
    assert list(ticks.seen) == ["run"]


def evaluate(student_runs: Path, instance: dg.DagsterInstance, cursor: str | None) -> dg.SensorResult:
    sensor = arrivals_sensor(student_runs, lambda: AutomationSettings(quiet_seconds=0))
    with dg.build_sensor_context(instance, cursor) as context:
        result = sensor(context)
    assert isinstance(result, dg.SensorResult)
    return result


def test_the_sensor_adds_the_partition_and_asks_for_the_first_three_assets(tmp_path: Path) -> None:
    run = write_student_run(tmp_path / "run", [1.0, 2.0])
    with dg.DagsterInstance.ephemeral() as instance:
        first = evaluate(tmp_path, instance, None)
        assert not first.run_requests and first.skip_reason
        second = evaluate(tmp_path, instance, first.cursor)
        (request,), (added,) = second.run_requests or (), second.dynamic_partitions_requests or ()
        assert (request.partition_key, list(added.partition_keys)) == ("run", ["run"])
        assert isinstance(second.cursor, str) and json.loads(second.cursor)["run"]["look"] is None
        again = evaluate(tmp_path, instance, evaluate(tmp_path, instance, None).cursor)
        assert [r.run_key for r in again.run_requests or ()] == [request.run_key], "a lost cursor asks for the same run"
        write_snapshot(run / "all_snapshots" / snapshot_name(3))
        grown = evaluate(tmp_path, instance, evaluate(tmp_path, instance, second.cursor).cursor)
        assert [r.run_key for r in grown.run_requests or ()] != [request.run_key]


CHANGES: dict[str, Callable[[Path], object]] = {
    "another snapshot": lambda run: write_snapshot(run / "all_snapshots" / snapshot_name(3)),
    "task.yaml": lambda run: (run / "task.yaml").write_text((run / "task.yaml").read_text() + "# mended\n"),
    "another grader": lambda run: (run / "grader").mkdir(),
    "put back": lambda run: shutil.move(shutil.copy(run / "task.yaml", run / "as it was"), run / "task.yaml"),
}
"""Also what a user does when the first run failed: mend something, whatever it is."""


@pytest.mark.parametrize("what", CHANGES)
def test_whatever_changes_is_asked_for_under_another_key(tmp_path: Path, what: str) -> None:
    run = write_student_run(tmp_path / "run", [1.0, 2.0])
    with dg.DagsterInstance.ephemeral() as instance:

        def arrive(cursor: str | None) -> tuple[str, str | None]:
            seen = evaluate(tmp_path, instance, cursor)
            arrived = evaluate(tmp_path, instance, seen.cursor)
            (request,) = arrived.run_requests or ()
            return str(request.run_key), arrived.cursor

        before, cursor = arrive(None)
        assert arrive(None)[0] == before, "nothing has changed"
        CHANGES[what](run)
        assert arrive(cursor)[0] != before


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        result = evaluate(tmp_path / "gone", instance, None)
    assert "gone: No such file or directory; make it" in str(result.skip_reason)


def test_a_disk_that_fails_is_told_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def iterdir(folder: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(folder))

    monkeypatch.setattr(Path, "iterdir", iterdir)
    with dg.DagsterInstance.ephemeral() as instance:
        result = evaluate(tmp_path, instance, None)
    assert f"{tmp_path}: Input/output error; looked at again soon" in str(result.skip_reason)
