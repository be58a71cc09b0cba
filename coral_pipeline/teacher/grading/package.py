"""A grader that is an installed package: ``grader.entrypoint`` of CORAL's configuration."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from coral_pipeline.errors import BadInput

_FIND = """
import importlib.util, json, sys
found = importlib.util.find_spec(sys.argv[1])
if found is None or found.origin is None:
    sys.exit(1)
print(json.dumps([found.origin, sys.prefix, sys.base_prefix, *sys.path]))
"""
_SECONDS = 60


@dataclass(frozen=True)
class GraderPackage:
    """Where the package is and what runs it."""

    entrypoint: str
    """``package.module:Class``."""
    python: Path
    """Of the environment in which it is installed."""
    source: Path
    """Its top folder, or its file where it is a single one."""
    folders: tuple[Path, ...]
    """What of the machine it needs to see, the system's own folders apart."""


def find_package(entrypoint: str, python: Path | None, setting: str) -> GraderPackage:
    """The package of an entry point in the environment of ``python`` (None: the one that runs this).

    ``setting``: where another Python is named. Raises ``BadInput`` where the package is not installed there.
    """
    module, _, name = entrypoint.partition(":")
    if not (module.replace(".", "").isidentifier() and name.isidentifier()):
        raise BadInput(f"grader.entrypoint {entrypoint!r}", "is not of the form package.module:Class", "mend task.yaml")
    interpreter = python or Path(sys.executable)
    # -I: a folder of that name where this happens to run is not the package
    command = [str(interpreter), "-I", "-c", _FIND, module]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadInput(interpreter, f"cannot be run ({error})", f"name another Python in {setting}") from error
    if done.returncode:
        raise BadInput(
            f"grader.entrypoint {entrypoint!r}",
            f"is not installed for {interpreter}",
            f"install the grader's package (grader.setup in task.yaml says how) into an environment of its own "
            f"and name that environment's Python in {setting}",
        )
    origin, *places = (Path(place) for place in json.loads(done.stdout))
    levels = module.count(".") + (origin.name == "__init__.py")
    source = origin.parents[levels - 1] if levels else origin
    seen = [place for place in dict.fromkeys([*places, source]) if place.exists() and not place.is_relative_to("/usr")]
    return GraderPackage(entrypoint, interpreter, source, tuple(seen))
