"""``coral-pipeline export``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Wanted(StrEnum):
    """What ``--format`` takes: one of ``export.dataset.FORMATS``, or all of them."""

    sft = "sft"
    verifiers = "verifiers"
    tokens = "tokens"
    all = "all"


def export(
    sources: Annotated[
        list[Path],
        typer.Argument(metavar="TREE_DIR...", help="Trees: folders `explore` wrote, or folders above them."),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write into; made if need be.")],
    ranked: Annotated[
        Path | None, typer.Option(help="Folder `rank` wrote; for several roots DIR/RUN/ROOT or DIR/ROOT.")
    ] = None,
    credit: Annotated[Path | None, typer.Option(help="Folder `credit` wrote, likewise. Not needed for sft.")] = None,
    format: Annotated[Wanted, typer.Option(help="What to write.")] = Wanted.all,
) -> None:
    """Write the selected paths of one or many roots as files trainers load.

    Reads trees, ranked paths and credit, and writes into the output folder

    - **sft**: `sft.jsonl` and `sft.parquet`, a sample per path in OpenAI style (`messages` with a weight each,
      `tools`, scores), and `llama_factory/`, the same in LLaMA-Factory's OpenAI format;
    - **verifiers**: `traces.jsonl`, an episode per root with the paths as branches;
    - **tokens**: `branches.parquet`, a token stream per path (`input_ids`, `labels`, `advantages`, `mask`).

    What several paths of a root share is marked in all but the first: weight 0, label -100, `shared_tokens`.

    Where TREE_DIR lies in a folder `explored_trees/RUN/ROOT`, the folders `ranked_paths` and
    `advantage_batches` beside it are taken; with `data/output` for TREE_DIR, all roots below it.

    Examples: `coral-pipeline export data/tree --ranked data/paths --credit data/batch --out data/export`,
    `coral-pipeline export data/output --format sft --out data/export`
    """
    from coral_pipeline.cli.console import stdout, track, writing
    from coral_pipeline.export.dataset import FORMATS, write_dataset
    from coral_pipeline.export.layout import find_roots

    formats = tuple(each for each in FORMATS if format in (Wanted.all, each))
    roots = find_roots(sources, ranked, credit, need_credit=set(formats) != {"sft"})
    with writing(out):
        done = write_dataset(track(roots, "Exporting", len(roots)), out, formats)
    stdout.print(f"{done.paths} selected paths of {done.roots} root{'s' * (done.roots != 1)}: {out}", soft_wrap=True)
    if "sft" in formats:
        skipped = f", {done.without_transcript} paths have nothing (new) to train on" if done.without_transcript else ""
        stdout.print(f"  sft: {done.samples} samples{skipped}")
    if "tokens" in formats:
        stdout.print(f"  tokens: {done.branches} branches, {done.tokens:,} tokens, {done.trained_tokens:,} to train on")
