"""A growing tree in the terminal: budget, edges in flight, nodes."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from types import TracebackType

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from rich.tree import Tree as Branches

from coral_pipeline.cli.console import stderr
from coral_pipeline.disk_use import readable
from coral_pipeline.search.progress import Progress
from coral_pipeline.search.rules import leaf_kind
from coral_pipeline.search.tree import Node, Tree
from coral_pipeline.settings import orient


class TreeView(AbstractContextManager["TreeView"]):
    """Shows the ``Progress`` it was last called with, where stderr is a terminal."""

    def __init__(self) -> None:
        """Nothing is drawn before the block is entered."""
        self._began = time.monotonic()
        self._fraction = 0.0
        self._body: RenderableType = ""
        self._live = Live(get_renderable=self._render, console=stderr, transient=True)

    def __enter__(self) -> TreeView:
        """Begin to draw."""
        if stderr.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wipe what was drawn."""
        self._live.stop()

    def __call__(self, progress: Progress) -> None:
        """Take up what is to be shown; only the clock is drawn later, in another thread."""
        if self._live.is_started:
            self._fraction = progress.fraction
            self._body = render(progress)

    def _render(self) -> RenderableType:
        elapsed = time.monotonic() - self._began
        left = f", about {_clock(elapsed / self._fraction - elapsed)} left" if self._fraction else ""
        return Group(Text(f"{_clock(elapsed)} elapsed{left}"), self._body)


def render(progress: Progress) -> RenderableType:
    """The budget above the tree."""
    bars = Table.grid(padding=(0, 2))
    for name, done, total in (
        ("edges", progress.valid_edges, progress.max_logical_edges),
        ("good leaves", progress.good_leaves, progress.target_good_leaf_count),
    ):
        bars.add_row(name, ProgressBar(total=total, completed=min(done, total), width=30), f"{done}/{total}")
    facts = (
        f"round {progress.round}",
        f"{len(progress.running)} running",
        f"{progress.failed_edges} failed",
        f"best {progress.best_score:.6g}",
        f"{progress.tokens:,} tokens",
        f"{readable(progress.disk_bytes)} on disk",
    )
    return Group(bars, Text(" · ".join(facts)), _branches(progress))


def _branches(progress: Progress) -> Branches:
    tree = progress.tree
    drawn = {0: Branches(_label(tree.nodes[0], tree))}
    paths = {tree.nodes[0].path: 0}
    for node in tree.nodes[1:]:
        drawn[node.node_id] = drawn[paths[node.path[:-1]]].add(_label(node, tree))
        paths[node.path] = node.node_id
    for name, turn in sorted(progress.running.items()):
        parent = paths[tuple(map(int, name.split(".")[:-1]))]
        drawn[parent].add(Text(f"… {name}, turn {turn}", style="cyan"))
    return drawn[0]


def _label(node: Node, tree: Tree) -> Text:
    score = "no score" if node.score is None else f"{node.score:.6g}"
    improved = node.score is not None and orient(node.score, tree.direction) > orient(tree.root.score, tree.direction)
    label = Text(f"{node.node_id}  ").append(score, style="bold green" if improved else "")
    if node.depth:
        label.append(f"  {node.max_token_total:,} tokens", style="dim")
    if node.kept_by:
        label.append(f"  kept: {node.kept_by}", style="yellow")
    if node.failed_expansions:
        label.append(f"  {node.failed_expansions} failed", style="red")
    if (kind := leaf_kind(node, tree.settings)) not in (None, "open"):
        label.append(f"  {kind}", style="magenta")
    return label


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
