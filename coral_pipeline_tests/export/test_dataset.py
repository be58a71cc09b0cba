"""Exports of several roots: where their folders are found, and what is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coral_pipeline import tables
from coral_pipeline.credit.tokens import write_tokens
from coral_pipeline.errors import BadInput
from coral_pipeline.export.dataset import write_dataset
from coral_pipeline.export.layout import RootFolders, find_roots
from coral_pipeline_tests.export.conftest import Exported
from coral_pipeline_tests.transcripts import ADVANTAGES, write_ranked, write_talking_tree

ROOTS = ("eval-000001-agent-1-000000000001", "eval-000002-agent-1-000000000002")


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two roots of one Student run, as the Dagster assets lay them out."""
    output = tmp_path_factory.mktemp("output")
    rows = []
    for index, root in enumerate(ROOTS):
        tree = write_talking_tree(output / "explored_trees" / "run-a" / root, root=root)
        write_ranked(tree, output / "ranked_paths" / "run-a" / root)
        write_tokens(tree, ADVANTAGES, output / "advantage_batches" / "run-a" / root)
        row = dict.fromkeys(column.name for column in tables.SELECTED_ROOTS.columns)
        rows.append(row | selected_root(index, root))
    tables.SELECTED_ROOTS.write(rows, output / "selected_roots" / "run-a")
    return output


