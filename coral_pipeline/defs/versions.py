"""Versions of what makes an asset: its code and settings. Those of what it holds are in ``content``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coral_pipeline.content import digest_of
from coral_pipeline.credit.tokenizers import name_of
from coral_pipeline.settings import OF_TEACHER, UNDECIDING, PipelineSettings

CODE = {
    "filtered_snapshots": 2,
    "stage_labels": 1,
    "selected_roots": 1,
    "explored_trees": 1,
    "ranked_paths": 1,
    "advantage_batches": 2,
    "sft_dataset": 2,
}
"""By asset; raised whenever a change of the code changes what the asset holds."""
SETTINGS = {
    "stage_labels": {"selection"},
    "selected_roots": {"selection"},
    "explored_trees": {"search", "teacher"},
    "ranked_paths": {"paths"},
    "advantage_batches": {"credit"},
}
"""Sections of the settings that change what an asset holds; the Teacher's own section joins them."""
WHERE_MODELS_RUN: dict[str, Any] = {"opencode": {"endpoint", "api_key_variable"}, "credit": {"http": {"url"}}}
"""Settings that are nobody's business later; addresses may hold a password."""
DATA_VERSION_TAG = "dagster/data_version"
"""Where Dagster keeps the data version of a materialization or observation."""


def settings_used(asset: str, settings: PipelineSettings) -> Any:
    """The settings that change what the asset holds, as JSON values.

    Only those that are not the default: what a new version of the code adds does not make the old stale. Where
    it changes a default, it raises the asset's number in ``CODE``.
    """
    sections = settings.model_dump(
        mode="json", include=_sections(asset, settings), exclude=UNDECIDING, exclude_defaults=True
    )
    return {section: values for section, values in sections.items() if values}


def settings_recorded(asset: str, settings: PipelineSettings) -> dict[str, Any]:
    """All settings of the sections that change what the asset holds, as JSON values; of paths just the last names."""
    values = settings.model_dump(include=_sections(asset, settings), exclude=WHERE_MODELS_RUN)
    if "credit" in values:
        values["credit"]["tokenizer"] = name_of(settings.credit.tokenizer)
    recorded: dict[str, Any] = _without_folders(values)
    return recorded


def _sections(asset: str, settings: PipelineSettings) -> set[str]:
    sections = set(SETTINGS.get(asset, ()))
    if "teacher" in sections and settings.teacher.name in OF_TEACHER:
        sections.add(OF_TEACHER[settings.teacher.name])
    return sections


def _without_folders(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_folders(inside) for name, inside in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_folders(inside) for inside in value]
    if isinstance(value, str) and value.startswith("/"):  # programs and tokenizers are names or paths
        return Path(value).name
    return value.name if isinstance(value, Path) else value


def method_version(asset: str, settings: Any) -> str:
    """Version of how an asset is made: its code, and the settings it uses (JSON values)."""
    return digest_of([asset, CODE[asset], settings])


def code_version(asset: str, settings: PipelineSettings) -> str:
    """The same as Dagster shows it: short, the number of the code first."""
    return f"{CODE[asset]}-{method_version(asset, settings_used(asset, settings))[:8]}"
