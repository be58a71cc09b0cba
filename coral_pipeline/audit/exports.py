"""What trainers load: SFT samples, verifiers episodes, token streams."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from coral_pipeline import tables
from coral_pipeline.audit.compare import Lines, compare_lines, compare_tables
from coral_pipeline.audit.findings import Review
from coral_pipeline.credit.message_graph import TRACES_FILE
from coral_pipeline.export.dataset import FORMATS, Format, write_dataset
from coral_pipeline.export.layout import RootFolders
from coral_pipeline.tables import Table

LINES: dict[Format, tuple[str, ...]] = {
    "sft": ("sft.jsonl", "llama_factory/sft.jsonl"),
    "verifiers": (TRACES_FILE,),
    "tokens": (),
}
"""Text files of each format, to which every root adds its lines."""
ONE_FOR_ALL: dict[Format, tuple[str, ...]] = {"sft": ("llama_factory/dataset_info.json",)}
"""Those that are the same whatever the roots are."""
TABLES: dict[Format, tuple[Table, ...]] = {
    "sft": (tables.SFT_SAMPLES,),
    "verifiers": (),
    "tokens": (tables.BRANCHES,),
}


class Rows:
    """A table of samples that is held, root by root, against what it should be."""

    def __init__(self, review: Review, table: Table, found: Path) -> None:
        """``found``: the folder it is in."""
        self.file = table.file_name
        self._review, self._table, self._found = review, table, found
        self._expected: list[str] = []

    def expect(self, piece: Path) -> None:
        """The rows of a root should be those of this file."""
        rows = self._table.read(piece.parent)
        for root in dict.fromkeys(rows["root"].to_pylist()):  # one, or none where it has no selected paths
            self._expected.append(root)
            found = self._table.read(self._found, filters=[("root", "==", root)])
            compare_tables(self._review, self._table, found, rows)

    def expect_end(self) -> None:
        """Rows of no other roots should be there, and the roots should stand in this order."""
        found = list(dict.fromkeys(self._table.read(self._found, ["root"])["root"].to_pylist()))
        for root in found:
            if root not in self._expected:
                self._review.find(f"{self.file}, root {root}", "should not be there", kind=f"{self.file}, roots")
        there = [root for root in self._expected if root in found]
        if [root for root in found if root in there] != there:
            self._review.find(self.file, f"its roots stand in the order {found}, expected {there}")


def verify_exports(
    review: Review, folder: Path, roots: Sequence[RootFolders], formats: Sequence[Format] = FORMATS
) -> None:
    """The exports in ``folder`` are what the selected paths of ``roots`` give: messages, tokens, weights, lineage.

    Those of one root at a time are made once more in a temporary folder, from its messages.parquet, tokens.parquet
    and ranked_paths.parquet, and held against each other cell by cell and line by line. verifiers must read the
    episodes.
    """
    with review.guarded("selected paths"):
        held: list[Lines | Rows] = [
            *(Lines(review, file, folder / file) for format in formats for file in LINES[format]),
            *(Rows(review, table, folder) for format in formats for table in TABLES[format]),
        ]
        for number, root in enumerate(roots or [None]):
            with tempfile.TemporaryDirectory() as name:
                again = Path(name)
                review.looked_at["selected paths"] += write_dataset([root] if root else [], again, formats).paths
                held = [one for one in held if _goes_on(review, one, again)]
                for file in (file for format in formats for file in ONE_FOR_ALL.get(format, ()) if not number):
                    with review.guarded(file):
                        compare_lines(review, file, folder / file, again / file)
        for one in held:
            with review.guarded(one.file):
                one.expect_end()
    if "verifiers" in formats:
        read_episodes(review, folder)
    if "sft" in formats:
        with review.guarded("sft.jsonl"):
            _read_samples(review, folder)


def _goes_on(review: Review, one: Lines | Rows, again: Path) -> bool:
    """Hold the next piece of a file against what it should be; False where it cannot be read any further."""
    goes_on = False
    with review.guarded(one.file):
        one.expect(again / one.file)
        goes_on = True
    return goes_on


def _read_samples(review: Review, folder: Path) -> None:
    """Every line of ``sft.jsonl`` is a sample with something to train on."""
    with (folder / "sft.jsonl").open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            sample = json.loads(line)
            review.looked_at["samples"] += 1
            if not any(message["weight"] for message in sample["messages"]):
                review.find(
                    f"sft.jsonl, line {number}", "holds nothing to train on", kind="sft.jsonl: nothing to train"
                )


def read_episodes(review: Review, folder: Path) -> None:
    """verifiers reads the episodes in ``folder``."""
    from verifiers.v1.trace import WireTrace
    from verifiers.v1.utils.trace_store import read_episodes as read

    with review.guarded(TRACES_FILE):
        review.looked_at["episodes"] += len(read(folder, WireTrace))
