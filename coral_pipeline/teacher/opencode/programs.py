"""The programs that agents are given: OpenCode, and whose ``coral`` command."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from coral_pipeline.errors import BadInput
from coral_pipeline.settings import OpenCodeSettings
from coral_pipeline.teacher.opencode import coral_tools
from coral_pipeline.teacher.opencode.sandbox import PROGRAMS, Mount, Sandbox

NEEDED = {"git": "git", "rg": "ripgrep"}
"""Programs of the system that OpenCode and CORAL use, and the packages that bring them."""
_LIBRARY = Path("/opt/teacher/lib")
_VERSION_SECONDS = 60


@dataclass(frozen=True)
class Programs:
    """What was found on this machine."""

    opencode: Path
    """The executable itself, not a script that leads to it."""
    opencode_version: str
    coral: str
    """``built-in``, or the installed CORAL's version."""
    coral_script: Path | None = None
    """The installed CORAL's program; None: the built-in one is used."""
    coral_folders: tuple[Path, ...] = ()
    """What the installed CORAL needs to see at its own place."""

    def mounts(self, sandbox: Sandbox, scratch: Path) -> list[Mount]:
        """Put the programs under ``scratch/bin``; what is to be mounted for them to be found in the sandbox."""
        folder = scratch / "bin"
        folder.mkdir()
        library = _LIBRARY if sandbox.isolated else Path(coral_tools.__file__).parent.parent
        wrapper = folder / "coral"
        wrapper.write_text(self._coral_wrapper(library))
        wrapper.chmod(0o755)
        if not sandbox.isolated:
            (folder / "opencode").symlink_to(self.opencode)
            return []
        return [
            Mount(self.opencode, PROGRAMS / "opencode"),
            Mount(wrapper, PROGRAMS / "coral"),
            Mount(Path(coral_tools.__file__).parent, _LIBRARY / "coral_tools"),
            *(Mount(place, place) for place in self.coral_folders),
        ]

    def _coral_wrapper(self, library: Path) -> str:
        if self.coral_script is not None:
            return f'#!/bin/sh\nexec {shlex.quote(str(self.coral_script))} "$@"\n'
        # -P: a file of the agent's must not stand in for a module
        python = shlex.quote(str(Path(sys.prefix) / "bin" / "python"))
        variables = f"PYTHONPATH={shlex.quote(str(library))}"
        return f'#!/bin/sh\n{variables} exec {python} -P -s -m coral_tools.command "$@"\n'


def find_programs(settings: OpenCodeSettings) -> Programs:
    """Look for what the settings name. Raises ``BadInput`` where something is missing, with how to get it."""
    for program, package in NEEDED.items():
        if shutil.which(program) is None:
            raise BadInput(program, "is not on the PATH", f"install it (`apt-get install {package}`)")
    opencode = find_opencode(settings.opencode_command)
    version = output_of([str(opencode), "--version"])
    script, folders, coral_version = find_coral(settings)
    return Programs(opencode, version, coral_version, script, folders)


def find_opencode(command: str) -> Path:
    """OpenCode's executable. Raises ``BadInput`` where it is not installed."""
    install = "install it (`npm install -g opencode-ai`), or name it in opencode.opencode_command"
    found = shutil.which(command)
    if found is None:
        raise BadInput(f"OpenCode ({command})", "is not installed", install)
    path = Path(found).resolve()
    with path.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            raise BadInput(path, "is a script, not OpenCode's executable", install)
    return path


def find_coral(settings: OpenCodeSettings) -> tuple[Path | None, tuple[Path, ...], str]:
    """The CORAL that agents get: its program, the folders it needs to see, its version; None: the built-in one.

    Raises ``BadInput`` where an installed one is asked for and there is none.
    """
    if settings.coral == "built-in":
        return None, (), "built-in"
    found = shutil.which(settings.coral_command)
    if found is None and settings.coral == "auto":
        return None, (), "built-in"
    if found is None:
        mend = "install CORAL, name its program in opencode.coral_command, or set opencode.coral to `built-in`"
        raise BadInput(f"CORAL ({settings.coral_command})", "is not installed", mend)
    try:
        return _described_coral(Path(found))
    except BadInput:
        if settings.coral == "auto":
            return None, (), "built-in"  # some other program of that name
        raise


def _described_coral(script: Path) -> tuple[Path, tuple[Path, ...], str]:
    python = script.read_bytes().split(b"\n", 1)[0].removeprefix(b"#!").strip().decode("utf-8", "replace")
    program = (
        "import importlib.metadata as m, json, os, sys, coral; "
        "print(json.dumps([m.version('coral'), sys.prefix, sys.base_prefix, os.path.dirname(coral.__file__)]))"
    )
    version, *places = json.loads(output_of([python, "-c", program]))
    folders = dict.fromkeys(Path(place) for place in (*places, script) if not Path(place).is_relative_to("/usr"))
    return script, tuple(folders), str(version)


def output_of(command: list[str]) -> str:
    """What a program prints. Raises ``BadInput`` where it cannot be run or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_VERSION_SECONDS, errors="replace")
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise BadInput(command[0], f"cannot be run ({error})", "install it anew") from error
    if done.returncode:
        raise BadInput(command[0], f"fails ({done.stderr.strip()[-500:]})", "install it anew")
    return done.stdout.strip()
