"""How OpenCode is set up and started for one turn: configuration, instructions, programs, sockets, paths."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coral_pipeline.settings import OpenCodeSettings
from coral_pipeline.teacher.opencode.endpoint import ModelEndpoint
from coral_pipeline.teacher.opencode.forks import View
from coral_pipeline.teacher.opencode.inside import entry, kept
from coral_pipeline.teacher.opencode.programs import Programs
from coral_pipeline.teacher.opencode.root import CORAL, SEEN, SESSION, place_at
from coral_pipeline.teacher.opencode.sandbox import HOME, PROGRAMS, Mount, Sandbox, environment, fork_mounts
from coral_pipeline.teacher.opencode.server import CONTROL_SOCKET, AgentServer, SandboxProcess
from coral_pipeline.teacher.processes import ProcessFamily
from coral_pipeline.teacher.protocol import InfrastructureFault
from coral_pipeline.tree_copy import remove_tree

PROVIDER = "teacher"
"""Name under which OpenCode knows the model endpoint."""
MODEL_SOCKET = "model.sock"
DENIED = ("question", "webfetch", "websearch", "task", "todowrite", "skill", "plan_enter", "plan_exit")
"""What agents cannot do: ask a person, use a network, start agents, and what would change the system prompt."""
DATABASE = Path("opencode") / "opencode.db"
"""OpenCode's sessions, in its data folder."""
_PYTHON = Path(sys.prefix) / "bin" / "python"
_LOOK_SECONDS = 600.0
_LOOK_BYTES = 2_000
_NEVER = 24 * 3_600_000
"""Milliseconds: OpenCode's own time limits on the model; the endpoint has better ones."""


@dataclass(frozen=True)
class Places:
    """Where the parts of a turn are, as the agent sees them."""

    coral: Path
    session: Path
    run: Path
    config: Path
    entry: Path
    programs: Path
    home: str
    model_port: int
    control_port: int

    @classmethod
    def constant(cls) -> Places:
        """The same in every sandbox."""
        top = PROGRAMS.parent
        run = Path("/run/teacher")
        return cls(SEEN, Path("/session"), run, top / "config", top / "entry.py", PROGRAMS, HOME, 8000, 4096)

    @classmethod
    def of_machine(cls, view: View, scratch: Path) -> Places:
        """The machine's own, for agents that run unisolated."""
        run, config, programs, home = (scratch / name for name in ("run", "config", "bin", "home"))
        files = (view.seen / CORAL, view.seen / SESSION)
        return cls(*files, run, config, Path(entry.__file__), programs, str(home), free_port(), free_port())


