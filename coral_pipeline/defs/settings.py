"""The method's settings as a Dagster resource: every field declared once, in ``coral_pipeline.settings``.

Defaults come from the YAML file that ``CORAL_PIPELINE_SETTINGS`` names, where it names one; any field can be
set for a single run in the launchpad, under ``resources: settings: config``.
"""

from __future__ import annotations

import types
import typing
from pathlib import Path
from typing import Any

import dagster as dg

from coral_pipeline.settings import AutomationSettings, PipelineSettings, Settings
from coral_pipeline.settings_file import checked_settings


def settings_resource(defaults: PipelineSettings) -> dg.ResourceDefinition:
    """The resource ``settings``: a ``PipelineSettings``, configurable field by field."""

    @dg.resource(config_schema=_config_fields(defaults), description="Settings of the method, by stage")
    def settings(context: dg.InitResourceContext) -> PipelineSettings:
        return checked_settings("settings, in the run's resource config", context.resource_config)

    return settings


def sensor_status(automation: AutomationSettings) -> dg.DefaultSensorStatus:
    """Whether a sensor runs that nobody has turned on or off yet."""
    return dg.DefaultSensorStatus.RUNNING if automation.on_from_the_start else dg.DefaultSensorStatus.STOPPED


def _config_fields(defaults: Settings) -> dict[str, dg.Field]:
    """Dagster's config schema of a settings model, with these values as defaults. Values are checked by the model."""
    plain = defaults.model_dump(mode="json")
    fields = {}
    for name, field in type(defaults).model_fields.items():
        value = getattr(defaults, name)
        if isinstance(value, Settings):
            fields[name] = dg.Field(_config_fields(value), description=field.description or type(value).__doc__)
        else:
            kind = _config_type(field.annotation)
            fields[name] = dg.Field(kind, default_value=plain[name], description=field.description)
    return fields


def _config_type(annotation: Any) -> Any:
    """Dagster's config type for a field's annotation; names and paths are strings, several kinds are ``Any``."""
    arguments, origin = typing.get_args(annotation), typing.get_origin(annotation)
    if origin in (types.UnionType, typing.Union):
        kinds = [argument for argument in arguments if argument is not type(None)]
        kind = _config_type(kinds[0]) if len(kinds) == 1 else dg.Any
        return kind if kinds == list(arguments) else dg.Noneable(kind)
    if origin is typing.Annotated:
        return _config_type(arguments[0])
    if origin is tuple:
        return [_config_type(arguments[0])]
    if origin is dict:
        return dict
    return str if origin is typing.Literal or annotation is Path else annotation
