"""The real Teacher at work in tests: real OpenCode, sandboxes and forks, a scripted model."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from coral_pipeline.settings import EndpointSettings, OpenCodeSettings, SandboxSettings
from coral_pipeline.teacher.opencode.packed import unpacked
from coral_pipeline.teacher.opencode.records import CALLS_FILE
from coral_pipeline.teacher.opencode.states import StateStore
from coral_pipeline.teacher.opencode.teacher import OpenCodeTeacher
from coral_pipeline.teacher.processes import MARKER_VARIABLE
from coral_pipeline.teacher.protocol import EdgeRequest, Turn
from coral_pipeline_tests.opencode import opencode_program
from coral_pipeline_tests.teacher.opencode.model_server import Answer, ModelServer, Policy, Say, bash, turn_of
from coral_pipeline_tests.teacher.opencode.roots import make_root

KEY = "sk-test-key"
IMPATIENT = EndpointSettings(patience_seconds=0, retry_seconds=0.05, stall_seconds=5, first_byte_seconds=20)


def submit(value: float, also: str = "") -> Say:
    """The model sets X, writes down what it did, and submits."""
    note = f"printf -- '---\\ncreator: agent-1\\n---\\n# X={value}\\n' > .opencode/notes/x-{value}.md"
    return Say(
        f"set {value}", calls=(bash(f"{also} echo 'X = {value}' > answer.py; {note}; coral eval -m 'X={value}'"),)
    )


def climbing() -> Policy:
    """A model that looks around, then submits a value that no other turn submits; each turn a little more."""
    lock = threading.Lock()
    values = iter(range(2, 10_000))

    def policy(request: dict[str, Any]) -> Answer:
        _, step = turn_of(request)
        if step == 0:
            return Say("look around", calls=(bash("coral log; cat .opencode/notes/*.md; cat answer.py"),))
        if step == 1:
            with lock:
                return submit(float(next(values)))
        return Say("done")

    return policy


@dataclass
class Lab:
    """A Teacher of a small root, and the model it works with."""

    folder: Path
    server: ModelServer
    settings: OpenCodeSettings
    teacher: OpenCodeTeacher
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def work(self) -> Path:
        """The Teacher's own folder."""
        return self.folder / "tree" / "teacher"

    @property
    def store(self) -> StateStore:
        """The tree's states."""
        return self.teacher._grounds.store

    def turns(self, expansion: int, state: str | None = None, path: tuple[int, ...] = (), turns: int = 1) -> list[Turn]:
        """Run the first turns of an edge."""
        edge = EdgeRequest(root="root", path=path, expansion=expansion)
        with self.teacher.fork(edge, state, self.stop) as fork:
            return [fork.run_turn(number) for number in range(1, turns + 1)]

    def at_once(self, *runs: Callable[[], list[Turn]]) -> list[list[Turn]]:
        """Run edges side by side."""
        with ThreadPoolExecutor(len(runs)) as pool:
            return list(pool.map(lambda run: run(), runs))

    def calls(self, state: str | None) -> list[dict[str, Any]]:
        """The model calls of the turn that ended in a state."""
        assert state is not None
        return read_calls(self.store.place(state) / CALLS_FILE)

    def result(self, turn: Turn) -> str:
        """All that the tools said in a turn."""
        return "\n".join(
            part.text or "" for message in turn.messages for part in message.content if message.role == "tool"
        )

    def leftovers(self) -> list[str]:
        """Processes, mounts, sockets and scratch folders that are still there."""
        mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(self.folder) in line]
        scratch = [str(path) for path in (self.work / "forks").glob("*")]
        return mounts + scratch + processes_of(str(self.folder))


def processes_of(text: str) -> list[str]:
    """Command lines of processes, other than this one, that name ``text`` or carry a family's marker with it."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if text in command:
            found.append(command)
    return found


def require_coral(whose: str) -> None:
    """Skip the test where it needs an installed CORAL and there is none: it is no package that can be asked for."""
    if whose == "installed" and shutil.which("coral") is None:
        pytest.skip("CORAL is not installed beside the project")


@contextmanager
def lab(folder: Path, policy: Policy, **changes: Any) -> Iterator[Lab]:
    """A Lab under ``folder``; ``changes`` are settings of the Teacher."""
    root, task = make_root(folder)
    with ModelServer(policy) as server:
        given = {
            "endpoint": server.url,
            "model": "scripted",
            "opencode_command": str(opencode_program()),
            "recording": IMPATIENT,
            "grading_grace_seconds": 1.0,
            "settle_seconds": 10.0,
            "start_seconds": 240.0,
            "coral": "built-in",
            "min_free_bytes": 0,
        }
        settings = OpenCodeSettings.model_validate({**given, **changes})
        teacher = OpenCodeTeacher.open(root, task, folder / "tree" / "teacher", settings, KEY)
        yield Lab(folder, server, settings, teacher)


def read_calls(path: Path) -> list[dict[str, Any]]:
    """The model calls kept in a file."""
    return [json.loads(line) for line in unpacked(path).splitlines()]


def files_with(text: bytes, folder: Path) -> list[Path]:
    """Files under a folder that hold the text, be they compressed."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if text in (unpacked(path) if path.suffix == ".zst" else path.read_bytes())]


UNISOLATED = SandboxSettings(isolation="none")
MARKER = MARKER_VARIABLE
