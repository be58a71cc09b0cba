"""``coral-pipeline backfill``."""

from __future__ import annotations

from typing import Annotated

import typer


def backfill(
    student_run: Annotated[str, typer.Argument(help="Name of a Student run whose roots have been chosen.")],
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most so many roots, oldest first.", show_default="all")
    ] = None,
) -> None:
    """Have a deployment's Dagster explore what is missing or stale of a Student run's roots.

    Launches a backfill, as the Dagster UI does, of each root's tree, ranked paths and advantages in one run, and
    returns at once. The Dagster daemon works on a few trees at a time; the others wait in its queue. What is
    finished and current is left out; what was stopped or killed goes on where it was.

    Reads the environment of the deployment: DAGSTER_HOME, CORAL_PIPELINE_OUTPUT, CORAL_PIPELINE_STUDENT_RUNS and
    CORAL_PIPELINE_SETTINGS.

    Example: `DAGSTER_HOME=/srv/dagster CORAL_PIPELINE_OUTPUT=/srv/output coral-pipeline backfill tour`
    """
    import os

    import dagster as dg

    from coral_pipeline.defs.backfill import backfill_roots
    from coral_pipeline.defs.build import places, settings_of
    from coral_pipeline.defs.folders import Folders
    from coral_pipeline.defs.lineage import Lineage
    from coral_pipeline.errors import BadInput

    home = os.environ.get("DAGSTER_HOME")
    if not home or not os.path.isdir(home):  # noqa: PTH112
        problem = f"is {home}, which is no folder" if home else "is not set"
        raise BadInput("DAGSTER_HOME", problem, "set it to the folder that the deployment's Dagster has as its own")
    output, student_runs = places(os.environ)
    lineage = Lineage(Folders(output=output, student_runs=str(student_runs)), settings_of(os.environ))
    with dg.DagsterInstance.get() as instance:
        asked = backfill_roots(student_run, lineage, instance, limit)
    left_out = f"{asked.current} are done, {asked.under_way} under way"
    if asked.backfill is None:
        typer.echo(f"nothing to do: {left_out}")
        return
    typer.echo(f"backfill {asked.backfill}: {asked.roots} roots ({left_out}); see Runs > Backfills in the Dagster UI")
    if not asked.daemon_runs:
        typer.echo("no Dagster daemon runs there now: the backfill begins when one does", err=True)
