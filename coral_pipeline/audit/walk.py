"""Everything that was made from one Student run, partition by partition."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coral_pipeline.audit.checks import CHECKS, Check
from coral_pipeline.audit.findings import Review
from coral_pipeline.audit.sources import Source
from coral_pipeline.content import SUPERSEDED_FILE
from coral_pipeline.errors import BadInput, Changed, is_refusal
from coral_pipeline.provenance import PROVENANCE_FILE
from coral_pipeline.storage import SEPARATOR
from coral_pipeline.student_run.layout import SNAPSHOTS_FOLDER, student_run_name
from coral_pipeline.tables import PER_ROOT, SELECTED_ROOTS, TABLES
from coral_pipeline.tree_file import TREE_FILE

PER_STUDENT_RUN = ("filtered_snapshots", "stage_labels", "selected_roots", "sft_dataset")
PAUSES = (0.2, 1.0, 5.0, 20.0)
"""Seconds after which a check is tried again of which something was replaced while it read."""


@dataclass(frozen=True)
class Task:
    """One check of one partition."""

    check: Check
    partition: str


@dataclass
class Account:
    """What an audit looked at."""

    partitions: int = 0
    checks: int = 0
    findings: int = 0
    looked_at: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def add(self, review: Review) -> None:
        """Count a review in, but for its findings, which others may have made before."""
        self.checks += 1
        self.looked_at += review.looked_at
        self.notes += (f"{review.asset} {review.partition}: {note}" for note in review.notes)


class Audit:
    """The audit of what lies under ``output`` and was made from one Student run."""

    def __init__(
        self,
        output: Path,
        student_run: Path,
        recompute: bool = False,
        tokenizer: str | None = None,
        name: str | None = None,
    ) -> None:
        """Raises ``BadInput`` where ``student_run`` is none, or nothing was made from it under ``output``.

        ``tokenizer``: as in ``Source``. ``name``: under which the output knows the Student run; None: its folder's.
        """
        if not (student_run / SNAPSHOTS_FOLDER).is_dir():
            raise BadInput(
                student_run, f"has no {SNAPSHOTS_FOLDER}, so it is no Student run", "name a Student run's folder"
            )
        self.name = name or student_run_name(student_run)
        self.account = Account()
        self._output = output
        self._told: set[str] = set()
        self._recompute = recompute
        self._source = Source.on_disk(output, student_run, tokenizer)
        self._roots = self._selected()
        if not any(self._is_made(asset, self.name) for asset in PER_STUDENT_RUN):
            mend = "make it with `coral-pipeline run`, or name its folder with --out"
            raise BadInput(output, f"holds nothing that was made from the Student run {self.name}", mend)

    def tasks(self) -> list[Task]:
        """Every check of every partition there is, assets in the order in which they are made."""
        partitions = list(self._partitions())
        self.account.partitions = len({pair for pair in partitions if pair[0] != "root_folders"})
        return [
            Task(check, partition)
            for asset, partition in partitions
            for check in CHECKS
            if check.asset == asset and (not check.recomputes or self._can_recompute(partition))
        ]

    def _can_recompute(self, partition: str) -> bool:
        """What was made of roots that are no longer chosen is kept as it was: the selection tells of them no more."""
        root = partition.partition(SEPARATOR)[2]
        return self._recompute and (not root or self._roots is None or root in self._roots)

    def run(self, task: Task) -> list[str]:
        """Run one of them; its findings as lines, those apart that an earlier one made in the same words.

        It is tried again where what it reads is replaced meanwhile. Where that goes on, or it may not read, this is
        its finding.
        """
        problem = "what it reads was replaced each time it looked; audit again when nothing writes"
        for pause in PAUSES:
            try:
                return self._lines(task.check.review(self._source, task.partition))
            except Changed:
                time.sleep(pause)
            except (BadInput, OSError) as error:
                if not is_refusal(error):
                    raise
                problem = str(error)
                break
        review = Review(task.check.asset, task.partition)
        review.find(task.check.name, problem)
        return self._lines(review)

    def strays(self) -> list[str]:
        """Folders of roots that are not among the selected ones, and are not marked as superseded either."""
        review = Review("selected_roots", self.name)
        roots = self._roots
        if roots is None:
            review.notes.append("not readable, so copied roots, and folders of roots never selected, go unverified")
            return self._lines(review)
        for asset in PER_ROOT:
            for root in self._folders(asset):
                if root not in roots and not self._is_superseded(asset, root):
                    review.find(f"{asset}/{self.name}/{root}", "should not be there: no such root was selected")
        return self._lines(review)

    def _lines(self, review: Review) -> list[str]:
        self.account.add(review)
        listed = [self._shown(str(finding)) for finding in review.findings]
        new = [line for line in dict.fromkeys(listed) if line not in self._told]
        self._told.update(new)
        self.account.findings += len(new) + review.total - len(listed)
        return new + [self._shown(line) for line in review.unlisted()]

    def _shown(self, line: str) -> str:
        """Files named from the output folder on."""
        return line.replace(f"{self._output.absolute()}/", "")

    def _selected(self) -> Sequence[str] | None:
        """None where the table cannot be read: its own checks say what is wrong with it."""
        try:
            return [row["root"] for row in SELECTED_ROOTS.rows(self._source.fetch("selected_roots", self.name))]
        except (BadInput, UnicodeDecodeError):
            return None

    def _partitions(self) -> Iterator[tuple[str, str]]:
        """Asset and partition of all that is there; what is not yet made is noted."""
        *first, dataset = PER_STUDENT_RUN
        yield from self._made(first, self.name)
        roots = self._roots or ()
        for root in roots:
            yield "root_folders", f"{self.name}{SEPARATOR}{root}"
        for root in sorted({*roots, *(root for asset in PER_ROOT for root in self._folders(asset))}):
            yield from self._made(PER_ROOT, f"{self.name}{SEPARATOR}{root}")
        yield from self._made([dataset], self.name)

    def _made(self, assets: Sequence[str], partition: str) -> Iterator[tuple[str, str]]:
        for asset in assets:
            if self._is_made(asset, partition):
                yield asset, partition
            else:
                self.account.notes.append(f"{asset} {partition}: not made yet")

    def _is_made(self, asset: str, partition: str) -> bool:
        """Whether there is a finished partition, or anything is left of one. One that is just written is none yet."""
        folder = self._source.fetch(asset, partition)
        if (folder / PROVENANCE_FILE).exists():
            return True
        names = (TREE_FILE, *(table.file_name for table in TABLES[asset]))
        is_left = any((folder / name).exists() for name in names)
        return is_left and not self._source.storage.is_being_written(asset, partition)

    def _folders(self, asset: str) -> list[str]:
        folder = self._output / asset / self.name
        return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []

    def _is_superseded(self, asset: str, root: str) -> bool:
        return (self._output / asset / self.name / root / SUPERSEDED_FILE).exists()
