"""``coral-pipeline lineage``: the chain back to the attempt, each step verified, a changed one named."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from coral_pipeline import tables
from coral_pipeline.audit.sources import Source
from coral_pipeline.cli import app
from coral_pipeline.defs.partitions import RootKey
from coral_pipeline.errors import BadInput
from coral_pipeline.lineage import Reference, Step, chain_of
from coral_pipeline.lineage.reference import FORMS
from coral_pipeline_tests.audit.damage import changed_byte, changed_cell, changed_json, forged
from coral_pipeline_tests.defs.world import RUN, World

pytestmark = pytest.mark.slow

ORIGIN = ("tree of", "copied root", "stage of", "snapshot", "CORAL run")


def lineage(world: World, reference: str, *options: str) -> Result:
    runs = Path(world.folders.student_runs)
    return CliRunner().invoke(
        app, ["lineage", reference, "--out", world.folders.output, "--student-runs", str(runs), *options]
    )


def chain(source: Source, reference: str) -> list[Step]:
    return chain_of(Reference.parse(reference), source)


def titles(steps: list[Step]) -> list[str]:
    return [step.title for step in steps]


def root(world: World) -> str:
    """The root that the first sample is of, as references name it."""
    return str(tables.SFT_SAMPLES.rows(dataset(world))[0]["root"])


def dataset(world: World) -> Path:
    return world.folders.fetch("sft_dataset", RUN)


def of_root(world: World, asset: str) -> Path:
    return world.folders.fetch(asset, f"{RUN}|{root(world)}")


def test_a_sample_comes_from_its_path_edges_tree_root_snapshot_and_run(finished: World, source: Source) -> None:
    sample = tables.SFT_SAMPLES.rows(dataset(finished))[0]
    steps = chain(source, f"{RUN}/sft/0")
    back = [
        title
        for edge, node in zip(reversed(sample["edge_ids"]), reversed(sample["node_ids"][:-1]), strict=True)
        for title in (f"edge {edge}", f"node {node}")
    ]
    assert titles(steps[: -len(ORIGIN)]) == ["row 0 of sft.parquet", f"path of rank {sample['rank']}", *back]
    assert all(step.title.startswith(begin) for step, begin in zip(steps[-len(ORIGIN) :], ORIGIN, strict=True))
    assert all(step.is_intact for step in steps)
    snapshot = steps[-2].facts
    assert snapshot["agent_id"] and snapshot["commit_hash"] and snapshot["attempt_sha256"]
    assert steps[-1].facts["direction"] == "maximize"


def test_everything_that_has_a_number_can_be_looked_up(finished: World, source: Source) -> None:
    tree, place = of_root(finished, "explored_trees"), f"{RUN}/{root(finished)}"
    names = [f"node/{row['node_id']}" for row in tables.NODES.rows(tree)[::3]]
    names += [f"edge/{row['edge_id']}" for row in tables.EDGES.rows(tree)[::3]]
    ranked = tables.RANKED_PATHS.rows(of_root(finished, "ranked_paths"))
    names += [f"path/{row['rank']}" for row in ranked[::2] if row["candidate"]]
    names += [f"message/{row['message_id']}" for row in tables.MESSAGES.rows(tree)[::29]]
    for reference in (place, *(f"{place}/{name}" for name in names)):
        steps = chain(source, reference)
        assert all(step.is_intact for step in steps), reference
        assert steps[-1].title == f"CORAL run {RUN}"


def test_a_message_of_a_sample_is_found_in_the_tree(finished: World, source: Source) -> None:
    sample = tables.SFT_SAMPLES.rows(dataset(finished))[0]
    last = len(sample["messages"]) - 1
    steps = chain(source, f"{RUN}/sft/0/{last}")
    assert steps[1].title == f"message {sample['message_ids'][last]}"
    assert steps[1].facts["role"] == json.loads(sample["messages"][last])["role"] == "assistant"
    assert steps[2].title == f"edge {sample['edge_ids'][-1]}"


def test_a_token_of_a_stream_is_found_with_its_advantage(finished: World, source: Source) -> None:
    stream = tables.BRANCHES.rows(dataset(finished))[0]
    place = max(index for index, sampled in enumerate(stream["mask"]) if sampled)
    steps = chain(source, f"{RUN}/branches/0/{place}")
    token = steps[1].facts
    assert (token["token id"], token["sampled"]) == (stream["input_ids"][place], True)
    assert (token["advantage"] or 0) == stream["advantages"][place]
    (edge,) = (step for step in steps if step.title == f"edge {stream['edge_ids'][-1]}")
    assert any(line.startswith(f"advantage {token['advantage']:.10g} by direct_branch_td") for line in edge.numbers)


def test_numbers_are_told_with_the_terms_that_they_are_the_sums_of(finished: World, source: Source) -> None:
    (path,) = chain(source, f"{RUN}/{root(finished)}/path/1")[:1]
    score, total = path.numbers[1].removeprefix("PathScore ").split(" = ")
    pairs = [term.split(" * ") for term in total.split(" + ")]
    terms = [(float(weight), float(rest.split()[-1])) for weight, rest in pairs]
    assert sum(weight * value for weight, value in terms) == pytest.approx(float(score), abs=1e-5)
    assert [weight for weight, _ in terms] == [0.35, 0.25, 0.2, 0.2]


def test_what_it_prints_names_settings_versions_and_files(finished: World) -> None:
    result = lineage(finished, f"{RUN}/sft/0")
    assert result.exit_code == 0, result.output
    for said in ("paths.top_k 6", "search.max_depth 3", "pyarrow", "edges.parquet: ", "SHA-256", "best_score"):
        assert said in result.stdout
    assert result.stdout.splitlines()[-1].endswith("steps are as recorded")


def test_json_holds_all_of_it(finished: World) -> None:
    steps = json.loads(lineage(finished, f"{RUN}/{root(finished)}/path/1", "--json").stdout)
    assert all(step["intact"] for step in steps)
    made = steps[0]["records"][0]["provenance"]
    assert made["asset"] == "ranked_paths" and made["settings"]["paths"]["top_k"] == 6 and made["files"]


Damage = Callable[[World], AbstractContextManager[object]]
DAMAGED: dict[str, tuple[Damage, str]] = {
    "sample": (lambda world: changed_byte(dataset(world) / "sft.jsonl"), "row 0 of sft.parquet"),
    "path": (
        lambda world: changed_cell(tables.RANKED_PATHS, of_root(world, "ranked_paths"), "max_score", 0),
        "path of rank",
    ),
    "tree": (lambda world: changed_cell(tables.ROUNDS, of_root(world, "explored_trees"), "t", 0), "tree of"),
    "root": (lambda world: changed_byte(world.folders.root(key(world)) / "code" / "solve.py"), "copied root"),
    "labels": (lambda world: changed_cell(tables.STAGE_LABELS, labels(world), "gain", 0), "stage of"),
    "snapshot": (lambda world: changed_json(snapshot(world), lambda data: data.update(more=1)), "snapshot"),
}


def key(world: World) -> RootKey:
    return next(key for key in world.keys if key.root == root(world))


def labels(world: World) -> Path:
    return world.folders.fetch("stage_labels", RUN)


def snapshot(world: World) -> Path:
    return world.folders.student_run(RUN) / "all_snapshots" / root(world) / "metadata.json"


@pytest.mark.parametrize("what", DAMAGED)
def test_a_changed_byte_is_named_at_its_step(what: str, finished: World) -> None:
    damage, step = DAMAGED[what]
    with damage(finished):
        result = lineage(finished, f"{RUN}/sft/0")
    assert result.exit_code == 1, result.output
    (verdict,) = (line for line in result.stdout.splitlines() if line.startswith("CHANGED since it was made: "))
    assert step in verdict
    assert "      CHANGED: " in result.stdout or "        CHANGED: " in result.stdout
    assert lineage(finished, f"{RUN}/sft/0").exit_code == 0


def test_a_forged_number_is_found_by_its_terms(finished: World, source: Source) -> None:
    folder = of_root(finished, "ranked_paths")
    with changed_cell(tables.RANKED_PATHS, folder, "PathScore", 0), forged(folder):
        path = chain(source, f"{RUN}/{root(finished)}/path/1")[0]
    assert not path.is_intact and "BUT THAT IS" in path.problems[0]


UNKNOWN = {
    f"{RUN}": "names nothing; write one of RUN/ROOT, ",
    f"{RUN}/eval-000001/edge/x": "'x' is no number; write one of",
    "other-run/sft/0": f"Student run 'other-run': is not in this output; what is there: {RUN}",
    f"{RUN}/sft/4711": "row 4711 of sft.parquet: is not in the dataset of small-run; there are 0 to ",
    f"{RUN}/sft/0/4711": "position 4711 of row 0 of sft.parquet: is not there; there are 0 to ",
    f"{RUN}/eval-9": "root 'eval-9': is not in the trees of small-run; what is there: eval-",
    f"{RUN}/eval/node/1": "root 'eval': could be eval-",
    f"{RUN}/ROOT/node/4711": "node 4711: is not in small-run|eval-",
    f"{RUN}/ROOT/path/4711": "path of rank 4711: is not in small-run|eval-",
    f"{RUN}/ROOT/message/0/9/9": "message 0/9/9: is not in small-run|eval-",
    f"{RUN}/ROOT/token/0/1/0/4711": "token 4711 of message 0/1/0: is not in small-run|eval-",
}


@pytest.mark.parametrize("reference", UNKNOWN)
def test_what_is_not_there_is_told_with_what_is(reference: str, finished: World, source: Source) -> None:
    with pytest.raises(BadInput) as raised:
        chain(source, reference.replace("ROOT", root(finished)))
    assert UNKNOWN[reference] in str(raised.value)
    assert ";" in str(raised.value)


def test_a_missing_student_run_is_told(finished: World, tmp_path: Path) -> None:
    arguments = ["lineage", f"{RUN}/sft/0", "--out", finished.folders.output, "--student-runs", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, BadInput) and "name the folder it lies in" in str(result.exception)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_that_is_advertised_is_understood(form: str) -> None:
    reference = Reference.parse(form)
    assert reference.student_run == "RUN" and reference.root in ("", "ROOT")
