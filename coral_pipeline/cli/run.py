"""``coral-pipeline run``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coral_pipeline.cli.width import WidthOption, width_option

if TYPE_CHECKING:
    from coral_pipeline.defs.whole_run import RootOutcome
    from coral_pipeline.report.roots import RootReport
    from coral_pipeline.settings import PipelineSettings

DEFAULT_OUTPUT = Path("data/output")


def run(
    student_run: Annotated[
        Path, typer.Argument(help="Student run: a folder with task.yaml and all_snapshots/, as `import-run` makes it.")
    ],
    out: Annotated[Path, typer.Option(help="Folder to write into, outside the Student run.")] = DEFAULT_OUTPUT,
    num_roots: Annotated[int | None, typer.Option(min=1, show_default="30", help="Roots to choose.")] = None,
    teacher: Annotated[
        str | None,
        typer.Option(help="Who explores: embedded, opencode, simulated or scripted.", show_default="embedded"),
    ] = None,
    script: Annotated[Path | None, typer.Option(help="Answers of the scripted teacher, JSON Lines.")] = None,
    endpoint: Annotated[
        str | None, typer.Option(help="Model endpoint of the opencode teacher, such as http://gpu1:30000/v1.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model of the opencode teacher, as the endpoint lists it.")] = None,
    seed: Annotated[int | None, typer.Option(show_default="0", help="Seed of teachers without a model.")] = None,
    width: WidthOption = None,
    trees_at_once: Annotated[
        int | None, typer.Option(min=1, show_default="2", help="Trees that grow side by side.")
    ] = None,
    settings: Annotated[Path | None, typer.Option(help="YAML or JSON file with any of the settings.")] = None,
) -> None:
    """Take a Student run all the way: roots, a tree per root, ranked paths, advantages, datasets.

    Reads STUDENT_RUN, which is never written to, and runs every stage through Dagster in this process. Each
    stage writes into OUT/STAGE/RUN/, or OUT/STAGE/RUN/ROOT/ from `explored_trees` on; the summary at the end
    names the files and how to open all of it in the Dagster UI.

    Stopped at any time, by Ctrl-C or a crash, the same command goes on where it was. The choice of roots and the
    dataset are made each time; a tree that is finished, its paths and advantages are not made again unless its root,
    its task or the settings have changed. A root that fails does not stop the others: it is named at the end, and
    the exit code is 1.

    Example: `coral-pipeline run data/student_runs/tour --num-roots 6`
    """
    from coral_pipeline.cli.run_summary import print_summary
    from coral_pipeline.cli.run_view import RunView
    from coral_pipeline.cli.signals import stop_on_signals
    from coral_pipeline.defs.build import SETTINGS_FILE
    from coral_pipeline.defs.instance import HOME, instance_under
    from coral_pipeline.defs.progress import SearchControl
    from coral_pipeline.defs.whole_run import ASSETS, Interrupted, WholeRun
    from coral_pipeline.errors import BadInput
    from coral_pipeline.report.roots import root_report
    from coral_pipeline.settings_file import read_settings, write_settings
    from coral_pipeline.storage import is_url
    from coral_pipeline.student_run.copying import refuse_overlap
    from coral_pipeline.student_run.reading import read_direction

    options: dict[str, dict[str, Any]] = {
        "selection": {"num_roots": num_roots},
        "teacher": {"name": teacher, "seed": seed, "script": script and script.absolute()},
        "opencode": {"endpoint": endpoint, "model": model},
    }
    chosen = _with_options(read_settings(settings, width_option(width)), options, trees_at_once)
    if is_url(str(out).replace(":/", "://", 1)):  # pathlib makes one slash of two
        raise BadInput(out, "is a URL, and `run` works on this machine alone", "give a folder, or run it as a service")
    read_direction(student_run)
    refuse_overlap(student_run, *(out / name for name in (HOME, *ASSETS)))
    outcomes: list[RootOutcome] = []
    reports: dict[str, RootReport] = {}
    with stop_on_signals() as stop, instance_under(out) as instance, RunView() as view:
        whole = WholeRun(student_run, out, chosen, instance, SearchControl(stop.event, view.watch))
        write_settings(chosen, out / SETTINGS_FILE)
        try:
            view.stage("choosing roots")
            keys = whole.select_roots()
            view.stage("exploring", roots=len(keys))
            for outcome in whole.explore(keys):
                outcomes.append(outcome)
                if not outcome.failure:
                    source = whole.folders.of_root(outcome.key)
                    reports[outcome.key.root] = root_report(source.tree, source.ranked)
                view.ended(outcome, reports.get(outcome.key.root))
            view.stage("gathering the dataset")
            failure = whole.gather()
        except Interrupted:
            typer.echo("stopped; the same command goes on where it was", err=True)
            raise typer.Exit(stop.exit_code) from None
    print_summary(whole.folders, whole.key, reports)
    warnings = [f"{outcome.key.root}: {line}" for outcome in outcomes for line in outcome.warnings]
    for line in (*whole.warnings, *warnings):
        typer.echo(f"note: {line}", err=True)
    failures = [f"{outcome.key.root}: {outcome.failure}" for outcome in outcomes if outcome.failure]
    failures += [f"dataset: {failure}"] if failure else []
    for line in failures:
        typer.echo(f"coral-pipeline: {line}", err=True)
    if failures:
        raise typer.Exit(1)


def _with_options(
    settings: PipelineSettings, options: dict[str, dict[str, Any]], trees_at_once: int | None
) -> PipelineSettings:
    """The settings with what was given on the command line in their place. Usage errors exit with 2."""
    from coral_pipeline.settings import PipelineSettings
    from coral_pipeline.teacher.registry import TEACHERS, require_fitting_width

    values = settings.model_dump()
    for section, given in options.items():
        values[section] |= {name: value for name, value in given.items() if value is not None}
    if trees_at_once is not None:
        values["trees_at_once"] = trees_at_once
    chosen = PipelineSettings.model_validate(values)
    if chosen.teacher.name not in TEACHERS:
        raise typer.BadParameter(f"{chosen.teacher.name!r} is not one of {', '.join(TEACHERS)}", param_hint="--teacher")
    if chosen.teacher.name == "scripted" and chosen.teacher.script is None:
        raise typer.BadParameter("the scripted teacher needs --script FILE", param_hint="--script")
    require_fitting_width(chosen)
    return chosen
