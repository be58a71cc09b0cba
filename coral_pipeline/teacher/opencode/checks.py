"""Whether this machine and the model server have what the real Teacher needs; for each lack, what to do about it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from coral_pipeline.errors import BadInput
from coral_pipeline.settings import OpenCodeSettings
from coral_pipeline.teacher.opencode.endpoint import shown
from coral_pipeline.teacher.opencode.forks import choose_method
from coral_pipeline.teacher.opencode.grounds import existing_folder
from coral_pipeline.teacher.opencode.model_server import ask_server, try_server
from coral_pipeline.teacher.opencode.programs import NEEDED, find_coral, find_opencode, output_of
from coral_pipeline.teacher.opencode.sandbox import Mount, Sandbox, environment

TRIED_VERSION = "1.18"
"""OpenCode's version that this was made with."""


@dataclass(frozen=True)
class Check:
    """One thing looked at."""

    name: str
    found: str
    """What is there, or what is wrong."""
    mend: str = ""
    """What to do about it; empty where nothing need be done."""
    optional: bool = False
    """The Teacher works without it."""

    @property
    def ok(self) -> bool:
        """Nothing need be done."""
        return not self.mend


def run_checks(settings: OpenCodeSettings, folder: Path, key: str) -> Iterator[Check]:
    """Everything the opencode teacher needs, looked at one by one; ``folder`` is where trees are to grow."""
    yield _guarded("OpenCode", lambda: _opencode(settings))
    for program, package in NEEDED.items():
        yield _guarded(program, partial(_program, program, package))
    yield _guarded("sandbox", lambda: _sandbox(settings))
    yield _guarded("forks", lambda: _forks(settings, folder))
    yield _guarded("CORAL", lambda: _coral(settings))
    yield _disk(settings, folder)
    if settings.endpoint:
        yield from _endpoint(settings, key)
    else:
        yield Check(
            "endpoint", "none given", "give --endpoint URL and --model NAME to have it looked at", optional=True
        )


def _guarded(name: str, look: Callable[[], Check]) -> Check:
    try:
        return look()
    except BadInput as error:
        return Check(name, f"{error.thing}: {error.problem}", error.mend)
    except FileNotFoundError as error:
        return Check(name, f"{error.filename} is not installed", "install it, see the other lines")


def _opencode(settings: OpenCodeSettings) -> Check:
    path = find_opencode(settings.opencode_command)
    version = output_of([str(path), "--version"])
    if version.startswith(f"{TRIED_VERSION}."):
        return Check("OpenCode", f"{version} ({path})")
    mend = f"nothing, if it works; this was made with {TRIED_VERSION} (npm install -g opencode-ai@{TRIED_VERSION})"
    return Check("OpenCode", f"{version} ({path})", mend, optional=True)


def _program(program: str, package: str) -> Check:
    path = shutil.which(program)
    if path is None:
        return Check(program, "not on the PATH", f"install it (`apt-get install {package}`)")
    return Check(program, f"{output_of([path, '--version']).splitlines()[0]} ({path})")


def _sandbox(settings: OpenCodeSettings) -> Check:
    sandbox = Sandbox(settings.sandbox)
    if not sandbox.isolated:
        return Check("sandbox", "none: agents run unisolated", "set opencode.sandbox.isolation to `bubblewrap`", True)
    problem, mend = sandbox.problem()
    return Check("bubblewrap", problem or output_of(["bwrap", "--version"]), mend)


def _forks(settings: OpenCodeSettings, folder: Path) -> Check:
    place = existing_folder(folder)
    method = choose_method(place, settings.fork_method)
    sandbox = Sandbox(settings.sandbox)
    with tempfile.TemporaryDirectory(prefix=".doctor-", dir=place) as name:
        trial = Path(name).resolve()
        (trial / "state").mkdir()
        with method.open([trial / "state"], trial / "fork") as view:
            mounts = [Mount(view.seen, Path("/coral"), "write")]
            seen = Path("/coral") if sandbox.isolated else view.seen
            command = sandbox.command(view, mounts, ["touch", str(seen / "file")], seen)
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment(sandbox))
    if done.returncode:
        return Check(
            "forks", f"{method.name}, but not in the sandbox ({done.stderr.strip()})", "set opencode.fork_method"
        )
    if method.name == "overlay":
        return Check("forks", f"overlay in {place}: milliseconds, no bytes")
    mend = f"put the output on ext4, xfs or btrfs, as root or with user namespaces, for overlayfs ({place})"
    return Check("forks", f"{method.name}: every fork is a copy", mend, optional=True)


def _coral(settings: OpenCodeSettings) -> Check:
    script, _, version = find_coral(settings)
    if script is None:
        return Check("CORAL", "not installed: agents get the built-in stand-in for its commands")
    return Check("CORAL", f"{version} ({script})")


def _disk(settings: OpenCodeSettings, folder: Path) -> Check:
    place = existing_folder(folder)
    free = shutil.disk_usage(place).free
    mend = "" if free >= settings.min_free_bytes else f"make room: {settings.min_free_bytes >> 20} MB are needed"
    return Check("disk", f"{free >> 30} GB free in {place}", mend)


def _endpoint(settings: OpenCodeSettings, key: str) -> Iterator[Check]:
    try:
        info = ask_server(settings, key)
    except BadInput as error:
        yield Check("endpoint", error.problem, error.mend)
        return
    at_once = "" if info.requests_at_once is None else f", {info.requests_at_once} requests at once"
    yield Check("endpoint", f"{shown(settings.endpoint)} answers{at_once}")
    if settings.model not in info.models:
        yield Check("model", f"{settings.model or 'none'} is not listed", f"choose of {', '.join(info.models)}")
        return
    length = info.models[settings.model]
    if length is not None and length < settings.context_limit:
        mend = f"set opencode.context_limit to {length}, or start the server with a longer context"
        yield Check("model", f"{settings.model}, context {length} tokens; {settings.context_limit} expected", mend)
    else:
        yield Check("model", f"{settings.model}, context {length or 'length not told'} tokens")
    yield from _tokens(settings, key)


def _tokens(settings: OpenCodeSettings, key: str) -> Iterator[Check]:
    try:
        answer = try_server(settings, key, with_tokens=False)
    except BadInput as error:
        yield Check("answers", error.problem, error.mend)
        return
    counted = answer.prompt_tokens is not None
    mend = "" if counted else "use a server that reports usage in streams (SGLang, vLLM): context lengths come from it"
    yield Check("usage", "token counts are reported" if counted else "no token counts", mend)
    try:
        exact = try_server(settings, key, with_tokens=True)
    except BadInput:
        exact = answer
    if exact.ids is None:
        mend = "use a server that gives token_ids, or have tokens rendered later by a tokenizer"
        yield Check("token ids", "not given: recorded text is all there is", mend, optional=True)
    else:
        yield Check("token ids", "exact" + ("" if exact.logprobs is None else ", with log-probabilities"))
