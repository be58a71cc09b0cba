"""Exports of many roots in one go: SFT samples, verifiers episodes, flat token streams. One root is held at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from coral_pipeline import tables
from coral_pipeline.conversations import Conversations
from coral_pipeline.credit.message_graph import TRACES_FILE, record_line
from coral_pipeline.credit.token_table import TokenTable
from coral_pipeline.errors import BadInput
from coral_pipeline.export.branches import branch_rows
from coral_pipeline.export.layout import RootFolders
from coral_pipeline.export.sft import SftWriter, samples_of

Format = Literal["sft", "verifiers", "tokens"]
FORMATS: tuple[Format, ...] = get_args(Format)


@dataclass
class DatasetSummary:
    """What ``write_dataset`` wrote."""

    roots: int = 0
    paths: int = 0
    """Selected paths of these roots."""
    samples: int = 0
    branches: int = 0
    tokens: int = 0
    """Over all branches."""
    trained_tokens: int = 0
    """Labels over all branches: each sampled token of the selected paths once."""

    @property
    def without_transcript(self) -> int:
        """Selected paths on which nothing is told that could be trained, or nothing new; they make no sample."""
        return self.paths - self.samples


def write_dataset(roots: Iterable[RootFolders], out: Path, formats: Iterable[Format] = FORMATS) -> DatasetSummary:
    """Write the selected paths of the roots into ``out``, best path first within a root.

    - ``sft``: ``sft.jsonl``, ``sft.parquet`` and ``llama_factory/`` (``export.sft``);
    - ``verifiers``: ``traces.jsonl``, an episode per root with the selected paths as branches;
    - ``tokens``: ``branches.parquet``, a flat token stream per selected path (``export.branches``).

    In each, what an earlier path of the same root already carries is marked (``weight``, ``shared_tokens``).
    Raises ``BadInput``; then no file is left behind.
    """
    wanted = frozenset(formats)
    summary = DatasetSummary()
    out.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as files:
        sft = files.enter_context(SftWriter(out)) if "sft" in wanted else None
        branches = (
            files.enter_context(tables.BRANCHES.writer(out, plain=["input_ids", "labels"]))
            if "tokens" in wanted
            else None
        )
        traces = files.enter_context(tables.text_file(out / TRACES_FILE)) if "verifiers" in wanted else None
        for root in roots:
            conversations = Conversations.read(root.tree)
            paths = conversations.selected_paths(root.ranked)
            summary.roots += 1
            summary.paths += len(paths)
            if sft is not None:
                for sample in samples_of(conversations, paths, root.stage):
                    sft.write(sample)
                    summary.samples += 1
            if branches is None and traces is None:
                continue
            tokens = TokenTable.read(_credit(root))
            if traces is not None:
                traces.write(record_line(conversations, tokens, paths))
            if branches is not None:
                for row in branch_rows(conversations, tokens, paths, root.stage):
                    branches.write_table(tables.BRANCHES.build([row]))
                    summary.branches += 1
                    summary.tokens += len(row["input_ids"])
                    summary.trained_tokens += int((row["labels"] >= 0).sum())
    return summary


def _credit(root: RootFolders) -> Path:
    if root.credit is None:
        raise BadInput(root.tree, "its credit is not there", "compute it, or export only sft")
    return root.credit
