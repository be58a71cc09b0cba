"""What declarative automation asks for, on events as the assets report them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationPlanned,
    AssetCheckEvaluationTargetMaterializationData,
)
from dagster._core.definitions.partitions.subset import DefaultPartitionsSubset
from dagster._core.events import AssetMaterializationPlannedData

from coral_pipeline.defs.build import build_definitions
from coral_pipeline_tests.defs.world import settings

pytestmark = pytest.mark.slow

TREES, PATHS, ADVANTAGES, DATASET = "explored_trees", "ranked_paths", "advantage_batches", "sft_dataset"
VERSION = "dagster/data_version"


class Automation:
    """Two Student runs with two roots each, whose automation is evaluated tick by tick."""

    def __init__(self, instance: dg.DagsterInstance, definitions: dg.Definitions) -> None:
        self.instance, self.definitions = instance, definitions
        self._cursor: dg.AutomationConditionCursor | None = None
        instance.add_dynamic_partitions("student_runs", ["a", "b"])
        instance.add_dynamic_partitions("roots", ["a|1", "a|2", "b|1", "b|2"])

    def made(self, asset: str, partition: str, version: str = "1") -> None:
        self.instance.report_runless_asset_event(
            dg.AssetMaterialization(asset, partition=partition, tags={VERSION: version})
        )

    def seen(self, asset: str, partition: str, version: str = "1") -> None:
        self.instance.report_runless_asset_event(
            dg.AssetObservation(asset, partition=partition, tags={VERSION: version})
        )

    def checked(self, asset: str, check: str, partition: str, passed: bool) -> None:
        wanted = dg.AssetRecordsFilter(dg.AssetKey(asset), asset_partitions=[partition])
        checked = self.instance.fetch_materializations(wanted, limit=1).records[0]
        found = dg.AssetCheckEvaluation(
            asset_key=dg.AssetKey(asset),
            check_name=check,
            passed=passed,
            metadata={},
            partition=partition,
            target_materialization_data=AssetCheckEvaluationTargetMaterializationData(
                storage_id=checked.storage_id, run_id=checked.run_id, timestamp=checked.timestamp
            ),
        )
        self._tell(dg.DagsterEventType.ASSET_CHECK_EVALUATION, found)

    def _tell(
        self, kind: dg.DagsterEventType, what: Any, status: dg.DagsterRunStatus = dg.DagsterRunStatus.SUCCESS
    ) -> None:
        """A run of its own tells it."""
        job = self.definitions.resolve_implicit_global_asset_job_def()
        run = self.instance.create_run_for_job(job, status=status)
        event = dg.DagsterEvent(event_type_value=kind.value, job_name=run.job_name, event_specific_data=what)
        self.instance.report_dagster_event(event, run.run_id)

    def root_done(self, root: str, version: str = "1") -> None:
        for asset in (TREES, PATHS, ADVANTAGES):
            self.made(asset, root, version)
        self.seen("finished_roots", root.partition("|")[0], f"{root} {version}")

    def under_way(self, partition: str) -> dg.DagsterRun:
        job = self.definitions.resolve_implicit_global_asset_job_def()
        run = self.instance.create_run_for_job(
            job, status=dg.DagsterRunStatus.STARTED, tags={"dagster/partition": partition}
        )
        return run

    @contextmanager
    def making(self, asset: str, partition: str) -> Iterator[None]:
        """A run makes the partition: what is in the block comes after it was asked for and before it is there."""
        planned = AssetMaterializationPlannedData(dg.AssetKey(asset), partition=partition)
        self._tell(dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED, planned)
        yield
        self.made(asset, partition)

    def check_planned(self, asset: str, check: str, partition: str) -> None:
        """A run that is to check the partition waits."""
        planned = AssetCheckEvaluationPlanned(
            asset_key=dg.AssetKey(asset), check_name=check, partitions_subset=DefaultPartitionsSubset({partition})
        )
        self._tell(dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED, planned, status=dg.DagsterRunStatus.NOT_STARTED)

    def tick(self) -> set[str]:
        """What is asked for, as ``<asset> <partition>``."""
        result = dg.evaluate_automation_conditions(
            self.definitions, self.instance, dg.AssetSelection.all(), cursor=self._cursor
        )
        self._cursor = result.cursor
        asked = set()
        for asset in (TREES, PATHS, ADVANTAGES, DATASET, "selected_roots", "filtered_snapshots", "stage_labels"):
            key = dg.AssetKey(asset)
            asked |= {f"{asset} {partition}" for partition in result.get_requested_partitions(key)}
        return asked


@pytest.fixture(scope="module")
def definitions() -> dg.Definitions:
    return build_definitions(Path("out"), Path("runs"), settings())


@pytest.fixture
def automation(definitions: dg.Definitions) -> Iterator[Automation]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Automation(instance, definitions)


def test_a_finished_tree_is_ranked_and_credited_once(automation: Automation) -> None:
    assert automation.tick() == set()
    automation.made(TREES, "a|1")
    assert automation.tick() == {f"{PATHS} a|1", f"{ADVANTAGES} a|1"}
    automation.made(PATHS, "a|1")
    automation.made(ADVANTAGES, "a|1")
    assert automation.tick() == set()


def test_a_tree_that_was_finished_before_anyone_turned_it_on_is_carried_on_too(automation: Automation) -> None:
    automation.made(TREES, "a|1")
    assert automation.tick() == {f"{PATHS} a|1", f"{ADVANTAGES} a|1"}


def test_what_was_made_before_is_left_as_it_is(automation: Automation) -> None:
    automation.root_done("a|1")
    automation.made("selected_roots", "a")
    automation.made(DATASET, "a")
    for _ in range(2):
        assert automation.tick() == set()


def test_a_tree_made_again_is_carried_on_where_it_is_another(automation: Automation) -> None:
    automation.root_done("a|1")
    automation.tick()
    automation.made(TREES, "a|1")
    assert automation.tick() == set(), "the same tree"
    automation.made(TREES, "a|1", version="2")
    assert automation.tick() == {f"{PATHS} a|1", f"{ADVANTAGES} a|1"}


def test_a_tree_that_a_blocking_check_refused_is_not_carried_on_and_stops_no_other(automation: Automation) -> None:
    for root, passed in (("a|1", False), ("a|2", True)):
        automation.made(TREES, root)
        automation.checked(TREES, "decisions_replayed", root, passed)
    assert automation.tick() == {f"{PATHS} a|2", f"{ADVANTAGES} a|2"}
    automation.check_planned(TREES, "decisions_replayed", "a|1")
    assert f"{PATHS} a|1" not in automation.tick(), "a check that waits does not lift a refusal"
    automation.made(TREES, "a|1")
    assert f"{PATHS} a|1" not in automation.tick(), "the same tree"
    automation.made(TREES, "a|1", version="2")
    assert automation.tick() >= {f"{PATHS} a|1", f"{ADVANTAGES} a|1"}, "another tree"


def test_what_is_made_during_a_look_is_not_asked_for(automation: Automation, monkeypatch: pytest.MonkeyPatch) -> None:
    automation.tick()
    automation.made(TREES, "a|1")

    def refuse_nothing(*_: object) -> set[str]:
        automation.made(PATHS, "a|1")
        return set()

    with monkeypatch.context() as patch:
        patch.setattr("coral_pipeline.defs.automation.refused_partitions", refuse_nothing)
        assert automation.tick() == set()
    assert automation.tick() == {f"{ADVANTAGES} a|1"}


def test_no_tree_is_ever_asked_for(automation: Automation) -> None:
    for root in ("a|1", "a|2"):
        automation.seen("root_folders", root)
    automation.made("selected_roots", "a")
    automation.root_done("a|1")
    automation.tick()
    automation.seen("root_folders", "a|1", version="2")
    assert not any(asked.startswith(TREES) for asked in automation.tick())


def test_the_dataset_waits_for_the_last_root_under_way_of_its_own_student_run(automation: Automation) -> None:
    for student_run in ("a", "b"):
        automation.made("selected_roots", student_run)
    automation.tick()
    busy = automation.under_way("a|2")
    automation.root_done("a|1")
    automation.root_done("b|1")
    assert automation.tick() == {f"{DATASET} b"}
    automation.made(DATASET, "b")
    assert automation.tick() == set()
    automation.root_done("a|2")
    automation.instance.report_run_canceled(busy)
    assert automation.tick() == {f"{DATASET} a"}
    automation.made(DATASET, "a")
    assert automation.tick() == set()


def test_a_dataset_is_made_anew_when_a_root_is_another(automation: Automation) -> None:
    automation.made("selected_roots", "a")
    automation.root_done("a|1")
    automation.made(DATASET, "a")
    automation.tick()
    automation.root_done("a|2")
    assert automation.tick() == {f"{DATASET} a"}


def test_a_root_that_is_done_while_a_dataset_is_made_comes_into_the_next(automation: Automation) -> None:
    automation.made("selected_roots", "a")
    automation.root_done("a|1")
    assert automation.tick() == {f"{DATASET} a"}
    with automation.making(DATASET, "a"):
        automation.root_done("a|2")
    assert automation.tick() == {f"{DATASET} a"}
    with automation.making(DATASET, "a"):
        pass
    assert automation.tick() == set()


def test_a_dataset_is_made_anew_when_a_root_is_no_longer_refused(automation: Automation) -> None:
    automation.made("selected_roots", "a")
    for root in ("a|1", "a|2"):
        automation.root_done(root)
    automation.checked(ADVANTAGES, "credit_computed_anew", "a|1", passed=False)
    assert automation.tick() == {f"{DATASET} a"}
    with automation.making(DATASET, "a"):
        pass
    assert automation.tick() == set()
    automation.checked(ADVANTAGES, "credit_computed_anew", "a|1", passed=True)
    assert automation.tick() == {f"{DATASET} a"}
    with automation.making(DATASET, "a"):
        pass
    automation.checked(ADVANTAGES, "credit_computed_anew", "a|1", passed=True)
    assert automation.tick() == set(), "it had been lifted before"


def test_a_dataset_is_made_anew_when_other_roots_are_chosen(automation: Automation) -> None:
    automation.made("selected_roots", "a")
    automation.root_done("a|1")
    automation.made(DATASET, "a")
    automation.tick()
    automation.made("selected_roots", "a", version="2")
    assert automation.tick() == {f"{DATASET} a"}
    assert automation.tick() == set(), "asked for once"


def test_without_a_finished_root_there_is_no_dataset(automation: Automation) -> None:
    automation.made("selected_roots", "a")
    automation.made(TREES, "a|1")
    assert not any(asked.startswith(DATASET) for asked in automation.tick())


def test_a_dropped_root_does_not_stop_the_others(automation: Automation) -> None:
    automation.root_done("a|1")
    automation.made(TREES, "a|2")
    automation.tick()
    automation.instance.delete_dynamic_partition("roots", "a|1")
    automation.made(TREES, "b|1")
    assert automation.tick() >= {f"{PATHS} b|1", f"{ADVANTAGES} b|1"}
    automation.instance.add_dynamic_partitions("roots", ["a|1"])
    assert f"{PATHS} a|1" not in automation.tick(), "taken back, it is as it was"
