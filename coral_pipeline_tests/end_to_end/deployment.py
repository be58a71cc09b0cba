"""A deployment as people run it: its folders, its settings, `dagster dev`, and Student runs that are copied into it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from coral_pipeline import tables
from coral_pipeline_tests.conftest import DATA
from coral_pipeline_tests.end_to_end.webserver import Dagster, dagster_dev

TOUR = DATA / "student_runs" / "tour"
PER_ROOT = ("explored_trees", "ranked_paths", "advantage_batches")
SETTINGS: dict[str, Any] = {
    "selection": {"num_roots": 3},
    "search": {"root_children": 2, "max_depth": 2, "max_logical_edges": 4, "parallel_width": 2},
    "retry": {"attempts": 2, "first_delay_seconds": 0.1},
    "trees_at_once": 2,
    "automation": {
        "on_from_the_start": True,
        "seconds_between_looks": 3,
        "quiet_seconds": 2,
        "cron": "* * * * *",
        "roots_per_night": 1,
        "seconds_before_retry": [0.5],
    },
}
COPIED = ("backfilled", "killed", "cancelled", "nightly")
"""Student runs that lie in a deployment from the start."""
PAUSED = ("arriving", *COPIED)
"""Student runs of which the schedule, which ticks every minute, begins nothing unless a test says so."""


def wait_until(condition: Callable[[], bool]) -> None:
    """Look again and again; pytest's own limit ends what never comes."""
    while not condition():
        time.sleep(0.5)


def copied(name: str, student_runs: Path, snapshots: int = 12) -> Path:
    """The first snapshots of the bundled Student run, arriving under another name at once."""
    every = sorted((TOUR / "all_snapshots").iterdir())
    left_out = {path.name for path in every[snapshots:]}
    hidden = student_runs / f".{name}"
    shutil.copytree(TOUR, hidden, ignore=lambda folder, names: left_out.intersection(names))
    return hidden.rename(student_runs / name)


