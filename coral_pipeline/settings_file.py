"""Settings in a YAML or JSON file: a mapping of sections; what it leaves out has its default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from coral_pipeline.errors import BadInput
from coral_pipeline.settings import PipelineSettings, Width
from coral_pipeline.tables import text_file
from coral_pipeline.yaml_text import parse_yaml

_MEND = "give a mapping like {search: {max_depth: 3}, retry: {attempts: 2}}"


def read_settings(path: Path | None, width: Width | None = None) -> PipelineSettings:
    """The settings of a file, defaults without one; ``width`` goes before its ``search.parallel_width``.

    Raises ``BadInput`` naming the setting that cannot be used.
    """
    try:
        given = parse_yaml(path.read_bytes()) if path else {}
    except OSError as error:
        raise BadInput(path, f"cannot be read ({error.strerror})", _MEND) from error
    except ValueError as error:
        raise BadInput(path, f"is not YAML ({error})", _MEND) from error
    settings = checked_settings(path, given or {})
    if width is None:
        return settings
    return settings.model_copy(update={"search": settings.search.at_width(width)})


def checked_settings(source: object, given: Any) -> PipelineSettings:
    """The settings of a mapping from ``source``; raises ``BadInput`` as ``read_settings`` does."""
    try:
        return PipelineSettings.model_validate(given)
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, one['loc'])) or 'the file'}: {one['msg']}" for one in error.errors())
        raise BadInput(source, "; ".join(problems), _MEND) from error


def with_opencode(settings: PipelineSettings, endpoint: str | None, model: str | None) -> PipelineSettings:
    """The settings with the opencode teacher's endpoint and model, where they are given, in place of theirs."""
    given = {name: value for name, value in (("endpoint", endpoint), ("model", model)) if value is not None}
    return settings.model_copy(update={"opencode": settings.opencode.model_copy(update=given)})


def write_settings(settings: PipelineSettings, path: Path) -> None:
    """Write every setting, defaults too."""
    with text_file(path) as file:
        yaml.safe_dump(settings.model_dump(mode="json"), file, sort_keys=False)
