"""What ``coral-pipeline run`` says at its end: what was found, where it lies, what to do next."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from rich import box
from rich.table import Column, Table
from rich.text import Text

from coral_pipeline import tables
from coral_pipeline.cli.console import stdout
from coral_pipeline.defs.build import OUTPUT, STUDENT_RUNS
from coral_pipeline.defs.folders import Folders
from coral_pipeline.defs.instance import HOME
from coral_pipeline.defs.partitions import RootKey
from coral_pipeline.report.coverage import stage_coverage
from coral_pipeline.report.roots import RootReport

FILES = {
    "sft.jsonl": "SFT samples: OpenAI-style messages and tools",
    "sft.parquet": "the same for datasets.load_dataset",
    "llama_factory": "the same in LLaMA-Factory's OpenAI format",
    "traces.jsonl": "verifiers episodes, one per root",
    "branches.parquet": "token streams with labels, mask and advantages",
}
"""Of sft_dataset."""


def print_summary(folders: Folders, key: str, reports: Mapping[str, RootReport]) -> None:
    """The summary, on stdout. ``reports``: of the roots that did not fail, by root."""
    roots = tables.SELECTED_ROOTS.read(folders.asset("selected_roots", key))
    _say()
    _say(_snapshots(folders, key))
    stdout.print(_stages(folders, key, roots, reports))
    stdout.print(_trees(roots, reports))
    improved = sum(report.improved for report in reports.values())
    _say(f"{improved} of {len(reports)} trees improve on their root")
    _say()
    dataset = folders.asset("sft_dataset", key)
    for name, meaning in FILES.items():
        if (dataset / name).exists():
            _say(f"{_shown(dataset / name)}   {meaning}")
    _say(f"{_shown(Path(folders.output))}/ASSET/{key}[/ROOT]   tables of every stage, described in their metadata")
    _say()
    _say("Next: look at trees, paths and advantages in the Dagster UI")
    _say(f"  {ui_command(folders)}")


def ui_command(folders: Folders) -> str:
    """The shell command that opens the UI on these folders."""
    dagster = shutil.which("dagster") or str(Path(sys.executable).with_name("dagster"))
    variables = {"DAGSTER_HOME": f"{folders.output}/{HOME}", OUTPUT: folders.output, STUDENT_RUNS: folders.student_runs}
    assignments = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    return f"{assignments} {shlex.quote(dagster)} dev -m coral_pipeline.definitions"


def _snapshots(folders: Folders, key: str) -> str:
    folder = folders.asset("filtered_snapshots", key)
    kept, rejected = tables.FILTERED_SNAPSHOTS.read(folder), tables.REJECTED_SNAPSHOTS.read(folder)
    eligible = sum(kept["eligible"].to_pylist())
    return f"{key}: {len(kept) + len(rejected)} snapshots, {len(kept)} kept, {eligible} eligible as roots"


def _stages(folders: Folders, key: str, roots: pa.Table, reports: Mapping[str, RootReport]) -> Table:
    """Roots and paths by stage."""
    ranked = {root: tables.RANKED_PATHS.read(folders.of_root(RootKey(key, root)).ranked) for root in reports}
    table = _table("stage", "roots", "trees done", "candidate paths", "selected")
    for row in stage_coverage(roots, ranked):
        table.add_row(row.stage, *map(str, (row.roots, row.done, row.candidates, row.selected)))
    return table


def _trees(roots: pa.Table, reports: Mapping[str, RootReport]) -> Table:
    """One line per finished tree."""
    table = _table("root", "stage", "score", "best", "edges", "failed", "stopped by", "paths")
    for row in roots.to_pylist():
        if report := reports.get(row["root"]):
            table.add_row(
                f"{row['global_index']} {row['agent_id']}",
                row["stage"],
                f"{report.root_score:.6g}",
                Text(f"{report.best_score:.6g}", style="bold green" if report.improved else ""),
                str(report.valid_edges),
                str(report.failed_edges),
                report.stop_reason,
                str(report.selected),
            )
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(Column(first, no_wrap=True), box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _shown(path: Path) -> str:
    """Short where the path lies below the current folder."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _say(line: str = "") -> None:
    stdout.print(line, soft_wrap=True, highlight=False, markup=False)
