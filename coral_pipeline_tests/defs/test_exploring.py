"""What a night begins, and what it ends."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationPlanned
from dagster._core.definitions.partitions.subset import DefaultPartitionsSubset

from coral_pipeline.defs.checks import refused_partitions
from coral_pipeline.defs.exploring import NIGHT, STUDENT_RUN, UNTIL, end_nights, plan_night, unexplored
from coral_pipeline.settings import AutomationSettings, StudentRunBudget

TONIGHT = datetime.datetime(2026, 3, 1, 20, tzinfo=datetime.UTC)
RETRY = "dagster/retry_number"
VERSION, INPUTS = "dagster/data_version", "coral_pipeline/inputs"


@dg.op
def nothing() -> None: ...


@dg.job
def exploring() -> None:
    nothing()


class Roots:
    """Roots in a Dagster instance, as `selected_roots` and `explored_trees` report them."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance

    def chosen(self, student_run: str, *numbers: int, version: str = "1") -> list[str]:
        keys = [f"{student_run}|eval-{number:06d}-agent-1-0123456789ab" for number in numbers]
        self.instance.add_dynamic_partitions("student_runs", [student_run])
        self.instance.add_dynamic_partitions("roots", keys)
        for key in keys:
            observed = dg.AssetObservation("root_folders", partition=key, tags={VERSION: version})
            self.instance.report_runless_asset_event(observed)
        return keys

    def explored(self, key: str, of: str = "1") -> None:
        tree = dg.AssetMaterialization("explored_trees", partition=key, tags={VERSION: "tree", INPUTS: of})
        self.instance.report_runless_asset_event(tree)

    def checked(self, asset: str, check: str, partition: str, passed: bool) -> None:
        found = dg.AssetCheckEvaluation(
            asset_key=dg.AssetKey(asset), check_name=check, passed=passed, metadata={}, partition=partition
        )
        self._tell(self.check_planned(asset, check, partition), dg.DagsterEventType.ASSET_CHECK_EVALUATION, found)

    def check_planned(self, asset: str, check: str, partition: str) -> dg.DagsterRun:
        """A run that is to check the partition was queued; it ends without."""
        run = self.run(partition, dg.DagsterRunStatus.CANCELED)
        planned = AssetCheckEvaluationPlanned(
            asset_key=dg.AssetKey(asset), check_name=check, partitions_subset=DefaultPartitionsSubset({partition})
        )
        self._tell(run, dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED, planned)
        return run

    def _tell(self, run: dg.DagsterRun, kind: dg.DagsterEventType, what: Any) -> None:
        event = dg.DagsterEvent(event_type_value=kind.value, job_name=run.job_name, event_specific_data=what)
        self.instance.report_dagster_event(event, run.run_id)

    def run(self, key: str, status: dg.DagsterRunStatus, **tags: str) -> dg.DagsterRun:
        return self.instance.create_run_for_job(exploring, status=status, tags={"dagster/partition": key, **tags})

    def launch(self, requests: Sequence[dg.RunRequest]) -> list[dg.DagsterRun]:
        return [self.run(str(r.partition_key), dg.DagsterRunStatus.STARTED, **r.tags) for r in requests]


@pytest.fixture
def roots() -> Iterator[Roots]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Roots(instance)


