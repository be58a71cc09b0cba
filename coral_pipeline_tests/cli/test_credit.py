"""``coral-pipeline credit`` as a person at a shell meets it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coral_pipeline import tables
from coral_pipeline.cli import main
from coral_pipeline_tests.trees import ROOT, N, write_tree

Credit = Callable[..., tuple[int | str | None, str, str]]
NODES = [N(score=1.0), N(0, 2.0, steps=2, soft=0.25), N(0, 0.0, steps=4, soft=0.75), N(1, 3.0), N(2, 1.0, leaf="open")]
RECIPES = """
from coral_pipeline.credit import Estimator, ValueModel

class RewardOnly(Estimator):
    def advantages(self, edges, values):
        return [edge.reward for edge in edges]

class TooFew(Estimator):
    def advantages(self, edges, values):
        return [0.0]

class Unsure(ValueModel):
    def predict(self, checkpoints):
        return [None for _ in checkpoints]
"""


@pytest.fixture
def credit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Credit]:
    """Run the command in ``tmp_path`` on the tree there; gives exit code, stdout, stderr."""
    write_tree(tmp_path / "tree", NODES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def run(*arguments: object) -> tuple[int | str | None, str, str]:
        monkeypatch.setattr(sys, "argv", ["coral-pipeline", "credit", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit:
            main()
        said = capsys.readouterr()
        return exit.value.code, said.out, said.err

    yield run
    sys.modules.pop("my_recipes", None)


def described(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "batch.json").read_text())
    return found


@pytest.mark.parametrize("file", ["batch.json", "tokens.parquet", "traces.jsonl"])
def test_what_cannot_be_written_is_one_line(credit: Credit, tmp_path: Path, file: str) -> None:
    (tmp_path / "batch" / file).mkdir(parents=True)
    code, out, err = credit("tree", "--out", "batch")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert file in err and "cannot be written" in err


def test_everything_is_written_by_default_with_direct_branch_td(credit: Credit, tmp_path: Path) -> None:
    code, out, err = credit("tree", "--out", "new/batch")
    assert (code, err) == (0, "")
    folder = tmp_path / "new" / "batch"
    edges = tables.CREDIT_EDGES.rows(folder)
    assert {edge["estimator"] for edge in edges} == {"direct_branch_td"}
    assert [edge["reward"] for edge in edges] == pytest.approx([0.3, -0.3, 0.2, 0.3], abs=1e-15)  # mid-ranks of five
    critic = tables.CRITIC_TARGETS.rows(folder)
    assert [row["prior"] for row in critic] == [0.0] * 5
    assert [row["target"] is None for row in critic] == [False, False, False, True, True]
    tokens = tables.TOKENS.rows(folder)
    assert len(tokens) == 16
    advantage = {edge["edge_id"]: edge["advantage"] for edge in edges}
    stamped = {row["message_id"]: set(row["advantages"]) for row in tokens if row["advantages"] is not None}
    assert stamped["n1.t1.assistant"] == stamped["n1.t2.assistant"] == {advantage[0]}
    assert stamped["n4.t2.assistant"] == {advantage[3]}
    assert (folder / "traces.jsonl").stat().st_size > 0
    assert "direct_branch_td over 4 edges, 5 nodes, 1 good leaves" in out
    assert "16 messages" in out


def test_options_reach_the_numbers(credit: Credit, tmp_path: Path) -> None:
    options = ["--prior", 0.8, "--gamma", 0.5, "--kappa", 2, "--gain-weight", 0, "--soft-weight", 1]
    assert credit("tree", "--out", "out", *options)[0] == 0
    found = described(tmp_path / "out")
    assert found["reward_config"] == {
        "value_prior_strength": 2.0,
        "gamma": 0.5,
        "gain_weight": 0.0,
        "soft_weight": 1.0,
    }
    edges, critic = tables.CREDIT_EDGES.rows(tmp_path / "out"), tables.CRITIC_TARGETS.rows(tmp_path / "out")
    assert [edge["reward"] for edge in edges] == [0.25, 0.75, 0.5, 0.5]
    assert [row["prior"] for row in critic] == [0.8, 0.8, 0.8, 0.0, 0.8]
    assert critic[1]["refined"] == pytest.approx((2 * 0.8 + 0.5) / 3, abs=1e-15)
    assert critic[2]["target"] == pytest.approx(0.5 + 0.5 * 0.8, abs=1e-15)


def test_grpo_leaves_what_did_not_end_unassigned(credit: Credit, tmp_path: Path) -> None:
    code, out, _ = credit("tree", "--out", "out", "--estimator", "grpo")
    assert code == 0
    assert [edge["advantage"] for edge in tables.CREDIT_EDGES.rows(tmp_path / "out")] == [0.0, None, 0.0, None]
    assert "2 unassigned" in out
    unassigned = [row for row in tables.TOKENS.rows(tmp_path / "out") if row["message_id"] == "n2.t1.assistant"]
    assert unassigned[0]["advantages"] is None


def test_a_recipe_in_the_current_folder(credit: Credit, tmp_path: Path) -> None:
    (tmp_path / "my_recipes.py").write_text(RECIPES)
    assert credit("tree", "--out", "out", "--estimator", "my_recipes:RewardOnly")[0] == 0
    edges = tables.CREDIT_EDGES.rows(tmp_path / "out")
    assert [edge["advantage"] for edge in edges] == [edge["reward"] for edge in edges]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--estimator", "ppo"], "estimator 'ppo': is not known; there is direct_branch_td, grpo"),
        (["--value-model", "oracle"], "value model 'oracle': is not known; there is constant, http"),
        (["--value-model", "http"], "value model http, url '': is no HTTP address; give --value-url"),
        (["--estimator", "my_recipes:Nope"], "estimator 'my_recipes:Nope': cannot be loaded"),
        (
            ["--estimator", "my_recipes:TooFew"],
            f"estimator TooFew, root {ROOT}, edge 1 (node 0 to node 2): gave 1 advantages for 4 edges",
        ),
        (
            ["--value-model", "my_recipes:Unsure"],
            f"estimator direct_branch_td, root {ROOT}, edge 0 (node 0 to node 1): node 0 has no prior value",
        ),
    ],
)
def test_what_cannot_be_used_ends_with_1_and_one_line(
    credit: Credit, tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "my_recipes.py").write_text(RECIPES)
    code, out, err = credit("tree", "--out", "out", *arguments)
    assert (code, out) == (1, "")
    (line,) = err.splitlines()
    assert line.startswith(f"coral-pipeline: {message}")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--gamma", "1.5"],
        ["--gamma", "nan"],
        ["--kappa", "-1"],
        ["--prior", "inf"],
        ["--prior", "high"],
        ["--soft-weight", "nan"],
    ],
)
def test_values_that_make_no_sense_are_wrong_usage(credit: Credit, arguments: list[str]) -> None:
    code, out, err = credit("tree", "--out", "out", *arguments)
    assert (code, out) == (2, "")
    assert "credit [OPTIONS]" in err


def test_a_tree_that_is_not_finished(credit: Credit, tmp_path: Path) -> None:
    (tmp_path / "tree" / "tree.json").unlink()
    code, _, err = credit("tree", "--out", "out")
    assert code == 1
    assert "tree.json: no such file, so this is not a finished tree" in err


def test_help_teaches(credit: Credit) -> None:
    code, out, _ = credit("--help")
    assert code == 0
    for word in ("critic_targets.parquet", "direct_branch_td", "my_recipes:RewardOnly", "Example", "--value-url"):
        assert word in out
