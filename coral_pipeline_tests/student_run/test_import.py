"""Importing a CORAL run: what a snapshot holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from coral_pipeline.student_run.importing import import_run
from coral_pipeline_tests.coral_runs import (
    CoralRun,
    contents,
    git,
    metadata_of,
    report,
    snapshot_of,
    write_object,
    write_raw_tree,
)


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
        "code/outside: link to '../../../secret', out of the folder or in circles",
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
