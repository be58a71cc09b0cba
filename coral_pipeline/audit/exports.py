"""What trainers load: SFT samples, verifiers episodes, token streams."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from coral_pipeline import tables
from coral_pipeline.audit.compare import compare_lines, compare_tables
from coral_pipeline.audit.findings import Review
from coral_pipeline.credit.message_graph import TRACES_FILE
from coral_pipeline.export.dataset import FORMATS, Format, write_dataset
from coral_pipeline.export.layout import RootFolders

LINES: dict[Format, tuple[str, ...]] = {
    "sft": ("sft.jsonl", "llama_factory/sft.jsonl", "llama_factory/dataset_info.json"),
    "verifiers": (TRACES_FILE,),
    "tokens": (),
}
"""Text files of each format."""
TABLES: dict[Format, tuple[tables.Table, ...]] = {
    "sft": (tables.SFT_SAMPLES,),
    "verifiers": (),
    "tokens": (tables.BRANCHES,),
}


def verify_exports(
    review: Review, folder: Path, roots: Sequence[RootFolders], formats: Sequence[Format] = FORMATS
) -> None:
    """The exports in ``folder`` are what the selected paths of ``roots`` give: messages, tokens, weights, lineage.

    They are made once more beside, from messages.parquet, tokens.parquet and ranked_paths.parquet of the roots, and
    held against each other cell by cell and line by line. verifiers must read the episodes.
    """
    with review.guarded("selected paths"), tempfile.TemporaryDirectory() as name:
        again = Path(name)
        review.looked_at["selected paths"] += write_dataset(roots, again, formats).paths
        for file in (file for format in formats for file in LINES[format]):
            with review.guarded(file):
                compare_lines(review, file, folder / file, again / file)
        for table in (table for format in formats for table in TABLES[format]):
            with review.guarded(table.file_name):
                compare_tables(review, table, table.read(folder), table.read(again))
    if "verifiers" in formats:
        with review.guarded(TRACES_FILE):
            read_episodes(review, folder)
    if "sft" in formats:
        with review.guarded("sft.jsonl"):
            _read_samples(review, folder)


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
    """Let verifiers read the episodes in ``folder``; what it cannot read raises ``ValueError``."""
    from verifiers.v1.trace import WireTrace
    from verifiers.v1.utils.trace_store import read_episodes as read

    review.looked_at["episodes"] += sum(1 for _ in read(folder, WireTrace))
