"""``coral-pipeline select``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from coral_pipeline.student_run.reading import StudentRunTables
    from coral_pipeline.student_run.roots import StageAccount

SHOWN_NOTES = 10
"""Lines of one kind on stderr; the rest are counted."""


def select(
    student_run: Annotated[
        Path, typer.Argument(help="Student run: a folder with task.yaml and all_snapshots/, as `import-run` makes it.")
    ],
    out: Annotated[Path, typer.Option(help="Folder to write into, outside the Student run; made if need be.")],
    num_roots: Annotated[int | None, typer.Option(min=1, show_default="30", help="Roots to choose.")] = None,
) -> None:
    """Choose the snapshots of a Student run from which the search will start.

    Reads every snapshot of STUDENT_RUN, labels the run's early, middle and late stages, and chooses roots
    evenly over time within each. The Student run is never written to. Writes into the output folder:

    - `filtered_snapshots/`: the snapshots kept, and those rejected with the reason

    - `stage_labels/`: smoothed score and stage of each kept snapshot

    - `selected_roots/`: the roots, one copied folder each

    - `task/`: the task and its grader

    Example: `coral-pipeline select data/student_runs/tour --out data/output/tour --num-roots 6`
    """
    from coral_pipeline import tables
    from coral_pipeline.cli.console import track
    from coral_pipeline.errors import BadInput
    from coral_pipeline.settings import SelectionSettings
    from coral_pipeline.student_run.copying import TASK_FOLDER, copy_roots, refuse_overlap
    from coral_pipeline.student_run.layout import student_run_name
    from coral_pipeline.student_run.reading import read_student_run
    from coral_pipeline.student_run.roots import account, select_roots, shortages
    from coral_pipeline.student_run.stages import label_stages

    settings = SelectionSettings() if num_roots is None else SelectionSettings(num_roots=num_roots)
    filtered_folder, labels_folder, roots_folder = (
        out / name for name in ("filtered_snapshots", "stage_labels", "selected_roots")
    )
    refuse_overlap(student_run, filtered_folder, labels_folder, roots_folder, out / TASK_FOLDER)
    name = student_run_name(student_run)
    run = read_student_run(student_run, progress=lambda names: track(names, "reading"))
    tables.FILTERED_SNAPSHOTS.write(run.filtered, filtered_folder)
    tables.REJECTED_SNAPSHOTS.write(run.rejected, filtered_folder)
    _say_what_was_read(name, run)
    labels = label_stages(run.filtered, run.direction, settings, student_run=student_run)
    tables.STAGE_LABELS.write(labels, labels_folder)
    roots = select_roots(labels, run.filtered, name, settings)
    left_out = copy_roots(student_run, roots, roots_folder, progress=lambda rows: track(rows, "copying"))
    tables.SELECTED_ROOTS.write(roots, roots_folder)
    accounts = account(labels, roots, settings)
    _say_what_was_chosen(accounts, staged_by=labels["staged_by"][0].as_py())
    _note(shortages(accounts, settings))
    _note(f"left out of a copy: {line}" for line in left_out)
    if not roots.num_rows:
        raise BadInput(student_run, "no snapshot is eligible, so there are no roots", "choose another Student run")
    typer.echo(f"roots: {roots.num_rows}, copied to {roots_folder}")


def _say_what_was_read(name: str, run: StudentRunTables) -> None:
    kept, rejected = run.filtered.num_rows, run.rejected.num_rows
    eligible = sum(run.filtered["eligible"].to_pylist())
    reasons = ", ".join(f"{count} {reason}" for reason, count in run.rejected_by_reason().items())
    typer.echo(f"{name} ({run.direction}): snapshots: {kept + rejected}, kept: {kept}, eligible: {eligible}")
    if rejected:
        typer.echo(f"rejected: {rejected} ({reasons})")
    _note(run.warnings)


def _say_what_was_chosen(accounts: Sequence[StageAccount], staged_by: str) -> None:
    from rich.table import Table

    from coral_pipeline.cli.console import stdout

    table = Table("stage", box=None, caption=f"staged by {staged_by}", caption_justify="left")
    for column in ("snapshots", "eligible", "quota", "roots", "by backfill"):
        table.add_column(column, justify="right")
    for a in accounts:
        numbers = (a.snapshots, a.eligible, a.quota, a.by_quota + a.by_backfill, a.by_backfill)
        table.add_row(a.stage, *map(str, numbers))
    stdout.print(table)


def _note(lines: Iterable[str]) -> None:
    """Lines on stderr, of which a run with many can only show the first."""
    lines = list(lines)
    for line in lines[:SHOWN_NOTES]:
        typer.echo(f"note: {line}".replace("\n", "\\n"), err=True)
    if len(lines) > SHOWN_NOTES:
        typer.echo(f"note: … and {len(lines) - SHOWN_NOTES} more of these", err=True)
