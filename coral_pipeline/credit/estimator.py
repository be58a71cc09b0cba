"""What an actor recipe gets and gives: edges and values in, one coefficient per edge out (seed estimation)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from coral_pipeline.explored import GOOD_LEAVES

if TYPE_CHECKING:
    from coral_pipeline.credit.values import TreeValues
    from coral_pipeline.settings import CreditSettings


@dataclass(frozen=True)
class Node:
    """A checkpoint: a state of the searched tree."""

    node_id: int
    parent_id: int | None
    """None at the root."""
    depth: int
    score: float | None
    """Raw score; None where the node has none."""
    leaf_kind: str | None
    """token_limit | depth_limit | exhausted | open; None where it has children (method T14)."""
    edge_id: int | None
    """The edge that made it, a key into the tree's other tables; None at the root."""

    @property
    def completed(self) -> bool:
        """Whether a path ends normally here: the node is a good leaf, terminal, worth 0 (method C2)."""
        return self.leaf_kind in GOOD_LEAVES


@dataclass(frozen=True)
class Edge:
    """One searched continuation, from a parent checkpoint to a child."""

    node: Node
    """The child."""
    parent: Node
    reward: float
    """Weighted reward R (method C1)."""
    duration: int
    """Length d in step turns."""


@dataclass(frozen=True)
class Advantage:
    """An actor coefficient; diagnostics appear in records and ``Batch.describe()`` and never enter the loss."""

    value: float
    diagnostics: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


class Estimator(ABC):
    """An actor recipe: gives a coefficient to every searched edge of a finished tree.

    The tree's values are computed once and passed in; the critic's targets do not depend on the recipe.
    """

    name: str = ""
    """Written beside each advantage; where empty, the name of the class is."""
    requires_completed_paths: bool = False
    """The recipe judges an edge by how the paths through it ended. ``advantages`` is then asked only about edges
    with a good leaf below them, and the others stay unassigned; it is not asked where there is none.

    Searching stops on a budget, so open paths are the rule: refusing the whole tree would waste it."""

    @classmethod
    def from_settings(cls, settings: CreditSettings) -> Estimator:
        """The recipe as configured, for recipes named in settings or on the command line: here, ``cls()``."""
        return cls()

    @abstractmethod
    def advantages(self, edges: Sequence[Edge], values: TreeValues) -> Sequence[float | Advantage | None]:
        """One coefficient per edge, in order; None leaves the edge unassigned, which is not zero (method C4)."""
