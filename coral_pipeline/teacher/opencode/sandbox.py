"""The sandbox of a turn: bubblewrap, the same paths in every fork, nothing else of the machine.

Inside: the system's programs read-only, the fork, a small ``/tmp``; its own processes, users and an empty
network. Whatever is not listed is not there: private parts of the task, other forks, the rest of the disk.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from coral_pipeline.errors import BadInput
from coral_pipeline.settings import SandboxSettings
from coral_pipeline.teacher.opencode.forks import View
from coral_pipeline.teacher.processes import MARKER_VARIABLE, Finished, ProcessFamily

HOME = "/home/teacher"
PROGRAMS = Path("/opt/teacher/bin")
"""Programs brought along for the agent."""
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = (
    "alternatives",
    "ca-certificates",
    "group",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "passwd",
    "pki",
    "ssl",
)
_INSTALL = "install it (`apt-get install bubblewrap`), or set opencode.sandbox.isolation to `none` to run unisolated"
_ALLOW = (
    "allow it user namespaces (sysctl kernel.unprivileged_userns_clone=1, "
    "kernel.apparmor_restrict_unprivileged_userns=0; in Docker: --security-opt seccomp=unconfined "
    "--security-opt apparmor=unconfined), or set opencode.sandbox.isolation to `none` to run unisolated"
)


@dataclass(frozen=True)
class Mount:
    """Something of the machine that is seen in the sandbox."""

    source: Path
    seen: Path
    kind: Literal["read", "write"] = "read"


def fork_mounts(view: View, folder: str, seen: Path) -> list[Mount]:
    """A folder of a fork, to be written to, but for the files in it that are its source's too."""
    mounts = [Mount(view.seen / folder, seen, "write")]
    for file in view.shared:
        # An agent that worked here before may have moved it, or laid a link in its way.
        in_place = (view.files / file).is_file() and (view.files / file).resolve() == view.files.resolve() / file
        if in_place and file.is_relative_to(folder):
            mounts.append(Mount(view.seen / file, seen / file.relative_to(folder)))
    return mounts


class Sandbox:
    """Builds the commands that run programs in the sandbox, or, where the settings say so, outside of one."""

    def __init__(self, settings: SandboxSettings) -> None:
        """``settings``: what the sandbox may see, and how much it may write to memory."""
        self.settings = settings

    @property
    def isolated(self) -> bool:
        """Programs run in bubblewrap."""
        return self.settings.isolation == "bubblewrap"

    def command(self, view: View, mounts: Sequence[Mount], program: Sequence[str], cwd: Path) -> list[str]:
        """The command that runs ``program`` behind the fork's view, in ``cwd`` (as seen inside).

        Unisolated, ``mounts`` do not apply and the program must be told the machine's own paths.
        """
        if not self.isolated:
            return [*view.enter, *program]
        binds: list[str] = []
        for mount in mounts:
            binds += ["--ro-bind" if mount.kind == "read" else "--bind", str(mount.source), str(mount.seen)]
        return [
            *view.enter,
            *("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
            # Every fork looks the same from inside.
            *("--hostname", "teacher", "--unsetenv", MARKER_VARIABLE),
            *self._machine(),
            *binds,
            *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", str(cwd), "--"),
            *program,
        ]

    def search_path(self) -> str:
        """``PATH`` inside: the settings' folders, the Python this runs on, the system's."""
        added = [str(folder) for folder in self.settings.search_path]
        system = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
        return ":".join([*added, str(Path(sys.prefix) / "bin"), *system])

    def require(self, hidden: Iterable[Path], brought: Iterable[Path] = ()) -> None:
        """Raise ``BadInput`` where bubblewrap cannot be used, or where ``hidden`` folders would be seen.

        ``brought``: folders that are seen beside what every sandbox sees.
        """
        if not self.isolated:
            return
        problem, mend = self.problem()
        if problem:
            raise BadInput("bubblewrap", problem, mend)
        seen = [*map(Path, _SYSTEM), *self._seen_folders(), *brought]
        for folder in hidden:
            for place in seen:
                if folder.resolve().is_relative_to(place.resolve()):
                    raise BadInput(
                        folder,
                        f"lies in {place}, which the agents' sandbox can read",
                        "move it (a grader's package into an environment of its own), "
                        "or take that folder out of opencode.sandbox.read_only",
                    )

    def problem(self) -> tuple[str, str]:
        """Why bubblewrap cannot be used here and what to do about it; empty where it can."""
        if shutil.which("bwrap") is None:
            return "is not installed", _INSTALL
        nothing = View(Path("/"), Path("/"), ())
        done = subprocess.run(
            self.command(nothing, (), ["true"], Path("/tmp")), capture_output=True, text=True, errors="replace"
        )
        if done.returncode:
            return f"is refused by this machine ({done.stderr.strip()})", _ALLOW
        return "", ""

    def _seen_folders(self) -> list[Path]:
        """Folders of the machine that are seen read-only at their own paths, the system's apart."""
        python = [Path(sys.prefix), Path(sys.base_prefix)]
        return [path for path in dict.fromkeys([*python, *self.settings.read_only]) if not path.is_relative_to("/usr")]

    def _machine(self) -> list[str]:
        """The part of the machine that every sandbox sees."""
        arguments: list[str] = []
        for name in _SYSTEM:
            path = Path(name)
            if path.is_symlink():
                arguments += ["--symlink", str(path.readlink()), name]
            elif path.is_dir():
                arguments += ["--ro-bind", name, name]
        for name in _ETC:
            arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        memory = str(self.settings.tmp_bytes)
        arguments += ["--proc", "/proc", "--dev", "/dev", "--size", memory, "--tmpfs", "/dev/shm"]
        arguments += ["--size", memory, "--tmpfs", "/tmp", "--size", memory, "--tmpfs", HOME]
        for folder in self._seen_folders():  # last: a Python may lie below /tmp
            arguments += ["--ro-bind", str(folder), str(folder)]
        for device in self.settings.devices:
            arguments += ["--dev-bind-try", str(device), str(device)]
        return arguments


class SandboxedFamily(ProcessFamily):
    """A family whose programs run in a sandbox that shows no fork."""

    def __init__(self, family: ProcessFamily, sandbox: Sandbox, mounts: Sequence[Mount], folder: Path) -> None:
        """``folder``: where they run, as seen inside."""
        super().__init__(family.marker)
        self._family = family
        self._sandbox = sandbox
        self._mounts = mounts
        self._folder = folder

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
        """See ``ProcessFamily``."""
        outside = View(Path("/"), Path("/"), ())
        return self._family.run(
            self._sandbox.command(outside, self._mounts, command, self._folder),
            cwd=cwd,
            env=env,
            timeout=timeout,
            output_limit=output_limit,
            channel_limit=channel_limit,
        )


def environment(sandbox: Sandbox, home: str = HOME) -> dict[str, str]:
    """Environment of programs in the sandbox: nothing of this process's, keys least of all."""
    kept = {name: os.environ[name] for name in sandbox.settings.keep_environment if name in os.environ}
    return {
        "PATH": sandbox.search_path(),
        "HOME": home,
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "USER": "teacher",
        "PYTHONDONTWRITEBYTECODE": "1",
        **kept,
    }
