"""``coral-pipeline audit``: a changed byte anywhere is found and named, stage by stage."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from coral_pipeline import provenance, tables
from coral_pipeline.audit.checks import CHECKS
from coral_pipeline.audit.sources import Source
from coral_pipeline.cli import app
from coral_pipeline.content import SUPERSEDED_FILE
from coral_pipeline.errors import BadInput
from coral_pipeline.settings import SearchSettings
from coral_pipeline.tables import PER_ROOT
from coral_pipeline_tests.audit.damage import changed_byte, changed_cell, changed_json, forged, put_back
from coral_pipeline_tests.defs.world import RUN, World

pytestmark = pytest.mark.slow


def audit(world: World, *options: str, student_run: Path | None = None) -> Result:
    run = student_run or world.folders.student_run(RUN)
    return CliRunner().invoke(app, ["audit", str(run), "--out", world.folders.output, *options])


def lines(world: World, *options: str) -> list[str]:
    """The differences it prints; there are some, and it says so."""
    result = audit(world, *options)
    *found, _, total = result.stdout.splitlines()
    assert result.exit_code == 1 and total.endswith("differences found"), result.output
    return found


def test_what_was_made_is_clean(finished: World) -> None:
    result = audit(finished, "--recompute")
    assert result.exit_code == 0, result.output
    counts, verdict = result.stdout.splitlines()
    assert counts.startswith(f"{RUN}: 10 partitions, ") and verdict == "no difference found"
    assert "0 files" not in counts and "turns" in counts


def test_a_student_run_behind_a_link_has_the_name_its_output_knows(finished: World, tmp_path: Path) -> None:
    run = finished.folders.student_run(RUN)
    (tmp_path / "latest").symlink_to(run)  # as `run` takes it: by its folder's name
    assert audit(finished, student_run=tmp_path / "latest").exit_code == 0
    shutil.copytree(run, tmp_path / "elsewhere", symlinks=True)
    (tmp_path / RUN).symlink_to("elsewhere")  # as the sensor `arrivals` sees it: by the link's name
    assert audit(finished, student_run=tmp_path / RUN).exit_code == 0
    with pytest.raises(BadInput, match="made from the Student run elsewhere"):
        raise_what(audit(finished, student_run=tmp_path / "elsewhere"))


def test_it_writes_nothing(finished: World) -> None:
    def state() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in finished.folder.rglob("*")}

    before = state()
    audit(finished, "--recompute")
    assert state() == before


def student_run_file(world: World, name: str) -> Path:
    return world.folders.student_run(RUN) / name


def snapshot(world: World, name: str) -> Path:
    return student_run_file(world, "all_snapshots") / world.keys[0].root / name


def attempt(world: World) -> Path:
    """The attempt record of the first root's own commit."""
    folder = snapshot(world, "shared/attempts")
    commit = json.loads(snapshot(world, "metadata.json").read_bytes())["commit_hash"]
    return folder / f"{commit}.json"


FILES_OF_THE_CHAIN: dict[str, Callable[[World], Path]] = {
    "task.yaml": lambda world: student_run_file(world, "task.yaml"),
    "a snapshot's metadata": lambda world: snapshot(world, "metadata.json"),
    "a snapshot's attempt record": attempt,
    "a root's code in the Student run": lambda world: snapshot(world, "code/solve.py"),
    "a root's notes in the Student run": lambda world: snapshot(world, "shared/notes/ideas.md"),
    "a copied root's code": lambda world: world.folders.root(world.keys[0]) / "code" / "solve.py",
    "a copied root's metadata": lambda world: world.folders.root(world.keys[0]) / "metadata.json",
    "the copied task": lambda world: world.folders.asset("selected_roots", RUN) / "task" / "task.yaml",
}


