"""Value models: where the prior V_phi of a checkpoint comes from (method C6)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from coral_pipeline.credit.checkpoints import Checkpoint, Checkpoints
from coral_pipeline.credit.checks import as_list, number
from coral_pipeline.errors import BadInput
from coral_pipeline.explored import ExploredTree, FloatArray
from coral_pipeline.settings import CreditSettings

Predictions = Sequence[float | None] | FloatArray
"""What a value model may answer with."""


class ValueModel(ABC):
    """A critic: predicts what is still to be gained from a checkpoint, in the units of the rewards."""

    name: str = ""
    """For messages and records; where empty, the name of the class is used."""

    @classmethod
    def from_settings(cls, settings: CreditSettings) -> ValueModel:
        """The model as configured, for models named in settings or on the command line: here, ``cls()``."""
        return cls()

    @abstractmethod
    def predict(self, checkpoints: Sequence[Checkpoint]) -> Predictions:
        """One finite value per checkpoint, in order; None or NaN where the model has no prediction.

        Called once per tree with every checkpoint that is not a good leaf: those are worth 0 (method C2).
        """


class Constant(ValueModel):
    """The same value everywhere."""

    name = "constant"

    def __init__(self, value: float = 0.0) -> None:
        """``value``: finite."""
        self.value = float(value)

    @classmethod
    def from_settings(cls, settings: CreditSettings) -> Constant:
        """Predicts ``settings.prior``."""
        return cls(settings.prior)

    def predict(self, checkpoints: Sequence[Checkpoint]) -> FloatArray:
        """The value, as often as there are checkpoints."""
        return np.full(len(checkpoints), self.value)


def priors(tree: ExploredTree, model: ValueModel) -> FloatArray:
    """The model's prediction by position: 0 at good leaves, which it is not asked about; NaN where it has none.

    Raises ``BadInput`` naming model, root and node where it answers with too few or too many values or
    with one that is not a finite number.
    """
    positions = np.flatnonzero(~tree.good_leaf)
    answer = model.predict(Checkpoints(tree, positions))
    predictions = answer if isinstance(answer, np.ndarray) else as_list(answer)
    who = f"value model {model.name or type(model).__name__}, root {tree.name}"
    if predictions is None or len(predictions) != len(positions):
        gave = "no sequence of values" if predictions is None else f"{len(predictions)} values"
        raise BadInput(
            who, f"gave {gave} for {len(positions)} checkpoints", "it must give one per checkpoint, in order"
        )
    if not isinstance(predictions, np.ndarray) or predictions.dtype != np.float64 or predictions.ndim != 1:
        predictions = np.array([_prediction(value) for value in predictions])
    wrong = np.flatnonzero(np.isinf(predictions))
    if len(wrong):
        thing = f"{who}, node {tree.node_id[positions[wrong[0]]]}"
        raise BadInput(thing, "predicted no finite number", "a value is a finite number, or None for no prediction")
    column = np.zeros(len(tree))
    column[positions] = predictions
    return column


def _prediction(value: object) -> float:
    """NaN for no prediction, infinity for what cannot be one."""
    if value is None:
        return math.nan
    found = number(value)
    return math.inf if found is None else found
