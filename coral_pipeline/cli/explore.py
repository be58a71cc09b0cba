"""``coral-pipeline explore``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coral_pipeline.cli.width import WidthOption, width_option

if TYPE_CHECKING:
    from coral_pipeline.search.explore import TreeSummary
    from coral_pipeline.settings import Direction


def explore(
    root_dir: Annotated[Path, typer.Argument(help="Root folder: a snapshot as `select` copied it.")],
    out: Annotated[Path, typer.Option(help="Folder to write into; made if need be.")],
    teacher: Annotated[str, typer.Option(help="Who explores: embedded, opencode, simulated or scripted.")] = "embedded",
    script: Annotated[Path | None, typer.Option(help="Answers of the scripted teacher, JSON Lines.")] = None,
    direction: Annotated[
        str | None, typer.Option(help="maximize or minimize.", show_default="the task's, by task.yaml near ROOT_DIR")
    ] = None,
    width: WidthOption = None,
    endpoint: Annotated[
        str | None, typer.Option(help="Model endpoint of the opencode teacher, such as http://gpu1:30000/v1.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model of the opencode teacher, as the endpoint lists it.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the embedded and the simulated teacher.")] = 0,
    settings: Annotated[
        Path | None, typer.Option(help="YAML or JSON file with sections search, retry, simulation, embedded, opencode.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a tree that was interrupted.")] = False,
) -> None:
    """Explore one root: grow a tree of attempts, each edge two turns of a Teacher.

    Reads ROOT_DIR (its metadata.json for the score) and writes into the output folder: `nodes.parquet`,
    `edges.parquet`, `turns.parquet`, `rounds.parquet` (every decision), `messages.parquet`, and last
    `tree.json`. Its folder `work/` holds the journal of what was done.

    Stopped by Ctrl-C, by a signal or by a crash, it loses at most the turns that were running: the same
    command with `--resume` goes on and ends in the same tree. A finished tree is left as it is.

    Other settings come from a file, for example `{search: {max_depth: 3, max_logical_edges: 20}}`.

    The opencode teacher runs OpenCode agents in sandboxes against an OpenAI-compatible endpoint (SGLang); its key,
    where it wants one, is read from the variable CORAL_PIPELINE_API_KEY. `coral-pipeline doctor` tells what is missing.

    Example: `coral-pipeline explore data/output/tour/selected_roots/eval-000007-agent-1-0123456789ab
    --out data/output/tree`
    """
    from coral_pipeline.cli.signals import stop_on_signals
    from coral_pipeline.cli.tree_view import TreeView
    from coral_pipeline.errors import BadInput
    from coral_pipeline.search.explore import WORK_FOLDER, explore_root
    from coral_pipeline.search.root_folder import read_root
    from coral_pipeline.search.width import with_width
    from coral_pipeline.settings import TeacherSettings
    from coral_pipeline.settings_file import read_settings, with_opencode
    from coral_pipeline.teacher.protocol import Stopped
    from coral_pipeline.teacher.registry import TEACHERS, TeacherRequest, api_key_of, fitting_width, open_teacher

    _require_choice("--teacher", teacher, TEACHERS)
    if teacher == "scripted" and script is None:
        raise typer.BadParameter("the scripted teacher needs --script FILE", param_hint="--script")
    chosen = with_opencode(read_settings(settings, width_option(width)), endpoint, model)
    chosen = chosen.model_copy(update={"teacher": TeacherSettings(name=teacher, seed=seed, script=script)})
    root = read_root(root_dir, _direction(direction))
    for notice in root.notices:
        typer.echo(f"note: {notice}", err=True)
    if out.resolve().is_relative_to(root.path):
        raise BadInput(out, "lies in the root folder, which is never written to", "choose another --out")
    workdir = out / WORK_FOLDER / "teacher"
    search = with_width(chosen.search, out, lambda: fitting_width(chosen))
    if chosen.search.parallel_width == "auto":
        typer.echo(f"width {search.width}", err=True)
    api_key = api_key_of(chosen.opencode)
    request = TeacherRequest(root.path, root.node.score, root.direction, root.task, workdir, chosen, api_key)
    with stop_on_signals() as stop, TreeView() as view:
        try:
            summary = explore_root(
                root.node,
                root.direction,
                open_teacher(teacher, request),
                out,
                search,
                chosen.retry,
                stop.event,
                view,
                resume=resume,
            )
        except Stopped:
            typer.echo(f"stopped; go on with the same command and --resume: {out}", err=True)
            raise typer.Exit(stop.exit_code) from None
    _say(summary, out)


def _direction(given: str | None) -> Direction | None:
    if given is None:
        return None
    _require_choice("--direction", given, ("maximize", "minimize"))
    return "maximize" if given == "maximize" else "minimize"


def _require_choice(option: str, given: str, choices: Iterable[str]) -> None:
    if given not in choices:
        raise typer.BadParameter(f"{given!r} is not one of {', '.join(choices)}", param_hint=option)


def _say(summary: TreeSummary, out: Path) -> None:
    from coral_pipeline.disk_use import readable

    stop_reasons = {
        "leaf_target": "enough good leaves",
        "edge_budget": "the budget of edges is spent",
        "exhausted": "no node is left to expand",
    }
    root = summary.root
    by = abs(summary.best_score - root.score)
    best = f"node {summary.best_node}, {by:.6g} better than the root" if summary.best_node else "the root's own"
    if summary.was_finished:
        typer.echo("this tree was finished before and is left as it is")
    typer.echo(f"root   {root.key}, score {root.score:.6g} ({summary.direction})")
    typer.echo(
        f"tree   {summary.nodes} nodes, {summary.valid_edges} edges made them ({summary.improved_edges} improved, "
        f"{summary.kept_edges} failed but kept), {summary.failed_edges} failed, {summary.rounds} rounds"
    )
    typer.echo(f"ended  {summary.stop_reason}: {stop_reasons[summary.stop_reason]}; {summary.good_leaves} good leaves")
    typer.echo(f"best   {summary.best_score:.6g} ({best})")
    typer.echo(f"cost   {summary.tokens:,} tokens, {summary.seconds:.1f} s of turns")
    typer.echo(f"files  {out} ({readable(summary.disk_bytes)} on disk)")
    typer.echo(f"next   coral-pipeline rank {out} --out PATHS_DIR")
