"""``coral-pipeline run`` while it runs: a line per finished root, and bars where stderr is a terminal."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from types import TracebackType

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from coral_pipeline.cli.console import stderr
from coral_pipeline.defs.partitions import RootKey
from coral_pipeline.defs.whole_run import RootOutcome
from coral_pipeline.report.roots import RootReport
from coral_pipeline.search.progress import Progress as TreeProgress


class RunView(AbstractContextManager["RunView"]):
    """Says what happens; trees may be watched from several threads."""

    def __init__(self) -> None:
        """Nothing is shown before the first stage."""
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[facts]}"),
            TimeElapsedColumn(),
            console=stderr,
            transient=True,
            disable=not stderr.is_terminal,
        )
        self._stage: TaskID | None = None
        self._trees: dict[str, TaskID] = {}
        self._began = time.monotonic()
        self._ended = 0
        self._roots = 0

    def __enter__(self) -> RunView:
        """Begin to draw."""
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wipe the bars."""
        self._bars.stop()

    def stage(self, name: str, roots: int | None = None) -> None:
        """The next stage begins; ``roots``: how many outcomes it will have."""
        self._roots = roots or 0
        if self._stage is not None:
            self._bars.remove_task(self._stage)
        self._stage = self._bars.add_task(name, total=roots, facts=f"0/{roots} roots" if roots else "")

    def watch(self, key: str, progress: TreeProgress) -> None:
        """A tree has grown; see ``SearchControl``."""
        if key not in self._trees:
            self._trees[key] = self._bars.add_task(RootKey.parse(key).root, total=1.0, facts="")
        facts = (
            f"round {progress.round} · {progress.valid_edges} edges · {len(progress.running)} running · "
            f"{progress.good_leaves} good leaves · best {progress.best_score:.6g}"
        )
        self._bars.update(self._trees[key], completed=progress.fraction, facts=facts)

    def ended(self, outcome: RootOutcome, report: RootReport | None) -> None:
        """A root has come to its end; ``report``: of what was made, None where it failed."""
        self._ended += 1
        if (tree := self._trees.pop(str(outcome.key), None)) is not None:
            self._bars.remove_task(tree)
        if self._stage is not None:
            self._bars.update(self._stage, completed=self._ended, facts=f"{self._ended}/{self._roots} roots")
        elapsed = time.monotonic() - self._began
        stderr.print(
            f"{self._ended}/{self._roots} {outcome.key.root}: {_line(outcome, report)} ({elapsed:.0f} s)",
            highlight=False,
            soft_wrap=True,
            markup=False,
        )


def _line(outcome: RootOutcome, report: RootReport | None) -> str:
    if report is None:
        return f"failed: {outcome.failure}"
    before = "done before; " if outcome.was_current else ""
    return (
        f"{before}score {report.root_score:.6g}, best {report.best_score:.6g}, {report.valid_edges} edges, "
        f"{report.stop_reason}, {report.selected} paths selected"
    )
