"""Where things lie: Student runs in, one folder per asset and partition out."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
from pydantic import Field

from coral_pipeline.defs.partitions import SEPARATOR, RootKey
from coral_pipeline.export.layout import RootFolders

PER_ROOT = ("explored_trees", "ranked_paths", "advantage_batches")
"""Assets of a root, each made from the ones before it; the first from the root's copied folder."""


class Folders(dg.ConfigurableResource):  # type: ignore[type-arg]  # yields itself
    """Input and output folders. Absolute, so that every process of a deployment means the same ones."""

    output: str = Field(description="Folder under which every asset writes: OUTPUT/<asset>/<student_run>[/<root>]")
    student_runs: str = Field(description="Folder that holds the Student runs, one folder each")

    def student_run(self, key: str) -> Path:
        """Folder of a Student run."""
        return Path(self.student_runs) / key

    def asset(self, asset: str, partition_key: str) -> Path:
        """Folder of an asset's partition, of a Student run or of a root."""
        return Path(self.output, asset, *partition_key.split(SEPARATOR))

    def root(self, key: RootKey) -> Path:
        """The copied folder of a root."""
        return self.asset("selected_roots", str(key))

    def of_root(self, key: RootKey, stage: str | None = None) -> RootFolders:
        """The folders of what was made from a root; ``stage``: the root's own."""
        tree, ranked, credit = (self.asset(asset, str(key)) for asset in PER_ROOT)
        return RootFolders(tree, ranked, credit, stage)
