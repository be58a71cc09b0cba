"""Runs whose process is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import dagster as dg
import pytest

from coral_pipeline.defs.workers import WORKER, fail_abandoned
from coral_pipeline_tests.defs.test_exploring import exploring

NOTE = """
import sys, types
from coral_pipeline.defs.workers import note_worker
noted = types.SimpleNamespace(add_run_tags=lambda run_id, tags: print(*tags.values(), flush=True))
note_worker(types.SimpleNamespace(run=types.SimpleNamespace(run_id=sys.argv[1]), instance=noted))
sys.stdin.read()
"""


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def started(instance: dg.DagsterInstance) -> dg.DagsterRun:
    return instance.create_run_for_job(exploring, status=dg.DagsterRunStatus.STARTED)


def test_a_run_fails_when_its_process_is_gone_and_not_before(instance: dg.DagsterInstance) -> None:
    run = started(instance)
    command = [sys.executable, "-c", NOTE, run.run_id]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        instance.add_run_tags(run.run_id, {WORKER: worker.stdout.readline().strip()})
        assert fail_abandoned(instance) == []
        worker.kill()
    assert fail_abandoned(instance) == [run.run_id]
    (failed,) = instance.get_runs()
    assert failed.status == dg.DagsterRunStatus.FAILURE
    assert fail_abandoned(instance) == []


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
