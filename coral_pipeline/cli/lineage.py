"""``coral-pipeline lineage``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coral_pipeline.cli.run import DEFAULT_OUTPUT


def lineage(
    reference: Annotated[str, typer.Argument(metavar="REF", help="What to look up, in one of the forms above.")],
    out: Annotated[
        str, typer.Option(help="Folder or URL (s3://bucket/prefix) that `run`, or Dagster, wrote into.")
    ] = str(DEFAULT_OUTPUT),
    student_runs: Annotated[Path, typer.Option(help="Folder that holds the Student runs, one folder each.")] = Path(
        "data/student_runs"
    ),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the chain as one JSON list, with whole records.")
    ] = False,
) -> None:
    """Tell where a sample, path, edge, node, message or token comes from, and verify every step of the way.

    REF is one of (RUN: a Student run, ROOT: a root or the beginning of its name)

    - `RUN/ROOT`, `RUN/ROOT/node/7`, `RUN/ROOT/edge/12`: a tree, one of its nodes or edges

    - `RUN/ROOT/path/1`: its candidate path of rank 1

    - `RUN/ROOT/message/0.1/2/5`: the message with the id 0.1/2/5

    - `RUN/ROOT/token/0.1/2/5/17`: token 17, from 0, of those this message adds

    - `RUN/sft/3`, `RUN/sft/3/8`: sample 3 of the dataset, from 0; message 8 in it

    - `RUN/branches/3`, `RUN/branches/3/1042`: token stream 3 of the dataset; token 1042 in it

    Prints the chain back: sample, path, edges and nodes, tree, copied root, snapshot (agent, commit, attempt), CORAL
    run. Each step has the hash of its contents, how its scores, PathScore, reward and advantage came about, and the
    settings, versions and files of where it lies; bytes, inputs and sums are verified now: ok, or CHANGED and what.

    Reads OUT and STUDENT_RUNS and writes nothing there. Exit code 0: all is as recorded, 1: some of it has changed.

    Example: `coral-pipeline lineage tour/eval-000015/path/1`
    """
    import json

    from coral_pipeline.audit.sources import Source
    from coral_pipeline.errors import BadInput
    from coral_pipeline.lineage import Reference, chain_of
    from coral_pipeline.lineage.text import lines_of
    from coral_pipeline.storage import open_storage

    def folder_of(name: str) -> Path:
        folder = student_runs / name
        if not folder.is_dir():
            raise BadInput(folder, "there is no such Student run", "name the folder it lies in with --student-runs")
        return folder

    source = Source(open_storage(out), folder_of)
    steps = chain_of(Reference.parse(reference), source)
    if as_json:
        typer.echo(json.dumps([step.as_json() for step in steps], indent=2))
    else:
        for line in lines_of(steps):
            typer.echo(line)
    if not all(step.is_intact for step in steps):
        raise typer.Exit(1)
