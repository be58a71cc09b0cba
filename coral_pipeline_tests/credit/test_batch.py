"""What a batch writes and says of itself."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from coral_pipeline import tables
from coral_pipeline.credit import Constant, Grpo, RewardConfig, prepare
from coral_pipeline.errors import BadInput
from coral_pipeline_tests.trees import ROOT, Failed, N, write_tree

NODES = [N(score=1.0), N(0, 2.0, steps=3), N(0, 0.0), N(1, 3.0, leaf="open"), N(2, 3.0, leaf="open"), N(1, 1.0)]


def test_both_tables_and_the_description_are_written(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", NODES, failed=[Failed(1)])
    batch = prepare(tree, Grpo(), RewardConfig(soft_weight=0.5), Constant(0.25))
    files = batch.write(tmp_path / "out")
    assert [file.name for file in files] == ["edges.parquet", "critic_targets.parquet", "batch.json"]
    edges = tables.CREDIT_EDGES.rows(tmp_path / "out")
    assert [edge["edge_id"] for edge in edges] == [0, 1, 2, 3, 4], "the failed edge made no child"
    assert [edge["child_id"] for edge in edges] == [1, 2, 3, 4, 5]
    critic = tables.CRITIC_TARGETS.rows(tmp_path / "out")
    assert [row["node_id"] for row in critic] == list(range(6))
    assert [row["target"] is None for row in critic] == [False, False, False, True, True, True]
    assert json.loads(files[2].read_text()) == batch.describe()


def test_a_batch_describes_itself(tmp_path: Path) -> None:
    batch = prepare(write_tree(tmp_path, NODES), Grpo(), RewardConfig(soft_weight=0.5))
    described = batch.describe()
    rewards = [row["reward"] for row in batch.edge_table().to_pylist()]
    assert described["root"] == ROOT
    assert (described["estimator"], described["value_model"]) == ("grpo", "constant")
    assert described["reward_config"] == {
        "value_prior_strength": 1.0,
        "gamma": 1.0,
        "gain_weight": 1.0,
        "soft_weight": 0.5,
    }
    assert (described["nodes"], described["edges"], described["good_leaves"]) == (6, 5, 1)
    assert {key: described[key] for key in ("unassigned", "positive", "negative", "zero")} == {
        "unassigned": 3,
        "positive": 0,
        "negative": 0,
        "zero": 2,
    }
    assert described["rewards"] == {
        "count": 5,
        "mean": pytest.approx(statistics.fmean(rewards)),
        "std": pytest.approx(statistics.pstdev(rewards)),
        "min": min(rewards),
        "max": max(rewards),
    }
    assert described["advantages"] == {"count": 2, "mean": 0.0, "std": 0.0, "min": 0.0, "max": 0.0}
    assert described["targets"]["count"] == 3
    assert described["diagnostics"]["good_leaves"]["count"] == 2, "unassigned edges have none"


def test_a_tree_without_a_good_leaf_describes_nothing_as_none(tmp_path: Path) -> None:
    described = prepare(write_tree(tmp_path, [N(score=1.0), N(0, 1.0, leaf="open")]), Grpo()).describe()
    assert described["advantages"] == {"count": 0, "mean": None, "std": None, "min": None, "max": None}
    assert described["diagnostics"] == {}


def test_a_root_without_a_score_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="node 0: the root has no score"):
        prepare(write_tree(tmp_path, [N(score=None), N(0, 1.0)]))


def test_the_tree_is_never_overwritten(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", NODES)
    before = (tree / "edges.parquet").read_bytes()
    with pytest.raises(BadInput, match="is the tree itself"):
        prepare(tree).write(tmp_path / "tree" / ".." / "tree")
    assert (tree / "edges.parquet").read_bytes() == before
