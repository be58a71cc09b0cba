"""What holds for every tree, whatever the Teacher answers; every decision computed again from the tables alone."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coral_pipeline.settings import SearchSettings
from coral_pipeline.teacher.protocol import EdgeRequest, Turn
from coral_pipeline_tests.search.growing import ROOT, Grown, grow, turn

Row = dict[str, Any]


@dataclass(frozen=True)
class Dice:
    """Answers drawn per edge and turn, the same however often and in whatever order they are asked for."""

    seed: int
    no_score: float
    tool_errors: float
    levels: int
    """Number of different scores: few make ties."""
    growth: int
    """Most tokens a turn adds."""
    sign: int = 1

    def __call__(self, edge: EdgeRequest, number: int) -> Turn:
        rng = random.Random(f"{self.seed}/{edge.name}/{number}")
        calls = rng.randrange(20)
        failing = rng.random() < self.tool_errors
        tokens = (len(edge.path) * 2 + number) * rng.randrange(self.growth + 1)
        return turn(
            None if rng.random() < self.no_score else self.sign * rng.randrange(self.levels) / 4,
            calls=calls,
            failed=rng.randrange(calls // 2, calls + 1) if failing else rng.randrange(calls // 5 + 1),
            tokens=tokens,
            knows=rng.random() < 0.6,
        )


dice = st.builds(
    Dice,
    seed=st.integers(0, 10**6),
    no_score=st.sampled_from([0.0, 0.1, 0.4, 1.0]),
    tool_errors=st.sampled_from([0.0, 0.2, 0.7]),
    levels=st.sampled_from([1, 3, 40]),
    growth=st.sampled_from([0, 8_000, 20_000]),
)
search = st.fixed_dictionaries(
    {},
    optional={
        "parallel_width": st.integers(1, 12),
        "max_logical_edges": st.integers(3, 40),
        "target_good_leaf_count": st.integers(1, 15),
        "max_depth": st.integers(1, 5),
        "root_children": st.integers(1, 3),
        "max_children_per_non_root_node": st.integers(1, 3),
        "max_failed_expansions": st.integers(1, 3),
        "direction_tries": st.integers(1, 3),
        "hard_token_limit": st.sampled_from([30_000, 100_000]),
    },
)
quick = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(dice, search, st.sampled_from(["maximize", "minimize"]))
def test_every_decision_can_be_computed_again_from_the_tables(answer, chosen, direction) -> None:
    tree = grow(answer, **chosen, direction=direction)
    limits = SearchSettings(**chosen)
    rounds = 1 + max(e["round"] for e in tree.edges)
    for number in range(1, rounds):
        rows = [r for r in tree.rounds if r["round"] == number]
        before = Before(tree, number, limits, direction)
        expected = before.selection()
        assert [r["node_id"] for r in rows] == [r["node_id"] for r in expected]
        for row, again in zip(rows, expected, strict=True):
            assert all(math.isclose(row[key], again[key], abs_tol=1e-12) for key in again if key != "node_id")
        if number > 1:
            assert [r["expansions"] for r in rows] == before.expansions([r["node_id"] for r in rows])
            assert before.stop() is None, "the tree should have stopped before this round"
    assert tree.stop_reason == Before(tree, rounds, limits, direction).stop()


@dataclass
class Before:
    """The tree as it stood before a round, naively computed from the tables."""

    tree: Grown
    round: int
    limits: SearchSettings
    direction: str

    @property
    def made_by(self) -> dict[int, Row]:
        return {e["child_id"]: e for e in self.tree.edges if e["child_id"] is not None and e["round"] < self.round}

    @property
    def nodes(self) -> list[Row]:
        return [n for n in self.tree.nodes if n["node_id"] == 0 or n["node_id"] in self.made_by]

    def oriented(self, score: float) -> float:
        return score if self.direction == "maximize" else -score

    def path(self, node: int) -> list[int]:
        made_by = self.made_by
        return [node] if node == 0 else [*self.path(made_by[node]["parent_id"]), node]

    def best(self, node: int) -> float:
        scores = {n["node_id"]: n["score"] for n in self.nodes}
        return max(self.oriented(scores[n]) for n in self.path(node) if scores[n] is not None)

    def counts(self, node: int) -> tuple[int, int]:
        """Children and failed expansions."""
        forks = [e for e in self.tree.edges if e["parent_id"] == node and e["round"] < self.round]
        children = sum(e["child_id"] is not None for e in forks)
        return children, len(forks) - children

    def limit(self, node: int) -> int:
        return self.limits.root_children if node == 0 else self.limits.max_children_per_non_root_node

    def candidates(self) -> list[Row]:
        def active(n: Row) -> bool:
            children, failed = self.counts(n["node_id"])
            return (
                n["depth"] < self.limits.max_depth
                and n["max_token_total"] < self.limits.hard_token_limit
                and children < self.limit(n["node_id"])
                and (n["node_id"] == 0 or failed < self.limits.max_failed_expansions)
            )

        return [n for n in self.nodes if active(n)]

    def selection(self) -> list[Row]:
        nodes, candidates = self.nodes, self.candidates()
        scores = [self.oriented(n["score"]) for n in nodes if n["score"] is not None]
        bests = [self.best(n["node_id"]) for n in nodes]
        tokens = [-n["max_token_total"] for n in candidates]
        rows = []
        for n in candidates:
            node = n["node_id"]
            softs = [self.made_by[m]["soft"] for m in self.path(node)[1:]]
            row = {
                "node_id": node,
                "score_rank": 0.0 if n["score"] is None else mid_rank(self.oriented(n["score"]), scores),
                "best_rank": mid_rank(self.best(node), bests),
                "process": sum(softs) / len(softs) if softs else 0.5,
                "t": mid_rank(-n["max_token_total"], tokens),
            }
            row["q"] = 0.4 * row["score_rank"] + 0.3 * row["best_rank"] + 0.3 * row["process"]
            row["select"] = row["q"] + 0.5 * row["t"]
            rows.append(row)
        depth = {n["node_id"]: n["depth"] for n in nodes}
        return sorted(rows, key=lambda r: (-round(r["select"], 12), depth[r["node_id"]], r["node_id"]))

    def expansions(self, ranked: list[int]) -> list[int]:
        slots = min(self.limits.parallel_width, self.limits.max_logical_edges - len(self.made_by))
        given = dict.fromkeys(ranked, 0)
        for _ in range(max(map(self.limit, ranked))):
            for node in ranked:
                if slots and self.counts(node)[0] + given[node] < self.limit(node):
                    given[node] += 1
                    slots -= 1
        return list(given.values())

    def stop(self) -> str | None:
        good = 0
        for n in self.nodes:
            children, failed = self.counts(n["node_id"])
            ended = (
                n["max_token_total"] >= self.limits.hard_token_limit
                or n["depth"] >= self.limits.max_depth
                or failed >= self.limits.max_failed_expansions
            )
            good += children == 0 and ended and n["node_id"] != 0
        if self.round == 1:
            return None
        if good >= self.limits.target_good_leaf_count:
            return "leaf_target"
        if len(self.made_by) >= self.limits.max_logical_edges:
            return "edge_budget"
        return None if self.candidates() else "exhausted"


def mid_rank(value: float, population: list[float]) -> float:
    return (sum(v < value for v in population) + 0.5 * sum(v == value for v in population)) / len(population)


@quick
@given(dice, search)
def test_limits_hold(answer, chosen) -> None:
    tree = grow(answer, **chosen)
    limits = SearchSettings(**chosen)
    assert len(tree.nodes) - 1 == tree.valid_edges <= limits.max_logical_edges
    for n in tree.nodes:
        forks = [e for e in tree.edges if e["parent_id"] == n["node_id"]]
        made = [e["child_id"] for e in forks if e["child_id"] is not None]
        assert (
            n["valid_children"]
            == len(made)
            <= (limits.root_children if n["depth"] == 0 else limits.max_children_per_non_root_node)
        )
        assert n["failed_expansions"] == len(forks) - len(made)
        assert [e["expansion"] for e in forks] == list(range(len(forks))), "every fork has the next ordinal"
        assert (n["leaf_kind"] is None) == bool(made), "no node is both leaf and parent"
        assert n["depth"] <= limits.max_depth
    for round in range(2, tree.edges[-1]["round"] + 1):
        assert sum(e["round"] == round for e in tree.edges) <= limits.parallel_width


@quick
@given(dice, search)
def test_edges_and_nodes_agree(answer, chosen) -> None:
    tree = grow(answer, **chosen)
    assert [n["node_id"] for n in tree.nodes] == list(range(len(tree.nodes)))
    assert [e["edge_id"] for e in tree.edges] == list(range(len(tree.edges)))
    for e in tree.edges:
        turns = [t for t in tree.turns if t["edge_id"] == e["edge_id"]]
        failed = any(t["score"] is None for t in turns) or len(turns) < 2 or e["tool_error_rate"] > 0.3
        assert (e["failure_reason"] is not None) == failed
        assert (e["child_id"] is None) == (failed and e["kept_by"] is None)
        assert (e["soft"] is None) == (e["child_id"] is None)
        if e["depth"] == 2:
            assert e["child_id"] is not None
        if e["depth"] > 2:
            assert e["kept_by"] is None
        if e["child_id"] is not None:
            n, parent = tree.nodes[e["child_id"]], tree.nodes[e["parent_id"]]
            assert (n["parent_id"], n["depth"], n["score"]) == (parent["node_id"], parent["depth"] + 1, e["best_score"])
            assert n["max_token_total"] == e["max_token_total"] == turns[-1]["context_tokens"]


@quick
@given(dice, search)
def test_minimising_is_maximising_the_negated_scores(answer, chosen) -> None:
    up = grow(answer, **chosen, direction="maximize")
    down = grow(replace(answer, sign=-1), **chosen, direction="minimize", root=replace(ROOT, score=-ROOT.score))

    def negated(rows: list[Row]) -> list[Row]:
        names = ("score", "best_score", "path_best_score")
        return [{k: -v if k in names and v is not None else v for k, v in row.items()} for row in rows]

    assert negated(down.nodes) == up.nodes
    assert negated(down.edges) == up.edges
    assert down.rounds == up.rounds
