"""The settings as Dagster shows and takes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coral_pipeline.defs.build import definitions_from
from coral_pipeline.defs.settings import settings_resource
from coral_pipeline.settings import PipelineSettings, Settings
from coral_pipeline.settings_file import read_settings, write_settings
from coral_pipeline_tests.defs.world import RUN, TO_ROOTS, World, settings


def leaves(model: Settings, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        yield from leaves(value, (*path, name)) if isinstance(value, Settings) else [(*path, name)]


def test_every_field_is_in_the_config_with_its_default_and_its_description() -> None:
    defaults = PipelineSettings()
    schema = settings_resource(defaults).config_schema.config_type
    values = defaults.model_dump(mode="json")
    for path in leaves(defaults):
        fields: Any = schema
        value: Any = values
        for name in path:
            field, value = fields.fields[name], value[name]
            fields = field.config_type
        assert field.default_value == value, path


def test_a_run_takes_its_own_values_and_keeps_the_other_defaults(world: World) -> None:
    config = {"resources": {"settings": {"config": {"selection": {"num_roots": 2}}}}}
    world.materialize(TO_ROOTS, RUN, **config)
    assert len(world.keys) == 2


def test_values_that_cannot_be_are_refused_by_name(world: World) -> None:
    config = {"resources": {"settings": {"config": {"selection": {"smooth_window": 4}}}}}
    result = world.run(TO_ROOTS, RUN, **config)
    assert not result.success
    error = next(event for event in result.all_events if event.event_type_value == "PIPELINE_FAILURE")
    assert "selection: Value error, smooth_window must be odd" in str(error.event_specific_data)


def test_a_deployment_is_described_by_its_environment(tmp_path: Path) -> None:
    write_settings(settings(selection={"num_roots": 5}), tmp_path / "mine.yaml")
    environment = {
        "CORAL_PIPELINE_OUTPUT": str(tmp_path / "out"),
        "CORAL_PIPELINE_STUDENT_RUNS": str(tmp_path / "runs"),
        "CORAL_PIPELINE_SETTINGS": str(tmp_path / "mine.yaml"),
    }
    resources = definitions_from(environment).resources or {}
    folders = resources["folders"]
    assert (folders.output, folders.student_runs) == (str(tmp_path / "out"), str(tmp_path / "runs"))
    assert resources["settings"].config_schema.config_type.fields["selection"].default_value["num_roots"] == 5


def test_the_settings_of_the_last_run_are_the_defaults_of_its_output_folder(tmp_path: Path) -> None:
    write_settings(settings(selection={"num_roots": 4}), tmp_path / "settings.yaml")
    resources = definitions_from({"CORAL_PIPELINE_OUTPUT": str(tmp_path)}).resources or {}
    assert resources["settings"].config_schema.config_type.fields["selection"].default_value["num_roots"] == 4


def test_a_settings_file_reads_back_as_it_was_written(tmp_path: Path) -> None:
    chosen = settings(selection={"num_roots": 4, "backfill_order": ["late", "early", "middle"]}, credit={"prior": 0.25})
    write_settings(chosen, tmp_path / "settings.yaml")
    assert read_settings(tmp_path / "settings.yaml") == chosen
