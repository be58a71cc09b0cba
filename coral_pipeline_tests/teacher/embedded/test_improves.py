"""On the bundled runs the embedded teacher finds what the Students had not: edges that improve on their roots."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from coral_pipeline import tables
from coral_pipeline.search.explore import explore_root
from coral_pipeline.search.root_folder import read_root
from coral_pipeline.settings import SearchSettings, orient
from coral_pipeline.teacher.embedded import EmbeddedTeacher
from coral_pipeline_tests.coral_runs import fingerprint, git

TOUR = Path(__file__).parents[3] / "data" / "student_runs" / "tour"
TWO_LEVELS = SearchSettings(max_depth=2)
"""Three edges from the root and two from each of their nodes."""


def share_that_improves(root_dir: Path, out: Path) -> float:
    """Explore two levels; the share of the edges whose best score beats the root's."""
    root = read_root(root_dir)
    teacher = EmbeddedTeacher.open(root.path, root.task, out / "states", seed=0)
    explore_root(root.node, root.direction, teacher, out, TWO_LEVELS)
    edges = tables.EDGES.rows(out)
    assert len(edges) == 9
    scores = [orient(edge["best_score"], root.direction) for edge in edges if edge["best_score"] is not None]
    return sum(score > orient(root.node.score, root.direction) for score in scores) / len(edges)


@pytest.mark.slow
@pytest.mark.parametrize("index", [7, 30, 64])
def test_tours_get_shorter(tmp_path: Path, index: int) -> None:
    """Early, middle and late in the run: 12.8, 9.3 and 7.7 long; of 24 cities, by two or four small changes."""
    (root,) = (TOUR / "all_snapshots").glob(f"eval-{index:06d}-*")
    before = fingerprint(TOUR)
    assert share_that_improves(root, tmp_path / "out") >= 2 / 9
    assert fingerprint(TOUR) == before


@pytest.mark.slow
@pytest.mark.parametrize("quantile", [0.2, 1.0])
def test_circles_get_larger(tmp_path: Path, coral_run_circle_packing: Path, quantile: float) -> None:
    """From a weak attempt, and from the best one of the run."""
    public = coral_run_circle_packing / ".coral" / "public"
    attempts = [json.loads(path.read_text()) for path in (public / "attempts").iterdir()]
    scored = sorted((a for a in attempts if a["score"] is not None), key=lambda attempt: attempt["score"])
    attempt = scored[int(quantile * (len(scored) - 1))]
    root, task = tmp_path / "roots" / "root", tmp_path / "roots" / "task"
    (root / "code").mkdir(parents=True)
    program = git(coral_run_circle_packing / "repo", "show", f"{attempt['commit_hash']}:packing.py")
    (root / "code" / "packing.py").write_text(program + "\n")
    shutil.copytree(public, root / "shared", ignore=shutil.ignore_patterns(".git"))
    (root / "metadata.json").write_text(json.dumps({"commit_hash": attempt["commit_hash"], "eval_ok": True}))
    shutil.copytree(coral_run_circle_packing / ".coral" / "private" / "eval", task / "grader")
    shutil.copy(coral_run_circle_packing / ".coral" / "config.yaml", task / "task.yaml")
    assert share_that_improves(root, tmp_path / "out") >= 3 / 9
