"""Value models: what they are asked, and what they may answer (method C6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coral_pipeline.credit import Checkpoint, Constant, ValueModel, prepare
from coral_pipeline.credit.value_models import priors
from coral_pipeline.errors import BadInput
from coral_pipeline.explored import ExploredTree
from coral_pipeline_tests.trees import ROOT, N, explored, write_tree

NODES = [N(score=1.0), N(0, 2.0), N(0, 3.0, leaf="open"), N(1, 4.0, leaf="open"), N(1, 5.0)]
TREE = explored(NODES)


class Answering(ValueModel):
    """Answers what it was told to."""

    def __init__(self, answer: Callable[[Sequence[Checkpoint]], Any]) -> None:
        self.answer = answer

    def predict(self, checkpoints: Sequence[Checkpoint]) -> Any:
        return self.answer(checkpoints)


def test_every_checkpoint_but_good_leaves_is_asked_about_once() -> None:
    asked: list[Checkpoint] = []

    def look(checkpoints: Sequence[Checkpoint]) -> list[float]:
        asked.extend(checkpoints)
        assert list(checkpoints[1:]) == asked[1:]
        return [float(checkpoint.node.node_id) for checkpoint in checkpoints]

    assert priors(TREE, Answering(look)).tolist() == [0.0, 1.0, 2.0, 3.0, 0.0]
    assert [checkpoint.node.node_id for checkpoint in asked] == [0, 1, 2, 3]
    assert {checkpoint.root for checkpoint in asked} == {ROOT}


def test_a_checkpoints_messages_are_those_of_its_path(tmp_path: Path) -> None:
    tree = ExploredTree.read(write_tree(tmp_path, NODES))
    contexts: dict[int, list[str]] = {}

    def look(checkpoints: Sequence[Checkpoint]) -> list[float]:
        for checkpoint in checkpoints:
            contexts[checkpoint.node.node_id] = [message["content"] for message in checkpoint.messages()]
        return [0.0] * len(checkpoints)

    priors(tree, Answering(look))
    assert contexts[0] == [], "no session has begun at the root"
    towards_1 = [f"{role} of turn {turn} towards node 1" for turn in (1, 2) for role in ("user", "assistant")]
    assert contexts[1] == towards_1
    assert contexts[3] == towards_1 + [text.replace("node 1", "node 3") for text in towards_1]


@pytest.mark.parametrize(
    "answer",
    [
        [1.0, 2, None, float("nan")],
        (1.0, 2, None, float("nan")),
        iter([1.0, 2, None, float("nan")]),
        np.array([1.0, 2.0, np.nan, np.nan]),
        np.array([1, 2, np.nan, np.nan], dtype=np.float32),
        [np.float32(1), np.int64(2), None, np.float64("nan")],
    ],
    ids=["list", "tuple", "iterator", "array", "float32 array", "numpy scalars"],
)
def test_none_and_nan_are_no_prediction(answer: Any) -> None:
    column = priors(TREE, Answering(lambda checkpoints: answer))
    np.testing.assert_array_equal(column, [1.0, 2.0, np.nan, np.nan, 0.0])


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ([1.0] * 3, ": gave 3 values for 4 checkpoints"),
        ([1.0] * 5, ": gave 5 values for 4 checkpoints"),
        (None, ": gave no sequence of values for 4 checkpoints"),
        ({0: 1.0}, ": gave no sequence of values for 4 checkpoints"),
        ([1.0, float("inf"), 1.0, 1.0], ", node 1: predicted no finite number"),
        (np.array([1.0, 1.0, -np.inf, 1.0]), ", node 2: predicted no finite number"),
        ([1.0, 1.0, 1.0, "1.0"], ", node 3: predicted no finite number"),
        ([True, 1.0, 1.0, 1.0], ", node 0: predicted no finite number"),
        (np.ones((4, 1)), ", node 0: predicted no finite number"),
    ],
)
def test_a_wrong_answer_is_told_with_model_root_and_node(answer: Any, problem: str) -> None:
    with pytest.raises(BadInput, match=f"^value model Answering, root {ROOT}{problem}"):
        prepare(TREE, value_model=Answering(lambda checkpoints: answer))


def test_a_constant_predicts_itself() -> None:
    assert priors(TREE, Constant(-0.5)).tolist() == [-0.5, -0.5, -0.5, -0.5, 0.0]
    assert priors(TREE, Constant()).tolist() == [0.0] * 5
