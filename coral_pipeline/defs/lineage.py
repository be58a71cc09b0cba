"""What each partition of a root was made from, and whether it is still what would be made now.

Every materialization is tagged with the version of its inputs and that of the method (code and settings).
The same versions, computed anew from the files and settings of the moment, tell whether it is current.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import dagster as dg
import pyarrow as pa

from coral_pipeline.defs import versions
from coral_pipeline.defs.folders import PER_ROOT, Folders
from coral_pipeline.defs.partitions import RootKey
from coral_pipeline.search.root_folder import read_root
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
        method = versions.method_version(asset, versions.settings_used(asset, self.settings))
        return {INPUTS: self._inputs(asset, key), METHOD: method}

    def stale(self, key: RootKey, instance: dg.DagsterInstance) -> tuple[str, ...]:
        """The root's assets that are not what would be made now, and all that are made from them."""
        for place, asset in enumerate(PER_ROOT):
            made = latest_tags(asset, key, instance)
            if not (self._is_intact(asset, key, made) and self.tags(asset, key).items() <= made.items()):
                return PER_ROOT[place:]
        return ()

    def is_whole(self, key: RootKey, instance: dg.DagsterInstance) -> bool:
        """Whether ranked paths and advantages are those of the tree that is there, whatever the settings were."""
        for asset in PER_ROOT:
            made = latest_tags(asset, key, instance)
            if not self._is_intact(asset, key, made):
                return False
            if asset != PER_ROOT[0] and made[INPUTS] != self._inputs(asset, key):
                return False
        return True

    def is_damaged(self, asset: str, key: RootKey, instance: dg.DagsterInstance) -> bool:
        """Whether the partition was made, but its tables are no longer as they were then."""
        made = latest_tags(asset, key, instance)
        return bool(made) and not self._is_intact(asset, key, made)

    def _inputs(self, asset: str, key: RootKey) -> str:
        if asset == PER_ROOT[0]:
            return versions.root_version(read_root(self.folders.root(key)))
        before = PER_ROOT[: PER_ROOT.index(asset)]
        return versions.combined(*(self.content(earlier, key) for earlier in before))

    def _is_intact(self, asset: str, key: RootKey, made: Mapping[str, str]) -> bool:
        """Whether the partition was made and its tables are as they were then."""
        try:
            return INPUTS in made and made[versions.DATA_VERSION_TAG] == self.content(asset, key)
        except (OSError, pa.ArrowException):
            return False


def latest_tags(asset: str, key: RootKey, instance: dg.DagsterInstance) -> Mapping[str, str]:
    """Tags of the partition's latest materialization; none where it was never made."""
    wanted = dg.AssetRecordsFilter(dg.AssetKey(asset), asset_partitions=[str(key)])
    records = instance.fetch_materializations(wanted, limit=1).records
    made = records[0].asset_materialization if records else None
    return (made.tags if made else None) or {}
