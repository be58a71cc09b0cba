"""``coral-pipeline report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coral_pipeline.cli.audit import known_name
from coral_pipeline.cli.run import DEFAULT_OUTPUT


def report(
    student_run: Annotated[
        Path, typer.Argument(help="Student run: its folder, or only its name. Nothing in the folder itself is read.")
    ],
    out: Annotated[str, typer.Option(help="Folder, or URL, that `run` or Dagster wrote into.")] = str(DEFAULT_OUTPUT),
    html: Annotated[
        Path | None,
        typer.Option(
            show_default="OUT/report-NAME.html, here where OUT is a URL", help="The page's file; replaced if there."
        ),
    ] = None,
    max_megabytes: Annotated[
        float | None,
        typer.Option(
            min=0.1, show_default="24", help="Size of all transcripts and diffs together; longer ones are cut."
        ),
    ] = None,
) -> None:
    """Write one HTML page about a Student run and all that was made of it, to be sent to a person.

    Reads the tables below OUT/STAGE/NAME/ and writes one file that needs nothing else, no network and no server:
    the run and its roots, every tree to click through (code diffs, transcripts, scores, why a node was chosen or
    pruned), the selected paths, the dataset and the costs. What is not made yet is shown as such. Every text
    that had to be cut says so, and where all of it is.

    Example: `coral-pipeline report data/student_runs/tour --html tour.html`
    """
    from datetime import UTC, datetime

    from coral_pipeline.cli.console import stdout, track
    from coral_pipeline.errors import BadInput
    from coral_pipeline.report.page.page import report_page
    from coral_pipeline.report.page.reading import Outputs, read_run
    from coral_pipeline.settings import ReportSettings
    from coral_pipeline.storage import is_url, output_folder
    from coral_pipeline.tables import text_file

    settings = ReportSettings()
    if max_megabytes is not None:
        settings = ReportSettings(transcript_bytes=round(max_megabytes * 1e6))
    name = known_name(student_run, out)
    with output_folder(out, name) as folder:
        run = read_run(Outputs(folder, name))
        page = report_page(run, settings, datetime.now(UTC), lambda roots: track(roots, "trees"))
    target = html or Path("." if is_url(out) else out, f"report-{name}.html")
    try:
        with text_file(target) as file:
            file.write(page)
    except OSError as error:
        raise BadInput(target, f"cannot be written ({error.strerror})", "choose another --html") from error
    done = sum(root.done for root in run.roots)
    size = target.stat().st_size / 1e6
    stdout.print(
        f"{target}: {size:.1f} MB, {done} of {len(run.roots)} trees are finished", soft_wrap=True, markup=False
    )
