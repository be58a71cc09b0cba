"""The Dagster definitions for a given place and settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from coral_pipeline.defs.arrivals import arrivals_sensor
from coral_pipeline.defs.automation import automation_sensor, conditions
from coral_pipeline.defs.caretaker import caretaker_sensor
from coral_pipeline.defs.checks import asset_checks
from coral_pipeline.defs.column_lineage import column_lineage, column_schema, described_with_tables
from coral_pipeline.defs.dataset import sft_dataset
from coral_pipeline.defs.exploring import nights_schedule
from coral_pipeline.defs.folders import Folders
from coral_pipeline.defs.io_manager import parquet_tables
from coral_pipeline.defs.logs import file_logger
from coral_pipeline.defs.progress import SearchControl
from coral_pipeline.defs.root import advantage_batches, explored_trees, finished_roots, ranked_paths
from coral_pipeline.defs.settings import settings_resource
from coral_pipeline.defs.student_run import filtered_snapshots, root_folders, selected_roots, stage_labels
from coral_pipeline.defs.versions import code_version
from coral_pipeline.settings import AutomationSettings, PipelineSettings
from coral_pipeline.settings_file import read_settings
from coral_pipeline.storage import is_url

OUTPUT, STUDENT_RUNS, SETTINGS = "CORAL_PIPELINE_OUTPUT", "CORAL_PIPELINE_STUDENT_RUNS", "CORAL_PIPELINE_SETTINGS"
"""Environment variables of a deployment: a folder or URL, a folder, and a YAML file."""
SETTINGS_FILE = "settings.yaml"
"""Under the output, where that is a folder: the settings where ``CORAL_PIPELINE_SETTINGS`` names no file."""
OWNERS = "CORAL_PIPELINE_OWNERS"
"""Environment variable: who answers for the assets, as email addresses or ``team:NAME``, with commas between."""
DEFAULT_OWNERS = ("team:coral-pipeline",)

ASSETS = (
    filtered_snapshots,
    stage_labels,
    selected_roots,
    explored_trees,
    ranked_paths,
    advantage_batches,
    sft_dataset,
)


def definitions_from(environment: Mapping[str, str]) -> dg.Definitions:
    """The definitions of a deployment, by its environment variables."""
    output, student_runs = places(environment)

    def automation() -> AutomationSettings:
        return settings_of(environment).automation

    owners = tuple(filter(None, map(str.strip, environment.get(OWNERS, "").split(",")))) or DEFAULT_OWNERS
    return build_definitions(output, student_runs, settings_of(environment), automation, owners)


def places(environment: Mapping[str, str]) -> tuple[str, Path]:
    """A deployment's output, an absolute folder or a URL, and the folder of its Student runs."""
    output = environment.get(OUTPUT) or "data/output"
    student_runs = Path(environment.get(STUDENT_RUNS) or "data/student_runs")
    return output if is_url(output) else str(Path(output).absolute()), student_runs.absolute()


def settings_of(environment: Mapping[str, str]) -> PipelineSettings:
    """The settings of a deployment, read anew. Raises ``BadInput``."""
    output, named = places(environment)[0], environment.get(SETTINGS)
    if named or is_url(output):
        return read_settings(Path(named) if named else None)
    file = Path(output, SETTINGS_FILE)
    return read_settings(file if file.exists() else None)


def build_definitions(
    output: Path | str,
    student_runs: Path,
    settings: PipelineSettings,
    automation: Callable[[], AutomationSettings] | None = None,
    owners: Sequence[str] = DEFAULT_OWNERS,
    **overrides: Any,
) -> dg.Definitions:
    """The definitions, every process of which reads and writes there; ``overrides`` replace resources.

    ``output``: a folder or a URL. Student runs are read from a folder, which all machines of a deployment see.
    ``automation`` gives those settings anew whenever a sensor or schedule ticks; without it they stay as they are.
    ``owners``: email addresses and ``team:NAME``.
    """
    read_automation = automation or (lambda: settings.automation)
    place = output if isinstance(output, str) else str(output.absolute())
    folders = Folders(output=place, student_runs=str(student_runs.absolute()))
    resources = {
        "folders": folders,
        "io_manager": parquet_tables,
        "settings": settings_resource(settings),
        "control": dg.ResourceDefinition(lambda _: SearchControl(), description="Stops and watches a running search"),
    }

    carried_on = conditions(settings.automation)

    def described(spec: dg.AssetSpec) -> dg.AssetSpec:
        asset = spec.key.to_user_string()
        return spec.replace_attributes(
            code_version=code_version(asset, settings),
            owners=owners,
            automation_condition=carried_on.get(asset),
            description=described_with_tables(spec),
        ).merge_attributes(
            metadata={
                "dagster/column_schema": column_schema(asset),
                "dagster/column_lineage": column_lineage(asset),
            }
        )

    return dg.Definitions(
        assets=[
            *dg.map_asset_specs(described, ASSETS),
            *(spec.replace_attributes(owners=owners) for spec in (root_folders, finished_roots)),
        ],
        asset_checks=asset_checks(),
        resources=resources | overrides,
        loggers={"console": dg.colored_console_logger, "file": file_logger},
        executor=dg.in_process_executor,
        schedules=[nights_schedule([explored_trees, ranked_paths, advantage_batches], read_automation)],
        sensors=[
            arrivals_sensor(student_runs.absolute(), read_automation),
            automation_sensor(settings.automation),
            caretaker_sensor(settings.automation),
        ],
    )
