"""``coral-pipeline simulate``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from coral_pipeline.search.forecast import Forecast

DEFAULT_WIDTHS = (4, 8, 16)

HOW_TO_READ = """\
How to read this. A tree is what one root costs; its round ends when its slowest edge does, so a larger width
shortens a tree only as long as the slots stay busy. Width is part of the method: it decides which nodes are
chosen together, hence the trees differ. "Computed" counts each token once, as a server with a prefix cache
does; "read" is what a server without one would go through. "Turns at once" is how many sessions the model
server has to hold on the average, "sampled per second" how fast it has to write. The distributions are in the
section simulation of the settings; put in your own model's numbers before you trust the hours."""


def simulate(
    trees: Annotated[int, typer.Option(min=1, help="Simulated trees per width; more give steadier means.")] = 20,
    width: Annotated[
        list[int] | None,
        typer.Option(min=1, show_default=", ".join(map(str, DEFAULT_WIDTHS)), help="parallel_width; may be repeated."),
    ] = None,
    roots: Annotated[int, typer.Option(min=1, help="Roots to explore in all.")] = 30,
    concurrent_trees: Annotated[int, typer.Option(min=1, help="Trees explored at once.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the first tree; the next trees count on from it.")] = 0,
    settings: Annotated[Path | None, typer.Option(help="YAML or JSON file with sections search, simulation.")] = None,
) -> None:
    """Estimate what a search will cost, before paying for GPUs.

    Grows simulated trees with the real search, a turn's score, tool calls, tokens and time drawn from the
    distributions in the settings, and prints for each width the size of a tree, its time, its tokens, and
    what all roots take together. Nothing is run, read or written; time is virtual.

    Example: `coral-pipeline simulate --width 8 --width 24 --roots 30 --concurrent-trees 4`, or with slower turns:
    a file `{simulation: {median_seconds: 600}}` given with `--settings`.
    """
    from coral_pipeline.cli.console import stdout, track
    from coral_pipeline.search.forecast import forecast_widths
    from coral_pipeline.settings_file import read_settings

    chosen = read_settings(settings)
    widths = sorted(set(width or DEFAULT_WIDTHS))
    forecasts = forecast_widths(widths, chosen.search, chosen.simulation, trees, seed)
    found = list(track(forecasts, "simulating", total=len(widths)))
    stdout.print(_table(found, trees, roots, concurrent_trees))
    stdout.print(HOW_TO_READ, soft_wrap=True)


def _table(forecasts: Sequence[Forecast], trees: int, roots: int, at_once: int) -> Table:
    from rich.table import Table

    plural = "s" if at_once > 1 else ""
    table = Table(title=f"Means of {trees} simulated trees; {roots} roots, {at_once} tree{plural} at once")
    table.add_column("width")
    for forecast in forecasts:
        table.add_column(str(forecast.width), justify="right")
    for name, tell in _rows(roots, at_once):
        if tell is None:
            table.add_section()
        else:
            table.add_row(name, *map(tell, forecasts))
    return table


def _rows(roots: int, at_once: int) -> list[tuple[str, Callable[[Forecast], str] | None]]:
    """What the table tells: a name, and how to tell it of a forecast; None: a line between sections."""
    batches = roots / at_once
    return [
        ("valid edges", lambda f: f"{f.valid_edges:.1f}"),
        ("  that improved", lambda f: f"{f.improved_edges:.1f}"),
        ("failed edges", lambda f: f"{f.failed_edges:.1f}"),
        ("depth", lambda f: f"{f.depth:.1f}"),
        ("good leaves", lambda f: f"{f.good_leaves:.1f}"),
        ("stopped by", lambda f: "\n".join(f"{reason} {n}" for reason, n in sorted(f.stop_reasons.items()))),
        ("", None),
        ("hours per tree", lambda f: f"{f.wall_seconds / 3600:.2f}"),
        ("  slots busy", lambda f: f"{f.busy_share:.0%}"),
        ("tokens computed per tree", lambda f: _count(f.added_tokens)),
        ("  sampled by the model", lambda f: _count(f.sampled_tokens)),
        ("tokens read per tree", lambda f: _count(f.read_tokens)),
        ("", None),
        ("hours for all roots", lambda f: f"{batches * f.wall_seconds / 3600:.1f}"),
        ("tokens computed in all", lambda f: _count(roots * f.added_tokens)),
        ("  sampled by the model", lambda f: _count(roots * f.sampled_tokens)),
        ("tokens read in all", lambda f: _count(roots * f.read_tokens)),
        ("turns at once", lambda f: f"{at_once * f.busy_share * f.width:.1f}"),
        ("tokens sampled per second", lambda f: _count(at_once * f.sampled_tokens / f.wall_seconds)),
    ]


def _count(number: float) -> str:
    """A large number in three or four digits."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"
