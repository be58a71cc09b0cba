"""What each partition was made from, and whether it is still what would be made now.

Every materialization is tagged with the version of its inputs and that of the method (code and settings).
The same versions, computed anew from the files and settings of the moment, tell whether it is current.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dagster as dg

from coral_pipeline import content, provenance
from coral_pipeline.defs import versions
from coral_pipeline.defs.folders import PER_ROOT, TREES, Folders
from coral_pipeline.defs.latest import latest_tags
from coral_pipeline.defs.partitions import RootKey
from coral_pipeline.errors import BadInput, Changed, is_unread
from coral_pipeline.provenance import Input, Provenance
from coral_pipeline.search.root_folder import read_root
from coral_pipeline.settings import PipelineSettings
from coral_pipeline.storage import SEPARATOR
from coral_pipeline.storage.interface import is_same_making
from coral_pipeline.student_run.copying import TASK_FOLDER
from coral_pipeline.student_run.layout import TASK_FILE
from coral_pipeline.tables import SELECTED_ROOTS, TABLES

INPUTS, METHOD = "coral_pipeline/inputs", "coral_pipeline/method"
"""Tags of a materialization."""
BEFORE = {
    "filtered_snapshots": ("student_run",),
    "stage_labels": ("filtered_snapshots",),
    "selected_roots": ("filtered_snapshots", "stage_labels"),
    "explored_trees": ("selected_roots",),
    "ranked_paths": ("explored_trees",),
    "advantage_batches": ("explored_trees", "ranked_paths"),
    "sft_dataset": ("selected_roots",),
}
"""Assets whose partition of the same key an asset is made from; a root's, in selected_roots, is its copied folder."""


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
        return content.folder_version(TABLES[asset], folder)

    def seal(self, asset: str, key: str) -> str | None:
        """Which making of the partition lies there: the same contents may come and go while they are read."""
        made = self.folders.storage.provenance(asset, key)
        return made.seal if made else None

    def making(self, asset: str, key: RootKey | str, run_id: str) -> Making:
        """The partition, about to be made from what lies there now and is read after this."""
        inputs = dict(self.now(before, str(key)) for before in BEFORE[asset])
        return Making(self, asset, str(key), run_id, inputs)

    def now(self, asset: str, key: str) -> tuple[Input, str | None]:
        """The partition as something is made from it now, and its seal where it has one of its own."""
        seal = None
        if asset == "student_run":
            version = provenance.checksum(self.folders.student_run(key) / TASK_FILE).sha256
        elif asset == SELECTED_ROOTS.name and SEPARATOR in key:
            version = self._root_version(RootKey.parse(key))
        else:
            seal, version = self.seal(asset, key), self.content(asset, key)
        return Input(asset=asset, partition=key, version=version), seal

    def tags(self, asset: str, inputs: Sequence[str]) -> dict[str, str]:
        """Of a root's materialization, made from inputs of these versions."""
        method = versions.method_version(asset, versions.settings_used(asset, self.settings))
        return {INPUTS: inputs[0] if asset == TREES else content.combined(*inputs), METHOD: method}

    def stale(self, key: RootKey, instance: dg.DagsterInstance) -> tuple[str, ...]:
        """The root's assets that are not what would be made now, and all that are made from them."""
        before: list[str] = []
        for place, asset in enumerate(PER_ROOT):
            made = _latest_tags(asset, key, instance)
            if not self._is_intact(asset, key, made):
                return PER_ROOT[place:]
            if not self.tags(asset, before or [self._root_version(key)]).items() <= made.items():
                return PER_ROOT[place:]
            before.append(made[versions.DATA_VERSION_TAG])
        return ()

    def whole(self, keys: Sequence[RootKey], instance: dg.DagsterInstance) -> dict[RootKey, tuple[Input, ...]]:
        """Of each root whose ranked paths and advantages are those of the tree that is there: all three.

        Whatever the settings were. A few questions to Dagster for all of them.
        """
        made = {asset: latest_tags(asset, list(map(str, keys)), instance) for asset in PER_ROOT}
        found = {key: self._whole(key, {asset: made[asset].get(str(key), {}) for asset in made}) for key in keys}
        return {key: inputs for key, inputs in found.items() if inputs}

    def _whole(self, key: RootKey, made: Mapping[str, Mapping[str, str]]) -> tuple[Input, ...]:
        """``made``: tags by asset. Empty where the root is not whole."""
        inputs: list[Input] = []
        for asset, tags in made.items():
            if not self._is_intact(asset, key, tags):
                return ()
            if inputs and tags[INPUTS] != content.combined(*(one.version for one in inputs)):
                return ()
            inputs.append(Input(asset=asset, partition=str(key), version=tags[versions.DATA_VERSION_TAG]))
        return tuple(inputs)

    def is_damaged(self, asset: str, key: RootKey, instance: dg.DagsterInstance) -> bool:
        """Whether the partition was made, but its tables are no longer as they were then."""
        made = _latest_tags(asset, key, instance)
        return bool(made) and not self._is_intact(asset, key, made)

    def _is_intact(self, asset: str, key: RootKey, made: Mapping[str, str]) -> bool:
        """Whether the partition was made and its tables are as they were then."""
        try:
            return INPUTS in made and made[versions.DATA_VERSION_TAG] == self.content(asset, key)
        except (OSError, BadInput) as error:
            if is_unread(error):
                raise
            return False

    def _root_version(self, key: RootKey) -> str:
        return content.root_version(read_root(self.folders.root(key)))


