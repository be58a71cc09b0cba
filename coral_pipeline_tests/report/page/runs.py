"""Outputs of Student runs in small: what the pipeline would have written, with transcripts and diffs of one's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from coral_pipeline import tables
from coral_pipeline.paths.rank import rank_paths
from coral_pipeline.settings import STAGES, PathSettings
from coral_pipeline_tests.trees import Failed, N, write_tree

RUN = "run-a"
NODES = [
    N(score=1.0),
    N(0, 2.0),
    N(0, 1.5, kept_by="fallback"),
    N(0, None, kept_by="exemption", leaf="exhausted"),
    N(1, 3.0),
    N(1, 2.5, leaf="open"),
]
FAILED = [Failed(1, "tool_errors"), Failed(2)]
Rows = Sequence[dict[str, Any]]
Change = Callable[[dict[str, Any]], dict[str, Any]]


def root_name(place: int) -> str:
    return f"eval-{place:06d}-agent-1-0123456789ab"


def write_selection(output: Path, roots: int, snapshots: int | None = None) -> None:
    """Stages of a run of so many snapshots, the first ``roots`` of them chosen."""
    snapshots = max(roots, 6) if snapshots is None else snapshots
    labels = [_label(place, snapshots) for place in range(snapshots)]
    tables.STAGE_LABELS.write(labels, output / "stage_labels" / RUN)
    chosen = [
        {
            "root": label["snapshot"],
            "student_run": RUN,
            "global_index": label["global_index"],
            "agent_id": label["agent_id"],
            "commit_hash": "0123456789ab" + "0" * 28,
            "score": label["score"],
            "stage": label["stage"],
            "selection_reason": "quota",
        }
        for label in labels[:roots]
    ]
    tables.SELECTED_ROOTS.write(chosen, output / "selected_roots" / RUN)


def _label(place: int, snapshots: int) -> dict[str, Any]:
    score = 1.0 + place / 10
    return {
        "snapshot": root_name(place),
        "global_index": place,
        "agent_id": "agent-1",
        "eval_ok": True,
        "eligible": True,
        "score": score,
        "score_for_stage": score,
        "oriented_score": score,
        "smooth_score": score,
        "gain": place / snapshots,
        "stage": STAGES[min(2, 3 * place // snapshots)],
        "staged_by": "gain",
    }


def write_root(
    output: Path,
    place: int = 0,
    nodes: Sequence[N] = NODES,
    failed: Sequence[Failed] = FAILED,
    message: Change = dict,
    turn: Change = dict,
    rank: bool = True,
) -> Path:
    """A finished tree of the chosen root; ``message`` and ``turn`` may change each row. Returns its folder."""
    folder = output / "explored_trees" / RUN / root_name(place)
    write_tree(folder, nodes, failed=failed, root=root_name(place), student_run=RUN)
    tables.MESSAGES.write([message(row) for row in tables.MESSAGES.rows(folder)], folder)
    tables.TURNS.write([turn(row) for row in tables.TURNS.rows(folder)], folder)
    if rank:
        tables.RANKED_PATHS.write(rank_paths(folder, PathSettings()), output / "ranked_paths" / RUN / root_name(place))
    return folder


def saying(row: dict[str, Any], text: str) -> dict[str, Any]:
    """The message with this for its text."""
    return {**row, "content": [{**row["content"][0], "text": text}]}
