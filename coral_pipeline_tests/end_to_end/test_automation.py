"""A deployment left to itself: arrivals, backfills, nights, failures, with a real daemon, webserver and workers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from coral_pipeline import tables
from coral_pipeline_tests.end_to_end.conftest import command
from coral_pipeline_tests.end_to_end.deployment import (
    PAUSED,
    PER_ROOT,
    TOUR,
    Deployment,
    deployed,
    paused,
    trees_are_equal,
    wait_until,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("deployment")) as deployment:
        yield deployment


def test_a_student_run_that_is_copied_slowly_is_read_once_it_is_complete(deployment: Deployment) -> None:
    run = deployment.student_runs / "arriving"
    looks = 0

    def sensor_has_looked(times: int) -> bool:
        return deployment.ticks("arrivals") >= looks + times

    (run / "all_snapshots").mkdir(parents=True)
    for snapshot in sorted((TOUR / "all_snapshots").iterdir())[:4]:
        shutil.copytree(snapshot, run / "all_snapshots" / snapshot.name)
        looks = deployment.ticks("arrivals")
        wait_until(lambda: sensor_has_looked(1))
    assert "arriving: has no task.yaml; copy the task's there" in deployment.skip_reasons("arrivals")
    assert deployment.runs("arriving") == []
    shutil.copytree(TOUR / "grader", run / "grader")
    shutil.copyfile(TOUR / "task.yaml", run / "task.yaml")
    wait_until(lambda: bool(deployment.roots("arriving")) and not deployment.unfinished("arriving"))
    looks = deployment.ticks("arrivals")
    wait_until(lambda: sensor_has_looked(2))
    (only,) = deployment.runs("arriving")
    assert only["status"] == "SUCCESS"
    assert only["assets"] >= {"filtered_snapshots", "stage_labels", "selected_roots"}
    assert tables.FILTERED_SNAPSHOTS.read(deployment.output / "filtered_snapshots" / "arriving").num_rows == 4
    assert set(deployment.stale_statuses("arriving").values()) >= {"FRESH", "MISSING"}


def test_a_backfill_retries_what_the_machinery_spoilt_and_nothing_keeps_the_others_waiting(
    deployment: Deployment,
) -> None:
    bad, spoilt, good = keys = deployment.chosen("backfilled")
    (deployment.output / "selected_roots" / Path(*bad.split("|")) / "metadata.json").write_text("{}")
    transcripts = deployment.tree(spoilt) / "work" / "transcripts"
    transcripts.parent.mkdir(parents=True)
    transcripts.symlink_to("/proc/self")  # where nothing can be written

    backfill = deployment.backfill(PER_ROOT, keys)
    wait_until(lambda: any(run["status"] == "FAILURE" for run in deployment.runs(spoilt)))
    transcripts.unlink()
    wait_until(lambda: deployment.is_done(spoilt) and deployment.is_done(good))
    wait_until(lambda: deployment.backfill_status(backfill) != "REQUESTED")

    tried = {key: deployment.runs(key) for key in keys}
    assert [run["status"] for run in tried[bad]] == ["FAILURE"], "bad input is not tried again"
    assert tried[bad][0]["tags"]["coral_pipeline/fault"] == "input"
    assert [run["status"] for run in tried[good]] == ["SUCCESS"]
    assert tried[spoilt][0]["status"] == "SUCCESS"
    assert tried[spoilt][-1]["tags"]["coral_pipeline/fault"] == "infrastructure"
    assert {run["tags"].get("dagster/retry_number") for run in tried[spoilt][:-1]} == {
        str(n) for n in range(1, len(tried[spoilt]))
    }
    assert all(run["assets"] >= set(PER_ROOT) for run in deployment.runs("backfilled|")), "one process per root"
    assert most_at_once(deployment.runs("backfilled|")) <= 2, "the pool bounds the trees that grow at once"

    wait_until(lambda: bool(deployment.versions("sft_dataset", "backfilled")))
    samples = tables.SFT_SAMPLES.rows(deployment.output / "sft_dataset" / "backfilled")
    assert {f"backfilled|{row['root']}" for row in samples} == {spoilt, good}
    assert len([run for run in deployment.runs("backfilled") if "sft_dataset" in run["assets"]]) == 1, "one dataset"
    for key in (spoilt, good):
        assert {asset: deployment.stale_statuses(key)[asset] for asset in PER_ROOT} == dict.fromkeys(PER_ROOT, "FRESH")


def most_at_once(runs: list[dict[str, float]]) -> int:
    """How many of the runs were being executed at the same time, at most."""
    changes = sorted(
        change for run in runs if run["startTime"] for change in ((run["startTime"], 1), (run["endTime"], -1))
    )
    running, most = 0, 0
    for _, change in changes:
        running += change
        most = max(most, running)
    return most


def test_a_killed_worker_is_replaced_and_the_tree_is_the_same_as_without_it(deployment: Deployment) -> None:
    key, undisturbed, _ = deployment.chosen("killed")
    deployment.backfill(PER_ROOT, [key, undisturbed])
    wait_until(lambda: deployment.turns(key) >= 3)
    (run,) = deployment.runs(key)
    worker = deployment.dagster.worker(run["runId"])
    assert worker is not None
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: deployment.is_done(key) and deployment.is_done(undisturbed))
    again, killed = deployment.runs(key)
    assert (killed["status"], again["status"]) == ("FAILURE", "SUCCESS")
    assert again["tags"]["dagster/parent_run_id"] == killed["runId"]
    records = [json.loads(line) for line in (deployment.tree(key) / "work" / "journal.jsonl").read_text().splitlines()]
    asked = Counter((record["edge"], record.get("turn")) for record in records if record["kind"] in ("turn", "edge"))
    assert set(asked.values()) == {1}, "nothing finished was run twice"
    kept = deployment.tree(key).rename(deployment.folder / "killed tree")
    deployment.backfill(["explored_trees"], [key])
    wait_until(lambda: (deployment.tree(key) / "tree.json").exists() and not deployment.unfinished(key))
    assert trees_are_equal(kept, deployment.tree(key))


def test_a_cancelled_backfill_leaves_trees_that_a_second_one_goes_on_with(deployment: Deployment) -> None:
    keys = deployment.chosen("cancelled")
    backfill = deployment.backfill(PER_ROOT, keys)
    wait_until(lambda: any(deployment.turns(key) >= 2 for key in keys))
    deployment.cancel(backfill)
    wait_until(lambda: deployment.backfill_status(backfill) == "CANCELED" and not deployment.unfinished("cancelled"))
    assert {run["status"] for run in deployment.runs("cancelled|")} <= {"CANCELED", "SUCCESS"}
    begun = {key: (deployment.tree(key) / "work" / "journal.jsonl") for key in keys}
    before = {key: journal.read_text() for key, journal in begun.items() if journal.exists()}
    assert before

    second = subprocess.run(
        command("backfill", "cancelled"), capture_output=True, text=True, env=deployment.environment, check=False
    )
    assert second.returncode == 0, second.stderr
    assert "roots (" in second.stdout and not second.stderr
    wait_until(lambda: all(deployment.is_done(key) for key in keys))
    for key, journal in before.items():
        assert begun[key].read_text().startswith(journal), "it went on where it was"


def test_a_night_begins_the_oldest_roots_in_its_budget(deployment: Deployment) -> None:
    oldest, *_ = deployment.chosen("nightly")
    assert deployment.runs("nightly|") == [], "paused"
    deployment.set(student_runs=paused(set(PAUSED) - {"nightly"}))
    wait_until(lambda: bool(deployment.runs("nightly|")))
    deployment.set(student_runs=paused(PAUSED))
    wait_until(lambda: deployment.is_done(oldest))
    begun = deployment.runs("nightly|")
    nights = Counter(run["tags"]["coral_pipeline/night"] for run in begun)
    assert set(nights.values()) == {1}, "one root a night"
    assert begun[-1]["tags"]["dagster/partition"] == oldest
