"""The file given with ``explore --settings``."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import ValidationError

from coral_pipeline.errors import BadInput
from coral_pipeline.settings import EmbeddedSettings, RetrySettings, SearchSettings, Settings, SimulationSettings

_MEND = "give a mapping like {search: {max_depth: 3}, retry: {attempts: 2}}"


class ExploreSettings(Settings):
    """Everything about a search that is not on the command line; what is left out has its default."""

    search: SearchSettings = SearchSettings()
    retry: RetrySettings = RetrySettings()
    simulation: SimulationSettings = SimulationSettings()
    embedded: EmbeddedSettings = EmbeddedSettings()


def read_settings(path: Path | None, width: int | None = None) -> ExploreSettings:
    """The settings of a YAML or JSON file, defaults without one; ``width`` goes before its ``parallel_width``.

    Raises ``BadInput`` naming the setting that cannot be used.
    """
    try:
        given = yaml.safe_load(path.read_bytes()) if path else {}
        settings = ExploreSettings.model_validate(given or {})
    except OSError as error:
        raise BadInput(path, f"cannot be read ({error.strerror})", _MEND) from error
    except yaml.YAMLError as error:
        raise BadInput(path, f"is not YAML ({' '.join(str(error).split())})", _MEND) from error
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, one['loc'])) or 'the file'}: {one['msg']}" for one in error.errors())
        raise BadInput(path, "; ".join(problems), _MEND) from error
    if width is None:
        return settings
    return settings.model_copy(update={"search": settings.search.model_copy(update={"parallel_width": width})})
