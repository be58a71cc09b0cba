"""Reading a Student run, staging it and choosing roots, against a bare loop over the same files.

Builds a Student run whose n-th snapshot holds n attempt records, in sizes that double up to ``--snapshots``
(3,000: 4.5 million records, hard links of one pool), and times at each size
  - the bare loop: open and parse one metadata.json and one attempt record per snapshot
  - ours: read_student_run, label_stages and select_roots

in turn, with warm caches, the fastest of several rounds each. Targets: at most 3 times the bare loop, linear in
the number of snapshots, peak memory under 500 MB.

    python benchmarks/bench_select.py [--snapshots 3000] [--rounds 5]
"""

# The loop to compare with is as bare as it gets: strings, no pathlib.
# ruff: noqa: PTH123, PTH208
from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coral_pipeline.settings import SelectionSettings
from coral_pipeline.student_run.reading import read_student_run
from coral_pipeline.student_run.roots import select_roots
from coral_pipeline.student_run.stages import label_stages

MAX_RATIO = 3.0
MAX_GROWTH = 1.25
"""Time per snapshot at the largest size against the smallest."""
MAX_MEMORY_MB = 500


def commit(index: int) -> str:
    return hashlib.sha1(str(index).encode(), usedforsecurity=False).hexdigest()


def write_record(pool: Path, index: int, noise: random.Random) -> None:
    """One attempt record in the pool, of the size that CORAL writes."""
    record = {
        "commit_hash": commit(index),
        "agent_id": f"agent-{1 + index % 3}",
        "title": f"try {index}: a slightly smaller step on the outer ring",
        "score": 1.2 + 0.18 * (1 - math.exp(-index / 600)) + noise.gauss(0, 0.01),
        "status": "improved",
        "parent_hash": commit(index - 1),
        "timestamp": "2026-11-30T11:29:19.832127+00:00",
        "feedback": "eval: " + "radii 0.1482, " * 20,
        "shared_state_hash": commit(-index),
        "metadata": {"budget_class": "real", "radii": [round(noise.random(), 4) for _ in range(10)]},
    }
    (pool / f"{commit(index)}.json").write_text(json.dumps(record, indent=2))


def extend_run(run: Path, pool: Path, start: int, end: int) -> None:
    """Add the snapshots from ``start`` to ``end`` (both counted from 1, both included)."""
    noise = random.Random(start)
    for index in range(start, end + 1):
        write_record(pool, index, noise)
        snapshot = run / "all_snapshots" / f"eval-{index:06d}-agent-{1 + index % 3}-{commit(index)[:12]}"
        attempts = snapshot / "shared" / "attempts"
        attempts.mkdir(parents=True)
        (snapshot / "code").mkdir()
        metadata = {
            "commit_hash": commit(index),
            "agent_id": f"agent-{1 + index % 3}",
            "eval_count": index,
            "eval_ok": True,
        }
        (snapshot / "metadata.json").write_text(json.dumps(metadata, indent=2))
        for name in os.listdir(pool):
            os.link(f"{pool}/{name}", f"{attempts}/{name}")


def bare_loop(run: Path) -> None:
    scores = []
    folder = f"{run}/all_snapshots"
    for name in sorted(os.listdir(folder)):
        with open(f"{folder}/{name}/metadata.json", "rb") as file:
            metadata = json.load(file)
        with open(f"{folder}/{name}/shared/attempts/{metadata['commit_hash']}.json", "rb") as file:
            scores.append(json.load(file)["score"])


def ours(run: Path) -> None:
    settings = SelectionSettings()
    read = read_student_run(run)
    labels = label_stages(read.filtered, read.direction, settings)
    roots = select_roots(labels, read.filtered, run.name, settings)
    assert roots.num_rows == settings.num_roots


def fastest(rounds: int, *steps: Callable[[Path], Any], run: Path) -> list[float]:
    """Seconds of each step, the fastest of the rounds in which they take turns."""
    seconds = [math.inf] * len(steps)
    for _ in range(rounds):
        for i, step in enumerate(steps):
            start = time.perf_counter()
            step(run)
            seconds[i] = min(seconds[i], time.perf_counter() - start)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snapshots", type=int, default=3000, help="largest run (3000)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, the fastest counts (5)")
    parser.add_argument("--folder", type=Path, help="where to build the run (a temporary folder)")
    args = parser.parse_args()
    sizes = [args.snapshots // 4, args.snapshots // 2, args.snapshots]
    print(f"{'snapshots':>9} {'records':>9} {'bare loop s':>11} {'ours s':>8} {'ratio':>6} {'µs/snapshot':>12}")
    with tempfile.TemporaryDirectory(prefix="bench_select-", dir=args.folder) as folder:
        run, pool = Path(folder, "run"), Path(folder, "pool")
        run.mkdir()
        pool.mkdir()
        (run / "task.yaml").write_text("grader:\n  direction: maximize\n")
        built, ratios, costs = 0, [], []
        for size in sizes:
            extend_run(run, pool, built + 1, size)
            built = size
            bare, whole = fastest(args.rounds, bare_loop, ours, run=run)
            ratios.append(whole / bare)
            costs.append(whole / size)
            records = size * (size + 1) // 2
            print(f"{size:>9} {records:>9} {bare:>11.3f} {whole:>8.3f} {ratios[-1]:>6.2f} {1e6 * costs[-1]:>12.1f}")
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    growth = costs[-1] / costs[0]
    met = max(ratios) <= MAX_RATIO and growth <= MAX_GROWTH and megabytes < MAX_MEMORY_MB
    print(f"largest ratio: {max(ratios):.2f} (target: at most {MAX_RATIO})")
    print(f"time per snapshot, whole run to its first quarter: {growth:.2f} (target: at most {MAX_GROWTH})")
    print(f"peak memory: {megabytes:.0f} MB (target: under {MAX_MEMORY_MB})")
    print("met" if met else "NOT MET")
    sys.exit(not met)


if __name__ == "__main__":
    main()
