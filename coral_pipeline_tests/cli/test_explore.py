"""``coral-pipeline explore`` as a user meets it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from coral_pipeline import cli, tables
from coral_pipeline.cli import tree_view
from coral_pipeline.disk_use import disk_bytes, readable
from coral_pipeline.search.explorer import Explorer
from coral_pipeline.search.tree import Tree
from coral_pipeline.settings import SearchSettings
from coral_pipeline_tests.search.growing import IMPATIENT, ROOT, AnswerTeacher, Forgetful
from coral_pipeline_tests.search.on_disk import DICE

GOOD: list[dict[str, Any]] = [{"score": 2.0, "tool_calls": 5, "context_tokens": 900}] * 2


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copied root of a task that is minimised."""
    root = tmp_path / "selected_roots" / "eval-000001-agent-1-0123456789ab"
    root.mkdir(parents=True)
    (root / "metadata.json").write_text(json.dumps({"commit_hash": "0123456789abcdef", "score": 3.0}))
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "task.yaml").write_text("grader: {direction: minimize}")
    return root


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A script that answers every edge a tree can ask for."""
    edges = [([*path], k) for depth in range(4) for path in product(range(3), repeat=depth) for k in range(3)]
    path = tmp_path / "script.jsonl"
    path.write_text("\n".join(json.dumps({"path": p, "expansion": k, "turns": GOOD}) for p, k in edges))
    return path


class Result:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command, in this process."""

    def command(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["coral-pipeline", "explore", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return Result(int(ended.value.code or 0), out, err)

    return command


def test_it_writes_the_tables_and_says_what_it_found(run: Any, root: Path, script: Path, tmp_path: Path) -> None:
    result = run(root, "--out", tmp_path / "tree", "--teacher", "scripted", "--script", script)
    assert (result.code, result.err) == (0, "")
    assert "leaf_target" in result.out and "2 (node 1, 1 better than the root)" in result.out
    assert f"{tmp_path / 'tree'} ({readable(disk_bytes(tmp_path / 'tree'))} on disk)" in result.out
    tree = json.loads((tmp_path / "tree" / "tree.json").read_text())
    assert (tree["direction"], tree["configuration"]["search"]["parallel_width"]) == ("minimize", 8)
    assert len(tables.NODES.rows(tmp_path / "tree")) == tree["counts"]["nodes"]


def test_width_and_other_settings(run: Any, root: Path, script: Path, tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("search: {max_logical_edges: 6, parallel_width: 5}\nretry: {attempts: 1}")
    given = ("--teacher", "scripted", "--script", script, "--settings", tmp_path / "settings.yaml")
    for out, more, width in (("a", (), 5), ("b", ("--width", 2), 2)):
        assert run(root, "--out", tmp_path / out, *given, *more).code == 0
        tree = json.loads((tmp_path / out / "tree.json").read_text())
        assert tree["configuration"]["search"]["parallel_width"] == width
        assert tree["counts"]["valid_edges"] == 6


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("search: {max_depht: 3}", "search.max_depht: Extra inputs are not permitted"),
        ("search: {max_depth: 0}", "search.max_depth: Input should be greater than or equal to 1"),
        ("search: {max_logical_edges: 2}", "max_logical_edges must be at least root_children"),
        ("search: {parallel_width: 0}", "search.parallel_width"),
        ("search: {parallel_width: wide}", "search.parallel_width"),
        ("retry: {first_delay_seconds: .nan}", "retry.first_delay_seconds"),
        ("[1, 2]", "the file: "),
        ("a: [", "is not YAML"),
        ("\x00", "is not YAML"),
        ("search: {max_depth: !!int ''}", "is not YAML"),
    ],
)
def test_settings_that_cannot_be_used_are_named(run: Any, root: Path, tmp_path: Path, settings: str, told: str) -> None:
    (tmp_path / "settings.yaml").write_text(settings)
    result = run(root, "--out", tmp_path / "tree", "--settings", tmp_path / "settings.yaml")
    assert result.code == 1 and told in result.err and "settings.yaml" in result.err
    assert len(result.err.splitlines()) == 1
    assert not (tmp_path / "tree").exists()


@pytest.mark.parametrize("by_file", [False, True])
def test_a_width_that_no_server_can_tell_is_refused(run: Any, root: Path, tmp_path: Path, by_file: bool) -> None:
    (tmp_path / "settings.yaml").write_text("search: {parallel_width: auto}")
    given = ("--settings", tmp_path / "settings.yaml") if by_file else ("--width", "auto")
    result = run(root, "--out", tmp_path / "tree", *given)
    assert result.code == 1 and "width auto: " in result.err and "embedded" in result.err
    assert len(result.err.splitlines()) == 1 and not (tmp_path / "tree").exists()


def test_a_script_that_ends_too_early_halts_and_goes_on_when_it_is_completed(
    run: Any, root: Path, script: Path, tmp_path: Path
) -> None:
    lines = script.read_text().splitlines()
    hole = next(line for line in lines if '"path": [1], "expansion": 0' in line)
    script.write_text("\n".join(line for line in lines if line != hole))
    given = (root, "--out", tmp_path / "tree", "--teacher", "scripted", "--script", script)
    halted = run(*given)
    assert halted.code == 1 and len(halted.err.splitlines()) == 1
    assert root.name in halted.err and "edge 1.0" in halted.err and '"path": [1], "expansion": 0' in halted.err

    script.write_text("\n".join(lines))
    refused = run(*given)
    assert refused.code == 1 and "--resume" in refused.err
    assert run(*given, "--resume").code == 0
    assert run(*given).out.startswith("this tree was finished before")


def test_another_tree_in_the_folder_is_refused_naming_what_differs(
    run: Any, root: Path, script: Path, tmp_path: Path
) -> None:
    given = (root, "--out", tmp_path / "tree", "--teacher", "scripted", "--script", script)
    assert run(*given).code == 0
    result = run(*given, "--width", 3, "--direction", "maximize", "--resume")
    assert result.code == 1 and len(result.err.splitlines()) == 1
    assert "settings.parallel_width was 8, now 3" in result.err
    assert 'direction was "minimize", now "maximize"' in result.err


def test_resume_with_nothing_there_begins(run: Any, root: Path, script: Path, tmp_path: Path) -> None:
    given = ("--teacher", "scripted", "--script", script, "--resume")
    assert run(root, "--out", tmp_path / "tree", *given).code == 0


def test_a_task_that_is_not_found_is_noted(run: Any, script: Path, tmp_path: Path) -> None:
    lonely = tmp_path / "a" / "b" / "c" / "d"
    lonely.mkdir(parents=True)
    (lonely / "metadata.json").write_text('{"score": 3.0}')
    given = ("--out", tmp_path / "tree", "--teacher", "scripted", "--script", script)
    result = run(lonely, *given)
    assert result.code == 0 and result.err.startswith("note: no task.yaml near")
    assert "the root's own" in result.out, "2 is worse than 3 where higher is better"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--teacher", "oracle"),
        ("--direction", "sideways"),
        ("--width", "0"),
        ("--teacher", "scripted"),
        ("--unknown",),
    ],
)
def test_wrong_usage_has_exit_code_2(run: Any, root: Path, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert run(root, "--out", tmp_path / "tree", *arguments).code == 2


def test_the_root_folder_is_never_written_to(run: Any, root: Path, script: Path) -> None:
    result = run(root, "--out", root / "tree", "--teacher", "scripted", "--script", script)
    assert result.code == 1 and "never written to" in result.err
    assert [path.name for path in root.iterdir()] == ["metadata.json"]


def test_what_is_no_root_is_bad_input(run: Any, tmp_path: Path) -> None:
    result = run(tmp_path / "nowhere", "--out", tmp_path / "tree")
    assert result.code == 1 and result.err.startswith("coral-pipeline: ") and "nowhere" in result.err


def test_help_teaches_and_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom coral_pipeline.cli import main\nsys.argv = ['coral-pipeline', 'explore', '--help']\n"
        "try:\n    main()\nexcept SystemExit as ended:\n    assert not ended.code\n"
        "print(sorted({'pyarrow', 'numpy', 'dagster', 'yaml'} & sys.modules.keys()))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "[]"
    for word in ("--resume", "--script", "nodes.parquet", "tree.json", "Example"):
        assert word in shown


def test_the_live_view_shows_budget_tree_and_edges_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Console(force_terminal=True, width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    monkeypatch.setattr(tree_view, "stderr", terminal)
    frames = []
    tree = Tree(ROOT, "maximize", SearchSettings(max_logical_edges=12))
    with tree_view.TreeView() as view:

        def observe(progress: Any) -> None:
            view(progress)
            terminal.print(tree_view.render(progress))
            frames.append(re.sub(r"\x1b\[[0-9;]*m", "", terminal.export_text(clear=True)))

        import threading

        Explorer(
            tree, AnswerTeacher(DICE), Forgetful(), IMPATIENT, threading.Event(), observe, disk_bytes=lambda: 5_000_000
        ).run()
    assert any("… 0, turn 1" in frame for frame in frames), "an edge in flight"
    last = frames[-1]
    assert (
        "12/12" in last and "good leaves" in last and f"best {max(n.path_best_score for n in tree.nodes):.6g}" in last
    )
    assert "5 MB on disk" in last
    for node in tree.nodes:
        assert re.search(rf"\b{node.node_id}  ", last), f"node {node.node_id} is drawn"