@pytest.mark.parametrize("what", FILES_OF_THE_CHAIN)
def test_a_changed_byte_of_the_student_run_or_a_copied_root_is_found_and_named(finished: World, what: str) -> None:
    path = FILES_OF_THE_CHAIN[what](finished)
    with changed_byte(path, at=path.stat().st_size - 3):
        assert any(path.name.removesuffix(".json") in line or path.parent.name in line for line in lines(finished))


@pytest.mark.parametrize("asset", tables.TABLES)
def test_a_changed_byte_of_any_file_of_any_stage_is_found_and_named(finished: World, asset: str) -> None:
    per_root = asset in ("explored_trees", "ranked_paths", "advantage_batches")
    folder = finished.folders.asset(asset, str(finished.keys[0]) if per_root else RUN)
    made = provenance.read(folder)
    assert made is not None and made.files
    for name in (*made.files, provenance.PROVENANCE_FILE):
        with changed_byte(folder / name):
            assert any(f": {name}" in line or f"/{name}" in line for line in lines(finished)), name


def test_missing_and_surplus_files_are_found_and_named(finished: World) -> None:
    tree = finished.folders.asset("explored_trees", str(finished.keys[0]))
    copied = finished.folders.root(finished.keys[0])
    with put_back(tree / "turns.parquet"), put_back(tree / "more.txt"), put_back(copied / "code" / "more.py"):
        (tree / "turns.parquet").unlink()
        (tree / "more.txt").write_text("?")
        (copied / "code" / "more.py").write_text("?")
        found = lines(finished)
    assert any("turns.parquet: is missing" in line for line in found)
    assert any("more.txt: should not be there" in line for line in found)
    assert any("code/more.py: should not be there" in line for line in found)


def test_a_partition_that_is_gone_is_missed_by_what_was_made_from_it(finished: World, tmp_path: Path) -> None:
    ranked = finished.folders.asset("ranked_paths", str(finished.keys[0]))
    ranked.rename(tmp_path / "aside")
    try:
        found = lines(finished)
    finally:
        (tmp_path / "aside").rename(ranked)
    gone = f"made from ranked_paths {finished.keys[0]}: of which nothing is there"
    assert [line.split(" ")[0] for line in found if gone in line] == ["advantage_batches", "sft_dataset"]


def test_the_same_difference_is_told_once_and_without_folders_of_the_machine(finished: World) -> None:
    tree = finished.folders.asset("explored_trees", str(finished.keys[0]))
    with put_back(tree / "nodes.parquet"):
        (tree / "nodes.parquet").write_bytes(b"nothing")
        found = lines(finished, "--recompute")
    assert len(found) == len(set(found)) and finished.folders.output not in "".join(found)


def test_a_tree_of_a_root_that_was_never_chosen_is_found(finished: World) -> None:
    stray = finished.folders.asset("explored_trees", f"{RUN}|eval-000099-agent-1-0123456789ab")
    stray.mkdir()
    try:
        assert any("eval-000099-agent-1-0123456789ab: should not be there" in line for line in lines(finished))
    finally:
        stray.rmdir()


def test_marks_of_superseded_roots_are_no_differences(finished: World) -> None:
    """They lie in the copied folder of the root, and in all that was made from it."""
    key = str(finished.keys[0])
    with ExitStack() as marked:
        for asset in ("selected_roots", *PER_ROOT):
            mark = finished.folders.asset(asset, key) / SUPERSEDED_FILE
            marked.enter_context(put_back(mark))
            mark.write_text("{}")
        stray = finished.folders.asset("explored_trees", f"{RUN}|eval-000099-agent-1-0123456789ab")
        stray.mkdir()
        marked.callback(shutil.rmtree, stray)
        (stray / SUPERSEDED_FILE).write_text("{}")
        result = audit(finished, "--recompute")
    assert result.exit_code == 0, result.output


