"""The ``coral-pipeline`` command: the same stages as the Dagster assets, from a shell.

Exit codes: 0 done, 1 input, disk or store that cannot be used (one line on stderr), 2 wrong usage. Commands import
what they need when they run, so that ``--help`` answers at once.
"""

from __future__ import annotations

import sys

import typer

from coral_pipeline.cli.audit import audit
from coral_pipeline.cli.backfill import backfill
from coral_pipeline.cli.credit import credit
from coral_pipeline.cli.doctor import doctor
from coral_pipeline.cli.explore import explore
from coral_pipeline.cli.export import export
from coral_pipeline.cli.import_run import import_run
from coral_pipeline.cli.lineage import lineage
from coral_pipeline.cli.rank import rank
from coral_pipeline.cli.report import report
from coral_pipeline.cli.run import run
from coral_pipeline.cli.select import select
from coral_pipeline.cli.simulate import simulate
from coral_pipeline.errors import PipelineError, told

app = typer.Typer(
    name="coral-pipeline",
    help="Turn a CORAL run of coding agents into training data.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


@app.callback()
def _root() -> None:
    """Turn a CORAL run of coding agents into training data."""


app.command()(audit)
app.command()(backfill)
app.command()(credit)
app.command()(doctor)
app.command()(explore)
app.command()(export)
app.command()(import_run)
app.command()(lineage)
app.command()(rank)
app.command()(report)
app.command()(run)
app.command()(select)
app.command()(simulate)


def main() -> None:
    """Entry point: expected failures, the disk's and the store's too, become one line on stderr and exit code 1."""
    try:
        app()
    except (PipelineError, OSError) as error:
        print(f"coral-pipeline: {told(error) if isinstance(error, OSError) else error}", file=sys.stderr)
        sys.exit(1)
