"""A finished tree grown again from its turns: the search is a pure function of settings and answers.

``turns.parquet`` holds what the Teacher answered, edge by edge in the order in which the search asked. Fed to the
search in that order, with the settings in ``tree.json``, they must give the same nodes, edges and rounds to the last
bit. No table but ``turns.parquet`` is believed, and the settings where provenance has recorded the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from coral_pipeline import tables
from coral_pipeline.audit.compare import compare_json, compare_tables
from coral_pipeline.audit.findings import Review
from coral_pipeline.errors import BadInput
from coral_pipeline.search.grow import apply_round, begin_first_round, begin_round, direction_jobs, makes_child
from coral_pipeline.search.output import edge_rows, node_rows, outcome, round_rows
from coral_pipeline.search.root_folder import read_root
from coral_pipeline.search.rules import next_turn, stop_reason
from coral_pipeline.search.tree import Job, Result, Tree
from coral_pipeline.settings import SearchSettings
from coral_pipeline.teacher.protocol import Turn
from coral_pipeline.tree_file import REMAKE, TREE_FILE, read_tree_info

NOT_IN_TURNS = {"nodes": ("session_id",)}
"""Columns, by table, that the Teacher told the search beside what ``turns.parquet`` holds."""
_ANSWER = frozenset(Turn.model_fields) & {column.name for column in tables.TURNS.columns}

Answers = Sequence[tuple[int, tuple[Turn, ...]]]
"""The turns of each edge, by edge id, in the order of the ids."""


class AnotherSearch(Exception):
    """The search would not have asked what was answered; the message says where they part."""


def verify_replay(review: Review, folder: Path, root: Path, settings: SearchSettings) -> None:
    """The tree in ``folder`` is the one its turns give.

    ``root``: the copied folder of its root; ``settings``: those that it was grown with.
    """
    with review.guarded(TREE_FILE):
        info = read_tree_info(folder)
        grown_from = read_root(root)
        answers = read_answers(folder)
        told = search_settings(info)
        if settings.parallel_width == "auto":
            settings = settings.at_width(told.width)
        where = f"{TREE_FILE}, configuration, search"
        compare_json(review, where, told.model_dump(mode="json"), settings.model_dump(mode="json"))
        tree = Tree(grown_from.node, grown_from.direction, told)
        try:
            replay(tree, answers)
        except AnotherSearch as parting:
            review.find(tables.TURNS.file_name, str(parting))
            _compare_until(review, folder, tree)
            return
        _compare(review, folder, tree)
        messages = tables.MESSAGES.read(folder, ["edge_id"]).num_rows
        compare_json(review, TREE_FILE, _of_tree(info), _of_tree(outcome(tree, messages)))


def search_settings(info: dict[str, Any]) -> SearchSettings:
    """The settings a tree was grown with, by its ``tree.json``."""
    try:
        return SearchSettings.model_validate(info["configuration"]["search"])
    except (ValidationError, KeyError, TypeError) as error:
        raise BadInput(f"{TREE_FILE}, configuration, search", f"is no settings ({error})", REMAKE) from error


def read_answers(folder: Path) -> Answers:
    """What the Teacher answered, by ``turns.parquet`` in ``folder``."""
    rows = sorted(tables.TURNS.rows(folder), key=lambda row: (row["edge_id"], row["turn"]))
    answers: list[tuple[int, tuple[Turn, ...]]] = []
    for edge_id, group in groupby(rows, key=lambda row: row["edge_id"]):
        turns = list(group)
        if [row["turn"] for row in turns] != list(range(1, len(turns) + 1)):
            numbers = [row["turn"] for row in turns]
            raise BadInput(
                f"{tables.TURNS.file_name}, edge {edge_id}", f"has turns {numbers}, expected 1 and 2", REMAKE
            )
        answers.append((edge_id, tuple(_turn(row) for row in turns)))
    return answers


def replay(tree: Tree, answers: Answers) -> None:
    """Grow ``tree``, which has only its root, with these answers. Raises ``AnotherSearch`` where they do not fit."""
    asked = iter(answers)
    begin_first_round(tree)
    results: list[Result] = []
    directions: list[int] = list(range(tree.settings.root_children))
    for tries_left in reversed(range(tree.settings.direction_tries)):
        tried = _answered(direction_jobs(tree, directions, last_try=tries_left == 0), asked, len(results))
        results += tried
        directions = [job.slot for job, turns in tried if not makes_child(tree, job, turns)]
        if not directions:
            break
    apply_round(tree, results)
    while (reason := stop_reason(tree)) is None:
        apply_round(tree, _answered(begin_round(tree), asked, len(tree.edges)))
    tree.stop_reason = reason
    surplus = next(asked, None)
    if surplus is not None:
        raise AnotherSearch(f"edge {surplus[0]}: the search had stopped ({reason}) after edge {surplus[0] - 1}")


def _answered(jobs: Sequence[Job], asked: Iterator[tuple[int, tuple[Turn, ...]]], first: int) -> list[Result]:
    """The jobs with their answers, the next ones; ``first``: edge id of the first job."""
    results = []
    for edge_id, job in enumerate(jobs, start=first):
        where = f"edge {edge_id} (fork {job.edge.expansion} of node {job.parent_id})"
        answer = next(asked, None)
        if answer is None or answer[0] != edge_id:
            there = "no more turns" if answer is None else f"edge {answer[0]} next"
            raise AnotherSearch(f"has {there}, but the search goes on with {where}")
        turns = answer[1]
        prunable = job.kept_if_failed is None
        ends = [next_turn(turns[:count], prunable) is None for count in range(1, len(turns) + 1)]
        if not ends[-1] or any(ends[:-1]):
            raise AnotherSearch(f"{where}: has {len(turns)} turns, expected {ends.index(True) + 1 if any(ends) else 2}")
        results.append((job, turns))
    return results


def _turn(row: dict[str, Any]) -> Turn:
    try:
        return Turn.model_validate({name: value for name, value in row.items() if name in _ANSWER})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = f"{tables.TURNS.file_name}, edge {row['edge_id']}, turn {row['turn']}, {first['loc'][0]}"
        raise BadInput(where, f"{first['msg']} (is {row[str(first['loc'][0])]!r})", REMAKE) from error


def _compare(review: Review, folder: Path, tree: Tree) -> None:
    """Tables against the tree as far as it grew."""
    for table, rows in ((tables.NODES, node_rows), (tables.EDGES, edge_rows), (tables.ROUNDS, round_rows)):
        expected = table.build(rows(tree)).drop_columns(list(NOT_IN_TURNS.get(table.name, ())))
        compare_tables(review, table, table.read(folder), expected)


def _compare_until(review: Review, folder: Path, tree: Tree) -> None:
    """What was decided before the search and the answers part: the cause is among what differs there."""
    for table, rows in ((tables.EDGES, edge_rows), (tables.ROUNDS, round_rows)):
        expected = table.build(rows(tree))
        compare_tables(review, table, table.read(folder).slice(0, expected.num_rows), expected)


def _of_tree(info: dict[str, Any]) -> dict[str, Any]:
    """Of ``tree.json``: what the tree alone says. A later selection may have put its root into another stage."""
    return {key: value for key, value in info.items() if key not in ("configuration", "versions", "tools", "stage")}