@dataclass(frozen=True)
class Deployment:
    """Everything of it, and what its Dagster says."""

    folder: Path
    dagster: Dagster
    environment: dict[str, str]

    @property
    def student_runs(self) -> Path:
        return self.folder / "student_runs"

    @property
    def output(self) -> Path:
        return self.folder / "output"

    def tree(self, key: str) -> Path:
        return self.output / "explored_trees" / Path(*key.split("|"))

    def turns(self, key: str) -> int:
        """Finished turns of the root's tree."""
        journal = self.tree(key) / "work" / "journal.jsonl"
        return journal.read_text().count('"kind":"turn"') if journal.exists() else 0

    def is_done(self, key: str) -> bool:
        """Whether the root's tree, paths and advantages are made, and the run that made them has ended."""
        return all(self.versions(asset, key) for asset in PER_ROOT) and not self.unfinished(key)

    def chosen(self, name: str) -> list[str]:
        """The roots of a Student run, the oldest first, once the sensor has seen to them."""
        wait_until(lambda: len(self.roots(name)) == SETTINGS["selection"]["num_roots"] and not self.unfinished(name))
        return self.roots(name)

    def roots(self, name: str) -> list[str]:
        keys = self._partitions("explored_trees")
        return sorted(key for key in keys if key.startswith(f"{name}|"))

    def runs(self, prefix: str) -> list[dict[str, Any]]:
        """Runs of partitions whose key begins so, the latest first: runId, status, times, tags by key, assets."""
        query = (
            "{runsOrError {... on Runs {results "
            "{runId status startTime endTime tags {key value} assets {key {path}}}}}}"
        )
        runs = self.dagster.ask(query)["runsOrError"]["results"]
        for run in runs:
            run["tags"] = {tag["key"]: tag["value"] for tag in run["tags"]}
            run["assets"] = {asset["key"]["path"][-1] for asset in run["assets"]}
        return [run for run in runs if run["tags"].get("dagster/partition", "").startswith(prefix)]

    def unfinished(self, prefix: str) -> list[dict[str, Any]]:
        return [run for run in self.runs(prefix) if run["status"] not in ("SUCCESS", "FAILURE", "CANCELED")]

    def backfill(self, assets: Sequence[str], partitions: Sequence[str]) -> str:
        """Launch a backfill as the UI does; returns its id."""
        query = (
            "mutation($p: LaunchBackfillParams!) {launchPartitionBackfill(backfillParams: $p) "
            "{__typename ... on LaunchBackfillSuccess {backfillId} ... on PythonError {message}}}"
        )
        parameters = {"assetSelection": [{"path": [a]} for a in assets], "partitionNames": list(partitions)}
        answer = self.dagster.ask(query, p=parameters)["launchPartitionBackfill"]
        assert answer["__typename"] == "LaunchBackfillSuccess", answer
        return str(answer["backfillId"])

    def backfill_status(self, backfill: str) -> str:
        query = "query($b: String!) {partitionBackfillOrError(backfillId: $b) {... on PartitionBackfill {status}}}"
        return str(self.dagster.ask(query, b=backfill)["partitionBackfillOrError"]["status"])

    def cancel(self, backfill: str) -> None:
        query = "mutation($b: String!) {cancelPartitionBackfill(backfillId: $b) {__typename}}"
        self.dagster.ask(query, b=backfill)

    def stale_statuses(self, partition: str) -> dict[str, str]:
        """By asset; None where the partition was never made."""
        query = "query($p: String!) {assetNodes {assetKey {path} staleStatus(partition: $p)}}"
        nodes = self.dagster.ask(query, p=partition)["assetNodes"]
        return {node["assetKey"]["path"][-1]: node["staleStatus"] for node in nodes}

    def versions(self, asset: str, partition: str) -> list[str]:
        """Data versions of the partition's materializations, the latest first."""
        query = (
            "query($a: AssetKeyInput!, $p: [String!]) {assetNodeOrError(assetKey: $a) {... on AssetNode "
            "{assetMaterializations(partitions: $p) {tags {key value}}}}}"
        )
        made = self.dagster.ask(query, a={"path": [asset]}, p=[partition])["assetNodeOrError"]["assetMaterializations"]
        return [tag["value"] for one in made for tag in one["tags"] if tag["key"] == "dagster/data_version"]

    def ticks(self, sensor: str) -> int:
        """How often the sensor has looked, as far as its history tells."""
        return len(self._ticks(sensor))

    def skip_reasons(self, sensor: str) -> str:
        return "\n".join(tick["skipReason"] or "" for tick in self._ticks(sensor))

    def set(self, **automation: Any) -> None:
        """Change the settings file under the running deployment."""
        changed = SETTINGS | {"automation": SETTINGS["automation"] | automation}
        write_settings(self.folder / "settings.yaml", changed)

    def _ticks(self, sensor: str) -> list[dict[str, Any]]:
        query = (
            "query($s: SensorSelector!) {sensorOrError(sensorSelector: $s) {... on Sensor "
            "{sensorState {ticks(limit: 100) {status skipReason}}}}}"
        )
        selector = {
            "repositoryLocationName": "coral_pipeline",
            "repositoryName": "__repository__",
            "sensorName": sensor,
        }
        ticks = self.dagster.ask(query, s=selector)["sensorOrError"]["sensorState"]["ticks"]
        return [tick for tick in ticks if tick["status"] in ("SKIPPED", "SUCCESS")]

    def _partitions(self, asset: str) -> list[str]:
        query = "query($a: AssetKeyInput!) {assetNodeOrError(assetKey: $a) {... on AssetNode {partitionKeys}}}"
        return list(self.dagster.ask(query, a={"path": [asset]})["assetNodeOrError"]["partitionKeys"])


def write_settings(path: Path, settings: dict[str, Any]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(yaml.safe_dump(settings))
    partial.replace(path)


def paused(names: Iterable[str]) -> dict[str, Any]:
    return {name: {"paused": True} for name in names}


@contextmanager
def deployed(folder: Path) -> Iterator[Deployment]:
    """A deployment in ``folder`` whose `dagster dev` runs for the length of the block."""
    for name in ("student_runs", "output", "home"):
        (folder / name).mkdir()
    for name in COPIED:
        copied(name, folder / "student_runs")
    configuration = files("coral_pipeline.defs").joinpath("dagster.yaml").read_text()
    (folder / "home" / "dagster.yaml").write_text(configuration)
    automation = SETTINGS["automation"] | {"student_runs": paused(PAUSED)}
    write_settings(folder / "settings.yaml", SETTINGS | {"automation": automation})
    variables = {
        "DAGSTER_HOME": str(folder / "home"),
        "CORAL_PIPELINE_OUTPUT": str(folder / "output"),
        "CORAL_PIPELINE_STUDENT_RUNS": str(folder / "student_runs"),
        "CORAL_PIPELINE_SETTINGS": str(folder / "settings.yaml"),
    }
    environment = dict(os.environ) | variables
    with dagster_dev(environment, folder / "dagster.log") as dagster:
        yield Deployment(folder, dagster, environment)


def trees_are_equal(one: Path, other: Path) -> bool:
    """Whether two trees have the same nodes, edges and rounds (their times apart)."""
    names = [column.name for column in tables.EDGES.columns if column.name != "seconds"]
    return (
        tables.NODES.read(one)
        .drop_columns(["session_id"])
        .equals(tables.NODES.read(other).drop_columns(["session_id"]))
        and tables.EDGES.read(one).select(names).equals(tables.EDGES.read(other).select(names))
        and tables.ROUNDS.read(one).equals(tables.ROUNDS.read(other))
    )
