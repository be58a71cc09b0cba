"""Runs whose process is gone."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest

from coral_pipeline.defs.exploring import end_nights
from coral_pipeline.defs.workers import WORKER, fail_abandoned
from coral_pipeline_tests.defs.test_exploring import exploring

NOTE = """
import sys, types
from coral_pipeline.defs.workers import note_worker
noted = types.SimpleNamespace(add_run_tags=lambda run_id, tags: print(*tags.values(), flush=True))
run = types.SimpleNamespace(run_id=sys.argv[1])
try:
    note_worker(types.SimpleNamespace(run=run, instance=noted))
    sys.stdin.read()
except KeyboardInterrupt:
    print("interrupted")
"""
NOW = datetime.datetime(2026, 3, 2, 6, tzinfo=datetime.UTC)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def started(instance: dg.DagsterInstance, **tags: str) -> dg.DagsterRun:
    return instance.create_run_for_job(exploring, status=dg.DagsterRunStatus.STARTED, tags=tags)


@contextmanager
def worker_of(run: dg.DagsterRun, instance: dg.DagsterInstance) -> Iterator[subprocess.Popen[str]]:
    """A process that has noted that it executes the run, for the length of the block at most."""
    command = [sys.executable, "-c", NOTE, run.run_id]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        instance.add_run_tags(run.run_id, {WORKER: worker.stdout.readline().strip()})
        yield worker
        worker.kill()


def test_a_run_fails_when_its_process_is_gone_and_not_before(instance: dg.DagsterInstance) -> None:
    run = started(instance)
    with worker_of(run, instance):
        assert fail_abandoned(instance) == []
    assert fail_abandoned(instance) == [run.run_id]
    (failed,) = instance.get_runs()
    assert failed.status == dg.DagsterRunStatus.FAILURE
    assert fail_abandoned(instance) == []


def test_the_end_of_a_night_reaches_a_worker_whose_code_server_is_gone(tmp_path: Path) -> None:
    """Dagster's own launcher only marks the run as being stopped: it asks a server that does not answer."""
    over = {
        "dagster/partition": "a|1",
        "coral_pipeline/until": NOW.isoformat(),
        ".dagster/grpc_info": json.dumps({"host": "localhost", "socket": str(tmp_path / "gone.sock")}),
    }
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:
        run = started(instance, **over)
        with worker_of(run, instance) as worker:
            assert end_nights(instance, NOW) == ["a|1"]
            assert worker.communicate(timeout=60)[0] == "interrupted\n"
        lost = started(instance, **over)
        instance.add_run_tags(lost.run_id, {WORKER: f"{lost.run_id} another-host boot 1 2"})
        assert end_nights(instance, NOW) == [], "that one was not told"
        assert {run.status for run in instance.get_runs()} == {dg.DagsterRunStatus.CANCELING}


@pytest.mark.parametrize(
    "worker",
    [
        "",
        f"another-run {os.uname().nodename} boot 1 2",  # what a retry inherits
        "{run} another-host boot 1 2",
    ],
)
def test_of_other_machines_and_of_a_retry_s_parent_it_says_nothing(instance: dg.DagsterInstance, worker: str) -> None:
    run = started(instance)
    instance.add_run_tags(run.run_id, {WORKER: worker.format(run=run.run_id)})
    assert fail_abandoned(instance) == []


def test_after_a_reboot_a_process_of_the_same_number_is_another(instance: dg.DagsterInstance) -> None:
    run = started(instance)
    before = f"{run.run_id} {os.uname().nodename} boot-before {os.getpid()} 1"
    instance.add_run_tags(run.run_id, {WORKER: before})
    assert fail_abandoned(instance) == [run.run_id]
