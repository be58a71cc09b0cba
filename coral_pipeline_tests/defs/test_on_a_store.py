"""The assets on an object store: all that holds in a folder, with nothing shared but the store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coral_pipeline import provenance, tables
from coral_pipeline.audit.checks import CHECKS
from coral_pipeline.audit.sources import Source
from coral_pipeline.cli import app
from coral_pipeline.defs.build import OUTPUT, STUDENT_RUNS, definitions_from
from coral_pipeline.defs.dataset import write_dataset
from coral_pipeline.defs.folders import PER_ROOT, Folders
from coral_pipeline.defs.progress import SearchControl
from coral_pipeline.export.dataset import DatasetSummary
from coral_pipeline.export.layout import RootFolders
from coral_pipeline.storage import SCRATCH
from coral_pipeline_tests.defs.test_interruption import stopping_in_round
from coral_pipeline_tests.defs.world import RUN, TO_ROOTS, World, failure, settings


class OnStore(World):
    """As ``World``, its output behind a URL."""

    @property
    def url(self) -> str:
        return f"file://{self.folder}/store"

    @property
    def folders(self) -> Folders:
        return Folders(output=self.url, student_runs=str(self.folder / "student_runs"))


@pytest.fixture
def move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Go on on another machine, which has nothing of what was fetched and grown."""

    def to(machine: str) -> None:
        monkeypatch.setenv(SCRATCH, str(tmp_path / machine))

    to("first")
    return to


@pytest.fixture
def on_store(move: Callable[[str], None], tmp_path: Path) -> OnStore:
    return OnStore(tmp_path)


def made(world: World, asset: str, partition: str) -> provenance.Provenance:
    found = world.folders.storage.provenance(asset, partition)
    assert found is not None
    return found


@pytest.mark.slow
def test_tables_are_those_of_a_folder_wherever_each_asset_is_made(
    on_store: OnStore, move: Callable[[str], None], finished: World
) -> None:
    on_store.materialize(TO_ROOTS, RUN)
    for key in on_store.keys:
        for asset in PER_ROOT:
            move(f"{key.root}-{asset}")
            on_store.materialize([asset], str(key))
    move("last")
    on_store.materialize(["sft_dataset"], RUN)
    for asset, declared in tables.TABLES.items():
        for partition in [str(key) for key in finished.keys] if asset in PER_ROOT else [RUN]:
            there, here = (world.folders.fetch(asset, partition) for world in (on_store, finished))
            for table in declared:
                assert table.read(there).equals(table.read(here)), table.name
    assert on_store.metadata("sft_dataset", RUN)["folder"].value == f"{on_store.url}/sft_dataset/{RUN}"
    move("auditor")
    runs = str(on_store.folders.student_run(RUN).parent)
    for command in (["audit", f"{runs}/{RUN}"], ["lineage", f"{RUN}/sft/0", "--student-runs", runs]):
        said = CliRunner().invoke(app, [*command, "--out", on_store.url])
        assert said.exit_code == 0, said.output


@pytest.mark.slow
def test_a_finished_tree_is_not_grown_again_on_another_machine(on_store: OnStore, move: Callable[[str], None]) -> None:
    on_store.materialize(TO_ROOTS, RUN)
    key = str(on_store.keys[0])
    on_store.materialize(["explored_trees"], key)
    before = made(on_store, "explored_trees", key), on_store.metadata("explored_trees", key)
    move("second")
    on_store.materialize(["explored_trees"], key)
    after = made(on_store, "explored_trees", key), on_store.metadata("explored_trees", key)
    assert after[0] == before[0]
    assert not on_store.folders.asset("explored_trees", key).exists()
    same = before[1].keys() - {"megabytes on disk"}  # the journal is elsewhere
    assert {name: after[1][name] for name in same} == {name: before[1][name] for name in same}


@pytest.mark.slow
def test_a_tree_begun_here_and_finished_elsewhere_stays_the_one_that_was_published(
    on_store: OnStore, move: Callable[[str], None]
) -> None:
    on_store.materialize(TO_ROOTS, RUN)
    key = str(on_store.keys[0])
    on_store.control = stopping_in_round(2)
    assert not on_store.run(["explored_trees"], key).success
    half = list(on_store.folders.asset("explored_trees", key).rglob("journal.jsonl"))
    assert half
    on_store.control = SearchControl()
    move("second")
    on_store.materialize(["explored_trees"], key)
    before = made(on_store, "explored_trees", key)
    move("first")
    on_store.materialize(["explored_trees"], key)
    assert made(on_store, "explored_trees", key) == before
    assert all(path.is_file() for path in half)


@pytest.mark.slow
def test_a_tree_of_other_settings_is_kept_aside_on_another_machine(
    on_store: OnStore, move: Callable[[str], None]
) -> None:
    on_store.materialize(TO_ROOTS, RUN)
    key = str(on_store.keys[0])
    on_store.materialize(["explored_trees"], key)
    before = made(on_store, "explored_trees", key)
    on_store.settings = settings(search={"max_depth": 1})
    move("second")
    on_store.materialize(["explored_trees"], key)
    storage = on_store.folders.storage
    assert storage.provenance("superseded", f"{key}|1") == before
    assert max(row["depth"] for row in tables.NODES.rows(storage.fetch("explored_trees", key))) == 1
    assert tables.NODES.rows(storage.fetch("superseded", f"{key}|1"))


