"""What the page of each asset tells of one partition: how it went in a sentence and at a glance, then the numbers,
then large pictures and tables, then where it lies."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import dagster as dg
import pyarrow as pa

from coral_pipeline.credit.batch import Batch
from coral_pipeline.credit.tokens import TokenSummary
from coral_pipeline.defs.metadata import at_a_glance, count_table, number, picture, preview, table_of
from coral_pipeline.export.dataset import DatasetSummary
from coral_pipeline.report import sketch
from coral_pipeline.report.advantages import advantage_histogram_svg
from coral_pipeline.report.coverage import StageCoverage, stage_coverage_svg
from coral_pipeline.report.paths import path_scores_svg
from coral_pipeline.report.score_curve import score_curve_svg
from coral_pipeline.report.tree_picture import score_by_depth_svg, tree_svg
from coral_pipeline.search.explore import TreeSummary
from coral_pipeline.settings import STAGES, Direction, PathSettings, orient
from coral_pipeline.student_run.reading import StudentRunTables
from coral_pipeline.student_run.roots import StageAccount
from coral_pipeline.tree_file import TREE_FILE

Page = dict[str, Any]
"""Metadata of a materialization, in the order in which it is shown."""

GLANCE, RESULT = sketch.TITLE, "result"
BETTER = {"maximize": "higher is better", "minimize": "lower is better"}
SNAPSHOT_COLUMNS = ("global_index", "agent_id", "score", "status", "eligible", "eval_ok")
REJECTED_COLUMNS = ("snapshot", "reason", "detail")
STAGE_COLUMNS = ("global_index", "agent_id", "stage", "score", "smooth_score", "gain", "eligible")
ROOT_COLUMNS = ("global_index", "agent_id", "stage", "score", "selection_reason")
PATH_COLUMNS = ("rank", "leaf_id", "selected", "PathScore", "max_score", "avg_score", "excluded_reason")
PART_COLUMNS = ("rank", "max_score_rank", "avg_score_rank", "avg_cleanliness", "avg_knowledge")
ADVANTAGE_COLUMNS = ("edge_id", "parent_id", "child_id", "reward", "duration", "advantage")
"""Of the tables as pages show them, what is read first first; full names of snapshots would triple the rows' height."""


def snapshots_page(run: StudentRunTables) -> Page:
    """Of ``filtered_snapshots``."""
    kept, rejected = run.filtered.num_rows, run.rejected.num_rows
    eligible = sum(run.filtered["eligible"].to_pylist())
    return {
        RESULT: f"{kept} of {kept + rejected} snapshots kept, {eligible} of them eligible as roots",
        GLANCE: at_a_glance(sketch.scores_sketch(run.filtered, run.direction)),
        "kept": kept,
        "eligible": eligible,
        "rejected": rejected,
        "direction": f"{run.direction}: {BETTER[run.direction]}",
        **({"warnings": list(run.warnings)} if run.warnings else {}),
        "first kept": preview(run.filtered, SNAPSHOT_COLUMNS),
        **(
            {
                "rejected by reason": count_table("reason", run.rejected_by_reason()),
                "first rejected": preview(run.rejected, REJECTED_COLUMNS),
            }
            if rejected
            else {}
        ),
    }


def stages_page(labels: pa.Table, direction: Direction) -> Page:
    """Of ``stage_labels``."""
    counts = Counter(labels["stage"].to_pylist())
    first, last = (f"{orient(labels['smooth_score'][place].as_py(), direction):.4g}" for place in (0, -1))
    in_each = ", ".join(f"{counts[stage]} {stage}" for stage in STAGES)
    return {
        RESULT: f"{in_each}; the smoothed score goes from {first} to {last} ({BETTER[direction]})",
        GLANCE: at_a_glance(sketch.score_sketch(labels, None, direction)),
        **{stage: counts[stage] for stage in STAGES},
        "staged by": labels["staged_by"][0].as_py(),
        "score curve": picture("score curve", score_curve_svg(labels, None, direction)),
        "first snapshots": preview(labels, STAGE_COLUMNS),
    }


def roots_page(
    labels: pa.Table,
    roots: pa.Table,
    accounts: Sequence[StageAccount],
    shortages: Sequence[str],
    dropped: Sequence[str],
    direction: Direction,
) -> Page:
    """Of ``selected_roots``."""
    in_each = ", ".join(f"{account.by_quota + account.by_backfill} {account.stage}" for account in accounts)
    title = "score curve with roots"
    return {
        RESULT: "; ".join((f"{roots.num_rows} roots: {in_each}", *shortages)),
        GLANCE: at_a_glance(sketch.score_sketch(labels, roots, direction)),
        "roots": roots.num_rows,
        "roots by stage": table_of(map(dataclasses.asdict, accounts)),
        **({"no longer chosen": list(dropped)} if dropped else {}),
        title: picture(title, score_curve_svg(labels, roots, direction)),
        "all roots": preview(roots, ROOT_COLUMNS, rows=roots.num_rows),
    }


