"""The task of a CORAL run: what to improve, which way, and where its grader is."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from coral_pipeline.errors import BadInput
from coral_pipeline.settings import Direction

GRADER_PLACES = ("grader/grader.py", "eval/grader.py")
"""Where a grader may lie in a task's folder; the first is how a Student run keeps it, the second CORAL's own."""


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


class TaskConfig(_Section):
    """A CORAL task configuration."""

    task: TaskSection = TaskSection()
    grader: GraderSection = GraderSection()


class Task:
    """A task's configuration and its grader's folder."""

    def __init__(self, config: TaskConfig, grader_dir: Path, fingerprint: str) -> None:
        """``fingerprint``: hash of the configuration file and of every file beside the grader."""
        self.config = config
        self.grader_dir = grader_dir
        self.fingerprint = fingerprint

    def directed(self, direction: Direction) -> Task:
        """The same task with scores better in this direction."""
        grader = self.config.grader.model_copy(update={"direction": direction})
        return Task(self.config.model_copy(update={"grader": grader}), self.grader_dir, self.fingerprint)

    @classmethod
    def read(cls, folder: Path) -> Task:
        """The task in ``folder`` (``task.yaml``, ``grader/grader.py``).

        Raises ``BadInput`` where something is missing or malformed.
        """
        file = folder / "task.yaml"
        if not file.is_file():
            raise BadInput(folder, "holds no task.yaml", "name the folder with the task's configuration and grader")
        try:
            config = TaskConfig.model_validate(yaml.safe_load(file.read_bytes()) or {})
        except (yaml.YAMLError, ValidationError, UnicodeDecodeError) as error:
            problem = " ".join(str(error).split())
            raise BadInput(file, f"is no CORAL task configuration ({problem})", "mend the file") from error
        for place in GRADER_PLACES:
            if (folder / place).is_file():
                grader_dir = (folder / place).parent.resolve()
                return cls(config, grader_dir, _fingerprint(file, grader_dir))
        raise BadInput(
            folder,
            f"holds no grader ({' or '.join(GRADER_PLACES)})",
            "put the task's grader there; graders installed from a package (grader.entrypoint) are not run here",
        )


def _fingerprint(config: Path, grader_dir: Path) -> str:
    digest = hashlib.sha256()
    files = [path for path in sorted(grader_dir.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    for path in [config, *files]:
        name = path.name if path == config else path.relative_to(grader_dir).as_posix()
        content = path.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()
