"""The task of a CORAL run: what to improve, which way, and where its grader is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from coral_pipeline.errors import BadInput
from coral_pipeline.settings import Direction
from coral_pipeline.student_run.layout import GRADER_FOLDER, PRIVATE_FOLDER
from coral_pipeline.teacher.grading.package import GraderPackage, find_package
from coral_pipeline.yaml_text import parse_yaml

GRADER_PLACES = (GRADER_FOLDER, "eval")
"""Where a grader may lie in a task's folder; the first is how a Student run keeps it, the second CORAL's own."""
GRADER_FILE = "grader.py"
EVAL = "eval"
"""Name, in CORAL's ``.coral/private``, of the folder with the grader."""
_PIECE_BYTES = 1 << 20


class _Section(BaseModel):
    """As much of CORAL's configuration as is used; the rest is left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        """What is left empty has its default."""
        return {key: value for key, value in given.items() if value is not None} if isinstance(given, dict) else given


class TaskSection(_Section):
    """``task`` of the configuration."""

    name: str = "task"
    description: str = ""


class GraderSection(_Section):
    """``grader`` of the configuration."""

    direction: Direction = "maximize"
    timeout: int = Field(default=0, ge=0)
    """Seconds an eval may take; 0: CORAL sets no limit."""
    args: dict[str, Any] = {}
    private: tuple[str, ...] = ()
    """Files and folders that the grader alone may see, relative to the configuration's folder."""
    entrypoint: str = ""
    """``package.module:Class``; empty: the grader is ``eval/grader.py``."""


class TaskConfig(_Section):
    """A CORAL task configuration."""

    task: TaskSection = TaskSection()
    grader: GraderSection = GraderSection()


class Task:
    """A task's configuration, its grader, and what the grader alone may see."""

    def __init__(
        self, config: TaskConfig, private: Mapping[str, Path], package: GraderPackage | None, fingerprint: str
    ) -> None:
        """``fingerprint``: hash of the configuration file, of the grader, and of every file it alone may see."""
        self.config = config
        self.private = private
        """Files and folders by their names in CORAL's ``.coral/private``; ``eval`` is that of ``grader.py``."""
        self.package = package
        """The grader where it is an installed package; None: it is ``eval/grader.py``."""
        self.fingerprint = fingerprint

    def directed(self, direction: Direction) -> Task:
        """The same task with scores better in this direction."""
        grader = self.config.grader.model_copy(update={"direction": direction})
        config = self.config.model_copy(update={"grader": grader})
        return Task(config, self.private, self.package, self.fingerprint)

    @property
    def hidden(self) -> list[Path]:
        """What agents must not be able to read."""
        return [*self.private.values(), *([] if self.package is None else [self.package.source])]

    @classmethod
    def read(cls, folder: Path, python: Path | None = None, setting: str = "grader_python") -> Task:
        """The task in ``folder``: ``task.yaml``, ``grader/`` or the package of ``grader.entrypoint``, ``private/``.

        ``python``, named by ``setting``: of the environment that has that package; None: the one that runs this.
        Raises ``BadInput`` where something is missing or malformed.
        """
        file = folder / "task.yaml"
        if not file.is_file():
            raise BadInput(folder, "holds no task.yaml", "name the folder with the task's configuration and grader")
        try:
            config = TaskConfig.model_validate(parse_yaml(file.read_bytes()) or {})
        except ValueError as error:
            problem = " ".join(str(error).split())
            raise BadInput(file, f"is no CORAL task configuration ({problem})", "mend the file") from error
        private = {Path(path).name: _private(folder, path) for path in config.grader.private}
        entrypoint = config.grader.entrypoint
        package = find_package(entrypoint, python, setting) if entrypoint else None
        grader_dir = next((folder / place for place in GRADER_PLACES if (folder / place / GRADER_FILE).is_file()), None)
        grader_dir = grader_dir or next((folder / place for place in GRADER_PLACES if (folder / place).is_dir()), None)
        if package is None and (grader_dir is None or not (grader_dir / GRADER_FILE).is_file()):
            places = " or ".join(f"{place}/{GRADER_FILE}" for place in GRADER_PLACES)
            raise BadInput(
                folder, f"holds no grader ({places})", "put the task's grader there, or name its package in task.yaml"
            )
        if grader_dir is not None:
            private[EVAL] = grader_dir.resolve()
        return cls(config, private, package, _fingerprint(file, private, package))


def _private(folder: Path, path: str) -> Path:
    """Where a file or folder of ``grader.private`` is: in ``private/``, or as CORAL itself finds it."""
    for place in (folder / PRIVATE_FOLDER / Path(path).name, folder / path):
        if place.exists():
            return place.resolve()
    raise BadInput(
        folder / PRIVATE_FOLDER / Path(path).name, "is in grader.private of task.yaml, but not there", "put it there"
    )


def _fingerprint(config: Path, private: Mapping[str, Path], package: GraderPackage | None) -> str:
    digest = hashlib.sha256()
    sources = {"": config, **private, **({} if package is None else {package.entrypoint: package.source})}
    for name, source in sorted(sources.items()):
        for path in sorted(source.rglob("*")) if source.is_dir() else [source]:
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{name}\0{path.relative_to(source).as_posix()}\0{path.stat().st_size}\0".encode())
                with path.open("rb") as content:
                    while piece := content.read(_PIECE_BYTES):
                        digest.update(piece)
    return digest.hexdigest()
