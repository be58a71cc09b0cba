"""What Dagster makes of each root: tree, paths, advantages; and the dataset of all of them."""

from __future__ import annotations

import json
import shutil
import time
from types import SimpleNamespace
from typing import Any, cast

import dagster as dg
import pytest

from coral_pipeline import tables
from coral_pipeline.credit import prepare
from coral_pipeline.defs.folders import PER_ROOT
from coral_pipeline.defs.overview import tell_overview
from coral_pipeline.defs.partitions import RootKey
from coral_pipeline.paths.rank import rank_paths
from coral_pipeline.search.explore import explore_root
from coral_pipeline.search.root_folder import read_root
from coral_pipeline_tests.defs.world import RUN, TO_ROOTS, World, failure, settings, talk
from coral_pipeline_tests.search.growing import AnswerTeacher

pytestmark = pytest.mark.slow

PICTURES = {
    "stage_labels": ["score curve"],
    "selected_roots": ["score curve with roots"],
    "explored_trees": ["tree", "score by depth"],
    "ranked_paths": ["PathScore", "tree with the selected paths"],
    "advantage_batches": ["advantages"],
    "sft_dataset": ["coverage by stage"],
}


def partition(asset: str, world: World) -> str:
    return str(world.keys[0]) if asset in PER_ROOT else RUN


@pytest.mark.parametrize("asset", PICTURES)
def test_every_asset_shows_its_pictures_and_its_size(finished: World, asset: str) -> None:
    metadata = finished.metadata(asset, partition(asset, finished))
    assert metadata["result"].value
    assert 100 < len(metadata["at a glance"].md_str) < 1000, "longer ones are hidden behind a click"
    for picture in PICTURES[asset]:
        assert metadata[picture].md_str.startswith(f"![{picture}](data:image/svg+xml;base64,")
    assert metadata["dagster/row_count"].value > 0
    assert metadata["folder"].path == str(finished.folders.asset(asset, partition(asset, finished)))


def test_a_tree_is_the_one_that_the_search_grows_by_itself(finished: World, tmp_path_factory: Any) -> None:
    key, out = finished.keys[0], tmp_path_factory.mktemp("alone")
    root = read_root(finished.folders.root(key))
    chosen = finished.settings
    explore_root(root.node, root.direction, AnswerTeacher(talk), out, chosen.search)
    tree = finished.folders.of_root(key).tree
    for table in tables.TABLES["explored_trees"]:
        assert table.read(tree).equals(table.read(out)), table.name


def test_paths_and_credit_are_those_of_the_stages_themselves(finished: World) -> None:
    for key in finished.keys:
        source = finished.folders.of_root(key)
        assert source.credit is not None
        assert tables.RANKED_PATHS.read(source.ranked).equals(rank_paths(source.tree, finished.settings.paths))
        batch = prepare(source.tree)
        assert tables.CREDIT_EDGES.read(source.credit).equals(batch.edge_table())
        assert tables.CRITIC_TARGETS.read(source.credit).equals(batch.critic_table())
        assert tables.TOKENS.read(source.credit).num_rows > 0
        assert (source.credit / "traces.jsonl").stat().st_size > 0


def test_a_batch_brings_the_selected_paths_of_its_root_as_samples(finished: World) -> None:
    for key in finished.keys:
        source = finished.folders.of_root(key)
        assert source.credit is not None
        selected = sum(row["selected"] for row in tables.RANKED_PATHS.rows(source.ranked))
        samples = [json.loads(line) for line in (source.credit / "sft.jsonl").read_text().splitlines()]
        assert len(samples) == selected > 0
        assert {sample["root"] for sample in samples} == {key.root}


def test_the_dataset_holds_the_selected_paths_of_every_root(finished: World) -> None:
    out = finished.folders.asset("sft_dataset", RUN)
    stages = {
        row["root"]: row["stage"] for row in tables.SELECTED_ROOTS.rows(finished.folders.asset("selected_roots", RUN))
    }
    expected = {
        (key.root, row["leaf_id"], stages[key.root])
        for key in finished.keys
        for row in tables.RANKED_PATHS.rows(finished.folders.of_root(key).ranked)
        if row["selected"]
    }
    for table in tables.TABLES["sft_dataset"]:
        assert {(row["root"], row["leaf_id"], row["stage"]) for row in table.rows(out)} == expected
    metadata = finished.metadata("sft_dataset", RUN)
    assert metadata["roots done"].value == 3 and metadata["roots missing"].value == []
    assert metadata["SFT samples"].value == len(expected)
    assert {"sft.jsonl", "sft.parquet", "traces.jsonl", "branches.parquet"} <= set(metadata["files"].value)


def test_what_a_blocking_check_refused_is_in_no_dataset_until_it_passes(finished: World) -> None:
    key = finished.keys[1]
    refused = dg.AssetCheckEvaluation(
        asset_key=dg.AssetKey("advantage_batches"),
        check_name="credit_computed_anew",
        passed=False,
        metadata={},
        partition=str(key),
    )
    finished.instance.report_runless_asset_event(refused)
    finished.materialize(["sft_dataset"], RUN)
    assert finished.metadata("sft_dataset", RUN)["roots missing"].value == [key.root]
    finished.materialize(["advantage_batches"], str(key))
    finished.materialize(["sft_dataset"], RUN)
    assert finished.metadata("sft_dataset", RUN)["roots missing"].value == []