@dataclass(frozen=True)
class Making:
    """A partition that is about to be made."""

    lineage: Lineage
    asset: str
    key: str
    run_id: str
    inputs: Mapping[Input, str | None]
    """What it is made from, each with its seal."""

    def also_from(self, inputs: Iterable[Input]) -> Making:
        """The same, made from these partitions too, which were of these versions just now and are read after this."""
        sealed = {one: self.lineage.seal(one.asset, one.partition) for one in inputs}
        return replace(self, inputs={**self.inputs, **sealed})

    @property
    def tags(self) -> dict[str, str]:
        """Of the materialization of a root's partition."""
        return self.lineage.tags(self.asset, [one.version for one in self.inputs])

    @property
    def is_done(self) -> bool:
        """Whether it is there already: to the byte what its own provenance says, and made in the same way."""
        try:
            folder = self.lineage.folders.fetch(self.asset, self.key)
            made = provenance.read(folder)
            return made is not None and is_same_making(made, self._plan()) and not any(provenance.changes(made, folder))
        except BadInput as error:
            if is_unread(error):
                raise
            return False

    def describe(self, folder: Path) -> Provenance:
        """What stands behind the tables in ``folder``. Raises ``BadInput`` where the inputs are no longer the same."""
        for one, seal in self.inputs.items():
            if self.lineage.now(one.asset, one.partition) != (one, seal):
                raise Changed(f"{one.asset} of {one.partition}", "changed meanwhile")
        return self._plan(
            version=content.folder_version(TABLES[self.asset], folder),
            folders=_copied(folder) if self.asset == SELECTED_ROOTS.name else {},
        )

    def _plan(self, **made: Any) -> Provenance:
        return Provenance(
            asset=self.asset,
            partition=self.key,
            code=versions.CODE[self.asset],
            settings=versions.settings_recorded(self.asset, self.lineage.settings),
            inputs=tuple(self.inputs),
            run_id=self.run_id,
            made_at=dt.datetime.now(dt.UTC),
            software=provenance.software(),
            **made,
        )


def _copied(folder: Path) -> dict[str, str]:
    """Versions of the copied folders that lie with a table of selected roots."""
    roots = (row["root"] for row in SELECTED_ROOTS.rows(folder))
    copied = {root: content.root_version(read_root(folder / root)) for root in roots}
    return copied | {TASK_FOLDER: content.task_version(folder / TASK_FOLDER)}


def _latest_tags(asset: str, key: RootKey, instance: dg.DagsterInstance) -> Mapping[str, str]:
    """Tags of the partition's latest materialization; none where it was never made."""
    return latest_tags(asset, [str(key)], instance).get(str(key), {})
