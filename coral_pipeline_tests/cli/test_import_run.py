"""``coral-pipeline import-run`` as a user meets it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

from coral_pipeline import tables
from coral_pipeline_tests.coral_runs import CoralRun


def coral_pipeline(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "coral_pipeline.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def import_run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return coral_pipeline("import-run", *arguments)


def test_it_says_how_many_came_in_and_which_did_not(tmp_path: Path) -> None:
    run = CoralRun(tmp_path / "run")
    run.attempt(1.0)
    (run.attempts / "half.json").write_text("{")
    first = import_run(run.path, tmp_path / "student")
    assert (first.returncode, first.stderr) == (0, "")
    summary, rejected = first.stdout.splitlines()
    assert summary == f"1 of 2 attempts imported (1 now): {tmp_path / 'student'}"
    assert rejected.startswith("rejected: half.json (record: is not JSON")
    again = import_run(run.path, tmp_path / "student")
    assert again.stdout.splitlines()[0] == f"1 of 2 attempts imported (0 now): {tmp_path / 'student'}"


def test_what_it_makes_is_what_select_takes(tmp_path: Path) -> None:
    run = CoralRun(tmp_path / "run")
    for score in (1.0, None, 2.0, 3.0):
        run.attempt(score, status="improved" if score else "crashed")
    assert import_run(run.path, tmp_path / "student").returncode == 0
    selected = coral_pipeline("select", tmp_path / "student", "--out", tmp_path / "out", "--num-roots", 2)
    assert (selected.returncode, selected.stderr) == (0, "")
    roots = tables.SELECTED_ROOTS.rows(tmp_path / "out" / "selected_roots")
    assert len(roots) == 2
    for row in roots:
        assert (tmp_path / "out" / "selected_roots" / row["root"] / "code" / "solve.py").is_file()


def test_bad_input_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    done = import_run(tmp_path, tmp_path / "student")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(
        f"coral-pipeline: {tmp_path / '.coral'}: is missing; give the folder of one CORAL run"
    )


def test_wrong_usage_is_exit_code_2() -> None:
    assert import_run("only-one").returncode == 2


def test_a_terminal_sees_a_progress_bar(tmp_path: Path) -> None:
    run = CoralRun(tmp_path / "run")
    run.attempt(1.0)
    command = [sys.executable, "-m", "coral_pipeline.cli", "import-run", str(run.path), str(tmp_path / "student")]
    ours, theirs = pty.openpty()
    done = subprocess.run(command, stderr=theirs, stdout=subprocess.DEVNULL, env=os.environ | {"TERM": "xterm"})
    os.close(theirs)
    assert done.returncode == 0
    assert b"snapshots" in os.read(ours, 10_000)
    os.close(ours)


def test_help_teaches_and_does_not_load_the_libraries() -> None:
    program = (
        "import sys; sys.argv = ['coral-pipeline', 'import-run', '--help']\n"
        "from coral_pipeline.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('pyarrow' in sys.modules, 'yaml' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "Example" in done.stdout and "import_report.parquet" in done.stdout
    assert done.stdout.splitlines()[-1] == "False False"