def test_a_growing_tree_is_observed_as_it_grows(finished: World) -> None:
    for key in finished.keys:
        ended, *observations = finished.observations("explored_trees", str(key))
        assert ended.description == "done"
        assert observations
        edges = [int(str(observation.metadata["edges"].value)) for observation in observations]
        assert edges == sorted(edges, reverse=True)
        first = observations[-1].metadata
        assert (first["edges"].value, first["done, percent"].value) == (0, 0)
        assert first["best score"].value == first["root score"].value
        assert all("data:image/svg+xml" in str(made.metadata["at a glance"].value) for made in observations)
        stored = [len(str(made.metadata)) for made in observations]
        assert max(stored) < 12_000, "there may be hundreds for one tree"


def test_trees_that_grow_at_once_show_all_of_them_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def tell(key: str, **bounds: float) -> int:
        context = SimpleNamespace(
            partition_key=key, instance=world.instance, log_event=world.instance.report_runless_asset_event
        )
        tell_overview(cast(dg.AssetExecutionContext, context), **bounds)
        return len(world.observations("selected_roots", RUN))

    world.instance.add_dynamic_partitions("roots", [f"{RUN}|one", f"{RUN}|other"])
    assert tell(f"{RUN}|one") == 1
    assert tell(f"{RUN}|other", min_age=300) == 1, "it was told a moment ago"
    assert tell(f"{RUN}|other") == 2, "its begin or end"
    later = time.time() + 301
    monkeypatch.setattr("coral_pipeline.defs.overview.time", SimpleNamespace(time=lambda: later))
    assert tell(f"{RUN}|other", min_age=300) == 3


def test_paths_are_ranked_without_the_copied_root(world: World) -> None:
    """Which may be gone since, and on a store would be downloaded for nothing."""
    world.materialize(TO_ROOTS, RUN)
    key = world.keys[0]
    world.materialize(["explored_trees"], str(key))
    shutil.rmtree(world.folders.root(key))
    world.materialize(["ranked_paths"], str(key))


def test_all_trees_of_a_student_run_are_seen_at_a_glance(world: World) -> None:
    world.materialize(["filtered_snapshots", "stage_labels", "selected_roots"], RUN)
    done, broken, _ = world.keys
    world.materialize(["explored_trees"], str(done))
    world.settings = settings(teacher={"name": "scripted", "script": str(world.folder / "no-such-file.jsonl")})
    assert not world.run(["explored_trees"], str(broken)).success

    overview = world.observations("selected_roots", RUN)[0]
    assert overview.description == "1 of 3 trees done, 1 failed, 1 to do"
    assert "data:image/svg+xml" in str(overview.metadata["trees at a glance"].value)
    rows = [record.data for record in overview.metadata["trees by root"].records]
    assert [row["tree"] for row in rows] == ["done", "failed", "to do"]
    summary = json.loads((world.folders.asset("explored_trees", str(done)) / "tree.json").read_text())
    assert rows[0]["edges"] == summary["counts"]["valid_edges"]
    chosen = tables.SELECTED_ROOTS.rows(world.folders.asset("selected_roots", RUN))
    assert [(row["stage"], row["root score"]) for row in rows] == [(r["stage"], r["score"]) for r in chosen]


def test_the_dataset_says_which_roots_are_not_done(world: World) -> None:
    world.materialize(["filtered_snapshots", "stage_labels", "selected_roots"], RUN)
    done, tree_only, _ = world.keys
    world.materialize(PER_ROOT, str(done))
    world.materialize(["explored_trees"], str(tree_only))
    world.materialize(["sft_dataset"], RUN)
    metadata = world.metadata("sft_dataset", RUN)
    assert metadata["roots done"].value == 1
    assert metadata["roots missing"].value == [key.root for key in world.keys if key != done]
    rows = tables.SFT_SAMPLES.rows(world.folders.asset("sft_dataset", RUN))
    assert {row["root"] for row in rows} == {done.root}


def test_a_tree_without_a_root_says_what_to_do(world: World) -> None:
    world.materialize(["filtered_snapshots", "stage_labels", "selected_roots"], RUN)
    gone = RootKey(RUN, "eval-000099-agent-1-0123456789ab")
    world.instance.add_dynamic_partitions("roots", [str(gone)])
    result = world.run(["explored_trees"], str(gone))
    assert "give a folder that `coral-pipeline select` copied" in failure(result)
    assert dg.AssetKey("explored_trees") not in {m.asset_key for m in result.get_asset_materialization_events()}


@pytest.mark.parametrize("changed", ["code/solve.py", "code/new.py", "metadata.json", "../task/task.yaml"])
def test_no_tree_grows_from_a_copied_root_that_was_changed(world: World, changed: str) -> None:
    world.materialize(["filtered_snapshots", "stage_labels", "selected_roots"], RUN)
    key = world.keys[0]
    file = world.folders.root(key) / changed
    text = file.read_text() if file.exists() else ""
    file.write_text(json.dumps(json.loads(text) | {"more": 1}) if file.suffix == ".json" else f"{text}\n# more\n")
    said = failure(world.run(["explored_trees"], str(key)))
    assert said == f"{world.folders.root(key)}: is not as it was copied; choose the roots anew"
    assert not world.folders.asset("explored_trees", str(key)).exists()
    world.materialize(["selected_roots"], RUN)
    world.materialize(["explored_trees"], str(key))
