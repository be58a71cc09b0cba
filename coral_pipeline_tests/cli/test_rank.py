"""``coral-pipeline rank`` as a person at a shell meets it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from coral_pipeline import tables
from coral_pipeline.cli import main
from coral_pipeline_tests.trees import N, write_tree

Rank = Callable[..., tuple[int | str | None, str, str]]
NODES = [N(score=1.0)] + [N(0, float(k)) for k in range(8)] + [N(0, 1.0, leaf="open")]


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Rank:
    """Run the command; gives exit code, stdout, stderr."""

    def run(*arguments: object) -> tuple[int | str | None, str, str]:
        monkeypatch.setattr(sys, "argv", ["coral-pipeline", "rank", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit:
            main()
        said = capsys.readouterr()
        return exit.value.code, said.out, said.err

    return run


def test_the_table_is_written_and_shown(rank: Rank, tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", NODES)
    before = {file.name: file.read_bytes() for file in tree.iterdir()}
    code, out, err = rank(tree, "--out", tmp_path / "out" / "paths")
    assert (code, err) == (0, "")
    rows = tables.RANKED_PATHS.rows(tmp_path / "out" / "paths")
    assert [row["leaf_id"] for row in rows] == [8, 7, 6, 5, 4, 3, 2, 1, 9]
    assert "6 of 9 paths selected" in out
    assert "open_leaf" in out
    assert {file.name: file.read_bytes() for file in tree.iterdir()} == before, "the tree is only read"


def test_how_many_are_selected_can_be_said(rank: Rank, tmp_path: Path) -> None:
    write_tree(tmp_path, NODES)
    assert "2 of 9 paths selected" in rank(tmp_path, "--out", tmp_path, "--top", 2)[1]


def test_the_file_is_read_by_duckdb(rank: Rank, tmp_path: Path) -> None:
    rank(write_tree(tmp_path, NODES), "--out", tmp_path)
    file = str(tmp_path / "ranked_paths.parquet")
    query = f"select leaf_id, PathScore, node_ids from '{file}' where selected order by rank"
    found = duckdb.connect().execute(query).fetchall()
    assert [row[0] for row in found] == [8, 7, 6, 5, 4, 3]
    assert found[0][2] == [0, 8]


@pytest.mark.parametrize("arguments", [[], ["TREE"], ["TREE", "--out", "OUT", "--top", "0"], ["TREE", "--ot", "OUT"]])
def test_wrong_usage_ends_with_2(rank: Rank, arguments: list[str]) -> None:
    code, out, err = rank(*arguments)
    assert (code, out) == (2, "")
    assert "rank [OPTIONS]" in err


def test_a_tree_that_is_not_finished_ends_with_1_and_one_line(rank: Rank, tmp_path: Path) -> None:
    code, out, err = rank(tmp_path / "nowhere", "--out", tmp_path / "out")
    assert (code, out) == (1, "")
    (line,) = err.splitlines()
    assert line.startswith(f"coral-pipeline: {tmp_path / 'nowhere' / 'tree.json'}: no such file")
    assert not (tmp_path / "out").exists()


def test_an_output_folder_that_is_a_file(rank: Rank, tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", NODES)
    (tmp_path / "out").touch()
    code, _, err = rank(tree, "--out", tmp_path / "out")
    assert code == 1
    assert "choose another --out" in err


def test_help_teaches(rank: Rank) -> None:
    code, out, _ = rank("--help")
    assert code == 0
    for word in ("TREE_DIR", "ranked_paths.parquet", "missing_score", "Example"):
        assert word in out
