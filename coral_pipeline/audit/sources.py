"""Where the partitions lie that are verified, and with which settings each was made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from coral_pipeline import provenance, tables
from coral_pipeline.errors import BadInput, Changed
from coral_pipeline.export.layout import RootFolders
from coral_pipeline.provenance import MAKE_AGAIN, PROVENANCE_FILE, Provenance
from coral_pipeline.settings import PipelineSettings
from coral_pipeline.settings_file import checked_settings
from coral_pipeline.storage import SEPARATOR, Storage, fetch_whole, open_storage
from coral_pipeline.storage.interface import CHANGED, recorded
from coral_pipeline.student_run.copying import TASK_FOLDER


@dataclass(frozen=True)
class Source:
    """What is to be verified. Partitions are ``student_run`` or ``student_run|root``."""

    storage: Storage
    student_run: Callable[[str], Path]
    """The folder of a Student run."""
    tokenizer: str | None = None
    """A tokenizer at hand: of one in a folder only the name is recorded."""
    _seals: dict[tuple[str, str], str | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Of each partition that was fetched, by asset and partition; None where it had none."""

    @staticmethod
    def on_disk(output: Path, student_run: Path, tokenizer: str | None = None) -> Source:
        """Of one Student run, in folders of this machine: ``output/<asset>/<student_run>[/<root>]``."""
        return Source(open_storage(output), lambda name: student_run, tokenizer)

    def anew(self) -> Source:
        """The same, of which nothing has been fetched."""
        return replace(self)

    def fetch(self, asset: str, partition: str, *copied: str) -> Path:
        """A local folder with what an asset's partition holds. ``copied``: the copied roots that are needed in it."""
        folder = self.storage.fetch(asset, partition, *copied)
        if (asset, partition) not in self._seals:
            self._seals[asset, partition] = _seal(lambda: provenance.read(folder))
        return folder

    def require_unchanged(self) -> None:
        """Raise ``Changed`` where a partition is no longer what was fetched, or is being written."""
        for (asset, partition), seal in self._seals.items():
            is_being_written = self.storage.is_being_written(asset, partition)  # asked first: it may be done by now
            if is_being_written or seal != self._seal_now(asset, partition):
                raise Changed(self.storage.address(asset, partition), CHANGED)

    def _seal_now(self, asset: str, partition: str) -> str | None:
        return _seal(lambda: self.storage.provenance(asset, partition))

    def copied(self, student_run: str) -> Path:
        """The folder of ``selected_roots``, all copied roots in it."""
        self.fetch("selected_roots", student_run)
        return fetch_whole(self.storage, "selected_roots", student_run)

    def root(self, partition: str) -> Path:
        """The copied folder of a root, the task's beside it."""
        student_run, _, root = partition.partition(SEPARATOR)
        return self.fetch("selected_roots", student_run, root, TASK_FOLDER) / root

    def made(self, asset: str, partition: str) -> Provenance:
        """What stands behind a partition. Raises ``BadInput`` where nothing does, or it is damaged."""
        made = provenance.read(self.fetch(asset, partition))
        if made is None:
            raise BadInput(PROVENANCE_FILE, "is missing: nothing is known of how these files were made", MAKE_AGAIN)
        return made

    def settings(self, asset: str, partition: str) -> PipelineSettings:
        """The settings with which the partition was made, those that it does not depend on as they are by default."""
        return checked_settings(f"{PROVENANCE_FILE}, settings", self.made(asset, partition).settings)

    def roots_of_dataset(self, student_run: str) -> Sequence[RootFolders]:
        """The roots that the dataset of a Student run was made of, in its order."""
        made = self.made("sft_dataset", student_run)
        rows = tables.SELECTED_ROOTS.rows(self.fetch("selected_roots", student_run))
        stages = {row["root"]: row["stage"] for row in rows}
        partitions = [one.partition for one in made.inputs if one.asset == "explored_trees"]
        return [self.of_root(partition, stages.get(partition.partition(SEPARATOR)[2])) for partition in partitions]

    def of_root(self, partition: str, stage: str | None = None) -> RootFolders:
        """The folders of what was made from a root; ``stage``: its own."""
        return RootFolders.fetched(self.fetch, partition, stage)


def _seal(read: Callable[[], Provenance | None]) -> str | None:
    made = recorded(read)
    return made.seal if made else None
