"""The assets per Student run: kept snapshots, stages, roots and their copied folders (method S1–S12)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coral_pipeline import tables
from coral_pipeline.audit.compare import compare_json, compare_tables
from coral_pipeline.audit.findings import Review
from coral_pipeline.content import SUPERSEDED_FILE
from coral_pipeline.provenance import CHECKSUMS_FOLDER
from coral_pipeline.settings import Direction, SelectionSettings
from coral_pipeline.student_run.copying import ADDED_BY_SELECTION, TASK_FOLDER
from coral_pipeline.student_run.guarded import Unreadable, parse_json
from coral_pipeline.student_run.layout import GRADER_FOLDER, METADATA_FILE, PRIVATE_FOLDER, SNAPSHOTS_FOLDER, TASK_FILE
from coral_pipeline.student_run.reading import read_student_run
from coral_pipeline.student_run.roots import account, select_roots, shortages
from coral_pipeline.student_run.stages import label_stages
from coral_pipeline.tree_copy import stays_inside

_CHUNK = 1 << 20


def verify_snapshots(review: Review, folder: Path, student_run: Path) -> None:
    """``filtered_snapshots`` in ``folder``: every folder of the run in one of the tables, as its files say now."""
    with review.guarded(tables.FILTERED_SNAPSHOTS.file_name):
        kept = tables.FILTERED_SNAPSHOTS.read(folder)
        rejected = tables.REJECTED_SNAPSHOTS.read(folder)
        seen = len(os.listdir(student_run / SNAPSHOTS_FOLDER))  # noqa: PTH208 (names alone)
        review.looked_at["folders"] += seen
        if kept.num_rows + rejected.num_rows != seen:
            problem = f"{kept.num_rows} kept and {rejected.num_rows} rejected are not the {seen} folders of the run"
            review.find(SNAPSHOTS_FOLDER, problem)
        for row in kept.select(["snapshot", "eval_ok", "score", "eligible"]).to_pylist():
            if row["eligible"] != (row["eval_ok"] and row["score"] is not None):
                problem = f"eligible is {row['eligible']} with eval_ok {row['eval_ok']} and score {row['score']} (S4)"
                review.find(f"{tables.FILTERED_SNAPSHOTS.file_name}, {row['snapshot']}", problem)
        run = read_student_run(student_run)
        compare_tables(review, tables.FILTERED_SNAPSHOTS, kept, run.filtered)
        compare_tables(review, tables.REJECTED_SNAPSHOTS, rejected, run.rejected)


def verify_stages(
    review: Review, folder: Path, snapshots: Path, direction: Direction, settings: SelectionSettings
) -> None:
    """``stage_labels`` in ``folder``: exactly the kept snapshots in run order, every number computed anew.

    ``snapshots``: folder of ``filtered_snapshots``; ``settings``: those the labels were made with.
    """
    with review.guarded(tables.STAGE_LABELS.file_name):
        found, kept = tables.STAGE_LABELS.read(folder), tables.FILTERED_SNAPSHOTS.read(snapshots)
        compare_tables(review, tables.STAGE_LABELS, found, label_stages(kept, direction, settings))


def verify_choice(
    review: Review, folder: Path, snapshots: Path, labels: Path, name: str, settings: SelectionSettings
) -> None:
    """``selected_roots`` in ``folder``: eligible, the even picks of each stage's quota, shortages filled (S9–S11).

    ``snapshots`` and ``labels``: folders of the assets it is made from; ``name``: of the Student run.
    """
    file = tables.SELECTED_ROOTS.file_name
    with review.guarded(file):
        roots, kept = tables.SELECTED_ROOTS.read(folder), tables.FILTERED_SNAPSHOTS.read(snapshots)
        staged = tables.STAGE_LABELS.read(labels)
        eligible = {row["snapshot"] for row in staged.select(["snapshot", "eligible"]).to_pylist() if row["eligible"]}
        for root in roots["root"].to_pylist():
            if root not in eligible:
                review.find(f"{file}, {root}", "is no eligible snapshot of the run (S4)")
        accounts = account(staged, roots, settings)
        for stage in accounts:
            if stage.by_quota != min(stage.quota, stage.eligible):
                problem = f"{stage.by_quota} roots by quota; the quota is {stage.quota}, eligible are {stage.eligible}"
                review.find(f"{file}, {stage.stage} stage", f"{problem} (S11)")
        wanted = min(settings.num_roots, len(eligible))
        if roots.num_rows != wanted:
            review.find(file, f"has {roots.num_rows} roots, expected {wanted} (S11)")
        review.notes += shortages(accounts, settings)
        compare_tables(review, tables.SELECTED_ROOTS, roots, select_roots(staged, kept, name, settings))


def verify_copies(review: Review, folder: Path, student_run: Path) -> None:
    """The copied roots and the task beside ``selected_roots``: equal to what they were copied from (S12).

    Apart from ``ADDED_BY_SELECTION`` in metadata.json, and links that lead out of a snapshot, which are left out.
    """
    with review.guarded(tables.SELECTED_ROOTS.file_name):
        rows = tables.SELECTED_ROOTS.read(folder).to_pylist()
        for row in rows:
            with review.guarded(row["root"]):
                _verify_copy(review, row, folder / row["root"], student_run / SNAPSHOTS_FOLDER / row["root"])
        task = folder / TASK_FOLDER
        _same_file(review, f"{TASK_FOLDER}/{TASK_FILE}", task / TASK_FILE, student_run / TASK_FILE)
        for name in (GRADER_FOLDER, PRIVATE_FOLDER):
            if (student_run / name).is_dir() or (task / name).is_dir():
                _same_tree(review, f"{TASK_FOLDER}/{name}", task / name, (student_run / name).resolve(), frozenset())
        expected = {TASK_FOLDER, CHECKSUMS_FOLDER, *(row["root"] for row in rows)}
        for other in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
            if other.name not in expected and not (other / SUPERSEDED_FILE).exists():
                review.find(other.name, "should not be there: no root of the table")


def _verify_copy(review: Review, row: dict[str, Any], copied: Path, snapshot: Path) -> None:
    review.looked_at["copied folders"] += 1
    if not copied.is_dir() or not snapshot.is_dir():
        missing = copied if not copied.is_dir() else snapshot
        review.find(row["root"], f"is missing in {missing.parent.name}")
        return
    snapshot = snapshot.resolve()
    _same_tree(review, row["root"], copied, snapshot, frozenset({METADATA_FILE, SUPERSEDED_FILE}))
    where = f"{row['root']}/{METADATA_FILE}"
    try:
        found, original = (parse_json((place / METADATA_FILE).read_bytes()) for place in (copied, snapshot))
    except Unreadable as unreadable:
        review.find(where, str(unreadable))
        return
    compare_json(review, where, found, original | {key: row[key] for key in ADDED_BY_SELECTION})


def _same_tree(review: Review, where: str, copied: Path, original: Path, apart_from: frozenset[str]) -> None:
    """Every file and link of ``original`` is in ``copied``, and nothing else."""
    there, should_be = dict(_entries(copied)), dict(_entries(original))
    for name in sorted(there.keys() | should_be.keys()):
        if name in apart_from:
            continue
        if name not in there:
            if not _is_left_out(should_be[name], original):
                review.find(f"{where}/{name}", "is missing: the snapshot has it", kind=where)
        elif name not in should_be:
            review.find(f"{where}/{name}", "should not be there: the snapshot does not have it", kind=where)
        else:
            _same_file(review, f"{where}/{name}", there[name], should_be[name], kind=where)


def _entries(folder: Path) -> Iterator[tuple[str, Path]]:
    """Name and path of everything in the folder that is not itself a folder."""
    for inside, folders, files in os.walk(folder):
        place = Path(inside)
        for name in (*files, *(name for name in folders if (place / name).is_symlink())):
            yield str((place / name).relative_to(folder)), place / name


def _is_left_out(entry: Path, snapshot: Path) -> bool:
    """Whether a copy is made without this entry of the snapshot: a link that leads out of it, a pipe, a device."""
    if not entry.is_symlink():
        return not entry.is_file()
    inside = f"/{entry.parent.relative_to(snapshot)}".removesuffix("/.")
    return not stays_inside(str(entry), str(snapshot), inside, str(entry.readlink()))


def _same_file(review: Review, where: str, found: Path, expected: Path, kind: str | None = None) -> None:
    """Two files of the same bytes, or two links to the same."""
    review.looked_at["files"] += 1
    if found.is_symlink() or expected.is_symlink():
        links = [str(path.readlink()) if path.is_symlink() else None for path in (found, expected)]
        if links[0] != links[1]:
            review.find(where, f"is a link to {links[0]}, expected {links[1]}", kind)
        return
    for path, missing in ((found, "is missing"), (expected, "is missing where it was copied from")):
        if not path.exists():
            review.find(where, missing, kind)
            return
    if not stat.S_ISREG(found.stat().st_mode) or not stat.S_ISREG(expected.stat().st_mode):
        review.find(where, "is no regular file, here or where it was copied from", kind)
        return
    at = _first_difference(found, expected)
    if at is not None:
        sizes = found.stat().st_size, expected.stat().st_size
        lengths = "" if sizes[0] == sizes[1] else f" ({sizes[0]} bytes, expected {sizes[1]})"
        review.find(where, f"differs from the original from byte {at} on{lengths}", kind)


def _first_difference(one: Path, other: Path) -> int | None:
    """Where the bytes of two files first differ; None where they do not."""
    at = 0
    with one.open("rb") as first, other.open("rb") as second:
        while True:
            a, b = first.read(_CHUNK), second.read(_CHUNK)
            if a != b:
                shorter = min(len(a), len(b))
                return at + next((i for i in range(shorter) if a[i] != b[i]), shorter)
            if not a:
                return None
            at += len(a)
