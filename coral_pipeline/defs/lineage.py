"""What each partition was made from, and whether it is still what would be made now.

Every materialization is tagged with the version of its inputs and that of the method (code and settings).
The same versions, computed anew from the files and settings of the moment, tell whether it is current.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pyarrow as pa

from coral_pipeline import provenance
from coral_pipeline.defs import versions
from coral_pipeline.defs.folders import PER_ROOT, Folders
from coral_pipeline.defs.latest import latest_tags
from coral_pipeline.defs.partitions import RootKey
from coral_pipeline.errors import BadInput, Changed
from coral_pipeline.provenance import Input, Provenance
from coral_pipeline.search.root_folder import read_root
from coral_pipeline.settings import PipelineSettings
from coral_pipeline.storage import Describe
from coral_pipeline.student_run.copying import TASK_FOLDER
from coral_pipeline.student_run.layout import TASK_FILE
from coral_pipeline.tables import SELECTED_ROOTS, TABLES

INPUTS, METHOD = "coral_pipeline/inputs", "coral_pipeline/method"
"""Tags of a materialization."""
BEFORE = {
    "filtered_snapshots": (),
    "stage_labels": ("filtered_snapshots",),
    "selected_roots": ("filtered_snapshots", "stage_labels"),
    "explored_trees": (),
    "ranked_paths": ("explored_trees",),
    "advantage_batches": ("explored_trees", "ranked_paths"),
    "sft_dataset": ("selected_roots",),
}
"""Assets whose partition of the same key an asset is made from."""


@dataclass(frozen=True)
class Lineage:
    """Versions as of now."""

    folders: Folders
    settings: PipelineSettings

    def content(self, asset: str, key: RootKey | str) -> str:
        """Version of what the tables of the partition hold."""
        folder = self.folders.fetch(asset, str(key))
        made = provenance.read(folder)
        if made and not any(provenance.changes(made, folder)):
            return made.version
        return versions.folder_version(TABLES[asset], folder)

    def describing(self, asset: str, key: str, run_id: str, roots: Iterable[RootKey] = ()) -> Describe:
        """Gives the provenance of what is made from now on; ``roots``: those that a dataset is made of.

        What is given raises ``BadInput`` where the inputs are no longer those of now.
        """
        roots = tuple(roots)
        inputs, seals = tuple(self._made_from(asset, key, roots)), tuple(self._seals(asset, key, roots))

        def describe(folder: Path) -> Provenance:
            self._require_unchanged(inputs, tuple(self._made_from(asset, key, roots)))
            if seals != tuple(self._seals(asset, key, roots)):
                raise Changed(key, f"something that {asset} is made from was made anew meanwhile")
            return Provenance(
                asset=asset,
                partition=key,
                code=versions.CODE[asset],
                settings=versions.settings_recorded(asset, self.settings),
                inputs=inputs,
                version=versions.folder_version(TABLES[asset], folder),
                folders=self._copied(folder) if asset == SELECTED_ROOTS.name else {},
                run_id=run_id,
                made_at=dt.datetime.now(dt.UTC),
                software=provenance.software(),
            )

        return describe

    @staticmethod
    def _require_unchanged(inputs: Sequence[Input], now: Sequence[Input]) -> None:
        for before, after in zip(inputs, now, strict=True):
            if before != after:
                raise Changed(f"{before.asset} of {before.partition}", "changed meanwhile")

    def _seals(self, asset: str, key: str, roots: Iterable[RootKey]) -> Iterator[str | None]:
        """Which making of each input it is: the same contents may have come and gone while they were read."""
        partitions = [(before, key) for before in BEFORE[asset]]
        for partition in (*partitions, *((before, str(root)) for root in roots for before in PER_ROOT)):
            made = self.folders.storage.provenance(*partition)
            yield made.seal if made else None

    def _made_from(self, asset: str, key: str, roots: Iterable[RootKey]) -> Iterator[Input]:
        if asset == "filtered_snapshots":
            task = provenance.checksum(self.folders.student_run(key) / TASK_FILE)
            yield Input(asset="student_run", partition=key, version=task.sha256)
        if asset == "explored_trees":
            yield Input(asset="selected_roots", partition=key, version=self._root_version(RootKey.parse(key)))
        for before in BEFORE[asset]:
            yield Input(asset=before, partition=key, version=self.content(before, key))
        for root in roots:
            for before in PER_ROOT:
                yield Input(asset=before, partition=str(root), version=self.content(before, root))

    @staticmethod
    def _copied(folder: Path) -> dict[str, str]:
        roots = (row["root"] for row in SELECTED_ROOTS.rows(folder))
        copied = {root: versions.root_version(read_root(folder / root)) for root in roots}
        return copied | {TASK_FOLDER: versions.task_version(folder / TASK_FOLDER)}

    def _root_version(self, key: RootKey) -> str:
        return versions.root_version(read_root(self.folders.root(key)))

    def tags(self, asset: str, key: RootKey) -> dict[str, str]:
        """What a materialization made now would be made from."""
        method = versions.method_version(asset, versions.settings_used(asset, self.settings))
        return {INPUTS: self._inputs(asset, key), METHOD: method}

    def stale(self, key: RootKey, instance: dg.DagsterInstance) -> tuple[str, ...]:
        """The root's assets that are not what would be made now, and all that are made from them."""
        for place, asset in enumerate(PER_ROOT):
            made = _latest_tags(asset, key, instance)
            if not (self._is_intact(asset, key, made) and self.tags(asset, key).items() <= made.items()):
                return PER_ROOT[place:]
        return ()

    def is_current(self, asset: str, key: RootKey) -> bool:
        """Whether the partition is, to the byte, what its own provenance says, and would be made so again."""
        try:
            folder = self.folders.fetch(asset, str(key))
            made = provenance.read(folder)
            if made is None or any(provenance.changes(made, folder)):
                return False
            method = (versions.CODE[asset], provenance.deciding(versions.settings_recorded(asset, self.settings)))
            if (made.code, provenance.deciding(made.settings)) != method:
                return False
            return made.inputs == tuple(self._made_from(asset, str(key), ()))
        except BadInput:
            return False

    def whole(self, keys: Sequence[RootKey], instance: dg.DagsterInstance) -> list[RootKey]:
        """The roots whose ranked paths and advantages are those of the tree that is there, whatever the settings were.

        A few questions to Dagster for all of them.
        """
        made = {asset: latest_tags(asset, list(map(str, keys)), instance) for asset in PER_ROOT}
        return [key for key in keys if all(self._is_whole(asset, key, made[asset].get(str(key), {})) for asset in made)]

    def _is_whole(self, asset: str, key: RootKey, made: Mapping[str, str]) -> bool:
        is_intact = self._is_intact(asset, key, made)
        return is_intact and (asset == PER_ROOT[0] or made[INPUTS] == self._inputs(asset, key))

    def is_damaged(self, asset: str, key: RootKey, instance: dg.DagsterInstance) -> bool:
        """Whether the partition was made, but its tables are no longer as they were then."""
        made = _latest_tags(asset, key, instance)
        return bool(made) and not self._is_intact(asset, key, made)

    def _inputs(self, asset: str, key: RootKey) -> str:
        if asset == PER_ROOT[0]:
            return self._root_version(key)
        before = PER_ROOT[: PER_ROOT.index(asset)]
        return versions.combined(*(self.content(earlier, key) for earlier in before))

    def _is_intact(self, asset: str, key: RootKey, made: Mapping[str, str]) -> bool:
        """Whether the partition was made and its tables are as they were then."""
        try:
            return INPUTS in made and made[versions.DATA_VERSION_TAG] == self.content(asset, key)
        except (OSError, pa.ArrowException, BadInput):
            return False


def _latest_tags(asset: str, key: RootKey, instance: dg.DagsterInstance) -> Mapping[str, str]:
    """Tags of the partition's latest materialization; none where it was never made."""
    return latest_tags(asset, [str(key)], instance).get(str(key), {})