@pytest.mark.slow
def test_roots_that_are_no_longer_chosen_are_marked_and_stay(on_store: OnStore) -> None:
    on_store.materialize(TO_ROOTS, RUN)
    keys = on_store.keys
    on_store.materialize(PER_ROOT, str(keys[0]))
    on_store.settings = settings(selection={"num_roots": 1})
    on_store.materialize(["selected_roots"], RUN)
    dropped = {str(key) for key in keys} - {str(key) for key in on_store.keys}
    marks = {str(path.parent.relative_to(on_store.folder / "store")) for path in _marks(on_store)}
    expected = {f"selected_roots/{key.replace('|', '/')}" for key in dropped}
    if str(keys[0]) in dropped:
        expected |= {f"{asset}/{keys[0].student_run}/{keys[0].root}" for asset in PER_ROOT}
        assert on_store.folders.storage.provenance("explored_trees", str(keys[0]))
    assert marks == expected
    on_store.settings = settings()
    on_store.materialize(["selected_roots"], RUN)
    assert on_store.keys == keys and not list(_marks(on_store))


@pytest.mark.slow
def test_an_audit_finds_on_a_store_what_is_damaged_and_no_more(
    on_store: OnStore, move: Callable[[str], None], tmp_path: Path
) -> None:
    def audit() -> list[str]:
        move("auditor")
        said = CliRunner().invoke(app, ["audit", str(on_store.folders.student_run(RUN)), "--out", on_store.url])
        return said.stdout.splitlines()[:-2]

    on_store.materialize_all()
    keys = on_store.keys
    assert audit() == []
    on_store.settings = settings(selection={"num_roots": 1})
    on_store.materialize(["selected_roots"], RUN)
    assert on_store.keys != keys
    (changed,) = audit()
    assert changed.startswith(f"sft_dataset {RUN}: made from selected_roots {RUN}: which is no longer the same")
    dropped = next(key for key in keys if key not in on_store.keys)
    for file in (tmp_path / "store" / "explored_trees" / RUN / dropped.root).rglob("turns.parquet"):
        file.write_bytes(b"damaged")
    assert any(f"explored_trees {dropped}: turns.parquet: has changed" in line for line in audit())


def _marks(world: World) -> list[Path]:
    return list((world.folder / "store").rglob("superseded.json"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "url"])
def test_a_dataset_of_a_root_that_is_made_anew_meanwhile_is_refused(
    kind: str, move: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path) if kind == "folder" else OnStore(tmp_path)
    world.materialize_all()
    before = made(world, "sft_dataset", RUN)

    def meanwhile(roots: list[RootFolders], out: Path) -> DatasetSummary:
        summary = write_dataset(roots, out)
        world.settings = settings(paths={"top_k": 1})
        world.materialize(["ranked_paths"], str(world.keys[0]))
        return summary

    with monkeypatch.context() as patch:
        patch.setattr("coral_pipeline.defs.dataset.write_dataset", meanwhile)
        result = world.run(["sft_dataset"], RUN)
    assert not result.success
    assert failure(result) == f"ranked_paths of {world.keys[0]}: changed meanwhile; run it again"
    assert made(world, "sft_dataset", RUN) == before


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "url"])
def test_a_task_comes_along_with_its_links_and_modes(kind: str, move: Callable[[str], None], tmp_path: Path) -> None:
    world = World(tmp_path) if kind == "folder" else OnStore(tmp_path)
    for name in ("grader", "private"):
        folder = world.folders.student_run(RUN) / name / "deep"
        folder.mkdir(parents=True)
        (folder / "run.sh").write_text("#!/bin/sh\n")
        (folder / "run.sh").chmod(0o755)
        (folder.parent / "file").symlink_to("deep/run.sh")
        (folder.parent / "folder").symlink_to("deep")
    world.materialize(TO_ROOTS, RUN)
    move("second")
    key = world.keys[0]
    world.materialize(["explored_trees"], str(key))
    for name in ("grader", "private"):
        copied = world.folders.root(key).parent / "task" / name
        assert copied.joinpath("file").readlink() == Path("deep/run.sh")
        assert copied.joinpath("folder").readlink() == Path("deep")
        assert copied.joinpath("deep", "run.sh").stat().st_mode & 0o777 == 0o755
    source = Source(world.folders.storage, world.folders.student_run)
    for check in CHECKS:
        if check.asset in ("selected_roots", "root_folders", "explored_trees"):
            partition = RUN if check.asset == "selected_roots" else str(key)
            assert list(map(str, check.review(source, partition).findings)) == [], check.name
    world.folders.student_run(RUN).joinpath("grader", "file").unlink()
    world.materialize(["selected_roots"], RUN)
    task = world.folders.root(key).parent / "task"
    assert not (task / "grader" / "file").is_symlink() and (task / "private" / "file").is_symlink()


def test_a_deployment_may_name_a_url(tmp_path: Path, move: Callable[[str], None]) -> None:
    definitions = definitions_from({OUTPUT: f"file://{tmp_path}/store", STUDENT_RUNS: str(tmp_path)})
    folders = (definitions.resources or {})["folders"]
    assert folders.address("ranked_paths", "run|root") == f"file://{tmp_path}/store/ranked_paths/run/root"
