"""Stand-in for ``coral.grader``: the base class of a task's ``Grader``, with the helpers stock graders use.

Imports are kept few, and inside the helpers that need them: a grader is loaded anew for every eval.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from pathlib import Path
    from typing import Any

    from .types import ScoreBundle, Task


class TaskGrader:
    """Base of graders: they implement ``evaluate``; whoever runs them sets the attributes first."""

    codebase_path: str
    """Folder of the code to grade."""
    private_dir: str
    """Folder whose ``eval/`` holds the grader and its files."""

    def __init__(self, config: Any) -> None:
        """``config``: the task's ``grader`` section, with ``timeout`` (seconds, 0: none) and ``args``."""
        self.config = config
        self.tasks: list[Task] = []

    @property
    def args(self) -> dict[str, Any]:
        """The task's ``grader.args``."""
        args: dict[str, Any] = self.config.args
        return args

    @property
    def timeout(self) -> int | None:
        """The task's time limit in seconds; None: no limit."""
        return self.config.timeout or None

    @property
    def budget_class(self) -> str:
        """Always ``real``: evals of the pipeline are no tuning runs."""
        return "real"

    @property
    def tune(self) -> bool:
        """Always false, likewise."""
        return False

    @property
    def eval_logs_dir(self) -> Path:
        """A folder for logs; here it goes when the eval ends."""
        from pathlib import Path

        folder = Path(self.private_dir).parent / "public" / "eval_logs" / Path(self.codebase_path).name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def evaluate(self) -> float | ScoreBundle:
        """Grade ``codebase_path``: a number or a bundle."""
        raise NotImplementedError("a Grader must implement evaluate()")

    def get_python_command(self) -> list[str]:
        """The command that runs programs of the task: ``uv run`` where the code is a project, else this Python."""
        import shutil
        from pathlib import Path

        if (Path(self.codebase_path) / "pyproject.toml").exists() and shutil.which("uv"):
            return ["uv", "run", "--project", self.codebase_path, "python"]
        return [sys.executable]

    def run_program(self, filename: str, *cmd_args: str) -> subprocess.CompletedProcess[str]:
        """Run a file of the graded code there, within the time limit."""
        import subprocess
        from pathlib import Path

        program = Path(self.codebase_path) / filename
        if not program.exists():
            raise FileNotFoundError(f"{filename} not found in codebase")
        command = [*self.get_python_command(), str(program), *cmd_args]
        return subprocess.run(command, capture_output=True, text=True, cwd=self.codebase_path, timeout=self.timeout)

    def run_script(self, script: str, *, timeout: int = 300) -> subprocess.CompletedProcess[str]:
        """Run Python text."""
        import subprocess

        command = [*self.get_python_command(), "-c", script]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout)

    def run_script_json(self, script: str, *, timeout: int = 300) -> Any:
        """Run Python text that prints JSON: all of its output, or the last line that is a JSON object."""
        import json

        done = self.run_script(script, timeout=timeout)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip()[-2000:])
        output = done.stdout.strip()
        objects = [line.strip() for line in output.splitlines() if line.strip().startswith("{")]
        for text in [output, *reversed(objects)]:
            try:
                return json.loads(text)
            except json.JSONDecodeError:
                continue
        raise RuntimeError(f"no JSON in the script's output: {output[-500:]!r}; stderr: {done.stderr.strip()[-500:]}")

    def read_eval(self, relative_path: str) -> str:
        """Text of a file beside the grader."""
        path = self.read_eval_path(relative_path)
        if not path.exists():
            raise FileNotFoundError(f"Eval file not found: {relative_path}")
        return path.read_text()

    def read_eval_path(self, relative_path: str) -> Path:
        """Path of a file beside the grader."""
        from pathlib import Path

        return Path(self.private_dir) / "eval" / relative_path

    def score(
        self,
        value: float | None,
        explanation: str = "",
        feedback: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> ScoreBundle:
        """The result of a successful evaluation."""
        return self.bundle(value, explanation, feedback=feedback, metadata=metadata)

    def fail(self, explanation: str = "", feedback: str | None = None) -> ScoreBundle:
        """The result of a failed evaluation: no score."""
        return self.bundle(None, explanation, feedback=feedback)

    def bundle(
        self,
        value: float | None,
        explanation: str = "",
        feedback: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> ScoreBundle:
        """A result with one score, named ``eval``."""
        from .types import Score, ScoreBundle

        return ScoreBundle({"eval": Score(value, "eval", explanation or None)}, value, True, feedback, metadata)
