"""Where things lie: Student runs in, one folder per asset and partition out."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
from pydantic import Field

from coral_pipeline import provenance
from coral_pipeline.defs.partitions import SEPARATOR, RootKey
from coral_pipeline.errors import BadInput
from coral_pipeline.export.layout import RootFolders
from coral_pipeline.provenance import PROVENANCE_FILE, Provenance

PER_ROOT = ("explored_trees", "ranked_paths", "advantage_batches")
"""Assets of a root, each made from the ones before it; the first from the root's copied folder."""

Describe = Callable[[Path], Provenance]
"""Gives the provenance of the tables in a folder, ``files`` still to be filled in."""


class Folders(dg.ConfigurableResource):  # type: ignore[type-arg]  # yields itself
    """Input and output folders. Absolute, so that every process of a deployment means the same ones.

    An asset reads a partition in the folder that ``fetch`` gives, and writes it in the one of ``writing``.
    """

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
        tree, ranked, credit = (self.fetch(asset, str(key)) for asset in PER_ROOT)
        return RootFolders(tree, ranked, credit, stage)

    def fetch(self, asset: str, partition_key: str) -> Path:
        """A folder of this machine that holds what the partition holds, to be read."""
        return self.asset(asset, partition_key)

    @contextmanager
    def writing(self, asset: str, partition_key: str, describe: Describe, beside: Iterable[str] = ()) -> Iterator[Path]:
        """An empty folder to write the partition's files in; when the block ends well they replace the earlier ones.

        ``beside``: files, and folders with all in them, that lie in the partition's folder already and belong to
        it as well. What else lies there stays.
        """
        folder = self.asset(asset, partition_key)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".writing-", dir=folder) as name:
            aside = Path(name)
            yield aside
            made = describe(aside)
            new = tuple(provenance.files_below(aside))
            files = provenance.checksums(aside, new) | provenance.checksums(folder, _files(folder, beside))
            earlier = _recorded(folder)
            (folder / PROVENANCE_FILE).unlink(missing_ok=True)
            for file in new:
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (aside / file).replace(folder / file)
            for file in earlier - files.keys():
                (folder / file).unlink(missing_ok=True)
            provenance.write(made.model_copy(update={"files": files}), folder)

    def seal(self, asset: str, partition_key: str, describe: Describe, files: Iterable[str]) -> None:
        """Record the provenance of ``files`` that were written in the partition's own folder."""
        folder = self.asset(asset, partition_key)
        made = describe(folder)
        provenance.write(made.model_copy(update={"files": provenance.checksums(folder, files)}), folder)


def _files(folder: Path, names: Iterable[str]) -> Iterator[str]:
    """The files among ``names``, and all files below the folders among them."""
    for name in names:
        if (folder / name).is_dir():
            yield from (f"{name}/{file}" for file in provenance.files_below(folder / name))
        elif (folder / name).exists():
            yield name


def _recorded(folder: Path) -> frozenset[str]:
    """Names of the files whose provenance lies in ``folder``; none where it is damaged."""
    try:
        made = provenance.read(folder)
    except BadInput:
        made = None
    return frozenset(made.files if made else ())
