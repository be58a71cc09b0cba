"""Tables of an asset in its folder: read back as written, replaced together or not at all."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any, NoReturn

import dagster as dg
import pyarrow as pa
import pytest

from coral_pipeline import tables
from coral_pipeline.defs.folders import Folders
from coral_pipeline.defs.io_manager import ParquetTables
from coral_pipeline.defs.retries import FAULT, INFRASTRUCTURE, INPUT
from coral_pipeline.errors import BadInput, Changed
from coral_pipeline.settings import PipelineSettings
from coral_pipeline.storage.local import LocalStorage
from coral_pipeline.student_run.stages import label_stages
from coral_pipeline_tests.defs.world import RUN, World, failure
from coral_pipeline_tests.student_runs import filtered_table


@pytest.fixture
def manager(tmp_path: Path) -> ParquetTables:
    task = tmp_path / "student_runs" / RUN / "task.yaml"
    task.parent.mkdir(parents=True)
    task.write_text("grader: {}\n")
    folders = Folders(output=str(tmp_path), student_runs=str(tmp_path / "student_runs"))
    return ParquetTables(folders, PipelineSettings())


def write(manager: ParquetTables, contents: Any) -> None:
    context = dg.build_output_context(
        asset_key=dg.AssetKey("filtered_snapshots"),
        partition_key=RUN,
        step_key="filtered_snapshots",
        name="result",
        run_id="a-run",
    )
    manager.handle_output(context, contents)


def read(manager: ParquetTables) -> dict[str, pa.Table]:
    context = dg.build_input_context(asset_key=dg.AssetKey("filtered_snapshots"), partition_key=RUN)
    return manager.load_input(context)


def contents(*scores: float, rejected: int = 0) -> dict[str, pa.Table]:
    row = {"snapshot": "x", "reason": "name", "detail": "no snapshot"}
    return {
        "filtered_snapshots": filtered_table(scores),
        "rejected_snapshots": tables.REJECTED_SNAPSHOTS.build([row] * rejected),
    }


def test_all_tables_of_an_asset_come_back_as_they_were_written(manager: ParquetTables, tmp_path: Path) -> None:
    write(manager, contents(1.0, 2.0, rejected=3))
    assert {name: table.to_pylist() for name, table in read(manager).items()} == {
        name: table.to_pylist() for name, table in contents(1.0, 2.0, rejected=3).items()
    }
    names = {path.name for path in (tmp_path / "filtered_snapshots" / RUN).iterdir()}
    assert names == {"filtered_snapshots.parquet", "rejected_snapshots.parquet", "provenance.json"}


def test_a_table_that_cannot_be_written_leaves_the_earlier_ones_all_in_place(manager: ParquetTables) -> None:
    write(manager, contents(1.0, rejected=1))
    wrong = contents(5.0, 6.0) | {"rejected_snapshots": pa.table({"snapshot": [1]})}
    with pytest.raises(ValueError):
        write(manager, wrong)
    kept = read(manager)
    assert kept["filtered_snapshots"]["score"].to_pylist() == [1.0]
    assert kept["rejected_snapshots"].num_rows == 1


def test_what_else_lies_in_the_folder_stays(manager: ParquetTables, tmp_path: Path) -> None:
    write(manager, contents(1.0))
    other = tmp_path / "filtered_snapshots" / RUN / "eval-1" / "metadata.json"
    other.parent.mkdir()
    other.write_text("{}")
    write(manager, contents(2.0))
    assert other.read_text() == "{}"


@pytest.mark.parametrize("name", ["filtered_snapshots", "rejected_snapshots"])
def test_an_asset_must_give_exactly_its_declared_tables(manager: ParquetTables, name: str) -> None:
    missing = contents(1.0)
    table = missing.pop(name)
    for given in (missing, contents(1.0) | {"another": table}):
        with pytest.raises(ValueError, match="declared are"):
            write(manager, given)


def test_what_is_made_of_tables_that_another_run_replaced_meanwhile_is_not_kept(
    manager: ParquetTables, tmp_path: Path
) -> None:
    write(manager, contents(1.0, 2.0))
    filtered = read(manager)["filtered_snapshots"]
    labels = label_stages(filtered, "maximize", PipelineSettings().selection)

    def write_labels() -> None:
        asset = "stage_labels"
        context = dg.build_output_context(
            asset_key=dg.AssetKey(asset), partition_key=RUN, step_key=asset, name="result", run_id="a-run"
        )
        manager.handle_output(context, {asset: labels})

    write_labels()
    write(manager, contents(3.0, 4.0))
    with pytest.raises(Changed, match="filtered_snapshots of small-run"):
        write_labels()
    read(manager)
    write_labels()


@pytest.mark.slow
@pytest.mark.parametrize("asset", ["filtered_snapshots", "stage_labels"])
@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (OSError(errno.EIO, "503 Slow Down", "s3://bucket/filtered_snapshots"), INFRASTRUCTURE),
        (BadInput("filtered_snapshots.parquet", "lacks the column score", "make it again"), INPUT),
    ],
    ids=[INFRASTRUCTURE, INPUT],
)
def test_a_failure_around_an_asset_is_told_and_tried_again_as_its_own(
    world: World, asset: str, error: Exception, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its tables are written, and while its inputs are read."""
    world.materialize(["filtered_snapshots"], RUN)

    def fail(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(LocalStorage, "writing" if asset == "filtered_snapshots" else "fetch", fail)
    result = world.run([asset], RUN)
    run = world.instance.get_run_by_id(result.run_id)
    assert run is not None and not result.success
    assert run.tags[FAULT] == fault
    assert run.tags["dagster/retry_on_asset_or_op_failure"] == str(fault == INFRASTRUCTURE).lower()
    told = "s3://bucket/filtered_snapshots: 503 Slow Down; mend that" if fault == INFRASTRUCTURE else str(error)
    assert failure(result).startswith(told)
