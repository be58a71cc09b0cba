"""``coral-pipeline rank``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def rank(
    tree_dir: Annotated[Path, typer.Argument(help="Folder that `explore` wrote: nodes.parquet … tree.json.")],
    out: Annotated[Path, typer.Option(help="Folder to write into; made if need be.")],
    top: Annotated[int | None, typer.Option(min=1, show_default="6", help="Paths to select.")] = None,
) -> None:
    """Rank the root-to-leaf paths of a finished tree and select the best.

    Reads TREE_DIR and writes `ranked_paths.parquet` into the output folder: every path with the parts of its
    PathScore, or the reason why it is out (`open_leaf`, `missing_score`). The same as a table on stdout.

    Example: `coral-pipeline rank data/output/tree --out data/output/paths`
    """
    from coral_pipeline import tables
    from coral_pipeline.cli.console import stdout, writing
    from coral_pipeline.paths.rank import rank_paths
    from coral_pipeline.report.paths import path_table
    from coral_pipeline.settings import PathSettings

    settings = PathSettings() if top is None else PathSettings(top_k=top)
    ranked = rank_paths(tree_dir, settings)
    with writing(out):
        file = tables.RANKED_PATHS.write(ranked, out)
    stdout.print(path_table(ranked))
    stdout.print(f"{sum(ranked['selected'].to_pylist())} of {len(ranked)} paths selected: {file}", soft_wrap=True)
