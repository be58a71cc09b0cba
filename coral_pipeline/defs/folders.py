"""Where things lie: Student runs in, one folder per asset and partition out."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path

import dagster as dg
from pydantic import Field

from coral_pipeline.defs.partitions import RootKey
from coral_pipeline.export.layout import RootFolders
from coral_pipeline.storage import Describe, Storage, open_storage
from coral_pipeline.student_run.copying import TASK_FOLDER
from coral_pipeline.tables import PER_ROOT as PER_ROOT
from coral_pipeline.tables import SELECTED_ROOTS

TREES = PER_ROOT[0]


class Folders(dg.ConfigurableResource):  # type: ignore[type-arg]  # yields itself
    """Input and output folders. Absolute, so that every process of a deployment means the same ones.

    An asset reads a partition in the folder that ``fetch`` gives, and writes it in the one of ``writing``; neither
    need be the place where others find it.
    """

    output: str = Field(
        description="Folder or URL (s3://bucket/prefix …) under which every asset writes:"
        " OUTPUT/<asset>/<student_run>[/<root>]"
    )
    student_runs: str = Field(description="Folder that holds the Student runs, one folder each")

    @property
    def storage(self) -> Storage:
        """What lies under ``output``."""
        return open_storage(self.output)

    def student_run(self, key: str) -> Path:
        """Folder of a Student run."""
        return Path(self.student_runs) / key

    def address(self, asset: str, partition_key: str) -> str:
        """Where an asset's partition lies, for people."""
        return self.storage.address(asset, partition_key)

    def asset(self, asset: str, partition_key: str) -> Path:
        """The folder of this machine in which an asset's partition grows; where ``output`` is a folder, its own."""
        return self.storage.place(asset, partition_key)

    def root(self, key: RootKey) -> Path:
        """The copied folder of a root, to be read, the task's beside it. Raises as ``fetch`` does."""
        return self.storage.fetch(SELECTED_ROOTS.name, key.student_run, key.root, TASK_FOLDER) / key.root

    def of_root(self, key: RootKey, stage: str | None = None) -> RootFolders:
        """The folders of what was made from a root; ``stage``: the root's own. Raises as ``fetch`` does."""
        return RootFolders.fetched(self.fetch, str(key), stage)

    def fetch(self, asset: str, partition_key: str) -> Path:
        """A folder of this machine that holds what the partition holds, to be read.

        Raises ``BadInput`` and ``OSError`` where ``output`` is a URL and the partition cannot be had from there.
        """
        return self.storage.fetch(asset, partition_key)

    def writing(self, asset: str, partition_key: str, describe: Describe) -> AbstractContextManager[Path]:
        """An empty folder to write the partition in; when the block ends well it replaces the earlier one."""
        return self.storage.writing(asset, partition_key, describe)

    def seal(self, asset: str, partition_key: str, describe: Describe, files: Iterable[str]) -> None:
        """Make ``files``, which were written in the folder of ``asset``, the partition."""
        self.storage.seal(asset, partition_key, describe, files)
