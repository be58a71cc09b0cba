"""Every asset check, run by itself through Dagster on stored data: green as it is, red where something was damaged."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from coral_pipeline import provenance, tables
from coral_pipeline.audit import student_run
from coral_pipeline.audit.checks import CHECKS, Check
from coral_pipeline.audit.findings import Review
from coral_pipeline.audit.sources import Source
from coral_pipeline.defs.checks import OF_ROOTS
from coral_pipeline.defs.progress import SearchControl
from coral_pipeline.defs.whole_run import StageFailed, WholeRun
from coral_pipeline.storage.local import LocalStorage
from coral_pipeline.tables import PER_ROOT, Table
from coral_pipeline_tests.audit.damage import changed_byte, changed_cell, put_back
from coral_pipeline_tests.defs.world import RUN, TO_ROOTS, World, failure

pytestmark = pytest.mark.slow

Damage = Callable[[World], AbstractContextManager[object]]
IN_DAGSTER = [check for check in CHECKS if not check.audit_only]


def partition(world: World, asset: str) -> str:
    return str(world.keys[0]) if asset in OF_ROOTS else RUN


def folder(world: World, asset: str) -> Path:
    return world.folders.asset(asset, partition(world, asset))


def cell(asset: str, table: Table, column: str) -> Damage:
    """The last cell of a column is another."""

    def damage(world: World) -> AbstractContextManager[object]:
        rows = table.read(folder(world, asset)).num_rows
        return changed_cell(table, folder(world, asset), column, rows - 1)

    return damage


def byte(asset: str, file: str) -> Damage:
    """A byte in the middle of a file is another."""
    return lambda world: changed_byte(folder(world, asset) / file)


def copied_code(world: World) -> AbstractContextManager[object]:
    return changed_byte(world.folders.root(world.keys[0]) / "code" / "solve.py")


def other_input(asset: str) -> Damage:
    """What the partition was made from had another version then."""

    @contextmanager
    def damage(world: World) -> Iterator[None]:
        place = folder(world, asset)
        with put_back(place / provenance.PROVENANCE_FILE):
            made = provenance.read(place)
            assert made is not None
            first = made.inputs[0].model_copy(update={"version": "another"})
            provenance.write(made.model_copy(update={"inputs": (first, *made.inputs[1:])}), place)
            yield

    return damage


DAMAGES: dict[str, Damage] = {
    "every_snapshot_told_once": cell("filtered_snapshots", tables.FILTERED_SNAPSHOTS, "score"),
    "stages_computed_anew": cell("stage_labels", tables.STAGE_LABELS, "smooth_score"),
    "choice_computed_anew": cell("selected_roots", tables.SELECTED_ROOTS, "selection_reason"),
    "copies_equal_snapshots": copied_code,
    "decisions_replayed": cell("explored_trees", tables.NODES, "score"),
    "rules_of_the_method_hold": cell("explored_trees", tables.ROUNDS, "best_rank"),
    "messages_linked": cell("explored_trees", tables.MESSAGES, "parent_message_id"),
    "turns_count_what_messages_hold": cell("explored_trees", tables.TURNS, "tool_calls"),
    "paths_computed_anew": cell("ranked_paths", tables.RANKED_PATHS, "node_ids"),
    "credit_computed_anew": cell("advantage_batches", tables.CREDIT_EDGES, "advantage"),
    "tokens_carry_their_credit": cell("advantage_batches", tables.TOKENS, "advantages"),
    "trace_equals_tables": byte("advantage_batches", "traces.jsonl"),
    "samples_equal_tables": byte("advantage_batches", "sft.jsonl"),
    "exports_equal_tables": cell("sft_dataset", tables.BRANCHES, "labels"),
    "copied_root_as_it_was": copied_code,
}
FIRST_FILE = {asset: declared[0].file_name for asset, declared in tables.TABLES.items()}


def damage_for(check: Check) -> Damage:
    if check.name == "files_as_written":
        return byte(check.asset, FIRST_FILE[check.asset])
    return other_input(check.asset) if check.name == "made_from_what_is_there" else DAMAGES[check.name]


PARTITION = "dagster/partition"
"""Tag by which a run knows its partition: as an argument Dagster takes it for runs that make assets alone."""


@pytest.fixture(scope="module")
def job(finished: World) -> dg.JobDefinition:
    return finished.definitions.resolve_implicit_global_asset_job_def()


def run_checks(world: World, job: dg.JobDefinition, *checks: Check, partition: str) -> dg.ExecuteInProcessResult:
    """The checks, of one asset, and nothing else."""
    keys = {dg.AssetCheckKey(dg.AssetKey(check.asset), check.name) for check in checks}
    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    tags = {PARTITION: partition}
    alone = job.get_subset(asset_check_selection=keys)
    result = alone.execute_in_process(instance=world.instance, tags=tags, raise_on_error=False, run_config=quiet)
    found = {(one.asset_key, one.check_name) for one in result.get_asset_check_evaluations()}
    assert found == {(key.asset_key, key.name) for key in keys}
    assert not [event for event in result.all_events if event.is_step_materialization], "nothing is made again"
    return result


@pytest.mark.parametrize("asset", dict.fromkeys(check.asset for check in IN_DAGSTER))
def test_all_checks_of_an_asset_are_green_on_what_was_made(finished: World, job: dg.JobDefinition, asset: str) -> None:
    checks = [check for check in IN_DAGSTER if check.asset == asset]
    result = run_checks(finished, job, *checks, partition=partition(finished, asset))
    assert result.success
    for found in result.get_asset_check_evaluations():
        metadata: dict[str, Any] = dict(found.metadata)
        assert found.passed and metadata.pop("findings").value == 0, found
        assert found.partition == partition(finished, asset)
        metadata.pop("notes", None)
        assert any(number.value for number in metadata.values()), f"{found.check_name} looked at nothing"


@pytest.mark.parametrize("check", IN_DAGSTER, ids=lambda check: f"{check.asset}-{check.name}")
def test_a_check_is_red_where_something_was_damaged(finished: World, job: dg.JobDefinition, check: Check) -> None:
    with damage_for(check)(finished):
        result = run_checks(finished, job, check, partition=partition(finished, check.asset))
    (found,) = result.get_asset_check_evaluations()
    metadata: dict[str, Any] = dict(found.metadata)
    assert not found.passed and metadata["findings"].value > 0
    assert found.description and metadata["first findings"].records
    assert found.severity == (dg.AssetCheckSeverity.ERROR if check.blocking else dg.AssetCheckSeverity.WARN)
    assert result.success is not check.blocking


def test_every_check_can_be_damaged_for() -> None:
    """No check is without its test."""
    named = {check.name for check in IN_DAGSTER} - {"files_as_written", "made_from_what_is_there"}
    assert named == DAMAGES.keys()
    assert {check.asset for check in IN_DAGSTER} == {*tables.TABLES, "root_folders"}
    assert all(asset in OF_ROOTS for asset in PER_ROOT)


def test_what_a_blocking_check_refuses_is_told_in_one_line_and_goes_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(review: Review, *anything: object) -> None:
        review.find("stage_labels.parquet, row 3, stage", "is 'late', expected 'early'")
        review.find("stage_labels.parquet, row 4, stage", "is 'late', expected 'early'")

    monkeypatch.setattr(student_run, "verify_stages", refuse)
    world = World(tmp_path)
    with ExitStack() as stack:
        instance = stack.enter_context(dg.instance_for_test())
        run = world.folders.student_run(RUN)
        whole = WholeRun(run, tmp_path / "output", world.settings, instance, SearchControl())
        with pytest.raises(StageFailed) as failed:
            whole.select_roots()
    assert str(failed.value) == (
        "check stages_computed_anew of stage_labels failed: "
        "stage_labels.parquet, row 3, stage: is 'late', expected 'early' (and 1 more)"
    )
    assert not (tmp_path / "output" / "selected_roots").exists()


def test_a_student_run_that_is_a_link_goes_by_the_name_of_the_link(tmp_path: Path) -> None:
    world = World(tmp_path)
    run = world.folders.student_run(RUN)
    run.symlink_to(run.rename(tmp_path / "run-of-another-name"))
    world.materialize(TO_ROOTS, RUN)
    source = Source(world.folders.storage, world.folders.student_run)
    for check in IN_DAGSTER:
        if check.asset in TO_ROOTS:
            assert list(check.review(source, RUN).lines()) == []


@pytest.mark.parametrize("check", [c for c in IN_DAGSTER if c.asset == "ranked_paths"], ids=lambda check: check.name)
@pytest.mark.parametrize(("number", "retried"), [(errno.EIO, "true"), (errno.EACCES, "false")])
def test_a_check_that_cannot_read_says_nothing_and_its_run_is_tried_again_where_that_may_help(
    finished: World,
    job: dg.JobDefinition,
    check: Check,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    retried: str,
) -> None:
    def unreachable(storage: object, asset: str, partition: str) -> Path:
        raise OSError(number, "503 Slow Down", f"s3://bucket/{asset}")

    monkeypatch.setattr(LocalStorage, "fetch", unreachable)
    key = {dg.AssetCheckKey(dg.AssetKey(check.asset), check.name)}
    tags = {PARTITION: partition(finished, check.asset)}
    result = job.get_subset(asset_check_selection=key).execute_in_process(
        instance=finished.instance, tags=tags, raise_on_error=False
    )
    assert not result.success and not result.get_asset_check_evaluations()
    run = finished.instance.get_run_by_id(result.run_id)
    assert run is not None and run.tags["dagster/retry_on_asset_or_op_failure"] == retried
    assert "s3://bucket/ranked_paths: 503 Slow Down" in failure(result)


def test_checks_without_a_partition_say_how_to_choose_one(finished: World, job: dg.JobDefinition) -> None:
    for asset, form in (("ranked_paths", "<student_run>|<root>"), ("stage_labels", "<student_run>")):
        keys = {dg.AssetCheckKey(dg.AssetKey(check.asset), check.name) for check in IN_DAGSTER if check.asset == asset}
        alone = job.get_subset(asset_check_selection=keys)
        result = alone.execute_in_process(instance=finished.instance, raise_on_error=False)
        assert not result.success and not result.get_asset_check_evaluations()
        assert failure(result).startswith(
            f"checks of {asset}: no partition was chosen; tag the run with {PARTITION}: {form},"
        )