def tree_page(tree: TreeSummary, nodes: pa.Table, edges: pa.Table, description: str, address: str) -> Page:
    """Of ``explored_trees``."""
    return {
        RESULT: f"{against_root(tree.best_score, tree.root.score, tree.direction)}; {tree.improved_edges} of "
        f"{tree.valid_edges} edges improve on their parent; ended with {tree.good_leaves} good leaves "
        f"({tree.stop_reason})",
        GLANCE: at_a_glance(sketch.tree_sketch(nodes.to_pylist(), tree.direction)),
        "best score": number(tree.best_score),
        "root score": number(tree.root.score),
        "gain over the root": number(gain(tree.best_score, tree.root.score, tree.direction)),
        "edges": tree.valid_edges,
        "improved edges": tree.improved_edges,
        "failed edges": tree.failed_edges,
        "good leaves": tree.good_leaves,
        "rounds": tree.rounds,
        "stop reason": tree.stop_reason,
        "tokens": tree.tokens,
        "seconds of turns": round(tree.seconds, 1),
        "megabytes on disk": round(tree.disk_bytes / 1e6, 1),
        "tree": picture("tree", tree_svg(nodes, edges, tree.direction)),
        "score by depth": picture("score by depth", score_by_depth_svg(nodes, tree.direction)),
        TREE_FILE: dg.MetadataValue.json(json.loads(description)),
        "folder": dg.MetadataValue.path(address),
        "dagster/row_count": nodes.num_rows,
    }


def paths_page(
    ranked: pa.Table, settings: PathSettings, nodes: pa.Table, edges: pa.Table, direction: Direction
) -> Page:
    """Of ``ranked_paths``."""
    rows = ranked.to_pylist()
    candidates, chosen = [row for row in rows if row["candidate"]], [row for row in rows if row["selected"]]
    scores = f": PathScore {chosen[0]['PathScore']:.3f} to {chosen[-1]['PathScore']:.3f}" if chosen else ""
    title = "tree with the selected paths"
    excluded = Counter(row["excluded_reason"] for row in rows if not row["candidate"])
    return {
        RESULT: f"{len(chosen)} of {len(candidates)} candidate paths selected{scores}",
        GLANCE: at_a_glance(sketch.paths_sketch(ranked)),
        "selected": len(chosen),
        "candidates": len(candidates),
        **({"excluded": count_table("reason", excluded)} if excluded else {}),
        "PathScore": picture("PathScore", path_scores_svg(ranked, settings)),
        title: picture(title, tree_svg(nodes, edges, direction, {row["rank"]: row["node_ids"] for row in chosen})),
        "paths": preview(ranked, PATH_COLUMNS, rows=len(rows)),
        "parts of PathScore": preview(ranked, PART_COLUMNS, rows=len(candidates)),
    }


def advantages_page(batch: Batch, tokens: TokenSummary, samples: int, address: str) -> Page:
    """Of ``advantage_batches``; ``samples``: SFT samples of the root."""
    edges, described = batch.edge_table(), batch.describe()
    spread = described["advantages"]
    between = f": {spread['min']:.3g} to {spread['max']:.3g}, mean {spread['mean']:.3g}" if spread["count"] else ""
    return {
        RESULT: f"{batch.estimator} gives {spread['count']} of {len(edges)} edges an advantage{between}",
        GLANCE: at_a_glance(sketch.advantage_sketch(edges)),
        "estimator": batch.estimator,
        "edges": len(edges),
        "unassigned": described["unassigned"],
        "sampled tokens": tokens.sampled_tokens,
        "tokens": tokens.tokens,
        "messages": tokens.messages,
        "SFT samples": samples,
        "advantages": picture("advantages", advantage_histogram_svg(edges)),
        "in numbers": dg.MetadataValue.json(described),
        "first edges": preview(edges, ADVANTAGE_COLUMNS),
        "folder": dg.MetadataValue.path(address),
        "dagster/row_count": len(edges),
    }


def dataset_page(
    made: DatasetSummary, coverage: Sequence[StageCoverage], missing: Sequence[str], files: Sequence[str], address: str
) -> Page:
    """Of ``sft_dataset``; ``missing``: roots that are not done, ``files``: below ``address``."""
    roots = sum(row.roots for row in coverage)
    bars: dict[str, Sequence[int]] = {
        row.stage: (row.selected, row.candidates - row.selected, row.excluded) for row in coverage
    }
    colours = {"selected": sketch.GREEN, "passed over": sketch.GREY, "excluded": sketch.ORANGE}
    return {
        RESULT: f"{made.samples} samples with {made.trained_tokens:,} trained tokens, from {roots - len(missing)} of "
        f"{roots} roots",
        GLANCE: at_a_glance(sketch.bars_sketch(bars, colours)),
        "SFT samples": made.samples,
        "selected paths": made.paths,
        "without transcript": made.without_transcript,
        "roots done": roots - len(missing),
        "roots missing": list(missing),
        "trained tokens": made.trained_tokens,
        "tokens": made.tokens,
        "coverage by stage": picture("coverage by stage", stage_coverage_svg(coverage)),
        "coverage in numbers": table_of(map(dataclasses.asdict, coverage)),
        "files": list(files),
        "folder": dg.MetadataValue.path(address),
        "dagster/row_count": made.samples,
    }


def gain(best: float, root: float, direction: Direction) -> float:
    """By how much the best score is better than the root's."""
    return orient(best, direction) - orient(root, direction)


def against_root(best: float, root: float, direction: Direction) -> str:
    """The best score of a tree beside its root's."""
    if gain(best, root, direction) <= 0:
        return f"nothing better than the root's {root:.4g} ({BETTER[direction]})"
    return f"best score {best:.4g} against the root's {root:.4g} ({BETTER[direction]})"
