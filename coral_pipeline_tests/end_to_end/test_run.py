"""``coral-pipeline run`` on the bundled Student run, with real processes and the embedded teacher."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import psutil
import pytest

from coral_pipeline import tables
from coral_pipeline_tests.end_to_end.conftest import TOUR, Finished, command, coral_pipeline, settings_file

pytestmark = pytest.mark.slow


def roots(out: Path) -> list[str]:
    return [row["root"] for row in tables.SELECTED_ROOTS.rows(out / "selected_roots" / "tour")]


def journal(out: Path, root: str) -> list[str]:
    path = out / "explored_trees" / "tour" / root / "work" / "journal.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def runs(out: Path) -> Counter[str]:
    with dg.DagsterInstance.from_config(str(out / "dagster_home")) as instance:
        return Counter(run.status.value for run in instance.get_runs())


def test_it_goes_from_snapshots_to_datasets_and_says_where_they_are(bundled: Finished) -> None:
    ended, out = bundled.ended, bundled.out
    assert ended.code == 0, ended.err
    assert "tour: 64 snapshots, 64 kept, 58 eligible as roots" in ended.out
    assert "of 2 trees improve on their root" in ended.out
    for name in ("sft.jsonl", "sft.parquet", "traces.jsonl", "branches.parquet"):
        assert (out / "sft_dataset" / "tour" / name).stat().st_size > 0
        assert name in ended.out
    assert f"DAGSTER_HOME={out}/dagster_home" in ended.out and "dagster" in ended.out.splitlines()[-1]
    assert all(root in ended.err for root in roots(out)), "a line per root as it ends"
    assert "Traceback" not in ended.err and "dagster -" not in ended.err


def test_every_table_of_every_asset_is_there(bundled: Finished) -> None:
    for asset, declared in tables.TABLES.items():
        per_root = asset in ("explored_trees", "ranked_paths", "advantage_batches")
        for place in roots(bundled.out) if per_root else ["."]:
            for table in declared:
                assert (
                    table.read(bundled.out / asset / "tour" / place).num_rows > 0 or table.name == "rejected_snapshots"
                )


def test_the_runs_stay_for_the_ui(bundled: Finished) -> None:
    statuses = runs(bundled.out)
    assert set(statuses) == {"SUCCESS"} and statuses["SUCCESS"] >= 4, "roots chosen, two trees, the dataset"


def test_run_again_it_explores_nothing_again(bundled: Finished) -> None:
    before = {root: journal(bundled.out, root) for root in roots(bundled.out)}
    again = coral_pipeline(*bundled.arguments)
    assert again.code == 0 and again.err.count("done before") == 2
    assert {root: journal(bundled.out, root) for root in roots(bundled.out)} == before
    assert again.out == bundled.ended.out


def start(out: Path, folder: Path) -> subprocess.Popen[str]:
    arguments = ("run", TOUR, "--out", out, "--num-roots", 2, "--settings", settings_file(folder))
    return subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(process: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def turns(out: Path) -> int:
    """Finished turns of all trees that are growing."""
    if not (out / "selected_roots" / "tour" / "selected_roots.parquet").exists():
        return 0
    return sum('"kind":"turn"' in line for root in roots(out) for line in journal(out, root))


def test_stopped_and_killed_it_goes_on_where_it_was(tmp_path: Path, bundled: Finished) -> None:
    out = tmp_path / "out"
    stopped = start(out, tmp_path)
    wait_for(stopped, lambda: turns(out) >= 3)
    stopped.send_signal(signal.SIGINT)
    _, err = stopped.communicate()
    assert stopped.returncode == 130
    assert "the same command goes on where it was" in err and "Traceback" not in err
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(out) in " ".join(p.info["cmdline"] or [])]
    assert runs(out) == {"SUCCESS": 1, "CANCELED": 2}

    after_stop = turns(out)
    killed = start(out, tmp_path)
    wait_for(killed, lambda: turns(out) >= after_stop + 3)
    killed.kill()
    killed.communicate()

    finished = start(out, tmp_path)
    said, err = finished.communicate()
    assert finished.returncode == 0, err
    assert runs(out)["STARTED"] == 0, "what the killed process was at is not left as running"
    for root in roots(out):
        records = [json.loads(line) for line in journal(out, root)]
        asked = Counter((r["edge"], r.get("turn")) for r in records if r["kind"] in ("turn", "edge"))
        assert set(asked.values()) == {1}, "nothing finished was run twice"
        for table in (tables.NODES, tables.ROUNDS):
            trees = [folder / "explored_trees" / "tour" / root for folder in (out, bundled.out)]
            assert table.read(trees[0]).equals(table.read(trees[1])), "the same tree as without interruption"
    assert said.split("Next")[0].replace(str(out), "") == bundled.ended.out.split("Next")[0].replace(
        str(bundled.out), ""
    )


def test_a_second_run_into_the_same_folder_is_refused_while_the_first_is_at_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = start(out, tmp_path)
    try:
        wait_for(first, lambda: (out / "settings.yaml").exists())
        second = coral_pipeline("run", TOUR, "--out", out)
        assert second.code == 1
        assert second.err == (
            f"coral-pipeline: {out}: another coral-pipeline run is writing there; "
            "wait until it has ended, or choose another --out\n"
        )
    finally:
        first.terminate()
        first.communicate()
    assert first.returncode == 143