def test_a_forger_who_mends_the_checksums_is_found_out_by_the_numbers(finished: World) -> None:
    """And by the version that the next stage remembers."""
    key = str(finished.keys[0])
    folder = finished.folders.asset("ranked_paths", key)
    with changed_cell(tables.RANKED_PATHS, folder, "PathScore", 0), forged(folder):
        assert audit(finished).exit_code == 0, "checksums alone cannot tell"
        found = lines(finished, "--recompute")
    assert any("ranked_paths.parquet, row 0" in line and "PathScore: is" in line for line in found)
    assert any("version: is" in line for line in found)


def test_an_input_that_was_made_anew_since_is_a_broken_link(finished: World) -> None:
    folder = finished.folders.asset("explored_trees", str(finished.keys[0]))
    with put_back(folder / provenance.PROVENANCE_FILE):
        made = provenance.read(folder)
        assert made is not None
        provenance.write(made.model_copy(update={"version": "0" * 32}), folder)
        found = lines(finished)
    assert [line.split(":")[0] for line in found if "made from explored_trees" in line] == [
        f"ranked_paths {finished.keys[0]}",
        f"advantage_batches {finished.keys[0]}",
        f"sft_dataset {RUN}",
    ]


@pytest.mark.parametrize("key", ["stop_reason", "counts", "configuration", "root_fingerprint"])
def test_what_tree_json_says_is_computed_anew(finished: World, source: Source, key: str) -> None:
    folder = finished.folders.asset("explored_trees", str(finished.keys[0]))

    def change(info: dict[str, Any]) -> None:
        match key:
            case "counts":
                info["counts"]["leaves"]["depth_limit"] = 99
            case "configuration":
                info["configuration"]["search"]["token_bonus"] = 0.25
            case _:
                info[key] = "other"

    checks = [check for check in CHECKS if check.asset == "explored_trees" and check.recomputes]
    with changed_json(folder / "tree.json", change):
        found = [line for check in checks for line in check.review(source, str(finished.keys[0])).lines()]
    assert any(f"tree.json, {key}" in line for line in found)


@pytest.mark.parametrize("setting", SearchSettings.model_fields)
def test_a_setting_of_the_search_that_tree_json_tells_otherwise_than_provenance_is_found(
    finished: World, source: Source, setting: str
) -> None:
    """Whether or not the tree would have grown otherwise with it."""
    folder = finished.folders.asset("explored_trees", str(finished.keys[0]))
    (check,) = (check for check in CHECKS if check.name == "decisions_replayed")

    def change(info: dict[str, Any]) -> None:
        search = info["configuration"]["search"]
        value = search[setting]
        if isinstance(value, dict):
            value[next(iter(value))] += 0.125
        else:
            search[setting] = value + 1 if isinstance(value, int) else value / 2 + 0.0625

    with changed_json(folder / "tree.json", change):
        found = list(check.review(source, str(finished.keys[0])).lines())
    assert any(f"tree.json, configuration, search, {setting}" in line for line in found), found


def test_roots_that_cannot_be_read_are_no_flood(finished: World) -> None:
    """Nothing is wrong but the table, and that copied roots go unverified is told."""
    folder = finished.folders.asset("selected_roots", RUN)
    with put_back(folder / "selected_roots.parquet"):
        (folder / "selected_roots.parquet").write_bytes(b"nothing")
        result = audit(finished)
    *found, _, _ = result.stdout.splitlines()
    assert found and all("selected_roots.parquet" in line for line in found)
    assert f"note: selected_roots {RUN}: not readable" in result.stderr


def test_bad_input_is_told_in_one_line(finished: World, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no all_snapshots, so it is no Student run"):
        raise_what(audit(finished, student_run=finished.folders.student_run(RUN) / "all_snapshots"))
    result = CliRunner().invoke(app, ["audit", str(finished.folders.student_run(RUN)), "--out", str(tmp_path)])
    with pytest.raises(BadInput, match="holds nothing that was made from the Student run"):
        raise_what(result)
    assert CliRunner().invoke(app, ["audit"]).exit_code == 2


def raise_what(result: Result) -> None:
    assert result.exception is not None
    raise result.exception
