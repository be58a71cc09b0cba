"""What CORAL keeps in its shared state, read and written for the agents' ``coral`` command."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

TURN_OVER = "0" * 40
"""Commit of the record that stands for "this turn has had its eval"."""


def find_coral(workdir: Path) -> Path:
    """The run's ``.coral`` folder, which the worktree names."""
    named = read_text(workdir / ".coral_dir").strip()
    if not named or not Path(named).is_dir():
        fail(f"No .coral directory found from {workdir}")
    return Path(named)


def attempts(coral: Path) -> list[dict[str, Any]]:
    """Every readable attempt record."""
    found = (read_attempt(path) for path in sorted((coral / "public" / "attempts").glob("*.json")))
    return [attempt for attempt in found if attempt is not None]


def read_attempt(path: Path) -> dict[str, Any] | None:
    """The record in a file; None where there is none."""
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    whole = isinstance(record, dict) and {"commit_hash", "agent_id", "title", "status"} <= record.keys()
    return record if whole else None


def find_attempt(coral: Path, prefix: str) -> dict[str, Any]:
    """The attempt whose commit begins with ``prefix``."""
    found = [attempt for attempt in attempts(coral) if str(attempt["commit_hash"]).startswith(prefix)]
    if len(found) > 1:
        fail("\n  ".join([f"Ambiguous hash prefix '{prefix}'. Matches:", *(a["commit_hash"] for a in found)]))
    if not found:
        fail(f"No attempt matches '{prefix}'.")
    return found[0]


def is_pending(attempt: dict[str, Any]) -> bool:
    """Submitted and not yet graded."""
    return attempt["status"] == "pending" and attempt.get("score") is None


def budget_class(attempt: dict[str, Any]) -> str:
    """``real``, or what kept the attempt from counting."""
    return str((attempt.get("metadata") or {}).get("budget_class", "real"))


def eval_count(coral: Path) -> str:
    """How many evals there were."""
    return read_text(coral / "public" / "eval_count").strip()


def write_attempt(coral: Path, record: dict[str, Any]) -> None:
    """Write a record, whole or not at all."""
    folder = coral / "public" / "attempts"
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{record['commit_hash']}.{os.getpid()}.tmp"
    partial.write_text(json.dumps(record, indent=2))
    partial.replace(folder / f"{record['commit_hash']}.json")


def checkpoint(coral: Path, agent: str, message: str) -> str | None:
    """Commit the shared state; the commit, or None where nothing changed or git refuses."""
    public = coral / "public"
    try:
        with (public / ".git" / "coral.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            git(public, "add", "-A")
            if git(public, "diff", "--cached", "--quiet").returncode == 0:
                return None
            if git(public, "commit", "-m", f"checkpoint: {agent} - {message}").returncode:
                return None
            return git(public, "rev-parse", "HEAD").stdout.strip()
    except OSError:
        return None


def list_notes(folder: Path) -> list[dict[str, str]]:
    """Notes, oldest first: title, date, creator, body."""
    notes = []
    for path in sorted(folder.rglob("*.md")):
        if path.name.startswith("_"):
            continue
        meta, body = front_matter(read_text(path))
        title = next((line[2:].strip() for line in body.splitlines() if line.startswith("# ")), path.stem)
        notes.append(
            {"title": title, "date": meta.get("created", ""), "creator": meta.get("creator", ""), "body": body}
        )
    return sorted(notes, key=lambda note: note["date"])


def front_matter(text: str) -> tuple[dict[str, str], str]:
    """The ``key: value`` lines at the head of a Markdown file, and the rest."""
    if not text.startswith("---\n") or "\n---" not in text[3:]:
        return {}, text.strip()
    head, _, body = text[4:].partition("\n---")
    pairs = (line.partition(":") for line in head.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}, body.strip()


def grader_setting(coral: Path, name: str) -> Any:
    """A setting of the task's grader; None where the configuration cannot be read or has none."""
    import yaml

    try:
        config = yaml.safe_load((coral / "config.yaml").read_text())
        return config["grader"][name]
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError):
        return None


def read_text(path: Path) -> str:
    """A file's text; empty where it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run git in a folder."""
    return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, errors="replace")


def must_git(folder: Path, *arguments: str) -> str:
    """What git says; the command ends where git refuses."""
    done = git(folder, *arguments)
    if done.returncode:
        fail(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def fail(problem: str) -> NoReturn:
    """End with exit code 1."""
    print(f"Error: {problem}", file=sys.stderr)
    sys.exit(1)
