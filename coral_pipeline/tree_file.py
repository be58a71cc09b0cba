"""``tree.json``, written last into a tree's folder: its presence says that the tree is finished."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from coral_pipeline.errors import BadInput
from coral_pipeline.settings import Direction

TREE_FILE = "tree.json"
REMAKE = "explore the root again, or point at the folder explore wrote"


class _Part(BaseModel):
    model_config = ConfigDict(strict=True)


class _Counts(_Part):
    rounds: int
    nodes: int
    edges: int
    valid_edges: int
    failed_edges: int
    kept_edges: int
    improved_edges: int
    turns: int
    messages: int
    good_leaves: int
    leaves: dict[str, int]
    tokens: int


class _Configuration(_Part):
    search: dict[str, Any] = {}
    teacher: dict[str, Any] = {}


class _Tool(_Part):
    """A function definition as ``verifiers`` takes it, by itself or within ``function``."""

    type: str = "function"
    name: str
    namespace: str | None = None
    description: str = ""
    parameters: dict[str, Any] = {}
    strict: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _within(cls, tool: Any) -> Any:
        return tool.get("function", tool) if isinstance(tool, dict) else tool


class _Info(_Part):
    """What the stages after the search read of it, where it is there; more may be in it."""

    root: str
    direction: Direction
    student_run: str | None = None
    stage: str | None = None
    stop_reason: str | None = None
    counts: _Counts | None = None
    configuration: _Configuration = _Configuration()
    versions: dict[str, Any] = {}
    tools: list[_Tool] | None = None


def read_tree_info(folder: Path, *needed: str) -> dict[str, Any]:
    """``tree.json`` in ``folder``. ``root`` and ``direction`` are in it, whatever else is is of the type it should be.

    ``needed``: what has to be in it too. Raises ``BadInput`` where anything of this does not hold, or the file is
    missing: the tree is not finished.
    """
    path = folder / TREE_FILE
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise BadInput(path, "no such file, so this is not a finished tree", REMAKE) from error
    try:
        _Info.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise BadInput(path, f"{place}: {first['msg']}" if place else first["msg"], REMAKE) from error
    info: dict[str, Any] = json.loads(text)
    for name in needed:
        if info.get(name) is None:
            raise BadInput(path, f"{name}: is missing", REMAKE)
    return info
