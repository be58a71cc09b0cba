"""``coral-pipeline import-run``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SHOWN = 20
"""Rejected attempts named on the terminal; the report has them all."""


def import_run(
    coral_run: Annotated[Path, typer.Argument(help="Folder of a stock CORAL run: it holds `.coral/` and `repo/`.")],
    student_run: Annotated[Path, typer.Argument(help="Folder to write the Student run into; made if need be.")],
) -> None:
    """Make a Student run out of a stock CORAL run.

    Rebuilds from CORAL's git history, for every attempt in the order of their times, the snapshot
    `all_snapshots/eval-<index>-<agent>-<commit>/`: `code/` as it was submitted, `shared/` (notes, skills, attempts, …)
    as the agent saw it with the attempt's own record added, `metadata.json`. Beside them `task.yaml` (CORAL's
    configuration without paths and secrets), the task's `grader/`, and `import_report.parquet`: a row per
    attempt, rejected ones with the reason.

    The CORAL run is only read. Run the command again to add the attempts that have come since, or to
    complete an import that was interrupted; what is there stays as it is.

    Example: `coral-pipeline import-run results/my-task/latest data/student_runs/my-task`
    """
    from coral_pipeline.cli.console import stdout, track
    from coral_pipeline.student_run import importing

    outcome = importing.import_run(coral_run, student_run, lambda places: track(places, "snapshots"))
    imported = len(outcome.report) - len(outcome.rejected)
    stdout.print(
        f"{imported} of {len(outcome.report)} attempts imported ({outcome.written} now): {student_run}", soft_wrap=True
    )
    for note in outcome.notes:
        typer.echo(f"note: {note}", err=True)
    for row in outcome.rejected[:SHOWN]:
        stdout.print(f"rejected: {row['attempt']} ({row['reason']}: {row['detail']})", markup=False, soft_wrap=True)
    if len(outcome.rejected) > SHOWN:
        stdout.print(f"… and {len(outcome.rejected) - SHOWN} more: see import_report.parquet")
