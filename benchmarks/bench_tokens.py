"""Bytes of the token table, each message once, against one flat stream per branch.

A flat stream holds per token what the table holds (id, mask, log-probability where recorded, advantage), for every
root-to-leaf branch of a tree: the layout trainers use when they have no message graph. Measured are

  - Arrow: bytes in memory, or on the wire, of the same columns;
  - Parquet: bytes of the files as they are written one message, or one branch, after another (zstd, same encodings).

Shown besides, without a target: all streams of a tree in one row group. There zstd finds the repeats itself, as long as
a column of all the tree's branches fits its window; whoever reads them still gets every token once per branch.

Trees: those named on the command line (folders ``explore`` wrote), else trees the embedded teacher grows from two
roots of each bundled CORAL run (some minutes). The targets, at most half the bytes, are for all trees together.

    python benchmarks/bench_tokens.py [TREE_DIR ...] [--tokenizer byte] [--roots 2]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from coral_pipeline import tables
from coral_pipeline.conversations import Conversations, TreePath
from coral_pipeline.credit import Constant, DirectBranchTd, RewardConfig, prepare
from coral_pipeline.credit.token_table import TokenTable
from coral_pipeline.credit.tokens import write_tokens
from coral_pipeline.export.branches import branch_rows

MAX_RATIO = 0.5
RUNS = Path(__file__).parent.parent / "data" / "coral_runs"
STREAM = pa.schema(
    [
        pa.field("input_ids", pa.list_(pa.int32())),
        pa.field("mask", pa.list_(pa.bool_())),
        pa.field("logprobs", pa.list_(pa.float64())),
        pa.field("advantages", pa.list_(pa.float64())),
    ]
)


@dataclass(frozen=True)
class Sizes:
    """Bytes of one tree's tokens, laid out in one of the two ways."""

    arrow: int
    parquet: int
    one_group: int


def table_sizes(table: TokenTable) -> Sizes:
    columns = table.table.select(["token_ids", "mask", "logprobs", "advantages"])
    file = table.file.stat().st_size
    return Sizes(columns.nbytes, file, file)


def stream_sizes(conversations: Conversations, tokens: TokenTable, work: Path) -> tuple[Sizes, int]:
    """The flat streams, a row per branch of the tree, and the number of tokens in them."""
    paths = [
        TreePath(path.leaf_id, path.edge_ids, {"rank": 0, "PathScore": 0.0}) for path in conversations.leaf_paths()
    ]
    rows = [{name: row[name] for name in STREAM.names} for row in branch_rows(conversations, tokens, paths)]
    table = pa.Table.from_pylist(rows, schema=STREAM)
    files = {"parquet": 1, "one_group": len(rows)}
    for name, branches in files.items():
        pq.write_table(
            table, work / name, compression="zstd", row_group_size=branches, use_dictionary=["advantages.list.element"]
        )
    sizes = {name: (work / name).stat().st_size for name in files}
    return Sizes(arrow=table.nbytes, **sizes), sum(len(row["input_ids"]) for row in rows)


def measure(tree: Path, tokenizer: str, work: Path) -> tuple[Sizes, Sizes]:
    """Bytes of the token table and of the flat streams of one tree."""
    batch = prepare(tree, DirectBranchTd(), RewardConfig(), Constant(0.0))
    write_tokens(tree, batch.advantage_by_edge(), work, tokenizer)
    conversations, table = Conversations.read(tree), TokenTable.read(work)
    ours = table_sizes(table)
    flat, flat_tokens = stream_sizes(conversations, table, work)
    once = sum(len(table.token_ids(place)) for place in range(table.table.num_rows))
    edges, branches = len(conversations.searched), len(conversations.leaf_paths())
    print(f"{tree.name}: {edges} edges, {branches} branches, {once:,} tokens, {flat_tokens:,} in streams")
    print(f"    Arrow {ours.arrow:,} B against {flat.arrow:,} B: {ours.arrow / flat.arrow:.3f}", end="")
    print(f"  Parquet {ours.parquet:,} B against {flat.parquet:,} B: {ours.parquet / flat.parquet:.3f}")
    return ours, flat


def grown(work: Path, roots: int) -> Iterator[Path]:
    """Trees of the embedded teacher, by the command line, from the bundled CORAL runs."""
    for archive in sorted(RUNS.glob("*.tar.gz")):
        name = archive.name.removesuffix(".tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(work, filter="data")
        command("import-run", work / name, work / "runs" / name)
        command("select", work / "runs" / name, "--out", work / "selected" / name, "--num-roots", roots)
        chosen = sorted(row["root"] for row in tables.SELECTED_ROOTS.rows(work / "selected" / name / "selected_roots"))
        for root in chosen:
            tree = work / "trees" / name / root
            command("explore", work / "selected" / name / "selected_roots" / root, "--out", tree)
            yield tree


def command(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "coral_pipeline.cli", *map(str, arguments)], check=True, capture_output=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", metavar="TREE_DIR", nargs="*", type=Path)
    parser.add_argument("--tokenizer", default="byte")
    parser.add_argument("--roots", type=int, default=2, help="roots per bundled run")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        trees = options.trees or grown(Path(folder), options.roots)
        sizes = [measure(tree, options.tokenizer, Path(folder)) for tree in trees]
    met = True
    for layout in ("arrow", "parquet", "one_group"):
        ours, flat = (sum(getattr(side, layout) for side in column) for column in zip(*sizes, strict=True))
        ratio = ours / flat
        target = f"target at most {MAX_RATIO}" if layout != "one_group" else "no target"
        met &= layout == "one_group" or ratio <= MAX_RATIO
        print(f"{layout:<10} {ours:>12,} B {flat:>12,} B  {ratio:.3f}  ({target})")
    print("ok" if met else "MISSED")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
