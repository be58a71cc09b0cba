"""Reading a stock CORAL run: its attempts in run order, its configuration, where its git objects lie.

Nothing in the run is written, and no git command is run inside it. The agents of the run could write to all of
it, so a record is checked before anything in it is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from coral_pipeline.errors import BadInput
from coral_pipeline.scores import numeric
from coral_pipeline.student_run.git_objects import HASH
from coral_pipeline.student_run.guarded import Folder, Unreadable, parse_json
from coral_pipeline.student_run.layout import COMMIT_DIGITS, SnapshotName

CONFIG_LIMIT = 1 << 20
RECORD_LIMIT = 1 << 23
"""Bytes of the largest configuration and attempt record that are read."""
PENDING = "pending"
FAILED = frozenset({"crashed", "timeout"})
"""Statuses of an attempt that was graded without a normal numeric score."""
_MACHINE_FOLDERS = frozenset({"logs", "diagnostics", "gateway", "sessions"})
_MACHINE_FILES = frozenset({"agent.pids", "agent_pids.json", "sessions.json", "coral.lock"})
_AGENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_A_RUN = "give the folder of one CORAL run, the one that holds .coral/ and repo/"


@dataclass(frozen=True)
class Record:
    """One attempt, as CORAL recorded it; every hash a full one."""

    commit_hash: str
    agent_id: str
    time: datetime
    """When it was submitted, in UTC: the order of the run."""
    timestamp: str
    """The same as the record has it."""
    title: str | None
    status: str | None
    score: float | None
    """Raw score; None where the record has no numeric one."""
    parent_hash: str | None
    shared_state_hash: str | None
    """Commit of the checkpoint taken at submission; None where CORAL could not make one."""
    content: bytes = field(repr=False)
    """The record's own bytes."""

    @property
    def file_name(self) -> str:
        """Name of the record in CORAL's folder of attempts."""
        return f"{self.commit_hash}.json"

    @property
    def eval_ok(self) -> bool | None:
        """Whether grading gave a normal numeric score; None while it is pending (method S2, S4)."""
        if self.status == PENDING:
            return None
        return self.score is not None and self.status not in FAILED

    def snapshot(self, index: int) -> str:
        """Name of its snapshot as number ``index`` of the run (method S1)."""
        return SnapshotName(index, self.agent_id, self.commit_hash[:COMMIT_DIGITS]).folder


@dataclass(frozen=True)
class CoralRun:
    """What an import needs of a CORAL run."""

    path: Path
    """Real path of the run's folder."""
    records: tuple[Record, ...]
    """The attempts in run order: by time, then agent id, then commit."""
    unusable: tuple[tuple[str, str], ...]
    """Name of every other record, and what is wrong with it."""
    config: bytes
    """CORAL's configuration, YAML."""
    object_folders: tuple[Path, ...]
    """Every ``.git/objects`` that may hold its commits."""

    @property
    def private(self) -> Path:
        """The folder CORAL keeps from the agents: grader and its data."""
        return self.path / ".coral" / "private"


def read_coral_run(coral_run: Path) -> CoralRun:
    """Read the run in ``coral_run``, its folder or the ``.coral`` folder in it.

    Raises ``BadInput`` where that is no CORAL run, or one without attempts.
    """
    path = coral_run.parent if coral_run.name == ".coral" else coral_run
    part = path
    with ExitStack() as opened:
        try:
            run = opened.enter_context(Folder.of_run(path))
            part = path / ".coral"
            coral = opened.enter_context(run.folder(part.name))
            part = path / ".coral" / "config.yaml"
            config = coral.read(part.name, CONFIG_LIMIT)
            part = path / ".coral" / "public" / "attempts"
            attempts = opened.enter_context(opened.enter_context(coral.folder("public")).folder(part.name))
            records, unusable = _read_records(attempts)
        except Unreadable as unreadable:
            raise BadInput(part, str(unreadable), _A_RUN) from unreadable
        real_path = run.real_path()
    if not records and not unusable:
        raise BadInput(coral_run, "holds no attempts in .coral/public/attempts", "import it once an eval was made")
    object_folders = tuple(_object_folders(real_path))
    if not object_folders:
        raise BadInput(real_path / "repo", "is no git repository", _A_RUN)
    return CoralRun(real_path, records, unusable, config, object_folders)


def is_machine_file(path: PurePosixPath, is_folder: bool) -> bool:
    """Whether a path of the shared state belongs to the processes of the run: pids, locks, logs, session ids."""
    top = len(path.parts) == 1
    if is_folder:
        return top and path.name in _MACHINE_FOLDERS
    return path.name in _MACHINE_FILES or path.name.endswith(".pid") or (top and path.name.endswith(".lock"))


def _read_records(attempts: Folder) -> tuple[tuple[Record, ...], tuple[tuple[str, str], ...]]:
    records, unusable = [], []
    for name in attempts.names():
        if not name.endswith(".json") or name.startswith("."):
            continue  # CORAL writes a record under a hidden name first
        try:
            if Path(attempts.path, name).is_symlink():
                raise Unreadable("is a link, not a record")
            content = attempts.read(name, RECORD_LIMIT)
            records.append(_record(name, content, parse_json(content)))
        except Unreadable as unreadable:
            unusable.append((name, str(unreadable)))
    return tuple(sorted(records, key=lambda r: (r.time, r.agent_id, r.commit_hash))), tuple(unusable)


def _record(name: str, content: bytes, value: Any) -> Record:
    if not isinstance(value, dict):
        raise Unreadable("is not a JSON object")
    commit, agent_id, timestamp = value.get("commit_hash"), value.get("agent_id"), value.get("timestamp")
    if not isinstance(commit, str) or not HASH.fullmatch(commit):
        raise Unreadable(f"has a commit_hash that is no full git hash: {commit!a:.80}")
    if name != f"{commit}.json":
        raise Unreadable(f"is not named after its commit_hash {commit}")
    if not isinstance(agent_id, str) or not _AGENT_ID.fullmatch(agent_id):
        raise Unreadable(f"has an agent_id that can be no part of a name: {agent_id!a:.80}")
    title, status = value.get("title"), value.get("status")
    return Record(
        commit_hash=commit,
        agent_id=agent_id,
        time=_time(timestamp),
        timestamp=str(timestamp),
        title=title if isinstance(title, str) else None,
        status=status if isinstance(status, str) else None,
        score=numeric(value.get("score")),
        parent_hash=_full_hash(value.get("parent_hash")),
        shared_state_hash=_full_hash(value.get("shared_state_hash")),
        content=content,
    )


def _time(timestamp: object) -> datetime:
    """An ISO 8601 time; one without a zone is taken as UTC, which is what CORAL writes."""
    try:
        time = datetime.fromisoformat(timestamp) if isinstance(timestamp, str) else None
        if time is not None:
            return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise Unreadable(f"has a timestamp that is no ISO 8601 time: {timestamp!a:.80}")


def _full_hash(value: object) -> str | None:
    return value if isinstance(value, str) and HASH.fullmatch(value) else None


def _object_folders(run: Path) -> Iterator[Path]:
    """Object folders of the run's own repositories. Agents' worktrees share repo's; clones have their own."""
    repositories = [run / "repo" / ".git", run / "repo", run / ".coral" / "public" / ".git"]
    for pattern in ("agents/*/.git", ".coral/private/grader_checkouts/*/.git"):
        repositories += sorted(run.glob(pattern))
    for repository in repositories:
        objects = repository / "objects"
        if (repository / "HEAD").is_file() and objects.is_dir() and objects.resolve().is_relative_to(run):
            yield objects
