"""Beyond one machine: output on S3, events in Postgres, every run a process of its own that shares nothing else.

Each process has a scratch folder of its own, as if it were on a machine of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
import pytest
import yaml

from coral_pipeline import defs, provenance, tables
from coral_pipeline.defs.folders import PER_ROOT
from coral_pipeline.defs.instance import CONFIGURATION
from coral_pipeline.storage import Storage, open_storage
from coral_pipeline_tests.end_to_end.conftest import SMALL, TOUR, Finished
from coral_pipeline_tests.end_to_end.servers import BUCKET, LOGS, postgres, s3

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TO_ROOTS = ("filtered_snapshots", "stage_labels", "selected_roots")
RUN = TOUR.name
OF_THE_CLOCK = ("seconds", "created_ms", "completed_ms")
INSTANCE = Path(defs.__file__ or "").with_name("dagster_postgres.yaml")


@dataclass
class Cluster:
    """Postgres, an S3 server, and run workers."""

    folder: Path
    servers: dict[str, str]
    workers: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def output(self) -> str:
        return f"s3://{BUCKET}/experiments/first"

    @property
    def objects(self) -> Path:
        """Where the server keeps the objects below ``output``."""
        return self.folder / "objects" / BUCKET / "experiments" / "first"

    @property
    def environment(self) -> dict[str, str]:
        return self.servers | {
            "DAGSTER_HOME": str(self.folder / "home"),
            "CORAL_PIPELINE_OUTPUT": self.output,
            "CORAL_PIPELINE_STUDENT_RUNS": str(TOUR.parent),
            "CORAL_PIPELINE_SETTINGS": str(self.folder / "settings.yaml"),
            "CORAL_PIPELINE_LOGS_BUCKET": LOGS,
            "CORAL_PIPELINE_LOGS_PREFIX": "printed",
        }

    def start(self, assets: tuple[str, ...], partition: str, program: str = "dagster") -> subprocess.Popen[str]:
        """A run worker, on a machine that has seen nothing of what was made so far."""
        scratch = {"CORAL_PIPELINE_SCRATCH": str(self.folder / f"machine-{len(self.workers)}")}
        what = ("--select", ",".join(assets), "--partition", partition, "-m", "coral_pipeline.definitions")
        worker = subprocess.Popen(
            [sys.executable, "-m", program, "asset", "materialize", *what],
            env=os.environ | self.environment | scratch,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.workers.append(worker)
        return worker

    def storage(self) -> Storage:
        return open_storage(self.output)

    def instance(self) -> dg.DagsterInstance:
        return dg.DagsterInstance.from_config(str(self.folder / "home"))


def require_success(*workers: subprocess.Popen[str]) -> None:
    for worker in workers:
        said, _ = worker.communicate()
        assert worker.returncode == 0, said


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "home").mkdir()
    shutil.copyfile(INSTANCE, folder / "home" / CONFIGURATION)
    (folder / "settings.yaml").write_text(yaml.safe_dump(SMALL | {"selection": {"num_roots": 2}}))
    with postgres() as database, s3(folder / "objects") as store, pytest.MonkeyPatch.context() as patch:
        cluster = Cluster(folder, database | store)
        for name, value in cluster.environment.items():
            patch.setenv(name, value)
        patch.setenv("CORAL_PIPELINE_SCRATCH", str(folder / "ours"))
        try:
            yield cluster
        finally:
            for worker in cluster.workers:
                worker.kill()


@pytest.fixture(scope="module")
def roots(cluster: Cluster) -> list[str]:
    """Partition keys of the roots, of which everything is made by workers, two at once, some of them killed."""
    with cluster.instance() as instance:
        instance.add_dynamic_partitions("student_runs", [RUN])
        require_success(cluster.start(TO_ROOTS, RUN))
        first, second = sorted(instance.get_dynamic_partitions("roots"))
        killed = cluster.start(PER_ROOT[:1], first, "coral_pipeline_tests.end_to_end.killed_worker")
        require_success(cluster.start(PER_ROOT, second))
        killed.communicate()
        assert killed.returncode == -9
        assert cluster.storage().provenance("explored_trees", first) is None
        assert (cluster.objects / "explored_trees" / first.replace("|", "/")).exists(), (
            "files, but nothing points at them"
        )
        require_success(cluster.start(PER_ROOT, first), cluster.start(PER_ROOT, first))
        require_success(cluster.start(("sft_dataset",), RUN))
    return [first, second]


def test_every_partition_is_on_the_store_and_is_what_its_provenance_says(cluster: Cluster, roots: list[str]) -> None:
    storage = cluster.storage()
    for asset in tables.TABLES:
        expected = roots if asset in PER_ROOT else [RUN]
        assert storage.partitions(asset) == expected
        for partition in expected:
            folder, made = storage.fetch(asset, partition), storage.provenance(asset, partition)
            assert made is not None and not list(provenance.changes(made, folder))


def test_its_tables_are_those_of_a_run_on_one_disk(cluster: Cluster, roots: list[str], bundled: Finished) -> None:
    assert bundled.ended.code == 0, bundled.ended.err
    storage = cluster.storage()
    for asset, declared in tables.TABLES.items():
        for partition in roots if asset in PER_ROOT else [RUN]:
            there, here = storage.fetch(asset, partition), bundled.out.joinpath(asset, *partition.split("|"))
            for table in declared:
                columns = [column.name for column in table.columns if column.name not in OF_THE_CLOCK]
                found, expected = (table.read(folder).select(columns) for folder in (there, here))
                assert found.equals(expected), f"{asset}/{table.name}"
    samples = [(folder / "sft.jsonl").read_text() for folder in (storage.fetch("sft_dataset", RUN),)]
    assert len(samples[0].splitlines()) == tables.SFT_SAMPLES.read(bundled.out / "sft_dataset" / RUN).num_rows


def test_copied_roots_are_one_object_each_and_unpacked_as_they_were(
    cluster: Cluster, roots: list[str], bundled: Finished
) -> None:
    for key in roots:
        root = key.partition("|")[2]
        objects = cluster.objects / "selected_roots" / RUN / root
        assert [path.suffix for path in objects.rglob("*") if path.is_file()] == [".tar"]
        copy, original = cluster.storage().fetch("selected_roots", RUN, root) / root, bundled.out / "selected_roots"
        names = set(provenance.files_below(copy))
        assert names == set(provenance.files_below(original / RUN / root))
        assert all((copy / name).read_bytes() == (original / RUN / root / name).read_bytes() for name in names)


def test_events_are_in_postgres(cluster: Cluster, roots: list[str]) -> None:
    with cluster.instance() as instance:
        assert type(instance.event_log_storage).__module__.startswith("dagster_postgres")
        for key in roots:
            wanted = dg.AssetRecordsFilter(dg.AssetKey("explored_trees"), asset_partitions=[key])
            (newest, *_) = instance.fetch_materializations(wanted, limit=5).records
            assert newest.asset_materialization is not None
            folder = newest.asset_materialization.metadata["folder"].value
            assert folder == f"{cluster.output}/explored_trees/{key.replace('|', '/')}"
    assert not (cluster.folder / "home" / "history").exists()


def test_what_steps_print_is_in_the_bucket(cluster: Cluster) -> None:
    code = (
        "import dagster as dg\n"
        "with dg.DagsterInstance.get() as instance:\n"
        "    with instance.compute_log_manager.capture_logs(['run', 'compute_logs', 'step']):\n"
        "        print('printed by a step')\n"
    )
    subprocess.run([sys.executable, "-c", code], env=os.environ | cluster.environment, check=True)
    (printed,) = (cluster.folder / "objects" / LOGS / "printed").rglob("*.out")
    assert printed.read_text() == "printed by a step\n"


def test_the_instance_on_postgres_is_otherwise_the_one_on_one_machine() -> None:
    alone, together = (yaml.safe_load(INSTANCE.with_name(name).read_text()) for name in (CONFIGURATION, INSTANCE.name))
    assert {key: value for key, value in together.items() if key not in ("storage", "compute_logs")} == alone
    assert json.dumps(together["storage"]).count("CORAL_PIPELINE_POSTGRES_") == 5
