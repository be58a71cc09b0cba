"""Where the partitions lie that are verified, and with which settings each was made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from coral_pipeline import provenance, tables
from coral_pipeline.errors import BadInput
from coral_pipeline.export.layout import RootFolders
from coral_pipeline.provenance import MAKE_AGAIN, PROVENANCE_FILE
from coral_pipeline.settings import PipelineSettings
from coral_pipeline.settings_file import checked_settings
from coral_pipeline.storage import SEPARATOR, Storage, fetch_whole, open_storage


@dataclass(frozen=True)
class Source:
    """What is to be verified. Partitions are ``student_run`` or ``student_run|root``."""

    storage: Storage
    student_run: Callable[[str], Path]
    """The folder of a Student run."""

    @staticmethod
    def on_disk(output: Path, student_run: Path) -> Source:
        """Of one Student run, in folders of this machine: ``output/<asset>/<student_run>[/<root>]``."""
        return Source(open_storage(output), lambda name: student_run)

    def fetch(self, asset: str, partition: str) -> Path:
        """A local folder with what an asset's partition holds; ``copied`` gives the copied roots too."""
        return self.storage.fetch(asset, partition)

    def copied(self, student_run: str) -> Path:
        """The folder of ``selected_roots``, all copied roots in it."""
        return fetch_whole(self.storage, "selected_roots", student_run)

    def root(self, partition: str) -> Path:
        """The copied folder of a root."""
        student_run, _, root = partition.partition(SEPARATOR)
        return self.storage.fetch_folder("selected_roots", student_run, root)

    def settings(self, asset: str, partition: str) -> PipelineSettings:
        """The settings with which the partition was made, those that it does not depend on as they are by default."""
        made = provenance.read(self.fetch(asset, partition))
        if made is None:
            raise BadInput(PROVENANCE_FILE, "is missing, so the settings it was made with are not known", MAKE_AGAIN)
        return checked_settings(f"{PROVENANCE_FILE}, settings", made.settings)

    def roots_of_dataset(self, student_run: str) -> Sequence[RootFolders]:
        """The roots that the dataset of a Student run was made of, in its order."""
        made = provenance.read(self.fetch("sft_dataset", student_run))
        rows = tables.SELECTED_ROOTS.rows(self.fetch("selected_roots", student_run))
        stages = {row["root"]: row["stage"] for row in rows}
        partitions = [one.partition for one in made.inputs if one.asset == "explored_trees"] if made else []
        return [self.of_root(partition, stages.get(partition.partition(SEPARATOR)[2])) for partition in partitions]

    def of_root(self, partition: str, stage: str | None = None) -> RootFolders:
        """The folders of what was made from a root; ``stage``: its own."""
        tree, ranked, credit = (
            self.fetch(asset, partition) for asset in ("explored_trees", "ranked_paths", "advantage_batches")
        )
        return RootFolders(tree, ranked, credit, stage)
