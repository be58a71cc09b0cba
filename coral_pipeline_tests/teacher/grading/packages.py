"""A grader that is a package, installed into an environment of its own."""

from __future__ import annotations

import venv
from pathlib import Path

SCORING = '''
from pathlib import Path

from coral.grader import TaskGrader


class Scoring(TaskGrader):
    """The score is X of answer.py; says which private case it looked at, and where."""

    def evaluate(self):
        names = {}
        exec((Path(self.codebase_path) / "answer.py").read_text(), names)
        case = Path(self.private_dir) / "hard" / "case.txt"
        return self.score(float(names["X"]), f"graded on the {case.read_text()} in {case.parent.resolve()}")
'''


def packaged_grader(folder: Path) -> Path:
    """An environment with the package ``answer_grader`` in ``folder``; its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    [packages] = folder.glob("lib/*/site-packages")
    (packages / "answer_grader").mkdir()
    (packages / "answer_grader" / "__init__.py").write_text("")
    (packages / "answer_grader" / "scoring.py").write_text(SCORING)
    return folder / "bin" / "python"
