"""The state a tree begins with: a root's code and shared knowledge, laid out as a CORAL run.

``coral/`` is what the agent sees at ``/coral``: ``.coral/config.yaml``, ``.coral/public`` (a git repository of
checkpoints), ``repo`` and ``agents/<id>``, a git worktree of it. Nothing private is in it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from coral_pipeline.errors import BadInput
from coral_pipeline.student_run.layout import ATTEMPTS_FOLDER, CODE_FOLDER, SHARED_FOLDER
from coral_pipeline.teacher.json_files import json_object
from coral_pipeline.teacher.opencode.inside.entry import make_folder
from coral_pipeline.teacher.protocol import InfrastructureFault
from coral_pipeline.tree_copy import copy_tree, remove_tree

CORAL = "coral"
"""Folder of a state that is seen at ``SEEN``."""
SESSION = "session"
"""Folder of a state with OpenCode's data."""
SEEN = Path("/coral")
"""Where every fork sees its CORAL run, whichever fork it is."""
KNOWLEDGE = ("notes", "skills", "agents", ATTEMPTS_FOLDER, "roles", "eval_logs")
"""Folders of the shared state that the worktree links to, as in CORAL."""
STALE = ("*.pid", "agent.pids", "sessions.json", "logs", "diagnostics", ".git", "grader_daemon_heartbeat")
"""What a copied shared state carries of the machine and the processes it came from."""
AGENT_FILES = (".git", ".coral_dir", ".coral_agent_id", ".opencode", ".claude", ".codex", ".cursor", ".venv")
"""What CORAL puts into a worktree besides the code."""
INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md")
_EXCLUDED = ("/.coral_dir", "/.coral_agent_id", "/.opencode/", "/.venv/", *(f"/{name}" for name in INSTRUCTIONS))
_CONFIG_SECTIONS = ("task", "grader", "sharing")
_GIT_SETTINGS = {
    "user.name": "coral",
    "user.email": "coral@local",
    "gc.auto": "0",  # commits that an agent reverted must stay: attempts name them
    "core.checkStat": "minimal",  # so that a copied worktree need not be read anew
    "core.trustctime": "false",
}


def lay_out(root: Path, task: Mapping[str, Any], agent_id: str, files: Path) -> None:
    """Make the root state in the folder ``files``, from a root's folder and the task's configuration.

    Raises ``BadInput`` where the root cannot be used, ``OSError`` or ``InfrastructureFault`` where the machine refuses.
    """
    run = files / CORAL
    public, worktree = run / ".coral" / "public", run / "agents" / agent_id
    (files / SESSION).mkdir(parents=True)
    (run / ".coral" / "private").mkdir(parents=True)
    (run / "agents").mkdir()
    (run / ".coral" / "config.yaml").write_text(yaml.safe_dump(_config(task), sort_keys=False, allow_unicode=True))
    for folder, target in ((SHARED_FOLDER, public), (CODE_FOLDER, files / "code")):
        try:
            copy_tree(root / folder, target)
        except OSError as error:
            if error.filename is None or not Path(error.filename).is_relative_to(root):
                raise  # the copy cannot be written
            mend = "give the folder of a root that `coral-pipeline select` copied"
            raise BadInput(root / folder, f"cannot be read ({error.strerror})", mend) from error
    _clean_shared(public)
    _make_repository(files / "code", run / "repo", worktree, agent_id)
    (worktree / ".coral_agent_id").write_text(agent_id)
    (worktree / ".opencode").mkdir()
    for name in KNOWLEDGE:
        (worktree / ".opencode" / name).symlink_to(Path("../../../.coral/public") / name)
    place_at(files, SEEN, agent_id)


def place_at(files: Path, seen: Path, agent_id: str) -> None:
    """Write the absolute paths that a state's run holds, for one that is seen at ``seen``."""
    run = files / CORAL
    worktree, administration = run / "agents" / agent_id, run / "repo" / ".git" / "worktrees" / agent_id
    make_folder(worktree)
    _put(worktree / ".coral_dir", str(seen / ".coral"))
    if administration.is_dir():
        _put(administration / "gitdir", f"{seen}/agents/{agent_id}/.git\n")
        _put(worktree / ".git", f"gitdir: {seen}/repo/.git/worktrees/{agent_id}\n")


