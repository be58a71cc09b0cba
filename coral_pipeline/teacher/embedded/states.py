"""States on disk: one folder each, whole or not there, never changed once it is there.

``<workdir>/states/<name>/`` holds ``code/`` (a git repository), ``shared/`` (attempts, notes, roles, skills …)
and ``session.json``. A turn works in a copy, ``<workdir>/work/<name>/``, which takes its place among the states,
by a rename, when the turn is over. What lies in ``work/`` is a turn that was never finished. A state
survives the death of the process; it is not forced to disk, so it may not survive that of the machine.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from coral_pipeline.errors import BadInput
from coral_pipeline.teacher.embedded.moves import Move
from coral_pipeline.teacher.protocol import TeacherError
from coral_pipeline.tree_copy import copy_tree, remove_tree

PARTS = ("code", "shared")
"""What a snapshot and a state hold."""
ROOT = "root"
"""Name of the root's state."""
KNOWLEDGE = ("attempts", "notes", "roles", "skills")
"""Folders of the shared knowledge; as in CORAL they are linked into the code under ``.opencode``."""
LINKS = ".opencode"


class LastMove(BaseModel):
    """The session's latest change and what came of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    move: Move
    base: str
    """Commit it was made on."""
    improved: bool
    settled: bool
    """Its opposite is known not to help: that was tried, or is where the change came from."""


class Session(BaseModel):
    """What the agent remembers from turn to turn."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = 1
    root_commit: str
    """``commit_hash`` of the root's snapshot."""
    best_commit: str
    """Best code of this session, the root's included."""
    best_score: float | None
    moment: int
    """Unix time of the last commit, by the session's own clock: a minute per eval from the root's attempt on."""
    context_bytes: int = 0
    """UTF-8 bytes of the session's messages."""
    calls: int = 0
    """Tool calls so far."""
    step: float | None = None
    """Step for changes of numbers; None: none has been made."""
    last: LastMove | None = None
    tried: tuple[str, ...] = ()
    """Digests of the programs tried in this session."""

    @classmethod
    def read(cls, state: Path) -> Session:
        """The session of a state."""
        file = state / "session.json"
        try:
            return cls.model_validate_json(file.read_bytes())
        except FileNotFoundError:
            raise TeacherError(f"{state}: the state is gone; explore this root anew") from None
        except ValidationError as error:
            raise BadInput(file, "is no session of this version", "explore this root anew") from error

    def write(self, state: Path) -> None:
        """Write it into a state."""
        (state / "session.json").write_text(self.model_dump_json(indent=1))


class States:
    """The states of one root's tree."""

    def __init__(self, workdir: Path) -> None:
        """``workdir`` belongs to this tree alone."""
        self._states = workdir / "states"
        self._work = workdir / "work"

    def path(self, name: str) -> Path:
        """Where the state is, or would be."""
        return self._states / name

    def begin(self, name: str) -> Path:
        """An empty working folder for the state to come; what an earlier try made of it is gone."""
        self.discard(name)
        folder = self._work / name
        folder.mkdir(parents=True)
        return folder

    def copy(self, state: str, folder: Path) -> None:
        """Copy a state's code and shared knowledge into a working folder."""
        source = self.path(state)
        if not source.is_dir():
            raise TeacherError(f"{source}: the state is gone; explore this root anew")
        copy_tree(source, folder / "fork")

    def finish(self, name: str, folder: Path) -> None:
        """The fork in the working folder becomes the state, and the working folder goes."""
        self._states.mkdir(parents=True, exist_ok=True)
        (folder / "fork").rename(self.path(name))
        remove_tree(folder)

    def discard(self, name: str) -> None:
        """Delete the state and what was begun of it, where there is any."""
        remove_tree(self._work / name)
        remove_tree(self.path(name))


def prepare_root(snapshot: Path, fork: Path) -> None:
    """Lay out a root's state: its code, without a repository of its own, and its shared knowledge."""
    fork.mkdir()
    for name in PARTS:
        copy_tree(snapshot / name, fork / name)
    git = fork / "code" / ".git"  # the Student's: a link to a repository that is not here
    git.unlink() if git.is_file() else remove_tree(git)
    links = fork / "code" / LINKS
    links.mkdir(exist_ok=True)
    for name in KNOWLEDGE:
        (fork / "shared" / name).mkdir(exist_ok=True)
        if not (links / name).exists():
            (links / name).symlink_to(f"../../shared/{name}", target_is_directory=True)