@pytest.fixture
def stopped(roots: Roots, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the runs that Dagster was asked to stop, which does it at once."""
    ids: list[str] = []

    def cancel_run(coordinator: object, run_id: str) -> bool:
        ids.append(run_id)
        return True

    monkeypatch.setattr(type(roots.instance.run_coordinator), "cancel_run", cancel_run)
    return ids


def plan(roots: Roots, night: datetime.datetime = TONIGHT, **settings: object) -> list[str]:
    automation = AutomationSettings.model_validate(settings)
    return [str(request.partition_key) for request in plan_night(night, roots.instance, automation)]


def test_the_oldest_roots_that_are_not_done_come_first_in_the_budget(roots: Roots) -> None:
    keys = roots.chosen("a", 30, 4, 17, 25)
    roots.explored(keys[1])
    assert plan(roots, roots_per_night=2) == [keys[2], keys[3]]
    assert plan(roots, roots_per_night=None) == [keys[2], keys[3], keys[0]]


def test_student_runs_take_turns_each_with_its_own_budget(roots: Roots) -> None:
    a, b, _ = roots.chosen("a", 1, 2, 3), roots.chosen("b", 1, 2, 3), roots.chosen("paused", 1)
    own = {"a": StudentRunBudget(roots_per_night=1), "paused": StudentRunBudget(paused=True)}
    assert plan(roots, roots_per_night=2, student_runs=own) == [a[0], b[0], b[1]]


def test_a_night_that_is_planned_again_begins_nothing_twice(roots: Roots) -> None:
    keys = roots.chosen("a", 1, 2, 3, 4)
    automation = AutomationSettings(roots_per_night=2)
    runs = roots.launch(plan_night(TONIGHT, roots.instance, automation))
    assert plan(roots, roots_per_night=2) == []
    for key, run in zip(keys, runs, strict=False):
        roots.explored(key)
        roots.instance.report_run_canceled(run)
    assert plan(roots, roots_per_night=2) == [], "the night's budget is spent, though its roots are done"
    tomorrow = TONIGHT + datetime.timedelta(days=1)
    assert plan(roots, tomorrow, roots_per_night=2) == keys[2:]


def test_what_is_under_way_is_left_alone(roots: Roots) -> None:
    keys = roots.chosen("a", 1, 2, 3)
    roots.run(keys[0], dg.DagsterRunStatus.STARTED)
    roots.run(keys[1], dg.DagsterRunStatus.STARTING)
    assert plan(roots) == [keys[2]]


def test_roots_that_failed_do_not_keep_the_others_waiting(roots: Roots) -> None:
    keys = roots.chosen("a", 1, 2, 3)
    roots.run(keys[0], dg.DagsterRunStatus.FAILURE)
    roots.run(keys[1], dg.DagsterRunStatus.CANCELED)
    assert plan(roots) == [keys[1], keys[2], keys[0]]


def test_what_a_blocking_check_refused_is_not_explored(roots: Roots) -> None:
    (a, b), _ = roots.chosen("a", 1, 2), roots.chosen("c", 1)
    roots.checked("root_folders", "copied_root_as_it_was", a, passed=False)
    roots.checked("selected_roots", "choice_computed_anew", "c", passed=False)
    roots.checked("selected_roots", "made_from_what_is_there", "a", passed=False)
    assert plan(roots) == [b], "the last of these checks does not block"


def test_a_refusal_stands_until_the_check_passes(roots: Roots) -> None:
    """Runs queued since say nothing of the root, however many there are and however they end."""
    (refused, passed, never) = roots.chosen("a", 1, 2, 3)
    check = "root_folders", "copied_root_as_it_was"
    roots.checked(*check, refused, passed=False)
    roots.checked(*check, passed, passed=False)
    roots.checked(*check, passed, passed=True)
    for key in (refused, refused, passed, never):
        roots.check_planned(*check, key)
    assert refused_partitions(roots.instance, ["root_folders"]) == {refused}
    assert plan(roots) == [passed, never]
    roots.checked(*check, refused, passed=True)
    assert refused_partitions(roots.instance, ["root_folders"]) == set()


def test_a_root_whose_files_have_changed_is_explored_again(roots: Roots) -> None:
    (key,) = roots.chosen("a", 1)
    roots.explored(key)
    assert unexplored("a", roots.instance) == []
    roots.chosen("a", 1, version="2")
    assert [str(root) for root in unexplored("a", roots.instance)] == [key]


def test_a_night_with_an_end_stops_what_it_began_and_nothing_else(roots: Roots, stopped: list[str]) -> None:
    roots.chosen("a", 1, 2)
    (other,) = roots.chosen("other", 5)
    automation = AutomationSettings(hours_per_night=8, student_runs={"other": StudentRunBudget(paused=True)})
    requests = plan_night(TONIGHT, roots.instance, automation)
    morning = TONIGHT + datetime.timedelta(hours=8)
    assert [request.tags[UNTIL] for request in requests] == [morning.isoformat()] * 2
    assert {(r.tags[STUDENT_RUN], r.tags[NIGHT]) for r in requests} == {("a", TONIGHT.isoformat())}
    running, waiting = roots.launch(requests)
    roots.run(other, dg.DagsterRunStatus.STARTED)
    assert end_nights(roots.instance, morning - datetime.timedelta(seconds=1)) == [] and not stopped
    assert sorted(end_nights(roots.instance, morning)) == sorted(request.partition_key for request in requests)
    assert sorted(stopped) == sorted([running.run_id, waiting.run_id])


def test_a_run_of_a_night_that_is_over_can_be_executed_again_by_hand(roots: Roots, stopped: list[str]) -> None:
    (key,) = roots.chosen("a", 1)
    now = datetime.datetime.now(datetime.UTC)
    over, tonight = now - datetime.timedelta(hours=9), now - datetime.timedelta(hours=7)
    automation = AutomationSettings(hours_per_night=8)

    def executed_again(run: dg.DagsterRun, **tags: str) -> dg.DagsterRun:
        return roots.instance.create_run_for_job(
            exploring,
            status=dg.DagsterRunStatus.STARTED,
            tags={**run.tags, **tags},
            root_run_id=run.root_run_id or run.run_id,
            parent_run_id=run.run_id,
        )

    (request,) = plan_night(over, roots.instance, automation)
    first = roots.run(key, dg.DagsterRunStatus.FAILURE, **request.tags)
    retry = executed_again(first, **{RETRY: "1"})
    by_hand = executed_again(first)
    executed_again(by_hand, **{RETRY: "1"})
    end_nights(roots.instance, now)
    assert stopped == [retry.run_id], "neither the one begun by hand nor its own retry"
    in_time = executed_again(roots.run(key, dg.DagsterRunStatus.FAILURE, **{**request.tags, UNTIL: _end(tonight)}))
    end_nights(roots.instance, tonight + datetime.timedelta(hours=8))
    assert in_time.run_id in stopped, "that night was not over yet"


def _end(night: datetime.datetime) -> str:
    return (night + datetime.timedelta(hours=8)).isoformat()