@pytest.fixture(scope="module")
def episodes(output: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What verifiers' own reader makes of the two roots."""
    from verifiers.v1.trace import WireTrace
    from verifiers.v1.utils.trace_store import read_episodes

    folder = tmp_path_factory.mktemp("episodes")
    write_dataset(find_roots([output]), folder, ["verifiers"])
    return list(read_episodes(folder, WireTrace))


def selected_root(index: int, root: str) -> dict[str, Any]:
    return {
        "root": root,
        "student_run": "run-a",
        "global_index": index,
        "agent_id": "agent-1",
        "commit_hash": "c",
        "score": 1.0,
        "stage": ("early", "late")[index],
        "selection_reason": "quota",
    }


class TestFindingRoots:
    @pytest.mark.parametrize("below", ["", "explored_trees", "explored_trees/run-a"])
    def test_from_any_folder_above_the_trees_all_are_found_with_their_stage(self, output: Path, below: str) -> None:
        roots = find_roots([output / below])
        assert [(root.tree.name, root.stage) for root in roots] == [(ROOTS[0], "early"), (ROOTS[1], "late")]
        assert [root.ranked for root in roots] == [output / "ranked_paths" / "run-a" / root for root in ROOTS]

    def test_a_tree_named_twice_is_taken_once_and_order_is_kept(self, output: Path) -> None:
        trees = [output / "explored_trees" / "run-a" / root for root in reversed(ROOTS)]
        assert [root.tree for root in find_roots([*trees, trees[0]])] == trees

    def test_folders_can_be_named(self, output: Path, exported: Exported) -> None:
        one = find_roots([exported.roots.tree], exported.roots.ranked, exported.roots.credit)
        assert one == [RootFolders(exported.roots.tree, exported.roots.ranked, exported.roots.credit)]
        by_root = find_roots([output], output / "ranked_paths" / "run-a", output / "advantage_batches")
        assert by_root == find_roots([output])

    def test_one_folder_of_ranked_paths_is_not_taken_for_several_roots(self, output: Path) -> None:
        with pytest.raises(BadInput, match=f"{ROOTS[0]}: its ranked paths are not there"):
            find_roots([output], output / "ranked_paths" / "run-a" / ROOTS[1])

    def test_what_is_missing_is_named(self, exported: Exported, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match="no finished tree"):
            find_roots([tmp_path])
        with pytest.raises(BadInput, match="its ranked paths are not there"):
            find_roots([exported.roots.tree])
        with pytest.raises(BadInput, match="its credit is not there"):
            find_roots([exported.roots.tree], exported.roots.ranked)
        assert find_roots([exported.roots.tree], exported.roots.ranked, need_credit=False)[0].credit is None


class TestWriting:
    def test_every_format_has_the_selected_paths_of_all_roots(self, output: Path, tmp_path: Path) -> None:
        summary = write_dataset(find_roots([output]), tmp_path)
        assert (summary.roots, summary.paths, summary.samples, summary.branches) == (2, 4, 4, 4)
        assert (summary.without_transcript, len(tables.SFT_SAMPLES.rows(tmp_path))) == (0, 4)
        branches = tables.BRANCHES.rows(tmp_path)
        assert [(row["root"], row["leaf_id"]) for row in branches] == [
            (root, leaf) for root in ROOTS for leaf in (4, 3)
        ]
        assert summary.tokens == sum(len(row["input_ids"]) for row in branches)
        assert summary.trained_tokens == sum(label >= 0 for row in branches for label in row["labels"])

    def test_roots_share_nothing_so_each_begins_afresh(self, output: Path, tmp_path: Path) -> None:
        write_dataset(find_roots([output]), tmp_path, ["tokens"])
        assert [row["shared_tokens"] > 0 for row in tables.BRANCHES.rows(tmp_path)] == [False, True, False, True]

    @pytest.mark.parametrize(
        ("format", "files"),
        [
            ("sft", {"sft.jsonl", "sft.parquet", "llama_factory/sft.jsonl", "llama_factory/dataset_info.json"}),
            ("verifiers", {"traces.jsonl"}),
            ("tokens", {"branches.parquet"}),
        ],
    )
    def test_only_the_formats_asked_for_are_written(
        self, output: Path, tmp_path: Path, format: Any, files: set[str]
    ) -> None:
        write_dataset(find_roots([output]), tmp_path, [format])
        assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == files

    def test_a_root_that_cannot_be_read_leaves_no_half_written_files(self, output: Path, tmp_path: Path) -> None:
        good, bad = find_roots([output])
        with pytest.raises(BadInput):
            write_dataset([good, RootFolders(tmp_path, bad.ranked, bad.credit)], tmp_path / "out")
        assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []

    def test_tokens_without_credit_are_refused(self, exported: Exported, tmp_path: Path) -> None:
        root = RootFolders(exported.roots.tree, exported.roots.ranked)
        with pytest.raises(BadInput, match="its credit is not there"):
            write_dataset([root], tmp_path, ["tokens"])


class TestEpisodes:
    """``traces.jsonl`` as verifiers' own reader has it."""

    def test_there_is_one_per_root_with_its_selected_paths_as_branches(self, episodes: list[Any]) -> None:
        assert [episode.task.data.name for episode in episodes] == list(ROOTS)
        assert len({episode.id for episode in episodes} | {episode.traces[0].id for episode in episodes}) == 4
        for episode in episodes:
            (trace,) = episode.traces
            entries = trace.info["branches"]
            assert [(entry["leaf_id"], entry["rank"]) for entry in entries] == [(4, 1), (3, 2)]
            assert [len(branch.nodes) for branch in trace.branches] == [20, 20]
            assert [entry["shared_nodes"] for entry in entries] == [0, 10]

    def test_they_say_the_same_as_the_flat_streams(self, episodes: list[Any], output: Path, tmp_path: Path) -> None:
        write_dataset(find_roots([output]), tmp_path, ["tokens"])
        branches = [branch for episode in episodes for branch in episode.traces[0].branches]
        for row, branch in zip(tables.BRANCHES.rows(tmp_path), branches, strict=True):
            assert row["input_ids"] == branch.token_ids
            assert row["mask"] == branch.sampled_mask
            assert row["advantages"] == branch.advantages

    def test_every_column_of_the_ranking_is_with_its_branch(self, episodes: list[Any], output: Path) -> None:
        ranked = tables.RANKED_PATHS.rows(output / "ranked_paths" / "run-a" / ROOTS[0])
        by_leaf = {row["leaf_id"]: row for row in ranked}
        for entry in json.loads(json.dumps(episodes[0].traces[0].info["branches"])):
            assert by_leaf[entry["leaf_id"]].items() <= (entry | {"excluded_reason": None}).items()
