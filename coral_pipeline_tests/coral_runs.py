"""Small CORAL runs with a git history of their own, and what to compare them and their imports by.

    run = CoralRun(folder)
    first = run.attempt(1.0, code={"solve.py": "print(1)"}, notes="try more")
    run.attempt(None, status="crashed")

has two attempts, a second apart, each with its commit in ``repo`` and its checkpoint in ``.coral/public``.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coral_pipeline import tables
from coral_pipeline.student_run.git_objects import GitObjects, open_objects

_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "agent",
    "GIT_AUTHOR_EMAIL": "agent@example.org",
    "GIT_COMMITTER_NAME": "agent",
    "GIT_COMMITTER_EMAIL": "agent@example.org",
    "GIT_AUTHOR_DATE": "2026-05-01T12:00:00Z",
    "GIT_COMMITTER_DATE": "2026-05-01T12:00:00Z",
}
CONFIG = """\
task: {name: A small task, description: Do better., tips: ''}
grader: {direction: maximize, timeout: 20}
agents: {count: 2, runtime: opencode, model: some/model, gateway: {api_key: sk-secret}}
sharing: {attempts: true, notes: true, skills: true}
workspace: {run_dir: /srv/runs/one}
"""


def git(repository: Path, *arguments: str, input: bytes | None = None) -> str:
    """What the git command prints, without the last newline."""
    command = ["git", "-c", "safe.directory=*", *arguments]
    done = subprocess.run(command, cwd=repository, env=_ENVIRONMENT, input=input, check=True, capture_output=True)
    return done.stdout.decode().rstrip("\n")


def write_object(repository: Path, kind: str, content: bytes) -> str:
    """Put an object of any content, also such as git would refuse, into the repository; returns its hash."""
    data = f"{kind} {len(content)}\0".encode() + content
    hash = hashlib.sha1(data, usedforsecurity=False).hexdigest()
    path = repository / ".git" / "objects" / hash[:2] / hash[2:]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(zlib.compress(data))
    return hash


def write_raw_tree(repository: Path, entries: list[tuple[str, bytes, str]]) -> str:
    """A tree of (mode, name, hash), names git itself would refuse included; returns its hash."""
    lines = [mode.encode() + b" " + name + b"\0" + bytes.fromhex(hash) for mode, name, hash in entries]
    return write_object(repository, "tree", b"".join(lines))


@contextmanager
def objects_of(*repositories: Path) -> Iterator[GitObjects]:
    """The objects of these repositories together, as an import reads them."""
    folders = [repository / ".git" / "objects" for repository in repositories]
    with tempfile.TemporaryDirectory() as scratch, open_objects(folders, Path(scratch)) as objects:
        yield objects


class CoralRun:
    """A CORAL run being made in ``path``."""

    def __init__(self, path: Path, config: str = CONFIG) -> None:
        self.path = path
        self.repo = path / "repo"
        self.public = path / ".coral" / "public"
        self.attempts = self.public / "attempts"
        self.count = 0
        for folder in (self.repo, self.attempts, path / ".coral" / "private" / "eval"):
            folder.mkdir(parents=True)
        (path / ".coral" / "config.yaml").write_text(config)
        (path / ".coral" / "private" / "eval" / "grader.py").write_text("class Grader: ...\n")
        for repository in (self.repo, self.public):
            git(repository, "init", "-q")
            git(repository, "commit", "-q", "--allow-empty", "-m", "init")

    def attempt(
        self,
        score: object = None,
        *,
        status: object = "improved",
        code: Mapping[str, str] | None = None,
        notes: str | None = None,
        tree: str | None = None,
        checkpoint: bool = True,
        **fields: Any,
    ) -> dict[str, Any]:
        """Commit, checkpoint, record; returns the record. ``fields`` are written over the record's own.

        ``tree`` commits that tree instead of the working folder with ``code`` added.
        """
        self.count += 1
        for name, text in (code or {"solve.py": f"print({self.count})\n"}).items():
            (self.repo / name).parent.mkdir(parents=True, exist_ok=True)
            (self.repo / name).write_text(text)
        parent = git(self.repo, "rev-parse", "HEAD")
        commit = self.commit_tree(tree) if tree else self._commit_all(self.repo)
        if notes is not None:
            (self.public / "notes").mkdir(exist_ok=True)
            (self.public / "notes" / "ideas.md").write_text(notes)
        (self.public / "eval_count").write_text(str(self.count - 1))
        record = {
            "commit_hash": commit,
            "agent_id": f"agent-{1 + self.count % 2}",
            "title": f"try {self.count}",
            "score": score,
            "status": status,
            "parent_hash": parent,
            "timestamp": f"2026-05-01T12:{self.count // 60:02d}:{self.count % 60:02d}+00:00",
            "feedback": f"feedback {self.count}",
        }
        if checkpoint:
            record["shared_state_hash"] = self._commit_all(self.public)
        self.write_record(record | fields)
        return record | fields

    def commit_tree(self, tree: str) -> str:
        """A commit of any tree in ``repo``, on no branch."""
        return git(self.repo, "commit-tree", tree, "-m", f"try {self.count}")

    def write_record(self, record: Mapping[str, Any]) -> Path:
        """Write the record the way CORAL does."""
        path = self.attempts / f"{record['commit_hash']}.json"
        path.write_text(json.dumps(record, indent=2))
        return path

    def _commit_all(self, repository: Path) -> str:
        git(repository, "add", "-A")
        git(repository, "commit", "-q", "--allow-empty", "-m", f"try {self.count}")
        return git(repository, "rev-parse", "HEAD")


def contents(folder: Path) -> dict[str, bytes | str]:
    """What is below the folder by path (``*``: executable): a file's bytes, a link's ``-> target``, ``folder``."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_dir():
            found[name] = "folder"
        else:
            found[name + "*" * os.access(path, os.X_OK)] = path.read_bytes()
    return found


def fingerprint(folder: Path) -> dict[str, tuple[object, ...]]:
    """Everything about everything below the folder that a program can change: kind, mode, owner, times, content."""
    found: dict[str, tuple[object, ...]] = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() and not path.is_symlink() else ""
        what = (status.st_mode, status.st_uid, status.st_mtime_ns, status.st_ctime_ns, status.st_nlink, content)
        found[str(path.relative_to(folder))] = what
    return found


def snapshot_of(student_run: Path, record: Mapping[str, Any]) -> Path:
    """The snapshot that an import made of the record's attempt."""
    (found,) = (student_run / "all_snapshots").glob(f"*-{record['commit_hash'][:12]}")
    return found


def metadata_of(student_run: Path, record: Mapping[str, Any]) -> dict[str, Any]:
    """What the metadata.json of that snapshot says."""
    metadata: dict[str, Any] = json.loads((snapshot_of(student_run, record) / "metadata.json").read_text())
    return metadata


def report(student_run: Path) -> list[tuple[Any, ...]]:
    """Snapshot number (None: rejected), reason and detail of each row."""
    rows = tables.IMPORT_REPORT.rows(student_run)
    return [(row["snapshot"] and int(row["snapshot"][5:11]), row["reason"], row["detail"]) for row in rows]
