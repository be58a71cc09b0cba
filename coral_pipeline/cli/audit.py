"""``coral-pipeline audit``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coral_pipeline.cli.run import DEFAULT_OUTPUT

MEGABYTE = 1e6


def audit(
    student_run: Annotated[Path, typer.Argument(help="Student run: the folder that `run` was given.")],
    out: Annotated[str, typer.Option(help="Folder, or URL, that `run` or Dagster wrote into.")] = str(DEFAULT_OUTPUT),
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Also compute stages, roots, trees, paths, credit and exports anew.")
    ] = False,
    tokenizer: Annotated[
        str | None,
        typer.Option(help="Folder of the tokenizer the tokens were made with, to compute them anew too."),
    ] = None,
) -> None:
    """Verify everything that was made from a Student run, and name each difference.

    Reads STUDENT_RUN and OUT and writes nothing. Looks at every partition of every stage: the bytes of each file
    against the checksums in its provenance.json, missing and surplus files, whether what it was made from is still
    what lies there, the snapshots against what was read from them, the copied roots against their snapshots.

    With --recompute every number too is computed anew with the settings that are stored with it: stages, choice of
    roots, trees (the search fed with the Teacher's answers, and the method's rules asserted on the tables), ranked
    paths, advantages, tokens, exports. Of a tokenizer in a folder only the name was stored: token ids are
    computed anew where --tokenizer says where it is.

    Prints one line per difference, naming file, row and column, and a summary. Exit code 0: none was found, 1: some.

    Example: `coral-pipeline audit data/student_runs/tour --recompute`
    """
    from coral_pipeline.audit.walk import Audit
    from coral_pipeline.cli.console import track
    from coral_pipeline.storage import output_folder

    name = known_name(student_run, out)
    with output_folder(out, name) as folder:
        auditing = Audit(folder, student_run, recompute, tokenizer, name)
        for line in auditing.strays():
            typer.echo(line)
        for task in track(auditing.tasks(), f"auditing {auditing.name}"):
            for line in auditing.run(task):
                typer.echo(line)
    account = auditing.account
    for note in account.notes:
        typer.echo(f"note: {note}", err=True)
    looked_at = ", ".join(
        f"{count / MEGABYTE:,.1f} MB" if what == "bytes" else f"{count:,} {what}"
        for what, count in sorted(account.looked_at.items())
    )
    typer.echo(f"{auditing.name}: {account.partitions} partitions, {account.checks} checks: {looked_at}")
    if account.findings:
        typer.echo(f"{account.findings} differences found")
        raise typer.Exit(1)
    typer.echo("no difference found" + ("" if recompute else "; --recompute also computes every number anew"))


def known_name(student_run: Path, out: str) -> str:
    """The name under which ``out`` knows a Student run: that of the link it is reached by, else its folder's.

    The sensor ``arrivals`` goes by the first, `run` and `select` by the second.
    """
    from coral_pipeline.storage import open_storage
    from coral_pipeline.student_run.layout import student_run_name, unicode_text
    from coral_pipeline.tables import FILTERED_SNAPSHOTS

    link = unicode_text(student_run.absolute().name)
    return link if link in open_storage(out).partitions(FILTERED_SNAPSHOTS.name) else student_run_name(student_run)
