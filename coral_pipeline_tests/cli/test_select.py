"""``coral-pipeline select`` as a person at a shell meets it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest

from coral_pipeline.cli import main
from coral_pipeline.tables import FILTERED_SNAPSHOTS, REJECTED_SNAPSHOTS, SELECTED_ROOTS, STAGE_LABELS
from coral_pipeline_tests.student_runs import S, snapshot_name, write_snapshot, write_student_run

Select = Callable[..., tuple[int | str | None, str, str]]
TOUR = Path(__file__).parents[2] / "data" / "student_runs" / "tour"


@pytest.fixture
def select(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Select:
    """Run the command; gives exit code, stdout, stderr."""

    def run(*arguments: object) -> tuple[int | str | None, str, str]:
        monkeypatch.setattr(sys, "argv", ["coral-pipeline", "select", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit:
            main()
        said = capsys.readouterr()
        return exit.value.code, said.out, said.err

    return run


def test_the_bundled_run(select: Select, tmp_path: Path) -> None:
    before = {path: (path.lstat().st_mtime_ns, path.is_file() and path.read_bytes()) for path in TOUR.rglob("*")}
    code, out, err = select(TOUR, "--out", tmp_path, "--num-roots", 6)
    assert (code, err) == (0, ""), "quiet where there is no terminal"
    assert "tour (minimize): snapshots: 64, kept: 64, eligible: 58" in out
    assert f"roots: 6, copied to {tmp_path / 'selected_roots'}" in out
    after = {path: (path.lstat().st_mtime_ns, path.is_file() and path.read_bytes()) for path in TOUR.rglob("*")}
    assert after == before, "the Student run is never modified"

    roots = SELECTED_ROOTS.rows(tmp_path / "selected_roots")
    assert [root["stage"] for root in roots] == ["early"] + ["middle"] * 3 + ["late"] * 2
    assert {root["student_run"] for root in roots} == {"tour"}
    for root in roots:
        copied = json.loads((tmp_path / "selected_roots" / root["root"] / "metadata.json").read_text())
        original = json.loads((TOUR / "all_snapshots" / root["root"] / "metadata.json").read_text())
        assert copied == original | {key: root[key] for key in ("score", "stage", "selection_reason")}
    assert (tmp_path / "task" / "task.yaml").read_bytes() == (TOUR / "task.yaml").read_bytes()


def test_the_tables_are_read_by_plain_pandas_pyarrow_and_duckdb(select: Select, tmp_path: Path) -> None:
    run = write_student_run(tmp_path / "run", [1.0, None, 2.0, S(3.0, False)])
    (run / "all_snapshots" / "junk").touch()
    select(run, "--out", tmp_path / "out")
    for table, folder, rows in (
        (FILTERED_SNAPSHOTS, "filtered_snapshots", 4),
        (REJECTED_SNAPSHOTS, "filtered_snapshots", 1),
        (STAGE_LABELS, "stage_labels", 4),
        (SELECTED_ROOTS, "selected_roots", 2),
    ):
        file = tmp_path / "out" / folder / f"{table.name}.parquet"
        columns = [column.name for column in table.columns]
        assert list(pd.read_parquet(file).columns) == columns
        assert duckdb.execute(f"select count(*) from '{file}'").fetchall() == [(rows,)]
        schema = pq.read_schema(file)
        assert schema.names == columns
        assert all(field.metadata[b"description"] for field in schema)
    scores = duckdb.execute(f"select score from '{tmp_path}/out/stage_labels/*.parquet' order by global_index")
    assert scores.fetchall() == [(1.0,), (None,), (2.0,), (3.0,)]


def test_the_same_run_twice_gives_the_same_tables(select: Select, tmp_path: Path) -> None:
    run = write_student_run(tmp_path / "run", [1.0, 2.0, 3.0])
    select(run, "--out", tmp_path / "a")
    select(run, "--out", tmp_path / "a")
    select(run, "--out", tmp_path / "b", "--num-roots", 30)
    for file in sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.parquet")):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


def test_what_was_rejected_short_or_odd_is_said(select: Select, tmp_path: Path) -> None:
    run = write_student_run(tmp_path / "run", [1.0, 2.0])
    snapshots = run / "all_snapshots"
    for name in (".DS_Store", "two\nlines"):
        (snapshots / name).touch()
    write_snapshot(snapshots / f"eval-1-again-{'a' * 12}", {"agent_id": "again"})
    write_snapshot(snapshots / f"eval-000002-again-{'a' * 12}", {"eval_ok": False})
    (snapshots / snapshot_name(2) / "code" / "passwords").symlink_to("/etc/passwd")
    code, out, err = select(run, "--out", tmp_path / "out", "--num-roots", 4)
    assert code == 0
    assert "rejected: 3 (2 name, 1 pending)" in out
    assert err.splitlines() == [
        f"note: global index 2 is repeated: eval-000002-again-{'a' * 12}, {snapshot_name(2)}",
        "note: middle stage: quota 2, eligible 0",
        "note: roots asked for: 4, eligible snapshots: 2; all of them were chosen",
        f"note: left out of a copy: {snapshot_name(2)}/code/passwords: is a link that leads outside (/etc/passwd)",
    ]


def test_many_notes_are_counted(select: Select, tmp_path: Path) -> None:
    run = write_student_run(tmp_path / "run", [1.0] * 12)
    for index in range(1, 13):
        (run / "all_snapshots" / snapshot_name(index) / "code" / "link").symlink_to("/")
    _, _, err = select(run, "--out", tmp_path / "out", "--num-roots", 12)
    assert err.splitlines()[-1] == "note: … and 2 more of these"
    assert len(err.splitlines()) == 11 + 1, "ten of twelve, the count, and late's shortage"


def test_a_run_in_which_every_eval_failed(select: Select, tmp_path: Path) -> None:
    run = write_student_run(tmp_path / "run", [None, None])
    code, out, err = select(run, "--out", tmp_path / "out")
    assert code == 1
    assert err == (
        f"coral-pipeline: {run}: none of the 2 kept snapshots has a numeric score, so it has no stages; "
        "choose a run in which at least one eval succeeded\n"
    )
    assert "kept: 2, eligible: 0" in out
    assert len(FILTERED_SNAPSHOTS.rows(tmp_path / "out" / "filtered_snapshots")) == 2, "what was found is not lost"


def test_a_run_without_an_eligible_snapshot(select: Select, tmp_path: Path) -> None:
    run = write_student_run(tmp_path / "run", [S(1.0, False), S(2.0, "yes")])
    code, _, err = select(run, "--out", tmp_path / "out")
    assert code == 1
    assert err.splitlines()[-1] == (
        f"coral-pipeline: {run}: no snapshot is eligible, so there are no roots; choose another Student run"
    )
    assert SELECTED_ROOTS.rows(tmp_path / "out" / "selected_roots") == []


def test_a_run_of_which_nothing_could_be_kept(select: Select, tmp_path: Path) -> None:
    run = write_student_run(tmp_path / "run", [])
    (run / "all_snapshots" / "junk").touch()
    code, out, err = select(run, "--out", tmp_path / "out")
    assert (code, err) == (
        1,
        f"coral-pipeline: {run}: no snapshot was kept; see the reasons in rejected_snapshots.parquet\n",
    )
    assert "rejected: 1 (1 name)" in out
    assert len(REJECTED_SNAPSHOTS.rows(tmp_path / "out" / "filtered_snapshots")) == 1


def test_bad_input_is_one_line_that_names_the_file(select: Select, tmp_path: Path) -> None:
    run = write_student_run(tmp_path / "run", [1.0])
    (tmp_path / "file").touch()

    def error(student_run: Path, out: Path) -> str:
        code, _, err = select(student_run, "--out", out)
        assert code == 1
        (line,) = err.splitlines()
        return str(line)

    assert error(tmp_path / "none", tmp_path / "out").startswith(f"coral-pipeline: {tmp_path}/none: is missing; ")
    assert error(run, run / "all_snapshots" / "out").endswith("choose another output folder")
    assert error(run, run / "out").endswith("choose another output folder")
    assert str(tmp_path / "file") in error(run, tmp_path / "file")
    (run / "task.yaml").write_text("grader: {direction: up}\n")
    assert error(run, tmp_path / "out") == (
        f"coral-pipeline: {run}/task.yaml: grader.direction is 'up'; set it to maximize or minimize"
    )
    (run / "task.yaml").unlink()
    assert error(run, tmp_path / "out").startswith(f"coral-pipeline: {run}/task.yaml: is missing; ")


@pytest.mark.parametrize(
    "arguments", [(), ("run",), ("run", "--out", "x", "--num-roots", "0"), ("run", "--out", "x", "--n")]
)
def test_wrong_usage(select: Select, arguments: tuple[str, ...]) -> None:
    code, out, err = select(*arguments)
    assert (code, out) == (2, "") and "select --help" in err


def test_help_teaches(select: Select) -> None:
    code, out, _ = select("--help")
    assert code == 0
    for word in ("task.yaml", "all_snapshots", "filtered_snapshots", "stage_labels", "selected_roots", "Example"):
        assert word in out
