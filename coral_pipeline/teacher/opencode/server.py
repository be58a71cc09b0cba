"""One OpenCode server in its sandbox, for one turn: started, spoken to over a unix socket, ended with all it began.

``opencode serve`` rather than ``run``: the same start-up once, and then the transcript, an orderly stop and plain
errors cost milliseconds instead of a second process.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any

import aiohttp

from coral_pipeline.teacher.opencode.endpoint import ModelEndpoint
from coral_pipeline.teacher.processes import MARKER_VARIABLE, kill_marked
from coral_pipeline.teacher.protocol import InfrastructureFault, Stopped

CONTROL_SOCKET = "control.sock"
TITLE = "Rollout"
"""Title of every session: given, so that no model call is spent on one."""
_QUICK_SECONDS = 60.0
_FIRST_ANSWER_SECONDS = 10.0
_LISTENING = "listening on"
_POLL_SECONDS = 0.05
_END_SECONDS = 20.0
_LOG_TAIL = 2000
_KILLED = frozenset(
    128 + number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL, signal.SIGTERM)
)
"""Exit codes of a sandbox in which the first program ended by such a signal, or said so of its own."""


class _Unknown(aiohttp.ClientError):
    """OpenCode does not know what it was asked for."""


class AgentServer:
    """A running OpenCode server; see ``serving``."""

    def __init__(self, endpoint: ModelEndpoint, process: SandboxProcess, run: int) -> None:
        """``run``: descriptor of the folder with the control socket."""
        self._endpoint = endpoint
        self._process = process
        self._control = f"/proc/self/fd/{run}/{CONTROL_SOCKET}"
        self._memory_kills = _memory_kills()

    @property
    def death(self) -> str | None:
        """How the sandbox ended, though nobody ended it; None while it runs."""
        code = self._process.code
        return None if code is None else f"OpenCode's sandbox ended with code {code}: {self._process.last_words()}"

    @property
    def was_killed_inside(self) -> bool:
        """The sandbox ended since a signal ended OpenCode, or the program that runs it, and not for want of memory.

        Only a program in there knows of them, the agent's own: what is killed from outside is the sandbox as a whole.
        """
        return self._process.code in _KILLED and _memory_kills() == self._memory_kills

    def wait_until_gone(self, seconds: float) -> None:
        """Return when the sandbox has ended, or after so many seconds."""
        deadline = time.monotonic() + seconds
        while self._process.code is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def wait_until_ready(self, seconds: float, stop: threading.Event) -> None:
        """Return when the server answers. Raises ``InfrastructureFault`` where it does not in time."""
        deadline = time.monotonic() + seconds
        patience = _FIRST_ANSWER_SECONDS
        while time.monotonic() < deadline:
            if stop.is_set():
                raise Stopped
            if self.death is not None:
                raise InfrastructureFault(self.death)
            # A request that comes before it says so is accepted and never answered.
            if _LISTENING in self._process.last_words():
                with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                    self._endpoint.run(self._call("GET", "/config", None, patience))
                    return
                patience *= 2
            time.sleep(_POLL_SECONDS)
        raise InfrastructureFault(f"OpenCode did not start in {seconds:g} s: {self._process.last_words()}")

    def new_session(self) -> str:
        """Begin a session; its id."""
        return str(self._quick("POST", "/session", {"title": TITLE})["id"])

    def has(self, session: str) -> bool:
        """Whether it knows the session."""
        return self._quick("GET", f"/session/{session}", None, unknown=True) is not None

    def prompt(self, session: str, text: str) -> Future[Any]:
        """Give the agent a prompt; done when it has stopped working on it."""
        body = {"parts": [{"type": "text", "text": text}]}
        return self._endpoint.begin(self._call("POST", f"/session/{session}/message", body, None))

    def abort(self, session: str) -> None:
        """Have the agent stop where it is. Raises ``InfrastructureFault`` where the server does not answer."""
        self._quick("POST", f"/session/{session}/abort", {})

    def export(self, session: str) -> bytes | None:
        """The session as ``opencode export`` gives it: ``{info, messages}``, JSON; None where it does not know it."""
        info = self._quick("GET", f"/session/{session}", None, unknown=True)
        if info is None:
            return None
        messages = self._quick("GET", f"/session/{session}/message", None)
        return json.dumps({"info": info, "messages": messages}, ensure_ascii=False).encode("utf-8", "surrogatepass")

    def _quick(self, method: str, path: str, body: dict[str, Any] | None, unknown: bool = False) -> Any:
        """The answer; None where ``unknown`` things may be asked for and this is one."""
        try:
            return self._endpoint.run(self._call(method, path, body, _QUICK_SECONDS))
        except _Unknown as error:
            if unknown:
                return None
            raise InfrastructureFault(f"OpenCode does not answer {method} {path} ({error!r})") from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise InfrastructureFault(f"OpenCode does not answer {method} {path} ({error!r})") from error

    async def _call(self, method: str, path: str, body: dict[str, Any] | None, seconds: float | None) -> Any:
        connector = aiohttp.UnixConnector(path=self._control)
        timeout = aiohttp.ClientTimeout(total=seconds)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=1 << 20) as client,
            client.request(method, f"http://opencode{path}", json=body) as response,
        ):
            if response.status != 200:
                text = (await response.text(errors="replace"))[:_LOG_TAIL]
                kind = _Unknown if response.status == 404 else aiohttp.ClientError
                raise kind(f"{method} {path}: HTTP {response.status}: {text}")
            return await response.json(content_type=None)


class SandboxProcess:
    """The process of a sandbox, and everything in it."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], marker: str, log: Path, isolated: bool) -> None:
        """Start it. ``marker``: finds its processes should this one die; ``log``: takes what they print."""
        self._log = log
        self._marker = marker
        read_end, write_end = os.pipe()
        with os.fdopen(read_end, "rb", buffering=0) as information:
            try:
                with log.open("wb") as output:
                    self._process = subprocess.Popen(
                        _telling_init(command, write_end) if isolated else command,
                        env={**env, MARKER_VARIABLE: f"{marker};"},
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        pass_fds=(write_end,) if isolated else (),
                        start_new_session=True,
                    )
            except OSError as error:
                raise InfrastructureFault(f"{command[0]} would not start: {error}") from error
            finally:
                os.close(write_end)
            self._init = _opened_init(information) if isolated else None

    @property
    def code(self) -> int | None:
        """Exit code; None while it runs."""
        return self._process.poll()

    def last_words(self) -> str:
        """The end of what was printed."""
        with self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - _LOG_TAIL))
            return log.read().decode("utf-8", "replace").strip()

    def end(self) -> None:
        """Kill everything in it; returns when all of it is gone."""
        if self._init is not None:
            # The first process of a process space takes all others with it, and is gone only after them.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init, signal.SIGKILL)
            ended, _, _ = select.select([self._init], [], [], _END_SECONDS)
            os.close(self._init)
            self._init = None
            if not ended:
                raise InfrastructureFault("the processes of a sandbox do not end although killed")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        kill_marked(f"{self._marker};")


def _memory_kills() -> int:
    """How many processes this machine has killed so far since there was no memory left."""
    counters = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    return int(counters.get("oom_kill", 0))


def _telling_init(command: Sequence[str], descriptor: int) -> list[str]:
    """A bubblewrap command that also tells which process is the sandbox's first."""
    at = list(command).index("bwrap") + 1
    return [*command[:at], "--info-fd", str(descriptor), *command[at:]]


def _opened_init(information: IO[bytes]) -> int | None:
    """A descriptor of the sandbox's first process; None where there is no sandbox, or no more."""
    told = b""
    while b"}" not in told and (piece := information.read(1024)):
        told += piece
    match = re.search(rb'"child-pid": (\d+)', told)
    if match is None:
        return None
    try:
        return os.pidfd_open(int(match[1]))
    except ProcessLookupError:
        return None
