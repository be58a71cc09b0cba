"""The page as one file: template, style, scripts, pictures and packed data put together."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

import jinja2
from markupsafe import Markup

from coral_pipeline.report.advantages import advantage_histogram_svg
from coral_pipeline.report.coverage import stage_coverage, stage_coverage_svg
from coral_pipeline.report.page import overview
from coral_pipeline.report.page.pictures import inline
from coral_pipeline.report.page.reading import RootReading, Row, RunReading
from coral_pipeline.report.page.texts import visible
from coral_pipeline.report.page.trees import PackedTree, pack_tree, rows_of_tree
from coral_pipeline.report.score_curve import score_curve_svg
from coral_pipeline.report.tree_picture import tree_svg
from coral_pipeline.settings import ReportSettings

PARTS = Path(__file__).parent / "parts"
SCRIPTS = ("packed.js", "elements.js", "treegrid.js", "details.js", "main.js")
"""In the order in which they stand in the page's one script."""


@dataclass(frozen=True)
class TreeView:
    """What the template shows of one finished tree."""

    picture: Markup
    rows: Sequence[Row]
    paths: Sequence[Row]
    packed: PackedTree


def report_page(
    run: RunReading,
    settings: ReportSettings,
    made: datetime,
    watch: Callable[[Sequence[RootReading]], Iterable[RootReading]] = iter,
) -> str:
    """The page; ``made`` is the time it names. The same run and time give the same page.

    ``watch``: hands on the roots, which take most of the time, one by one.
    """
    done = [root for root in run.roots if root.done]
    share = settings.transcript_bytes // max(len(done), 1)
    trees = [_tree(root, place, settings, share) for place, root in enumerate(watch(run.roots))]
    roots = [overview.root_overview(root) for root in run.roots]
    best_of_student, best_of_teacher = overview.best_scores(run, roots)
    script = Markup("\n".join((PARTS / name).read_text(encoding="utf-8") for name in SCRIPTS))
    return (
        _environment()
        .get_template("page.html.jinja")
        .render(
            run=run,
            name=run.outputs.student_run,
            made=made.strftime("%d %B %Y, %H:%M %Z"),
            version=version("coral-pipeline"),
            style=Markup((PARTS / "page.css").read_text(encoding="utf-8")),
            script=script,
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            stages=overview.stage_rows(run),
            roots=roots,
            trees=trees,
            done=len(done),
            best_of_student=best_of_student,
            best_of_teacher=best_of_teacher,
            costs=overview.Costs.total(root.costs for root in roots if root.costs is not None),
            paths=overview.selected_paths(run),
            advantages=overview.advantages(run),
            pictures=_pictures(run),
            configuration=_configuration(done),
        )
    )


def _environment() -> jinja2.Environment:
    """Everything that is put into the page is escaped, and its control characters made visible."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PARTS),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters.update(score=_score, signed=_signed, count=_count)
    return environment


def _score(number: float | None, digits: int = 6) -> str:
    return "–" if number is None else f"{number:.{digits}g}"


def _signed(number: float | None) -> str:
    return "–" if number is None else f"{number:+.3f}".replace("-", "−")


def _count(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


def _tree(root: RootReading, place: int, settings: ReportSettings, share: int) -> TreeView | None:
    if not root.done:
        return None
    paths = [] if root.ranked is None else root.ranked.to_pylist()
    selected = {row["rank"]: row["node_ids"] for row in paths if row["selected"]}
    picture = tree_svg(root.nodes, root.edges, root.info["direction"], selected)
    said = f"The tree of {root.name}: {len(root.nodes)} nodes. The table after it says the same."
    return TreeView(
        picture=Markup(inline(picture, f"tree{place}", said, kind="tree-picture")),
        rows=list(rows_of_tree(root)),
        paths=paths,
        packed=pack_tree(root, settings, share),
    )


def _pictures(run: RunReading) -> dict[str, Markup | None]:
    """The pictures of the whole run; None those for which there is nothing yet."""
    curve = score_curve_svg(run.labels, run.selected, run.direction)
    said = f"Score of {len(run.labels)} snapshots in the order of the run, smoothed score, stages and chosen roots."
    pictures: dict[str, Markup | None] = {"curve": Markup(inline(curve, "curve", said))}
    pictures |= {"coverage": None, "advantages": None}
    ranked = {root.name: root.ranked for root in run.roots if root.ranked is not None}
    if run.selected is not None and ranked:
        coverage = stage_coverage_svg(stage_coverage(run.selected, ranked))
        said = "Roots and paths by stage; the table of roots says the same."
        pictures["coverage"] = Markup(inline(coverage, "coverage", said))
    credit = overview.all_credit(run)
    if credit is not None and len(credit):
        said = f"Distribution of the advantages of {len(credit)} edges."
        pictures["advantages"] = Markup(inline(advantage_histogram_svg(credit), "advantages", said))
    return pictures


def _configuration(done: Sequence[RootReading]) -> list[tuple[str, object]]:
    """The settings and versions that the first finished tree was made with, one per line."""
    if not done:
        return []
    info = done[0].info
    found = {"versions": info.get("versions"), **(info.get("configuration") or {})}
    return list(_lines("", found))


def _lines(prefix: str, value: object) -> list[tuple[str, object]]:
    if isinstance(value, dict):
        return [line for name, item in value.items() for line in _lines(f"{prefix}.{name}" if prefix else name, item)]
    return [(prefix, "–" if value is None else value)]
