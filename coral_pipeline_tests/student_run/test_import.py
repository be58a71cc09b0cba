"""Importing a CORAL run: what a snapshot holds, what is rejected, and what importing again does."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from coral_pipeline import tables
from coral_pipeline.errors import BadInput
from coral_pipeline.student_run.destination import open_destination
from coral_pipeline.student_run.importing import import_run
from coral_pipeline_tests.coral_runs import CoralRun, contents, fingerprint, git, write_object, write_raw_tree


@pytest.fixture
def run(tmp_path: Path) -> CoralRun:
    return CoralRun(tmp_path / "run")


@pytest.fixture
def student_run(tmp_path: Path) -> Path:
    return tmp_path / "student"


def snapshot_of(student_run: Path, record: dict[str, Any]) -> Path:
    (found,) = (student_run / "all_snapshots").glob(f"*-{record['commit_hash'][:12]}")
    return found


def metadata_of(student_run: Path, record: dict[str, Any]) -> dict[str, Any]:
    metadata: dict[str, Any] = json.loads((snapshot_of(student_run, record) / "metadata.json").read_text())
    return metadata


def report(student_run: Path) -> list[tuple[Any, ...]]:
    """Snapshot number (None: rejected), reason and detail of each row."""
    rows = tables.IMPORT_REPORT.rows(student_run)
    return [(row["snapshot"] and int(row["snapshot"][5:11]), row["reason"], row["detail"]) for row in rows]


# What a snapshot holds


def test_a_snapshot_is_the_commit_the_checkpoint_and_its_own_record(run: CoralRun, student_run: Path) -> None:
    first = run.attempt(1.5, code={"solve.py": "one", "lib/a.py": "a"}, notes="first idea")
    second = run.attempt(2.5, code={"solve.py": "two"}, notes="second idea")
    import_run(run.path, student_run)
    assert contents(snapshot_of(student_run, second)) == {
        "metadata.json": (snapshot_of(student_run, second) / "metadata.json").read_bytes(),
        "code": "folder",
        "code/lib": "folder",
        "code/lib/a.py": b"a",
        "code/solve.py": b"two",
        "shared": "folder",
        "shared/eval_count": b"1",
        "shared/notes": "folder",
        "shared/notes/ideas.md": b"second idea",
        "shared/attempts": "folder",
        f"shared/attempts/{first['commit_hash']}.json": json.dumps(first, indent=2).encode(),
        f"shared/attempts/{second['commit_hash']}.json": json.dumps(second, indent=2).encode(),
    }
    assert metadata_of(student_run, second) == {
        "commit_hash": second["commit_hash"],
        "eval_count": 2,
        "agent_id": "agent-1",
        "eval_ok": True,
        "timestamp": "2026-05-01T12:00:02+00:00",
        "title": "try 2",
        "parent_hash": first["commit_hash"],
        "shared_state_hash": second["shared_state_hash"],
        "importer": "coral-pipeline import-run, format 1",
    }
    assert report(student_run) == [(1, None, None), (2, None, None)]


def test_eval_ok_says_whether_grading_gave_a_normal_score(run: CoralRun, student_run: Path) -> None:
    cases: list[tuple[object, Any, bool]] = [
        (1.0, "improved", True),
        (0, "baseline", True),
        (-3.5, "regressed", True),
        (2.0, "reverted", True),
        (1.0, None, True),
        (None, "crashed", False),
        (None, "timeout", False),
        (None, "improved", False),
        (1.0, "crashed", False),
        (1.0, "timeout", False),
        (float("nan"), "regressed", False),
        (float("inf"), "improved", False),
        (10**400, "improved", False),
        (True, "improved", False),
        ("1.0", "improved", False),
    ]
    records = [run.attempt(score, status=status) for score, status, _ in cases]
    import_run(run.path, student_run)
    found = [metadata_of(student_run, record)["eval_ok"] for record in records]
    assert found == [eval_ok for _, _, eval_ok in cases]


def test_the_nan_that_coral_writes_stays_as_it_is(run: CoralRun, student_run: Path) -> None:
    record = run.attempt(float("nan"), status="regressed")
    import_run(run.path, student_run)
    own = snapshot_of(student_run, record) / "shared" / "attempts" / f"{record['commit_hash']}.json"
    assert '"score": NaN' in own.read_text()


def test_a_pending_attempt_has_no_eval_ok_until_it_is_graded(run: CoralRun, student_run: Path) -> None:
    run.attempt(1.0)
    record = run.attempt(None, status="pending")
    import_run(run.path, student_run)
    assert "eval_ok" not in metadata_of(student_run, record)
    graded = record | {"score": 3.0, "status": "improved"}
    run.write_record(graded)
    outcome = import_run(run.path, student_run)
    assert outcome.written == 1
    assert metadata_of(student_run, record)["eval_ok"] is True
    own = snapshot_of(student_run, record) / "shared" / "attempts" / f"{record['commit_hash']}.json"
    assert json.loads(own.read_text()) == graded


def test_its_own_record_replaces_a_pending_one_in_the_checkpoint(run: CoralRun, student_run: Path) -> None:
    record = run.attempt(1.0)
    run.write_record(record | {"status": "pending", "score": None})
    git(run.public, "add", "-A")
    git(run.public, "commit", "-q", "-m", "a later checkpoint that has the record, still pending")
    run.write_record(record | {"shared_state_hash": git(run.public, "rev-parse", "HEAD")})
    import_run(run.path, student_run)
    (own,) = (snapshot_of(student_run, record) / "shared" / "attempts").iterdir()
    assert json.loads(own.read_text())["status"] == "improved"


def test_what_belongs_to_the_processes_of_the_run_stays_behind(run: CoralRun, student_run: Path) -> None:
    machine = (
        "manager.pid agents/a/worker.pid agent.pids agent_pids.json sessions.json sessions/a.json some.lock "
        "coral.lock logs/agent-1.0.log diagnostics/agent-1/fault.log gateway/requests.jsonl"
    )
    knowledge = "notes/logs/of-the-bees.md skills/pack/uv.lock notes/pid.md roles/agent-1.md heartbeat/agent-1.json"
    for name in (machine + " " + knowledge).split():
        (run.public / name).parent.mkdir(parents=True, exist_ok=True)
        (run.public / name).write_text("x")
    record = run.attempt(1.0)
    import_run(run.path, student_run)
    shared = contents(snapshot_of(student_run, record) / "shared")
    assert {name for name in shared if shared[name] == b"x"} == set(knowledge.split())
    assert not {"logs", "diagnostics", "gateway", "sessions"} & shared.keys()


def test_executables_links_and_submodules(run: CoralRun, student_run: Path) -> None:
    (run.repo / "run.sh").write_text("#!/bin/sh\n")
    (run.repo / "run.sh").chmod(0o755)
    (run.repo / "inside").symlink_to("run.sh")
    (run.repo / "outside").symlink_to("../../../secret")
    git(run.repo, "add", "-A")
    git(run.repo, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},vendor/lib")
    git(run.repo, "commit", "-q", "-m", "try")
    record = run.attempt(1.0, tree=git(run.repo, "rev-parse", "HEAD^{tree}"))
    import_run(run.path, student_run)
    code = contents(snapshot_of(student_run, record) / "code")
    assert code == {
        "run.sh*": b"#!/bin/sh\n",
        "inside": "-> run.sh",
        "vendor": "folder",
        "vendor/lib": "folder",
    }
    left_out = [
        f"code/vendor/lib: submodule at {'1' * 40}, left empty",
        "code/outside: link to '../../../secret', outside the folder",
    ]
    assert metadata_of(student_run, record)["left_out"] == left_out
    assert report(student_run) == [(1, "left_out", "; ".join(left_out))]


def test_bytes_are_not_filtered(run: CoralRun, student_run: Path) -> None:
    blob = write_object(run.repo, "blob", b"one\r\ntwo\n$Id$\xff\0")
    attributes = write_object(run.repo, "blob", b"* text eol=crlf ident\n")
    tree = write_raw_tree(run.repo, [("100644", b".gitattributes", attributes), ("100644", b"data", blob)])
    record = run.attempt(1.0, tree=tree)
    import_run(run.path, student_run)
    assert (snapshot_of(student_run, record) / "code" / "data").read_bytes() == b"one\r\ntwo\n$Id$\xff\0"


# Where the history has holes


def test_attempts_are_ordered_by_time_then_agent_then_commit(run: CoralRun, student_run: Path) -> None:
    times = [
        ("2026-05-01T12:00:05.5+00:00", "agent-2"),
        ("2026-05-01T14:00:05+02:00", "agent-2"),  # 12:00:05 in UTC
        ("2026-05-01T12:00:05", "agent-1"),  # without a zone: UTC
        ("2026-05-01T12:00:04+00:00", "agent-9"),
    ]
    made = [run.attempt(1.0, timestamp=time, agent_id=agent) for time, agent in times]
    import_run(run.path, student_run)
    names = sorted(path.name for path in (student_run / "all_snapshots").iterdir())
    expected = [made[i] for i in (3, 2, 1, 0)]
    assert names == [f"eval-{n:06d}-{r['agent_id']}-{r['commit_hash'][:12]}" for n, r in enumerate(expected, start=1)]


def test_a_missing_commit_is_a_row_and_keeps_its_number(run: CoralRun, student_run: Path) -> None:
    run.attempt(1.0)
    gone = "deadbeef" * 5
    run.write_record(run.attempt(2.0) | {"commit_hash": gone, "timestamp": "2026-05-01T12:00:01.5+00:00"})
    outcome = import_run(run.path, student_run)
    assert report(student_run) == [
        (1, None, None),
        (None, "objects", f"commit {gone} is missing or damaged"),
        (3, None, None),
    ]
    assert [row["commit_hash"] for row in outcome.rejected] == [gone]


def test_commits_that_no_branch_has_any_more_are_found(run: CoralRun, student_run: Path) -> None:
    run.attempt(1.0)
    reverted = run.attempt(2.0, code={"solve.py": "reverted"})
    git(run.repo, "reset", "-q", "--hard", "HEAD~1")
    run.attempt(3.0)
    import_run(run.path, student_run)
    assert (snapshot_of(student_run, reverted) / "code" / "solve.py").read_text() == "reverted"
    assert len(list((student_run / "all_snapshots").iterdir())) == 3


def test_commits_in_packs_and_in_an_agents_own_clone_are_found(run: CoralRun, student_run: Path) -> None:
    packed = run.attempt(1.0, code={"solve.py": "packed"})
    git(run.repo, "gc", "-q")
    git(run.public, "gc", "-q")
    clone = run.path / "agents" / "agent-1"
    git(run.path, "clone", "-q", "repo", str(clone))
    (clone / "solve.py").write_text("cloned")
    git(clone, "commit", "-q", "-a", "-m", "only here")
    cloned = packed | {"commit_hash": git(clone, "rev-parse", "HEAD"), "timestamp": "2026-05-01T13:00:00+00:00"}
    run.write_record(cloned)
    import_run(run.path, student_run)
    assert (snapshot_of(student_run, packed) / "code" / "solve.py").read_text() == "packed"
    assert (snapshot_of(student_run, cloned) / "code" / "solve.py").read_text() == "cloned"


@pytest.mark.parametrize("hash", [None, "0" * 40, "no hash"])
def test_without_its_checkpoint_the_last_earlier_one_stands_in(
    run: CoralRun, student_run: Path, hash: str | None
) -> None:
    run.attempt(1.0, notes="first")
    second = run.attempt(2.0, notes="second")
    third = run.attempt(3.0, notes="third", shared_state_hash=hash)
    fourth = run.attempt(4.0, notes="fourth", shared_state_hash=hash)
    import_run(run.path, student_run)
    for record in (third, fourth):
        shared = snapshot_of(student_run, record) / "shared"
        assert (shared / "notes" / "ideas.md").read_text() == "second"
        assert (shared / "attempts" / f"{record['commit_hash']}.json").is_file()
        metadata = metadata_of(student_run, record)
        assert metadata["shared_state_hash"] == second["shared_state_hash"]
        assert metadata["shared_state_from"] == second["commit_hash"]
    missing = f"checkpoint {hash} is missing" if hash == "0" * 40 else "no checkpoint"
    assert report(student_run)[2:] == [
        (n, "checkpoint", f"{missing}: shared state of {second['commit_hash']}") for n in (3, 4)
    ]


def test_without_any_earlier_checkpoint_there_is_only_its_own_record(run: CoralRun, student_run: Path) -> None:
    record = run.attempt(1.0, checkpoint=False)
    import_run(run.path, student_run)
    own = f"{record['commit_hash']}.json"
    assert set(contents(snapshot_of(student_run, record) / "shared")) == {"attempts", f"attempts/{own}"}
    assert metadata_of(student_run, record)["shared_state_hash"] is None
    assert metadata_of(student_run, record)["shared_state_from"] is None
    assert report(student_run) == [(1, "checkpoint", "no checkpoint, nor an earlier one")]


def test_a_checkpoint_of_a_rejected_attempt_stands_in_too(run: CoralRun, student_run: Path) -> None:
    run.attempt(1.0, notes="first")
    second = run.attempt(2.0, notes="second")
    run.write_record(second | {"commit_hash": "0" * 40})
    (run.attempts / f"{second['commit_hash']}.json").unlink()
    third = run.attempt(3.0, checkpoint=False)
    import_run(run.path, student_run)
    assert (snapshot_of(student_run, third) / "shared" / "notes" / "ideas.md").read_text() == "second"


def test_a_damaged_file_of_a_commit_rejects_that_attempt_only(run: CoralRun, student_run: Path) -> None:
    run.attempt(1.0, code={"solve.py": "good"})
    run.attempt(2.0, code={"solve.py": "to be damaged"})
    run.attempt(3.0, code={"solve.py": "good again"})
    blob = git(run.repo, "rev-parse", "HEAD~1:solve.py")
    path = run.repo / ".git" / "objects" / blob[:2] / blob[2:]
    path.chmod(0o644)
    path.write_bytes(b"garbage")
    import_run(run.path, student_run)
    assert report(student_run) == [
        (1, None, None),
        (None, "objects", f"blob {blob} is missing or damaged"),
        (3, None, None),
    ]
    assert len(list((student_run / "all_snapshots").iterdir())) == 2


# Records that cannot be used


@pytest.fixture(scope="module")
def run_of_one(tmp_path_factory: pytest.TempPathFactory) -> CoralRun:
    """A run with one good attempt; tests add the record of ``HASH``."""
    run = CoralRun(tmp_path_factory.mktemp("one") / "run")
    run.attempt(1.0)
    return run


HASH = "0123456789" * 4
RECORD = {"commit_hash": HASH, "agent_id": "agent-1", "timestamp": "2026-05-01T12:00:00+00:00", "score": 1.0}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"[1]", "is not a JSON object"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 10_000, "too long to read"),
        (b" " * (1 << 23) + b"{}", "is larger than"),
        (json.dumps(RECORD | {"commit_hash": "abc"}).encode(), "no full git hash"),
        (json.dumps(RECORD | {"commit_hash": 5}).encode(), "no full git hash"),
        (json.dumps(RECORD | {"commit_hash": "f" * 40}).encode(), "not named after its commit_hash"),
        (json.dumps(RECORD | {"agent_id": "../../etc"}).encode(), "no part of a name"),
        (json.dumps(RECORD | {"agent_id": "a/b"}).encode(), "no part of a name"),
        (json.dumps(RECORD | {"agent_id": ""}).encode(), "no part of a name"),
        (json.dumps(RECORD | {"agent_id": "\ud800"}).encode(), "no part of a name"),
        (json.dumps(RECORD | {"agent_id": "x" * 300}).encode(), "no part of a name"),
        (json.dumps(RECORD | {"timestamp": None}).encode(), "no ISO 8601 time"),
        (json.dumps(RECORD | {"timestamp": "yesterday"}).encode(), "no ISO 8601 time"),
        (json.dumps(RECORD | {"timestamp": "0001-01-01T00:00:00+23:59"}).encode(), "no ISO 8601 time"),
    ],
)
def test_an_unusable_record_is_a_row_and_the_rest_imports(
    run_of_one: CoralRun, student_run: Path, content: bytes, problem: str
) -> None:
    (run_of_one.attempts / f"{HASH}.json").write_bytes(content)
    import_run(run_of_one.path, student_run)
    (good, bad) = report(student_run)
    assert good == (1, None, None)
    assert bad[:2] == (None, "record")
    assert problem in bad[2]
    assert "\n" not in bad[2] and len(bad[2]) < 200


def test_records_that_are_no_files_are_rows(run: CoralRun, student_run: Path) -> None:
    record = run.attempt(1.0)
    (run.attempts / "a.json").mkdir()
    (run.attempts / "b.json").symlink_to("/etc/passwd")
    (run.attempts / "c.json").symlink_to(f"{record['commit_hash']}.json")
    subprocess.run(["mkfifo", str(run.attempts / "d.json")], check=True)
    (run.attempts / "caf\udce9.json").write_bytes(b"{}")
    (run.attempts / f".{HASH}.x.json.tmp").write_bytes(b"{")  # what CORAL renames to the record when it is whole
    (run.attempts / "README").write_bytes(b"no record")
    import_run(run.path, student_run)
    rows = {row["attempt"]: row["detail"] for row in tables.IMPORT_REPORT.rows(student_run)[1:]}
    assert rows == {
        "a.json": "is not a regular file",
        "b.json": "is a link, not a record",
        "c.json": "is a link, not a record",
        "d.json": "is not a regular file",
        "caf\\udce9.json": "has a commit_hash that is no full git hash: None",
    }


def test_hostile_text_in_a_record_changes_nothing_but_its_own_words(run: CoralRun, student_run: Path) -> None:
    record = run.attempt(1.0, title="\ud800\n\x1b[31m", status=["improved"], parent_hash={"a": 1}, feedback=7)
    import_run(run.path, student_run)
    metadata = metadata_of(student_run, record)
    assert (metadata["title"], metadata["parent_hash"], metadata["eval_ok"]) == ("\ud800\n\x1b[31m", None, True)


# The CORAL run is only read


def test_nothing_the_run_configures_is_executed_or_needed(run: CoralRun, student_run: Path, tmp_path: Path) -> None:
    record = run.attempt(1.0)
    run.attempt(2.0)
    alarm = tmp_path / "executed"
    for repository in (run.repo, run.public):
        for hook in ("post-checkout", "post-index-change", "reference-transaction", "fsmonitor-watchman"):
            path = repository / ".git" / "hooks" / hook
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"#!/bin/sh\ntouch {alarm}\n")
            path.chmod(0o755)
        with (repository / ".git" / "config").open("a") as config:
            config.write(
                f"[core]\n\tfsmonitor = touch {alarm}\n\tsshCommand = touch {alarm}\n[alias]\n\tcat-file = !x\n"
            )
            config.write(f'[extensions]\n\tpartialClone = evil\n[remote "evil"]\n\turl = ext::touch {alarm}\n')
            config.write("[protocol]\n\tallow = always\n this is no configuration")
        (repository / ".git" / "HEAD").write_text("nonsense")
        (repository / ".git" / "index.lock").write_text("stale")
    run.write_record(record | {"commit_hash": "0" * 40})  # a missing object: git would fetch it from the remote
    before = fingerprint(run.path)
    outcome = import_run(run.path, student_run)
    assert (outcome.written, len(outcome.rejected)) == (2, 1)
    assert not alarm.exists()
    assert fingerprint(run.path) == before


def test_a_replaced_commit_is_imported_as_it_was(run: CoralRun, student_run: Path) -> None:
    record = run.attempt(1.0, code={"solve.py": "graded"})
    run.attempt(2.0, code={"solve.py": "another"})
    git(run.repo, "replace", record["commit_hash"], "HEAD")
    import_run(run.path, student_run)
    assert (snapshot_of(student_run, record) / "code" / "solve.py").read_text() == "graded"


@pytest.mark.parametrize("where", ["student", ".coral/student", "."])
def test_importing_into_the_coral_run_is_refused(run: CoralRun, where: str) -> None:
    run.attempt(1.0)
    before = fingerprint(run.path)
    with pytest.raises(BadInput, match="lies inside the CORAL run"):
        import_run(run.path, run.path / where)
    assert fingerprint(run.path) == before


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (".coral", r"\.coral: is missing"),
        (".coral/config.yaml", "config.yaml: is missing"),
        (".coral/public/attempts", "attempts: is missing"),
        ("repo", "repo: is no git repository"),
    ],
)
def test_what_is_no_coral_run_is_refused_by_the_part_it_lacks(
    run: CoralRun, student_run: Path, broken: str, problem: str
) -> None:
    run.attempt(1.0)
    path = run.path / broken
    path.unlink() if path.is_file() else shutil.rmtree(path)
    if broken == "repo":
        shutil.rmtree(run.public / ".git")
    with pytest.raises(BadInput, match=problem):
        import_run(run.path, student_run)
    assert not student_run.exists()


def test_a_run_without_attempts_is_refused(run: CoralRun, student_run: Path) -> None:
    with pytest.raises(BadInput, match="holds no attempts"):
        import_run(run.path, student_run)


def test_the_coral_folder_itself_and_links_to_the_run_will_do(run: CoralRun, tmp_path: Path) -> None:
    run.attempt(1.0)
    (tmp_path / "latest").symlink_to("run")
    import_run(run.path / ".coral", tmp_path / "a")
    import_run(tmp_path / "latest", tmp_path / "b")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


# Importing again


def test_only_new_attempts_are_added(run: CoralRun, student_run: Path, tmp_path: Path) -> None:
    run.attempt(1.0)
    run.attempt(2.0, checkpoint=False)
    import_run(run.path, student_run)
    before = fingerprint(student_run / "all_snapshots")
    run.attempt(3.0)
    outcome = import_run(run.path, student_run)
    assert outcome.written == 1
    after = fingerprint(student_run / "all_snapshots")
    assert {name: after[name] for name in before if name != "."} == {n: before[n] for n in before if n != "."}
    import_run(run.path, tmp_path / "at once")
    assert contents(student_run) == contents(tmp_path / "at once")


def test_an_attempt_that_comes_late_does_not_renumber_the_others(run: CoralRun, student_run: Path) -> None:
    run.attempt(1.0)
    second = run.attempt(2.0)
    import_run(run.path, student_run)
    before = contents(student_run)
    run.attempt(3.0, timestamp="2026-05-01T12:00:01.5+00:00")
    prefix = second["commit_hash"][:12]
    with pytest.raises(BadInput, match=rf"eval-000002-agent-1-{prefix}: would now be eval-000003-agent-1-{prefix}"):
        import_run(run.path, student_run)
    assert contents(student_run) == before


def test_another_coral_run_does_not_go_into_the_same_folder(run: CoralRun, student_run: Path, tmp_path: Path) -> None:
    run.attempt(1.0)
    import_run(run.path, student_run)
    before = contents(student_run)
    other = CoralRun(tmp_path / "other")
    other.attempt(1.0, code={"solve.py": "of the other run"})
    with pytest.raises(BadInput, match="is no snapshot of this CORAL run"):
        import_run(other.path, student_run)
    assert contents(student_run) == before


def test_a_folder_with_something_else_in_it_is_left_alone(run: CoralRun, student_run: Path) -> None:
    run.attempt(1.0)
    (student_run / "all_snapshots").mkdir(parents=True)
    (student_run / "task.yaml").write_text("mine")
    before = fingerprint(student_run)
    with pytest.raises(BadInput, match="holds something that no import made"):
        import_run(run.path, student_run)
    assert fingerprint(student_run) == before


def test_a_file_in_the_place_of_the_student_run_is_left_alone(run: CoralRun, student_run: Path) -> None:
    run.attempt(1.0)
    student_run.write_text("mine")
    with pytest.raises(BadInput, match="is not a folder"):
        import_run(run.path, student_run)
    assert student_run.read_text() == "mine"


def test_what_the_disk_refuses_is_named(run: CoralRun, student_run: Path) -> None:
    run.attempt(1.0)
    import_run(run.path, student_run)
    shutil.rmtree(student_run / "all_snapshots")
    (student_run / "all_snapshots").write_text("in the way")
    with pytest.raises(BadInput, match=r"all_snapshots: cannot be used \(File exists\)"):
        import_run(run.path, student_run)


def test_two_imports_at_once_do_not_mix(run: CoralRun, student_run: Path) -> None:
    run.attempt(1.0)
    with open_destination(student_run), pytest.raises(BadInput, match="being written by another import"):
        import_run(run.path, student_run)
    assert import_run(run.path, student_run).written == 1


@pytest.mark.slow
def test_an_import_that_was_killed_is_completed_by_the_next(coral_run_tour: Path, tmp_path: Path) -> None:
    student_run, snapshots = tmp_path / "killed", tmp_path / "killed" / "all_snapshots"
    command = [
        sys.executable,
        "-m",
        "coral_pipeline.cli",
        "import-run",
        str(coral_run_tour),
        str(student_run),
    ]
    process = subprocess.Popen(command)
    while process.poll() is None and (not snapshots.is_dir() or len(list(snapshots.iterdir())) < 5):
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it ended before it could be killed"
    made = {path.name for path in snapshots.iterdir()}
    assert (student_run / ".partial").is_dir() and not (student_run / "import_report.parquet").exists()
    outcome = import_run(coral_run_tour, student_run)
    assert outcome.written == 64 - len(made)
    import_run(coral_run_tour, tmp_path / "at once")
    assert contents(student_run) == contents(tmp_path / "at once")
