"""What the search itself costs: a Teacher that answers at once, everything else as in earnest.

  - time: ``explore_root`` at width 8, every turn journaled and flushed with a transcript of ``--kilobytes`` (4), tables
    written at the end; per logical edge, for trees of the default size and for larger ones. Beside it the bare
    disk: the same number of files and records written and flushed in the same way, with nothing around it.
  - memory: one tree whose turns carry a megabyte each; the resident memory from the moment when 10 edges had been
    applied to the end, tables included, against the transcripts written meanwhile.

Targets: at most 10 ms per edge at the default size; memory grows by at most a tenth of what is written.

    python benchmarks/bench_search.py [--kilobytes 4] [--rounds 5] [--folder DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coral_pipeline.search.explore import explore_root
from coral_pipeline.search.progress import Progress
from coral_pipeline.search.tree import RootNode
from coral_pipeline.settings import SearchSettings
from coral_pipeline.teacher.protocol import ContentPart, EdgeRequest, Fork, Message, Turn

MAX_MILLISECONDS = 10.0
MAX_MEMORY_SHARE = 0.1
ROOT = RootNode("eval-000001-agent-1-0123456789ab", "bench", 0.0, "fingerprint")
MEGABYTE = 2**20


class InstantTeacher:
    """Answers at once: scores that differ, few tokens, a transcript of so many bytes per turn."""

    name = "instant"

    def __init__(self, transcript_bytes: int) -> None:
        self.transcript_bytes = transcript_bytes

    def describe(self) -> dict[str, Any]:
        return {}

    @contextmanager
    def fork(self, edge: EdgeRequest, state: str | None, stop: threading.Event) -> Iterator[Fork]:
        yield InstantFork(self.transcript_bytes, zlib.crc32(edge.name.encode()))

    def release(self, state: str | None) -> None:
        pass


class InstantFork:
    def __init__(self, transcript_bytes: int, seed: int) -> None:
        self.transcript_bytes = transcript_bytes
        self.seed = seed

    def run_turn(self, turn: int) -> Turn:
        prompt = ContentPart(type="text", text="work, then `coral eval`")
        reply = ContentPart(type="text", text="x" * self.transcript_bytes)
        messages = (
            Message(role="user", content=(prompt,)),
            Message(role="assistant", content=(reply,), sampled=True),
        )
        return Turn(
            score=(self.seed * 31 + turn) % 997 / 997,
            step_turns=10,
            tool_calls=9,
            failed_tool_calls=0,
            knowledge_read=True,
            knowledge_write=False,
            context_tokens=100 + self.seed % 50,
            seconds=0.0,
            state=f"{self.seed}/{turn}",
            messages=messages,
        )


def settings_for(edges: int) -> SearchSettings:
    """The defaults, or a wider and deeper tree of so many edges."""
    if edges == SearchSettings().max_logical_edges:
        return SearchSettings(target_good_leaf_count=edges)
    return SearchSettings(
        max_logical_edges=edges, target_good_leaf_count=edges, max_depth=20, max_children_per_non_root_node=8
    )


def time_search(edges: int, transcript_bytes: int, folder: Path) -> tuple[float, float]:
    """Milliseconds per edge of a whole search, and of the bare disk doing the same writes."""
    with tempfile.TemporaryDirectory(dir=folder) as out:
        began = time.perf_counter()
        teacher = InstantTeacher(transcript_bytes)
        summary = explore_root(ROOT, "maximize", teacher, Path(out), settings_for(edges))
        spent = time.perf_counter() - began
        lines = (Path(out) / "work" / "journal.jsonl").read_bytes().splitlines(keepends=True)
    with tempfile.TemporaryDirectory(dir=folder) as out:
        bare = time_bare_disk(lines, transcript_bytes, Path(out))
    return spent / summary.valid_edges * 1e3, bare / summary.valid_edges * 1e3


def time_bare_disk(lines: list[bytes], transcript_bytes: int, out: Path) -> float:
    """Seconds to write and flush the records one after another, a new flushed file before each turn's."""
    data = b"x" * transcript_bytes
    folder = os.open(out, os.O_RDONLY)
    journal = os.open(out / "journal", os.O_CREAT | os.O_WRONLY)
    began = time.perf_counter()
    for number, line in enumerate(lines):
        if json.loads(line)["kind"] == "turn":
            file = os.open(out / str(number), os.O_CREAT | os.O_WRONLY)
            os.write(file, data)
            os.fsync(file)
            os.close(file)
            os.fsync(folder)
        os.write(journal, line)
        os.fsync(journal)
    spent = time.perf_counter() - began
    os.close(journal)
    os.close(folder)
    return spent


def resident() -> int:
    """Bytes of resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory(edges: int, transcript_bytes: int, folder: Path) -> tuple[float, float]:
    """Megabytes by which the most resident memory exceeds that at 10 edges, and megabytes written after them."""
    at_ten: list[int] = []
    most = 0
    ended = threading.Event()

    def observe(progress: Progress) -> None:
        if progress.valid_edges >= 10 and not at_ten:
            at_ten.append(max(most, resident()))

    def watch() -> None:
        nonlocal most
        while not ended.wait(0.01):
            most = max(most, resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    with tempfile.TemporaryDirectory(dir=folder) as out:
        teacher = InstantTeacher(transcript_bytes)
        explore_root(ROOT, "maximize", teacher, Path(out), settings_for(edges), observer=observe)
    ended.set()
    watcher.join()
    return (most - at_ten[0]) / MEGABYTE, (edges - 10) * 2 * transcript_bytes / MEGABYTE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kilobytes", type=int, default=4, help="transcript of a turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to write; the disk decides much")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.gettempdir())
    time_search(40, 1000, folder)  # imports, first use of Parquet
    grown, written = memory(200, MEGABYTE, folder)  # before the timing leaves memory that is free but not returned
    print(f"{'edges':>7} {'ms per edge':>12} {'bare disk':>10}")
    found: dict[int, float] = {}
    for edges, rounds in ((40, options.rounds), (400, options.rounds), (2000, 1)):
        pairs = [time_search(edges, options.kilobytes * 1000, folder) for _ in range(rounds)]
        found[edges], bare = min(ours for ours, _ in pairs), min(bare for _, bare in pairs)
        print(f"{edges:>7} {found[edges]:>12.2f} {bare:>10.2f}")
    print(f"memory grew by {grown:.0f} MB while {written:.0f} MB of transcripts were written")
    fast, flat = found[40] <= MAX_MILLISECONDS, grown <= MAX_MEMORY_SHARE * written
    print(f"at most {MAX_MILLISECONDS:g} ms per edge: {'yes' if fast else 'NO'}")
    print(f"memory grows by at most {MAX_MEMORY_SHARE:.0%} of what is written: {'yes' if flat else 'NO'}")
    return 0 if fast and flat else 1


if __name__ == "__main__":
    sys.exit(main())
