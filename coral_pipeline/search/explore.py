"""Explore one root from beginning to end, or from where an earlier try was interrupted."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from pathlib import Path

from coral_pipeline import tables
from coral_pipeline.disk_use import disk_bytes
from coral_pipeline.errors import BadInput
from coral_pipeline.explored import ExploredTree
from coral_pipeline.search.explorer import Explorer, Observer, SearchHalted
from coral_pipeline.search.journal import Journal, header
from coral_pipeline.search.output import is_written, write_tree
from coral_pipeline.search.progress import best_score, tokens
from coral_pipeline.search.rules import good_leaves
from coral_pipeline.search.tree import RootNode, StopReason, Tree
from coral_pipeline.settings import Direction, RetrySettings, SearchSettings
from coral_pipeline.teacher.protocol import InfrastructureFault, Teacher
from coral_pipeline.tree_file import TREE_FILE, read_tree_info

WORK_FOLDER = "work"
"""Folder beside the tables for what a growing tree needs: journal, transcripts, the Teacher's states."""


@dataclass(frozen=True)
class TreeSummary:
    """What became of one root."""

    root: RootNode
    direction: Direction
    stop_reason: StopReason
    rounds: int
    nodes: int
    valid_edges: int
    failed_edges: int
    """Edges that made no child."""
    kept_edges: int
    """Edges that failed and made a child all the same (method T4)."""
    improved_edges: int
    good_leaves: int
    best_score: float
    """Best raw score in the tree, the root's included."""
    best_node: int
    """First node with that score; 0 is the root."""
    tokens: int
    """Tokens the edges added to their parents' contexts."""
    seconds: float
    """Wall-clock seconds of all turns, summed: more than the time the search took where edges ran side by side."""
    disk_bytes: int
    """Disk space the tree's folder takes now: tables, journal, transcripts, what the Teacher keeps for an audit."""
    was_finished: bool
    """The tree had been finished and written before; nothing was run or changed."""

    @classmethod
    def of_tables(cls, root: RootNode, folder: Path) -> TreeSummary:
        """Of a finished tree whose journal is elsewhere, by the files in ``folder``. Raises ``BadInput``."""
        tree, edges = ExploredTree.read(folder), tables.EDGES.rows(folder)
        told = read_tree_info(folder, "stop_reason", "counts")
        counts = told["counts"]
        scored = [(row["score"], row["node_id"]) for row in tables.NODES.rows(folder) if row["score"] is not None]
        best = (max if tree.direction == "maximize" else min)(score for score, _ in scored)
        return cls(
            root=root,
            direction=tree.direction,
            stop_reason=told["stop_reason"],
            rounds=counts["rounds"],
            nodes=counts["nodes"],
            valid_edges=counts["valid_edges"],
            failed_edges=counts["failed_edges"],
            kept_edges=counts["kept_edges"],
            improved_edges=counts["improved_edges"],
            good_leaves=counts["good_leaves"],
            best_score=best,
            best_node=next(node for score, node in scored if score == best),
            tokens=counts["tokens"],
            seconds=math.fsum(row["seconds"] for row in edges),
            disk_bytes=disk_bytes(folder),
            was_finished=True,
        )


def explore_root(
    root: RootNode,
    direction: Direction,
    teacher: Teacher,
    out: Path,
    settings: SearchSettings,
    retry: RetrySettings | None = None,
    stop: threading.Event | None = None,
    observer: Observer | None = None,
    resume: bool = True,
) -> TreeSummary:
    """Explore ``root`` and write the tables of ``explored_trees`` and ``tree.json`` into ``out``.

    Everything finished is journaled under ``out/work``: called again after any interruption, it goes on where
    it was and ends in the same tree. A tree that is finished is left as it is. ``resume=False`` refuses to
    touch a tree that another call began.

    ``stop``, once set, ends the search soon; ``observer`` is called in this thread whenever something has
    happened. Raises ``SearchHalted`` where the Teacher or the disk fails for good (resume when it is mended),
    ``Stopped`` where ``stop`` was set, ``BadInput`` where ``out`` belongs to another tree or process.
    """
    with Journal.open(out / WORK_FOLDER, header(root, direction, settings, teacher)) as journal:
        was_finished = journal.done and is_written(out)
        if not resume and not was_finished and (journal.begun or (out / TREE_FILE).exists()):
            raise BadInput(out, "a tree was begun there", "pass --resume to go on with it, or choose another folder")
        tree = Tree(root, direction, settings)
        explorer = Explorer(
            tree,
            teacher,
            journal,
            retry or RetrySettings(),
            stop or threading.Event(),
            observer,
            disk_bytes=lambda: disk_bytes(out),
        )
        reason = explorer.run()
        journal.require_only(edge.name for edge in tree.edges)
        if not was_finished:
            _finish(tree, journal, out)
    return _summary(tree, reason, disk_bytes(out), was_finished)


def _finish(tree: Tree, journal: Journal, out: Path) -> None:
    try:
        write_tree(tree, journal, journal.header, out)
        journal.record_done()
    except (OSError, InfrastructureFault) as error:
        raise SearchHalted(
            f"{out}: the tree is explored, but its tables cannot be written ({error}); mend that and resume"
        ) from error


def _summary(tree: Tree, reason: StopReason, disk: int, was_finished: bool) -> TreeSummary:
    best = best_score(tree)
    return TreeSummary(
        root=tree.root,
        direction=tree.direction,
        stop_reason=reason,
        rounds=tree.round,
        nodes=len(tree.nodes),
        valid_edges=tree.valid_edges,
        failed_edges=len(tree.edges) - tree.valid_edges,
        kept_edges=sum(edge.kept_by is not None for edge in tree.edges),
        improved_edges=sum(edge.figures.improved for edge in tree.edges),
        good_leaves=good_leaves(tree),
        best_score=best,
        best_node=next(node.node_id for node in tree.nodes if node.score == best),
        tokens=tokens(tree),
        seconds=math.fsum(edge.figures.seconds for edge in tree.edges),
        disk_bytes=disk,
        was_finished=was_finished,
    )
