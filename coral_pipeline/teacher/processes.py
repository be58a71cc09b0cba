"""Child processes that can be ended whole, and whose output cannot flood us.

A ``ProcessFamily`` runs programs nobody vouches for. Each child gets its own session, hence its own
process group, which is killed when the child ends, runs out of time, or is told to stop. Children that
leave the group (``setsid``, daemons) are found by a marker in their environment, which descendants inherit.

What is guaranteed: after ``end`` no process of the family runs, unless it was executed with an environment
from which the marker had been removed *and* had left its process group. Nothing short of a PID namespace
or a cgroup catches that one. The marker is chosen by the caller, so that ``kill_marked`` can end what a family
left behind whose owner was killed with SIGKILL. Linux only (``/proc``, pidfd).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from coral_pipeline.teacher.pipes import Pipes
from coral_pipeline.teacher.protocol import InfrastructureFault, Stopped

MARKER_VARIABLE = "CORAL_PIPELINE_FAMILY"
"""Environment variable that carries the marker of a family."""

_MARKER_END = ";"
"""Ends a marker in the environment, so that none is the beginning of another."""
_PROC = Path("/proc")
_READ_BYTES = 1 << 16
_POLL_SECONDS = 0.05
"""How often the stop event and the clock are looked at while a child is silent."""
_END_SECONDS = 10.0
"""How long the killed may take to be gone before that is reported as a fault of the machine."""


@dataclass(frozen=True)
class Finished:
    """How a child ended, and what it said."""

    returncode: int
    """Exit status; the negative signal number where a signal ended it, as in ``subprocess``."""
    output: bytes
    """First bytes of stdout and stderr, together, up to the limit."""
    truncated: bool
    """There was more output than the limit; it was read and dropped."""
    timed_out: bool
    """The time limit ended it."""
    channel: bytes = b""
    """First bytes written to the channel, up to the limit."""

    @property
    def text(self) -> str:
        """The output as text; bytes that are not UTF-8 are replaced."""
        return self.output.decode("utf-8", errors="replace")


class ProcessFamily:
    """Programs started through it and all their descendants; a context manager that ends them all.

    One family may run several programs at once from several threads.
    """

    def __init__(self, marker: str, stop: threading.Event | None = None) -> None:
        """``marker``: unique to this family on this machine. ``stop``: ends running children when set."""
        self.marker = marker
        self._stop = stop if stop is not None else threading.Event()
        self._may_have_left = False

    def __enter__(self) -> ProcessFamily:
        """The family itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave nothing running."""
        self.end()

    def run(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        timeout: float | None,
        output_limit: int,
        channel_limit: int | None = None,
    ) -> Finished:
        """Run ``command`` to its end, or to the time limit (seconds), and kill what is left of its group.

        stdin is empty. With ``channel_limit`` the child is given one more argument: the number of an open
        file descriptor; what it writes there comes back as ``channel``.

        Raises ``Stopped`` when the stop event is set, ``InfrastructureFault`` where the machine cannot run
        the program.
        """
        self._raise_if_stopped()
        self._may_have_left = True
        marked = {**env, MARKER_VARIABLE: f"{self.marker}{_MARKER_END}"}
        try:
            with Pipes() as pipes:
                process = _start(command, cwd, marked, pipes, output_limit, channel_limit)
                timed_out = self._attend(process, pipes, timeout)
        except OSError as error:
            raise InfrastructureFault(f"{command[0]} could not be run: {error}") from error
        return Finished(
            returncode=process.returncode,
            output=bytes(pipes.kept["output"]),
            truncated="output" in pipes.cut,
            timed_out=timed_out,
            channel=bytes(pipes.kept.get("channel", b"")),
        )

    def end(self) -> None:
        """Kill every process that carries the marker; returns when none is left."""
        if self._may_have_left:
            kill_marked(f"{self.marker}{_MARKER_END}")
            self._may_have_left = False

    def _attend(self, process: subprocess.Popen[bytes], pipes: Pipes, timeout: float | None) -> bool:
        """Read until the process has ended, kill its group, reap it; True when the time limit ended it."""
        deadline = None if timeout is None else time.monotonic() + timeout
        timed_out = False
        try:
            with _pidfd(process.pid) as ended:
                while not pipes.wait(ended, _POLL_SECONDS):
                    self._raise_if_stopped()
                    if deadline is not None and time.monotonic() >= deadline:
                        timed_out = True
                        break
        finally:
            # Before the process is reaped, while its number, and so the group's, cannot belong to another.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        pipes.drain()
        return timed_out

    def _raise_if_stopped(self) -> None:
        if self._stop.is_set():
            raise Stopped


def _start(
    command: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    pipes: Pipes,
    output_limit: int,
    channel_limit: int | None,
) -> subprocess.Popen[bytes]:
    passed: tuple[int, ...] = ()
    if channel_limit is not None:
        write_end = pipes.open("channel", channel_limit)
        passed, command = (write_end,), [*command, str(write_end)]
    output = pipes.open("output", output_limit)
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=passed,
        start_new_session=True,
    )
    pipes.close_write_ends()
    return process


@contextlib.contextmanager
def _pidfd(pid: int) -> Iterator[int]:
    """A descriptor that becomes readable when the process ends."""
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def kill_marked(prefix: str) -> None:
    """Kill every process whose marker begins so; returns when none is left."""
    deadline = time.monotonic() + _END_SECONDS
    wanted = f"{MARKER_VARIABLE}={prefix}".encode()
    while any([_kill_if_marked(pid, wanted) for pid in _pids()]):
        if time.monotonic() > deadline:
            raise InfrastructureFault(f"processes of {prefix} do not end although killed")
        time.sleep(0.002)


def _pids() -> list[int]:
    with os.scandir(_PROC) as entries:
        return [int(entry.name) for entry in entries if entry.name.isdigit()]


def _kill_if_marked(pid: int, wanted: bytes) -> bool:
    """Kill the process if its environment has the wanted variable; whether it had."""
    try:
        if not _is_marked(pid, wanted):
            return False
        with _pidfd(pid) as process:
            # Looked at again now that the descriptor holds it: the number cannot have gone to another since.
            if _is_marked(pid, wanted):
                signal.pidfd_send_signal(process, signal.SIGKILL)
        return True
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False  # ended meanwhile, or another user's


def _is_marked(pid: int, wanted: bytes) -> bool:
    descriptor = os.open(f"{_PROC}/{pid}/environ", os.O_RDONLY)
    try:
        environment = bytearray()
        while data := os.read(descriptor, _READ_BYTES):
            environment += data
    finally:
        os.close(descriptor)
    return any(variable.startswith(wanted) for variable in environment.split(b"\0"))
