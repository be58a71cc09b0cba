"""The frozen states of one root's tree on disk: kept whole or not at all, shared by forks, reduced when done with.

``states/<name>/`` holds ``state.json`` (a ``State``), the layer ``files/`` and what an audit needs beside it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from coral_pipeline.disk_use import disk_bytes
from coral_pipeline.durable import sync
from coral_pipeline.teacher.file_trees import copy_state, flush
from coral_pipeline.teacher.opencode.forks import ForkMethod, View
from coral_pipeline.teacher.protocol import InfrastructureFault, TeacherError
from coral_pipeline.tree_copy import remove_tree

ROOT = "root"
"""Name of the state every tree begins with."""
STATE_FILE = "state.json"
FILES = "files"
PROMPT_FILE = "prompt.zst"
"""Beside a state's layer: the last prompt before it, as text, with which the first prompt of its forks begins."""


class State(BaseModel):
    """A frozen state. What it holds: ``coral/`` (a CORAL run without its private part) and ``session/``."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: str
    version: int = 1
    """Of this record's form."""
    layers: tuple[str, ...]
    """States whose files make it up, its own first."""
    agent_id: str
    """CORAL agent whose worktree the Teacher works in."""
    date: str
    """Today, as every prompt of the tree says: the day the root state was made."""
    session_id: str | None = None
    """OpenCode session; None: none yet."""
    last_message: str | None = None
    """Id of the session's last message; the next turn is what comes after it."""
    best_score: float | None = None
    """Best raw score of the agent so far, evals on the way here included; None: none."""
    commit_hash: str | None = None
    """Commit of the last graded eval; None: none since the root."""
    root_commit: str | None = None
    """``commit_hash`` of the root's snapshot; None: made by a version that gave the root state that as its commit."""
    bytes: int = 0
    """Disk space its own layer takes."""
    released: bool = False
    """It will never be forked again."""
    reduced: bool = False
    """Its layer is gone: no state that can still be forked needs it."""


class StateStore:
    """The states of one tree and the forks that are open. Used from several threads at once."""

    def __init__(self, folder: Path, method: ForkMethod, max_layers: int) -> None:
        """``folder``: of this tree alone. ``max_layers``: a longer stack is copied into one layer."""
        self.folder = folder.resolve()
        self.method = method
        self._max_layers = max_layers
        self._lock = threading.Lock()
        self._in_use: Counter[str] = Counter()

    def place(self, name: str) -> Path:
        """Folder of a state: its record, its layer, what an audit needs."""
        return self.folder / name

    def find(self, name: str) -> State | None:
        """The state's record; None where there is none. Raises ``TeacherError`` where it cannot be read."""
        path = self.place(name) / STATE_FILE
        try:
            return State.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (ValidationError, OSError) as error:
            raise TeacherError(f"{path}: cannot be read ({error}); explore this root again in a new folder") from error

    def get(self, name: str) -> State:
        """The state's record. Raises ``TeacherError`` where it is gone or reduced."""
        state = self.find(name)
        if state is None or state.reduced:
            problem = "is not there" if state is None else "has been released and reduced"
            raise TeacherError(f"{self.place(name)}: the state {problem}; explore this root again in a new folder")
        return state

    @contextmanager
    def fork(self, name: str, scratch: Path) -> Iterator[View]:
        """The state's files, to be changed in ``scratch``; see ``ForkMethod.open``."""
        state = self.get(name)
        with self._lock:
            self._in_use.update(state.layers)
        try:
            with self.method.open([self.place(layer) / FILES for layer in state.layers], scratch) as view:
                yield view
        finally:
            with self._lock:
                self._in_use.subtract(state.layers)
            self._reduce()

    def prepare(self, name: str, parent: State, view: View) -> Path:
        """A folder for what an audit of the new state ``name`` needs; ``commit`` makes the state count.

        Called while the fork is open: a stack that has grown too long is copied into one layer now.
        """
        place = self.place(f".{name}")
        remove_tree(place)
        place.mkdir()
        if self.method.stacks() and len(parent.layers) >= self._max_layers:
            try:
                copy_state(view.files, place / FILES)
            except OSError as error:
                raise InfrastructureFault(f"{place}: the state cannot be copied ({error})") from error
        return place

    def commit(self, state: State, parent: State, scratch: Path) -> State:
        """Keep what a closed fork changed, and what was put into the folder ``prepare`` gave, as a new state.

        On disk when this returns. Raises ``InfrastructureFault`` where the disk refuses.
        """
        place, target = self.place(f".{state.name}"), self.place(state.name)
        try:
            alone = (place / FILES).exists() or not self.method.stacks()
            if not (place / FILES).exists():
                self.method.changed(scratch).rename(place / FILES)
            state = state.model_copy(
                update={
                    "layers": (state.name,) if alone else (state.name, *parent.layers),
                    "bytes": disk_bytes(place / FILES),
                }
            )
            (place / STATE_FILE).write_text(state.model_dump_json(indent=1))
            flush(place)
            remove_tree(target)
            place.rename(target)
            sync(self.folder)
        except OSError as error:
            raise InfrastructureFault(f"{target}: the state cannot be kept ({error})") from error
        return state

    def discard(self, name: str) -> None:
        """Drop a state that an earlier, unfinished try left behind."""
        for place in (self.place(name), self.place(f".{name}")):
            remove_tree(place)

    def release(self, name: str) -> None:
        """The state will never be forked again; its layer goes as soon as no other state needs it."""
        state = self.find(name)
        if state is not None and not state.released:
            self._write(state.model_copy(update={"released": True}))
        self._reduce()

    def _reduce(self) -> None:
        with self._lock:
            states = [state for state in map(self.find, self._names()) if state is not None]
            needed = {layer for state in states if not state.released for layer in state.layers}
            needed |= {layer for layer, forks in self._in_use.items() if forks}
            for state in states:
                if state.released and state.name not in needed and (self.place(state.name) / FILES).exists():
                    self._write(state.model_copy(update={"reduced": True}))
                    remove_tree(self.place(state.name) / FILES)
                    (self.place(state.name) / PROMPT_FILE).unlink(missing_ok=True)

    def _names(self) -> list[str]:
        found = self.folder.iterdir() if self.folder.is_dir() else ()
        return sorted(path.name for path in found if not path.name.startswith("."))

    def _write(self, state: State) -> None:
        path = self.place(state.name) / STATE_FILE
        partial = path.with_suffix(".partial")
        partial.write_text(state.model_dump_json(indent=1))
        partial.replace(path)