@dataclass(frozen=True)
class AgentSetup:
    """What all turns of a tree have in common."""

    settings: OpenCodeSettings
    sandbox: Sandbox
    programs: Programs
    agent_id: str
    instructions: str
    """Text of AGENTS.md."""

    @contextlib.contextmanager
    def serving(
        self, view: View, scratch: Path, endpoint: ModelEndpoint, marker: str, stop: threading.Event
    ) -> Iterator[AgentServer]:
        """An OpenCode server working in the fork; everything it began is gone when the block ends.

        The model endpoint must be listening at ``scratch/run/model.sock``. Raises ``InfrastructureFault``
        where it does not start, ``Stopped`` where ``stop`` is set.
        """
        places = Places.constant() if self.sandbox.isolated else Places.of_machine(view, scratch)
        if not self.sandbox.isolated:
            place_at(view.files, places.coral, self.agent_id)
        command, env = self._command(view, scratch, places)
        run = os.open(scratch / "run", os.O_PATH | os.O_DIRECTORY)
        try:
            process = SandboxProcess(command, env, marker, scratch / "opencode.log", self.sandbox.isolated)
            try:
                server = AgentServer(endpoint, process, run)
                server.wait_until_ready(self.settings.start_seconds, stop)
                yield server
            finally:
                process.end()
        finally:
            os.close(run)
            with contextlib.suppress(OSError):  # whatever the agent has put in its place goes with the scratch folder
                (scratch / "run" / CONTROL_SOCKET).unlink()

    def keeps(self, view: View, scratch: Path, family: ProcessFamily, session: str, last_message: str | None) -> bool:
        """Whether the fork's database holds the session up to its last message, so that a next turn can go on in it.

        An agent can write to it, so it is looked into in a sandbox. Raises ``InfrastructureFault`` where there is none.
        """
        isolated = self.sandbox.isolated
        folder = Places.constant().session if isolated else view.seen / SESSION
        script = PROGRAMS.parent / "kept.py" if isolated else Path(kept.__file__)
        mounts = [*fork_mounts(view, SESSION, folder), Mount(Path(kept.__file__), script)]
        asked = [str(folder / DATABASE), session, *([] if last_message is None else [last_message])]
        done = family.run(
            self.sandbox.command(view, mounts, [str(_PYTHON), "-I", str(script), *asked], Path("/")),
            cwd=scratch,
            env=environment(self.sandbox),
            timeout=_LOOK_SECONDS,
            output_limit=_LOOK_BYTES,
        )
        if done.returncode and not done.timed_out:
            raise InfrastructureFault(f"the session's database cannot be looked into: {done.text.strip()}")
        return done.text.strip() == "kept"

    def _command(self, view: View, scratch: Path, places: Places) -> tuple[list[str], dict[str, str]]:
        for name in ("bin", "config", "home"):
            remove_tree(scratch / name)
        config = scratch / "config" / "opencode"
        config.mkdir(parents=True)
        (config / "AGENTS.md").write_text(self.instructions, encoding="utf-8")
        mounts = [
            *fork_mounts(view, CORAL, places.coral),
            *fork_mounts(view, SESSION, places.session),
            Mount(scratch / "run", places.run, "write"),
            # OpenCode writes into its configuration's folder; the instructions stay as they are.
            Mount(scratch / "config", places.config, "write"),
            Mount(config / "AGENTS.md", places.config / "opencode" / "AGENTS.md"),
            Mount(Path(entry.__file__), places.entry),
            *self.programs.mounts(self.sandbox, scratch),
        ]
        request = {
            "database": None if self.sandbox.isolated else str(places.session / DATABASE),
            "cwd": str(places.coral / "agents" / self.agent_id),
            "command": [
                str(places.programs / "opencode"),
                *("serve", "--hostname", "127.0.0.1", "--port", str(places.control_port)),
            ],
            "forwards": [
                [places.model_port, str(places.run / MODEL_SOCKET)],
                [str(places.run / CONTROL_SOCKET), places.control_port],
            ],
        }
        program = [str(_PYTHON), "-I", str(places.entry), json.dumps(request)]
        command = self.sandbox.command(view, mounts, program, Path("/"))
        return command, self._environment(places)

    def _environment(self, places: Places) -> dict[str, str]:
        env = environment(self.sandbox, places.home)
        shell_milliseconds = str(int(self.settings.shell_seconds * 1000))
        return {
            **env,
            "PATH": f"{places.programs}:{env['PATH']}",
            "XDG_DATA_HOME": str(places.session),
            "XDG_CONFIG_HOME": str(places.config),
            "XDG_CACHE_HOME": f"{places.home}/cache",
            "XDG_STATE_HOME": f"{places.home}/state",
            "OPENCODE_CONFIG_CONTENT": json.dumps(configuration(self.settings, places.model_port)),
            "OPENCODE_DISABLE_PROJECT_CONFIG": "1",  # an agent's own file must neither break nor loosen it
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_CLAUDE_CODE": "1",
            "OPENCODE_EXPERIMENTAL_BASH_DEFAULT_TIMEOUT_MS": shell_milliseconds,
        }


def configuration(settings: OpenCodeSettings, model_port: int) -> dict[str, Any]:
    """OpenCode's configuration: never asks, never waits for a person, makes no model call but the agent's own."""
    model = f"{PROVIDER}/{settings.model}"
    limits = {"context": settings.context_limit, "output": settings.output_limit}
    options = {
        "baseURL": f"http://127.0.0.1:{model_port}/v1",
        "apiKey": "none",
        "timeout": False,
        "headerTimeout": _NEVER,
        "chunkTimeout": _NEVER,
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": PROVIDER,
        "options": options,
        "models": {settings.model: {"name": settings.model, "limit": limits, "tool_call": True}},
    }
    allowed = {"*": "allow", "doom_loop": "allow", "external_directory": "allow"}
    return {
        "model": model,
        "small_model": model,
        "share": "disabled",
        "autoupdate": False,
        "snapshot": False,
        "compaction": {"auto": False, "prune": False},
        "lsp": False,
        "formatter": False,
        "enabled_providers": [PROVIDER],
        "provider": {PROVIDER: provider},
        "agent": {"title": {"disable": True}},
        "permission": {**allowed, **dict.fromkeys(DENIED, "deny")},
    }


def free_port() -> int:
    """A port of the loopback that nobody listens at just now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
