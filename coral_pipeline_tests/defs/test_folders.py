"""Files of a partition: replaced together, nothing of an earlier making left over, each with its provenance."""

from __future__ import annotations

from pathlib import Path

import pytest

from coral_pipeline import provenance, tables
from coral_pipeline.defs.folders import PER_ROOT, Folders
from coral_pipeline.provenance import PROVENANCE_FILE, Input, Provenance
from coral_pipeline_tests.defs.world import RUN, World
from coral_pipeline_tests.test_provenance import made

ASSET = "ranked_paths"


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(output=str(tmp_path / "output"), student_runs="unused")


def write(folders: Folders, *names: str) -> Path:
    with folders.writing(ASSET, "run|root", lambda folder: made()) as out:
        for name in names:
            (out / name).parent.mkdir(exist_ok=True)
            (out / name).write_text(name)
    return folders.fetch(ASSET, "run|root")


def names(folder: Path) -> set[str]:
    return set(provenance.files_below(folder)) - {PROVENANCE_FILE}


def test_what_an_earlier_making_wrote_is_gone_and_what_others_wrote_stays(folders: Folders) -> None:
    folder = write(folders, "a", "sub/b")
    (folder / "note").write_text("mine")
    assert names(write(folders, "a", "c")) == {"a", "c", "note"}
    record = provenance.read(folder)
    assert record is not None and set(record.files) == {"a", "c"}


def test_a_making_that_fails_leaves_the_earlier_one(folders: Folders) -> None:
    folder = write(folders, "a")
    with pytest.raises(OSError, match="full"), folders.writing(ASSET, "run|root", lambda folder: made()) as out:
        (out / "a").write_text("other")
        raise OSError("full")
    record = provenance.read(folder)
    assert record is not None and not list(provenance.changes(record, folder))
    assert {path.name for path in folder.iterdir()} == {"a", PROVENANCE_FILE}


def read(world: World, asset: str, partition: str) -> Provenance:
    found = provenance.read(world.folders.fetch(asset, partition))
    assert found is not None
    return found


@pytest.mark.slow
def test_every_partition_tells_what_it_was_made_from(finished: World) -> None:
    root = finished.keys[0]
    of_run = {asset: read(finished, asset, RUN) for asset in ("filtered_snapshots", "stage_labels", "selected_roots")}
    of_root = {asset: read(finished, asset, str(root)) for asset in PER_ROOT}
    version = of_run["selected_roots"].folders[root.root]
    assert of_root["explored_trees"].inputs == (Input(asset="selected_roots", partition=str(root), version=version),)
    assert of_root["advantage_batches"].inputs == tuple(
        Input(asset=asset, partition=str(root), version=of_root[asset].version) for asset in PER_ROOT[:2]
    )
    dataset = read(finished, "sft_dataset", RUN)
    assert [(one.asset, one.partition) for one in dataset.inputs] == [
        ("selected_roots", RUN),
        *((asset, str(key)) for key in finished.keys for asset in PER_ROOT),
    ]


@pytest.mark.slow
def test_every_file_of_a_partition_is_on_record_and_no_folder_of_this_machine(finished: World) -> None:
    for asset in tables.TABLES:
        for partition in [str(key) for key in finished.keys] if asset in PER_ROOT else [RUN]:
            folder, record = finished.folders.fetch(asset, partition), read(finished, asset, partition)
            own = {
                name
                for name in names(folder)
                if not name.startswith("work/") and name.split("/")[0] not in record.folders
            }
            assert set(record.files) == own
            assert str(finished.folder) not in (folder / PROVENANCE_FILE).read_text()
