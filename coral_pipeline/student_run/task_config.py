"""CORAL's configuration of a run, made into the Student run's ``task.yaml``.

Kept is what says what the task is, how it is graded and who worked on it. Left behind is what ties the file to
the machine or the person that ran it: paths and secrets.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

import yaml

from coral_pipeline.yaml_text import parse_yaml

SECTIONS = ("task", "grader", "sharing")
"""Sections kept whole."""
AGENT_SETTINGS = ("count", "runtime", "model", "assignments", "max_turns", "timeout", "heartbeat", "research")
"""Settings kept of ``agents``; the gateway and the runtimes' own options, which hold keys, are not."""
ASSIGNMENT_SETTINGS = ("count", "runtime", "model")
MOST_VALUES = 100_000
"""Values of a configuration; YAML aliases can stand for more than memory holds."""

_SECRET_NAME = r"(?:api[_-]?key|access[_-]?key|private[_-]?key|secret|password|passwd|token|credential)s?"
_SECRET_KEY = re.compile(rf"(?:.*[_-])?{_SECRET_NAME}", re.IGNORECASE)
_SECRET_ASSIGNMENT = re.compile(rf"(\b\w*{_SECRET_NAME})=(\S+)", re.IGNORECASE)
_URL_USER = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s@]+@", re.IGNORECASE)
_HOME = re.compile(r"(?<![\w.])/(?:home|Users)/[^/\s'\"]+|(?<![\w.])/root(?=/)")
_WHOLE_PATH = re.compile(r"(?:/|~|[A-Za-z]:[\\/])\S*")


def student_task(config: bytes) -> str:
    """The ``task.yaml`` of a run with this configuration. Raises ``ValueError`` where it is no mapping in YAML."""
    try:
        value = parse_yaml(config)
        if not isinstance(value, dict):
            raise ValueError("it is not a mapping")
        task = {name: value[name] for name in SECTIONS if name in value}
        task["agents"] = _agents(value.get("agents"))
        cleaned = _Cleaner(_machine_folders(value.get("workspace"))).clean(task)
    except RecursionError as error:
        raise ValueError("it holds itself, or is too deep") from error
    return str(yaml.safe_dump(cleaned, sort_keys=False, allow_unicode=True, width=100))


def private_names(task: str) -> list[str]:
    """Names of what only the task's grader may see (``grader.private``), as they lie in CORAL's ``.coral/private``.

    Each once: of several paths that end in one name CORAL keeps the last.
    """
    grader = parse_yaml(task).get("grader")
    private = grader.get("private") if isinstance(grader, dict) else None
    paths = [path for path in private if isinstance(path, str)] if isinstance(private, list) else []
    return [name for name in dict.fromkeys(PurePosixPath(path).name for path in paths) if name not in ("", "..")]


def _agents(agents: Any) -> dict[str, Any]:
    if not isinstance(agents, dict):
        return {}
    kept = {name: agents[name] for name in AGENT_SETTINGS if name in agents}
    if isinstance(assignments := kept.get("assignments"), list):
        kept["assignments"] = [
            {name: a[name] for name in ASSIGNMENT_SETTINGS if name in a} for a in assignments if isinstance(a, dict)
        ]
    return kept


def _machine_folders(workspace: Any) -> re.Pattern[str]:
    """Matches the folders that the configuration places the run in, up to what follows inside them."""
    values = workspace.values() if isinstance(workspace, dict) else ()
    folders = {v.rstrip("/") for v in values if isinstance(v, str) and v.startswith("/") and v.count("/") > 1}
    longest_first = sorted(folders, key=lambda folder: (-len(folder), folder))
    names = "|".join(re.escape(folder) for folder in longest_first)
    return re.compile(rf"(?:{names})(?:/(?=\S)|(?![\w-]))" if names else r"(?!)")


class _Cleaner:
    """Copies a configuration without the secrets and the paths of the machine."""

    def __init__(self, machine_folders: re.Pattern[str]) -> None:
        self._machine_folders = machine_folders
        self._values = 0

    def clean(self, value: Any) -> Any:
        self._values += 1
        if self._values > MOST_VALUES:
            raise ValueError(f"it holds more than {MOST_VALUES} values")
        if isinstance(value, dict):
            return {key: "" if _is_secret(key, item) else self.clean(item) for key, item in value.items()}
        if isinstance(value, (list, tuple, set)):
            return [self.clean(item) for item in value]
        return self._clean_text(value) if isinstance(value, str) else value

    def _clean_text(self, text: str) -> str:
        text = _SECRET_ASSIGNMENT.sub(lambda found: found[0] if _is_count(*found.groups()) else f"{found[1]}=", text)
        text = _URL_USER.sub(r"\1", text)
        text = self._machine_folders.sub("", text)
        text = _HOME.sub("~", text)
        return PurePosixPath(text.replace("\\", "/")).name if _WHOLE_PATH.fullmatch(text) else text


def _is_secret(key: Any, value: Any) -> bool:
    if not isinstance(key, str) or value is None or isinstance(value, bool):
        return False
    return _SECRET_KEY.fullmatch(key) is not None and not _is_count(key, value)


def _is_count(key: str, value: Any) -> bool:
    """As in ``max_tokens: 5``."""
    return key.lower().endswith("tokens") and str(value).isdecimal()
