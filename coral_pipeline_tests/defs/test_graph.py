"""The graph as the UI shows it, before anything has been run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from coral_pipeline.defs.build import build_definitions, definitions_from
from coral_pipeline.defs.column_lineage import shown_name
from coral_pipeline.settings import PipelineSettings
from coral_pipeline.tables import TABLES
from coral_pipeline_tests.defs.world import settings


def specs(chosen: PipelineSettings | None = None) -> dict[str, dg.AssetSpec]:
    definitions = build_definitions(Path("out"), Path("runs"), chosen or PipelineSettings())
    return {spec.key.to_user_string(): spec for spec in definitions.resolve_all_asset_specs()}


def test_the_code_location_loads_without_a_warning(tmp_path: Path) -> None:
    check = "from coral_pipeline.definitions import defs; import dagster as dg; dg.Definitions.validate_loadable(defs)"
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning:uvicorn", "-c", check]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_asset_depends_on_what_it_is_made_from() -> None:
    upstream = {name: {dep.asset_key.to_user_string() for dep in spec.deps} for name, spec in specs().items()}
    assert upstream == {
        "filtered_snapshots": set(),
        "stage_labels": {"filtered_snapshots"},
        "selected_roots": {"filtered_snapshots", "stage_labels"},
        "root_folders": {"selected_roots"},
        "explored_trees": {"root_folders"},
        "ranked_paths": {"explored_trees"},
        "advantage_batches": {"explored_trees", "ranked_paths"},
        "finished_roots": {"advantage_batches"},
        "sft_dataset": {"finished_roots", "selected_roots"},
    }


@pytest.mark.parametrize("asset", TABLES)
def test_every_asset_is_described_down_to_its_columns(asset: str) -> None:
    spec = specs()[asset]
    assert spec.description and spec.group_name != "default" and spec.owners and "parquet" in spec.kinds
    assert isinstance(spec.partitions_def, dg.DynamicPartitionsDefinition)
    columns = {column.name: column for column in spec.metadata["dagster/column_schema"].columns}
    shown = {shown_name(asset, table.name, c.name): c for table in TABLES[asset] for c in table.columns}
    assert list(columns) == list(shown)
    for name, column in shown.items():
        told = (columns[name].description or "").replace("\\", "")
        assert told.startswith(column.description)
        assert columns[name].constraints.nullable == column.nullable
    assert all(f"`{table.file_name}`" in (spec.description or "") for table in TABLES[asset])


def test_a_deployment_names_its_owners() -> None:
    def owners(**environment: str) -> set[str]:
        definitions = definitions_from(environment)
        return {owner for spec in definitions.resolve_all_asset_specs() for owner in spec.owners}

    assert owners() == {"team:coral-pipeline"}
    named = "team:post-training, ada@example.org"
    assert owners(CORAL_PIPELINE_OWNERS=named) == {"team:post-training", "ada@example.org"}


def test_few_trees_grow_at_once_and_only_trees_wait_for_each_other() -> None:
    definitions = build_definitions(Path("out"), Path("runs"), PipelineSettings())
    pools = {
        key.to_user_string(): asset.op.pool
        for key in definitions.resolve_asset_graph().materializable_asset_keys
        for asset in [definitions.resolve_assets_def(key)]
    }
    assert {asset for asset, pool in pools.items() if pool} == {"explored_trees"}


def test_settings_of_the_teacher_that_explores_are_part_of_the_code_version() -> None:
    simulated = {"teacher": {"name": "simulated"}}
    before, after = specs(settings(**simulated)), specs(settings(**simulated, simulation={"no_score_chance": 0.2}))
    assert {name for name in before if before[name].code_version != after[name].code_version} == {"explored_trees"}


@pytest.mark.parametrize(
    ("changed", "stale"),
    [
        ({"selection": {"num_roots": 9}}, {"stage_labels", "selected_roots"}),
        ({"search": {"max_depth": 3}}, {"explored_trees"}),
        ({"teacher": {"seed": 5}}, {"explored_trees"}),
        ({"paths": {"top_k": 3}}, {"ranked_paths"}),
        ({"credit": {"prior": 0.5}}, {"advantage_batches"}),
        ({"retry": {"attempts": 2}}, set()),
        ({"embedded": {"max_notes": 1}}, set()),
    ],
)
def test_the_code_version_changes_with_the_settings_that_change_the_asset(
    changed: dict[str, dict[str, Any]], stale: set[str]
) -> None:
    before, after = specs(settings()), specs(settings(**changed))
    assert {name for name in before if before[name].code_version != after[name].code_version} == stale
