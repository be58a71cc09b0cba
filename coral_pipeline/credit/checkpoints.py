"""The checkpoints of a tree as a value model sees them: the state, and what the Teacher's model has seen by then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload

from coral_pipeline.chat import chat_messages
from coral_pipeline.conversations import Conversations
from coral_pipeline.credit.columns import node_at
from coral_pipeline.credit.estimator import Node
from coral_pipeline.explored import ExploredTree, IntArray


class Checkpoints(Sequence["Checkpoint"]):
    """The checkpoints at some positions of a tree. Each is made, and the messages are read, when looked at."""

    def __init__(self, tree: ExploredTree, positions: IntArray) -> None:
        """In the order of ``positions``."""
        self.tree = tree
        self.positions = positions

    def __len__(self) -> int:
        """Number of checkpoints."""
        return len(self.positions)

    @overload
    def __getitem__(self, index: int) -> Checkpoint: ...
    @overload
    def __getitem__(self, index: slice) -> list[Checkpoint]: ...
    def __getitem__(self, index: int | slice) -> Checkpoint | list[Checkpoint]:
        """A checkpoint, or a list of those of a slice."""
        if isinstance(index, slice):
            return [self._at(int(position)) for position in self.positions[index]]
        return self._at(int(self.positions[index]))

    def _at(self, position: int) -> Checkpoint:
        return Checkpoint(node_at(self.tree, position), self, position)

    @cached_property
    def conversations(self) -> Conversations:
        """The tree's messages."""
        return Conversations.read(self.tree.folder)


@dataclass(frozen=True)
class Checkpoint:
    """A state of the tree."""

    node: Node
    checkpoints: Checkpoints = field(repr=False)
    position: int = field(repr=False)

    @property
    def root(self) -> str:
        """Snapshot folder name of the tree's root."""
        return self.checkpoints.tree.name

    def messages(self) -> list[dict[str, Any]]:
        """The chat messages up to this state, OpenAI-style (``coral_pipeline.chat``).

        Empty at the root, where no session has begun. Raises ``BadInput`` where the tree's messages are broken.
        """
        tree, conversations = self.checkpoints.tree, self.checkpoints.conversations
        edges = [int(tree.edge_id[place]) for place in tree.path(self.position)][-2::-1]
        return [message for at in conversations.path(edges) for message in chat_messages(conversations.rows[at])]
