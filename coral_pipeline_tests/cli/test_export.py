"""``coral-pipeline export`` as a person uses it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from coral_pipeline.credit.tokens import write_tokens
from coral_pipeline_tests.transcripts import ADVANTAGES, write_ranked, write_talking_tree


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "coral_pipeline.cli", "export", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``tree``, ``paths`` and ``batch``, as explore, rank and credit write them."""
    folder = tmp_path_factory.mktemp("cli")
    write_talking_tree(folder / "tree")
    write_ranked(folder / "tree", folder / "paths")
    write_tokens(folder / "tree", ADVANTAGES, folder / "batch")
    return folder


@pytest.mark.slow
def test_all_formats_of_one_tree(folder: Path, tmp_path: Path) -> None:
    done = run(folder / "tree", "--ranked", folder / "paths", "--credit", folder / "batch", "--out", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:2] == [f"2 selected paths of 1 root: {tmp_path}", "  sft: 2 samples"]
    assert "2 branches" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {
        *("sft.jsonl", "sft.parquet", "llama_factory", "traces.jsonl", "branches.parquet"),
    }


def test_sft_needs_no_credit(folder: Path, tmp_path: Path) -> None:
    done = run(folder / "tree", "--ranked", folder / "paths", "--format", "sft", "--out", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "sft.jsonl").is_file() and not (tmp_path / "traces.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere", "--out", "x"], "nowhere: no finished tree (tree.json) here"),
        (["tree", "--out", "x"], "tree: its ranked paths are not there"),
        (["tree", "--ranked", "paths", "--out", "x"], "tree: its credit is not there"),
        (["tree", "--ranked", "paths", "--credit", "batch", "--out", "tree/tree.json"], "cannot be written"),
    ],
)
def test_input_that_cannot_be_used_is_one_line_and_exit_code_1(folder: Path, arguments: list[str], said: str) -> None:
    done = run(*(argument if argument.startswith("-") else folder / argument for argument in arguments))
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("coral-pipeline: ") and said in line


@pytest.mark.parametrize("arguments", [[], ["tree"], ["tree", "--out", "x", "--format", "csv"]])
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    assert run(*arguments).returncode == 2


def test_help_says_what_is_read_and_written() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert all(word in done.stdout for word in ("sft.parquet", "branches.parquet", "traces.jsonl", "llama_factory"))
