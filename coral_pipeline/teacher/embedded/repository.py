"""The git repository of a fork's code, with commits that come out the same every time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from coral_pipeline.teacher.code_diff import DIFF, shown_diff
from coral_pipeline.teacher.processes import Finished, ProcessFamily
from coral_pipeline.teacher.protocol import InfrastructureFault

BRANCH = "main"
_TIMEOUT_SECONDS = 120.0
_OUTPUT_BYTES = 20_000
# Nothing of the user's own configuration, no hooks, no signatures; nor a full re-read of files whose inode
# number changed because the fork was copied.
_OPTIONS = (
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "commit.gpgSign=false",
    "-c",
    "core.autocrlf=false",
    "-c",
    "core.checkStat=minimal",
    "-c",
    "core.trustctime=false",
    "-c",
    "gc.auto=0",
    "-c",
    "maintenance.auto=false",
)


def git_environment(moment: int, author: str) -> dict[str, str]:
    """Environment in which git commits as ``author`` at Unix time ``moment`` and reads no other configuration."""
    variables = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_TERMINAL_PROMPT": "0"}
    for role in ("AUTHOR", "COMMITTER"):
        variables[f"GIT_{role}_NAME"] = author
        variables[f"GIT_{role}_EMAIL"] = f"{author}@coral"
        variables[f"GIT_{role}_DATE"] = f"{moment} +0000"
    return variables


class Repository:
    """A working folder under git. What git refuses is a fault of the machine."""

    def __init__(self, folder: Path, family: ProcessFamily, env: Mapping[str, str]) -> None:
        """``env`` holds ``git_environment``; git runs in ``family``."""
        self.folder = folder
        self._family = family
        self._env = env

    def create(self, excluded: tuple[str, ...], objects: str) -> str:
        """Make the repository and commit all there is; returns the commit.

        ``excluded``: patterns never committed. ``objects``: where whoever looks at a state finds git's objects,
        seen from its ``.git/objects``; in a fork they are where ``GIT_OBJECT_DIRECTORY`` says.
        """
        self._git("init", "--quiet", f"--initial-branch={BRANCH}", "--template=", "--object-format=sha1")
        for file, content in (
            ("info/exclude", "".join(f"{pattern}\n" for pattern in excluded)),
            ("objects/info/alternates", f"{objects}\n"),
        ):
            path = self.folder / ".git" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        self._git("add", "--all")
        self._git("commit", "--quiet", "--allow-empty", "--message", "Student snapshot")
        return self.head

    @property
    def head(self) -> str:
        """The commit the branch is at; empty where a program has done away with it."""
        try:
            return (self.folder / ".git" / "refs" / "heads" / BRANCH).read_text().strip()
        except (FileNotFoundError, NotADirectoryError):
            return ""

    def commit_all(self, message: str) -> str | None:
        """Commit every change; returns the commit, None where nothing had changed or there is no repository left."""
        before = self.head
        if not before:
            return None
        self._git("add", "--all")
        self._git("commit", "--quiet", "--message", message, accept=(0, 1))
        return self.head if self.head != before else None

    def diff(self, before: str, after: str, limit: int) -> str | None:
        """What changed between two commits, cut at ``limit`` bytes; None where a program has spoilt the store."""
        done = self._run(*DIFF, before, after, output_limit=limit + 1)
        return shown_diff(done.output, limit) if done.returncode == 0 else None

    def check_out_into(self, target: Path) -> None:
        """Write the files of the last commit into the new folder ``target``."""
        target.mkdir()
        self._git("checkout-index", "--all", f"--prefix={target}/")

    def _git(self, *arguments: str, accept: tuple[int, ...] = (0,)) -> None:
        done = self._run(*arguments, output_limit=_OUTPUT_BYTES)
        if done.returncode not in accept or done.timed_out:
            raise InfrastructureFault(f"git {arguments[0]} failed ({done.returncode}): {done.text.strip()[-500:]}")

    def _run(self, *arguments: str, output_limit: int) -> Finished:
        return self._family.run(
            ["git", *_OPTIONS, *arguments],
            cwd=self.folder,
            env=self._env,
            timeout=_TIMEOUT_SECONDS,
            output_limit=output_limit,
        )