def _put(file: Path, text: str) -> None:
    """Write a file in place of whatever an agent has put there."""
    if file.is_dir() and not file.is_symlink():
        remove_tree(file)
    file.unlink(missing_ok=True)
    file.write_text(text)


def _config(task: Mapping[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = {name: task[name] for name in _CONFIG_SECTIONS if name in task}
    # One eval at a time: a second one in the same turn is refused, not queued.
    grader = {**config.get("grader", {}), "max_pending_per_agent": 1, "private": [], "entrypoint": ""}
    agents = {"count": 1, "runtime": "opencode"}
    return {**config, "grader": grader, "agents": agents, "workspace": {"run_dir": str(SEEN)}}


def _clean_shared(public: Path) -> None:
    for pattern in STALE:
        for path in public.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                remove_tree(path)
            else:
                path.unlink()
    for name in KNOWLEDGE:
        (public / name).mkdir(exist_ok=True)
    for attempt in (public / ATTEMPTS_FOLDER).glob("*.json"):
        if (json_object(attempt) or {}).get("status") == "pending":
            attempt.unlink()  # its commit is not here, and CORAL would wait for it before taking another
    (public / ".gitignore").write_text("coral.lock\n")
    git(public, "init", "--quiet")
    _configure(public)
    git(public, "add", "--all")
    git(public, "commit", "--quiet", "--message", "shared state of the root")
    _pack(public)


def _make_repository(code: Path, repository: Path, worktree: Path, agent_id: str) -> None:
    """``repository`` with the code as its only commit, checked out in ``worktree`` alone: the files are kept once."""
    for name in AGENT_FILES:
        path = code / name
        if path.is_dir() and not path.is_symlink():
            remove_tree(path)
        else:
            path.unlink(missing_ok=True)
    for name in INSTRUCTIONS:
        path = code / name
        if path.is_file() and b"coral eval" in path.read_bytes():
            path.unlink()  # CORAL's instructions of the Student run; the Teacher has its own
    repository.mkdir()
    git(repository, "init", "--quiet", "--initial-branch=master")
    _configure(repository)
    with (repository / ".git" / "info" / "exclude").open("a") as exclude:
        exclude.write("\n".join(_EXCLUDED) + "\n")
    git(repository, "--work-tree", str(code), "add", "--all")
    git(repository, "--work-tree", str(code), "commit", "--quiet", "--allow-empty", "--message", "code of the root")
    git(repository, "branch", f"coral/{agent_id}")
    git(repository, "worktree", "add", "--quiet", "--no-checkout", str(worktree), f"coral/{agent_id}")
    for path in code.iterdir():
        path.rename(worktree / path.name)
    code.rmdir()
    git(worktree, "reset", "--quiet")
    _pack(repository)


def _pack(repository: Path) -> None:
    """All objects into one file, undeltified: copied forks share it, and there are not thousands of files to copy."""
    git(repository, "repack", "-a", "-d", "--quiet", "--window=0")


def _configure(repository: Path) -> None:
    for name, value in _GIT_SETTINGS.items():
        git(repository, "config", name, value)


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder of ours (never in one that an agent has written to); returns what it says.

    What it refuses is a fault of the machine: raises ``InfrastructureFault``.
    """
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_DATE": "2000-01-01T00:00:00Z",  # equal roots give equal commits
        "GIT_COMMITTER_DATE": "2000-01-01T00:00:00Z",
        # Larger files go into a pack at once, rather than be compressed twice.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.bigFileThreshold",
        "GIT_CONFIG_VALUE_0": "1m",
    }
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=environment, capture_output=True, text=True, errors="replace"
    )
    if done.returncode:
        raise InfrastructureFault(f"{folder}: git {arguments[0]} failed: {done.stderr.strip()[-500:]}")
    return done.stdout
