"""Searches that tests interrupt from outside, in processes of their own."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from coral_pipeline.cli import main
from coral_pipeline.teacher.protocol import EdgeRequest, Fork, Stopped, Turn
from coral_pipeline.teacher.registry import TEACHERS
from coral_pipeline_tests.search.growing import AnswerTeacher
from coral_pipeline_tests.search.on_disk import explore, talkative


@dataclass
class UnhurriedTeacher(AnswerTeacher):
    """Notes in a file what it begins, and takes some milliseconds for it."""

    log: Path = Path()

    def run(self, edge: EdgeRequest, number: int) -> Turn:
        with self.log.open("a") as log:
            log.write(f"{edge.name} {number}\n")
        time.sleep(random.random() / 50)
        return super().run(edge, number)


def nursery() -> None:
    """Fork a process that explores for every line on stdin; print its process id, and when it has ended how.

    A fork costs milliseconds where a new interpreter costs a second, so many can be killed in a test.
    """
    for line in sys.stdin:
        folder, log, settings = json.loads(line)
        if not (child := os.fork()):
            explore(Path(folder), UnhurriedTeacher(talkative, log=Path(log)), **settings)
            os._exit(0)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


class StubbornTeacher(AnswerTeacher):
    """Below the root a turn is a process that does not end by itself, unless ``STUBBORN`` is unset."""

    @contextmanager
    def fork(self, edge: EdgeRequest, state: str | None, stop: threading.Event) -> Iterator[Fork]:
        with super().fork(edge, state, stop) as fork:
            yield _StubbornFork(fork, stop) if edge.path and "STUBBORN" in os.environ else fork


@dataclass
class _StubbornFork:
    fork: Fork
    stop: threading.Event

    def run_turn(self, turn: int) -> Turn:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        with Path(os.environ["STUBBORN"]).open("a") as log:
            log.write(f"{child.pid}\n")
        self.stop.wait()
        child.kill()
        child.wait()
        raise Stopped("ended my child")


if __name__ == "__main__":
    if sys.argv[1:] == ["nursery"]:
        sys.exit(nursery())
    TEACHERS["stubborn"] = lambda request: StubbornTeacher(talkative)
    main()
