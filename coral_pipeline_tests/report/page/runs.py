"""Outputs of Student runs in small: what the pipeline would have written, with transcripts and diffs of one's own."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from coral_pipeline import provenance, tables
from coral_pipeline.paths.rank import rank_paths
from coral_pipeline.provenance import Input, Provenance
from coral_pipeline.settings import STAGES, PathSettings
from coral_pipeline_tests.trees import Failed, N, write_tree

RUN = "run-a"
PER_ROOT = ("explored_trees", "ranked_paths", "advantage_batches")
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


def seal(output: Path, asset: str, root: str = "", version: str = "1", **inputs: str) -> None:
    """Say that what lies there is of this version, and the versions of what it was made from, by asset.

    A dataset is made from the first root.
    """
    folder = output / asset / RUN / root
    made = Provenance(
        asset=asset,
        partition=_partition(root),
        code=1,
        settings={},
        inputs=tuple(
            Input(asset=name, partition=_partition(root or (name in PER_ROOT and root_name(0))), version=of)
            for name, of in inputs.items()
        ),
        version=version,
        folders={path.name: "1" for path in folder.iterdir() if path.is_dir()},
        made_at=dt.datetime(2026, 5, 1, tzinfo=dt.UTC),
        software={},
    )
    provenance.write(made, folder)


def _partition(root: str | bool) -> str:
    return f"{RUN}|{root}" if root else RUN


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
    folder = output / "selected_roots" / RUN
    tables.SELECTED_ROOTS.write(chosen, folder)
    for row in chosen:
        (folder / row["root"]).mkdir()
    seal(output, "stage_labels")
    seal(output, "selected_roots", stage_labels="1")


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
    name = root_name(place)
    folder = output / "explored_trees" / RUN / name
    write_tree(folder, nodes, failed=failed, root=name, student_run=RUN)
    tables.MESSAGES.write([message(row) for row in tables.MESSAGES.rows(folder)], folder)
    tables.TURNS.write([turn(row) for row in tables.TURNS.rows(folder)], folder)
    seal(output, "explored_trees", name, selected_roots="1")
    if rank:
        tables.RANKED_PATHS.write(rank_paths(folder, PathSettings()), output / "ranked_paths" / RUN / name)
        seal(output, "ranked_paths", name, explored_trees="1")
    return folder


def write_credit(output: Path) -> None:
    """Advantages of the first root: a positive, a zero, three unassigned."""
    folder = output / "advantage_batches" / RUN / root_name(0)
    advantages = [0.5, 0.0, None, None, None]
    edges = [
        {
            "edge_id": edge,
            "parent_id": NODES[edge + 1].parent,
            "child_id": edge + 1,
            "estimator": "td",
            "reward": 0.5,
            "duration": 1,
            "advantage": advantage,
            "diagnostics": [],
        }
        for edge, advantage in enumerate(advantages)
    ]
    tables.CREDIT_EDGES.write(edges, folder)
    tables.CRITIC_TARGETS.write([], folder)
    seal(output, "advantage_batches", root_name(0), explored_trees="1", ranked_paths="1")


def write_dataset(output: Path) -> None:
    """Two samples, of one and of three messages, one of which they share; streams of three and two tokens.

    Columns that the report does not read are left out.
    """
    folder = output / "sft_dataset" / RUN
    folder.mkdir(parents=True)
    samples = {"message_ids": [["a"], ["a", "b", "c"]], "shared_messages": [0, 1]}
    pq.write_table(pa.table(samples), folder / tables.SFT_SAMPLES.file_name)
    streams = {"labels": [[-100, 7, -100], [-100, 8]]}
    pq.write_table(pa.table(streams), folder / tables.BRANCHES.file_name)
    seal(output, "sft_dataset", selected_roots="1", **dict.fromkeys(PER_ROOT, "1"))


def saying(row: dict[str, Any], text: str) -> dict[str, Any]:
    """The message with this for its text."""
    return {**row, "content": [{**row["content"][0], "text": text}]}
