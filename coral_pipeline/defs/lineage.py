"""What each partition of a root was made from, and whether it is still what would be made now.

Every materialization is tagged with the version of its inputs and that of the method (code and settings).
The same versions, computed anew from the files and settings of the moment, tell whether it is current.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import dagster as dg

from coral_pipeline.defs import versions
from coral_pipeline.defs.folders import PER_ROOT, Folders
from coral_pipeline.defs.growing import Plot
from coral_pipeline.defs.partitions import RootKey
from coral_pipeline.settings import PipelineSettings
from coral_pipeline.tables import TABLES

INPUTS, METHOD = "coral_pipeline/inputs", "coral_pipeline/method"
"""Tags of a materialization."""


@dataclass(frozen=True)
class Lineage:
    """Versions as of now."""

    folders: Folders
    settings: PipelineSettings

    def content(self, asset: str, key: RootKey) -> str:
        """Version of what the partition holds."""
        return versions.folder_version(TABLES[asset], self.folders.asset(asset, str(key)))

    def tags(self, asset: str, key: RootKey) -> dict[str, str]:
        """What a materialization made now would be made from."""
        if asset == PER_ROOT[0]:
            plot = Plot.of(self.folders, self.settings, key)
            return {INPUTS: plot.root_version, METHOD: versions.method_version(asset, plot.identity)}
        used = versions.settings_used(asset, self.settings)
        return {INPUTS: self._inputs(asset, key), METHOD: versions.method_version(asset, used)}

    def is_current(self, key: RootKey, instance: dg.DagsterInstance) -> bool:
        """Whether the root need not be run again: every asset is what would be made now."""
        return all(
            self._is_intact(asset, key, made := latest_tags(asset, key, instance))
            and self.tags(asset, key).items() <= made.items()
            for asset in PER_ROOT
        )

    def is_whole(self, key: RootKey, instance: dg.DagsterInstance) -> bool:
        """Whether ranked paths and advantages are those of the tree that is there, whatever the settings were."""
        return all(
            self._is_intact(asset, key, made := latest_tags(asset, key, instance))
            and (asset == PER_ROOT[0] or made[INPUTS] == self._inputs(asset, key))
            for asset in PER_ROOT
        )

    def _inputs(self, asset: str, key: RootKey) -> str:
        before = PER_ROOT[: PER_ROOT.index(asset)]
        return versions.combined(*(self.content(earlier, key) for earlier in before))

    def _is_intact(self, asset: str, key: RootKey, made: Mapping[str, str]) -> bool:
        """Whether the partition was made and its tables are as they were then."""
        folder = self.folders.asset(asset, str(key))
        there = all((folder / table.file_name).is_file() for table in TABLES[asset])
        return INPUTS in made and there and made[versions.DATA_VERSION_TAG] == self.content(asset, key)


def latest_tags(asset: str, key: RootKey, instance: dg.DagsterInstance) -> Mapping[str, str]:
    """Tags of the partition's latest materialization; none where it was never made."""
    wanted = dg.AssetRecordsFilter(dg.AssetKey(asset), asset_partitions=[str(key)])
    records = instance.fetch_materializations(wanted, limit=1).records
    made = records[0].asset_materialization if records else None
    return (made.tags if made else None) or {}
