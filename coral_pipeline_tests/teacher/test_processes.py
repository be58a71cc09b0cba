"""Children are ended whole, and their output cannot flood us."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from coral_pipeline.teacher.processes import MARKER_VARIABLE, Finished, ProcessFamily, kill_marked
from coral_pipeline.teacher.protocol import InfrastructureFault, Stopped
from coral_pipeline_tests.teacher.living import living, until

ENV = {"PATH": os.environ["PATH"]}
LONG = 600
"""Seconds that no test waits."""


@pytest.fixture
def family(tmp_path: Path) -> Iterator[ProcessFamily]:
    with ProcessFamily(f"test-{tmp_path.name}-{os.getpid()}") as family:
        yield family


def run(
    family: ProcessFamily, command: str, timeout: float | None = LONG, limit: int = 1000, channel: int | None = None
) -> Finished:
    argv = ["/bin/sh", "-c", command, "sh"]
    return family.run(argv, cwd=Path("/"), env=ENV, timeout=timeout, output_limit=limit, channel_limit=channel)


def python(family: ProcessFamily, program: str, limit: int = 1000) -> Finished:
    command = [sys.executable, "-I", "-S", "-c", program]
    return family.run(command, cwd=Path("/"), env=ENV, timeout=LONG, output_limit=limit)


def leaving(place: Path, command: str = f"sleep {LONG}") -> str:
    """Shell text that starts the command in a session of its own and goes on when it is there."""
    sign = place / f"left-{len(list(place.iterdir()))}"
    return f"setsid sh -c 'touch {sign}; {command}' & while [ ! -e {sign} ]; do sleep 0.01; done"


def test_exit_code_and_output_of_both_streams(family: ProcessFamily) -> None:
    done = run(family, "echo out; echo err >&2; exit 3")
    assert (done.returncode, done.text, done.truncated, done.timed_out) == (3, "out\nerr\n", False, False)


def test_a_signal_shows_as_a_negative_exit_code(family: ProcessFamily) -> None:
    assert run(family, "kill -KILL $$").returncode == -signal.SIGKILL


def test_stdin_is_empty(family: ProcessFamily) -> None:
    assert run(family, "cat; echo end").text == "end\n"


def test_output_that_is_not_utf8_is_replaced(family: ProcessFamily) -> None:
    assert run(family, r"printf '\377'").text == "\N{REPLACEMENT CHARACTER}"


def test_100_megabytes_of_output_are_read_and_the_first_bytes_kept(family: ProcessFamily) -> None:
    done = python(family, "import sys\nfor _ in range(100): sys.stdout.write('x' * 10**6)\nsys.exit(5)", limit=10)
    assert (done.returncode, done.output, done.truncated) == (5, b"x" * 10, True)


@pytest.mark.parametrize(("size", "truncated"), [(9, False), (10, False), (11, True)])
def test_output_is_cut_beyond_the_limit(family: ProcessFamily, size: int, truncated: bool) -> None:
    done = run(family, f"printf %s {'y' * size}", limit=10)
    assert (done.output, done.truncated) == (b"y" * min(size, 10), truncated)


def test_the_channel_is_apart_from_the_output(family: ProcessFamily) -> None:
    done = run(family, "echo said; echo told >/dev/fd/$1", channel=3)
    assert (done.text, done.channel) == ("said\n", b"tol")


def test_the_time_limit_ends_the_whole_group(family: ProcessFamily) -> None:
    done = run(family, f"echo begun; sleep {LONG} & sleep {LONG}", timeout=2)
    assert (done.timed_out, done.returncode, done.text) == (True, -signal.SIGKILL, "begun\n")
    until(lambda: living(family.marker) == [], "what was killed is gone")


def test_what_a_child_leaves_in_its_group_ends_with_it(family: ProcessFamily) -> None:
    assert run(family, f"sleep {LONG} & echo gone").text == "gone\n", "nor is its hold on the output waited for"
    until(lambda: living(family.marker) == [], "what was killed is gone")


def test_a_descendant_that_left_the_group_ends_with_the_family(family: ProcessFamily, tmp_path: Path) -> None:
    assert run(family, leaving(tmp_path)).returncode == 0
    run(family, leaving(tmp_path, f"setsid sleep {LONG} & sleep {LONG}"))
    until(lambda: len(living(family.marker)) >= 4, "two shells and their sleeps outlive what started them")
    family.end()
    assert living(family.marker) == []


def test_a_descendant_that_keeps_writing_is_not_waited_for(family: ProcessFamily, tmp_path: Path) -> None:
    done = run(family, leaving(tmp_path, "while :; do echo flood; done"), limit=100)
    assert done.returncode == 0


def test_a_family_ends_its_own_processes_only(tmp_path: Path) -> None:
    marker = f"test-{tmp_path.name}-{os.getpid()}-0.1"
    with ProcessFamily(marker) as one, ProcessFamily(f"{marker}0") as ten:
        for family in (one, ten):
            run(family, leaving(tmp_path))
        one.end()
        assert living(f"{marker};") == []
        assert living(f"{marker}0;"), "although its marker begins with that of the first"
    assert living(marker) == []


def test_kill_marked_ends_every_family_that_begins_so(tmp_path: Path) -> None:
    prefix = f"test-{tmp_path.name}-{os.getpid()}-"
    for name in ("0", "1.0"):
        run(ProcessFamily(f"{prefix}{name}"), leaving(tmp_path))
        assert living(f"{prefix}{name};")
    kill_marked(prefix)
    assert living(prefix) == []


def test_stop_ends_a_running_child(tmp_path: Path) -> None:
    stop = threading.Event()
    with ProcessFamily(f"test-{tmp_path.name}-{os.getpid()}", stop) as family:
        begun = tmp_path / "begun"

        def stop_when_begun() -> None:
            until(begun.exists, "the child has begun, and one of its own has left it")
            stop.set()

        stopper = threading.Thread(target=stop_when_begun)
        stopper.start()
        with pytest.raises(Stopped):
            run(family, f"{leaving(tmp_path)}; touch {begun}; sleep {LONG}")
        stopper.join()
        with pytest.raises(Stopped):
            run(family, "echo not begun any more")
    assert living(family.marker) == []


def test_a_program_that_is_not_there_is_a_fault_of_the_machine(family: ProcessFamily) -> None:
    with pytest.raises(InfrastructureFault, match="no-such-program"):
        family.run(["no-such-program"], cwd=Path("/"), env=ENV, timeout=LONG, output_limit=0)


def test_no_descriptors_left_is_a_fault_of_the_machine(family: ProcessFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(pid: int) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", none_left)
    with pytest.raises(InfrastructureFault, match="Too many open files"):
        run(family, f"sleep {LONG}")
    monkeypatch.undo()
    assert living(family.marker) == [], "a child that cannot be watched is ended"


def test_descriptors_are_closed_whatever_happens(family: ProcessFamily) -> None:
    before = psutil.Process().num_fds()
    run(family, "echo", channel=10)
    run(family, f"sleep {LONG}", timeout=0.1)
    with pytest.raises(InfrastructureFault):
        family.run(["no-such-program"], cwd=Path("/"), env=ENV, timeout=LONG, output_limit=0, channel_limit=10)
    assert psutil.Process().num_fds() == before


def test_the_marker_is_in_the_environment_of_descendants(family: ProcessFamily) -> None:
    assert family.marker in run(family, f"sh -c 'echo ${MARKER_VARIABLE}'").text


def test_many_children_at_once_from_many_threads(family: ProcessFamily) -> None:
    outputs: dict[int, str] = {}

    def one(number: int) -> None:
        outputs[number] = run(family, f"echo {number}").text

    threads = [threading.Thread(target=one, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outputs == {number: f"{number}\n" for number in range(16)}
