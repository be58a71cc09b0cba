"""What the agents are told: templates with ``$name`` placeholders, each replaceable by the user's own."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from string import Template

from coral_pipeline.errors import BadInput
from coral_pipeline.settings import OpenCodeSettings
from coral_pipeline.teacher.grading.task import TaskConfig

_FOLDER = Path(__file__).parent
_HINTS = {"maximize": "Higher is better.", "minimize": "Lower is better."}


@dataclass(frozen=True)
class Prompts:
    """The texts of one task, placeholders filled in."""

    instructions: str
    """AGENTS.md: part of the system prompt."""
    first: str
    """Prompt of an edge's first turn."""
    second: str
    """Prompt of an edge's second turn."""

    def of_turn(self, turn: int) -> str:
        """The prompt of Rollout Turn 1 or 2."""
        return self.first if turn == 1 else self.second

    @property
    def fingerprint(self) -> str:
        """Equal for equal texts."""
        return hashlib.sha256("\0".join((self.instructions, self.first, self.second)).encode()).hexdigest()


def prompts_for(task: TaskConfig, agent_id: str, settings: OpenCodeSettings) -> Prompts:
    """The prompts of a task. Raises ``BadInput`` where a template cannot be read or filled in."""
    values = {
        "task_name": task.task.name,
        "task_description": task.task.description.strip(),
        "direction": task.grader.direction,
        "direction_hint": _HINTS[task.grader.direction],
        "agent_id": agent_id,
    }
    return Prompts(
        instructions=_filled(settings.instructions or _FOLDER / "agents.md", values),
        first=_filled(settings.first_prompt or _FOLDER / "first.md", values),
        second=_filled(settings.second_prompt or _FOLDER / "second.md", values),
    )


def _filled(template: Path, values: dict[str, str]) -> str:
    try:
        return Template(template.read_text(encoding="utf-8")).substitute(values)
    except OSError as error:
        raise BadInput(template, f"cannot be read ({error.strerror})", "name a readable template") from error
    except UnicodeDecodeError as error:
        raise BadInput(template, "is no UTF-8 text", "save it as UTF-8") from error
    except (KeyError, ValueError) as error:
        known = ", ".join(f"${name}" for name in values)
        raise BadInput(template, f"has a placeholder that cannot be filled ({error})", f"known are {known}") from error
