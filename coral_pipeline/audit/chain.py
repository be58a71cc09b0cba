"""The chain from file to file: what provenance recorded against what lies there now."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from coral_pipeline import provenance
from coral_pipeline.audit.findings import Review
from coral_pipeline.audit.sources import Source
from coral_pipeline.content import SUPERSEDED_FILE, folder_version, root_version
from coral_pipeline.provenance import CHECKSUMS_FOLDER, PROVENANCE_FILE, Input, Provenance
from coral_pipeline.search.explore import WORK_FOLDER
from coral_pipeline.search.root_folder import read_root
from coral_pipeline.storage import SEPARATOR
from coral_pipeline.storage.archive import checksums_of
from coral_pipeline.student_run.copying import TASK_FOLDER
from coral_pipeline.student_run.layout import TASK_FILE
from coral_pipeline.tables import TABLES


def verify_files(review: Review, source: Source, partition: str) -> None:
    """Every file of the partition has the bytes that were recorded, none is missing, none too many."""
    asset = review.asset
    with review.guarded(PROVENANCE_FILE):
        made = source.made(asset, partition)
        copied = made.folders.keys() & {TASK_FOLDER}
        folder = source.fetch(asset, partition, *copied)
        if (made.asset, made.partition) != (asset, partition):
            review.find(PROVENANCE_FILE, f"is that of {made.asset} {made.partition}")
        review.looked_at["files"] += len(made.files)
        review.looked_at["bytes"] += sum(file.bytes for file in made.files.values())
        for line in provenance.changes(made, folder):
            name, _, problem = line.partition(": ")
            review.find(name, problem)
        for name in copied:
            _verify_copy(review, folder / name)
        for name in sorted(set(_files_of_partition(folder, made)) - made.files.keys()):
            review.find(name, "should not be there: no file of the partition", kind="surplus files")


def verify_contents(review: Review, source: Source, partition: str) -> None:
    """The tables' contents, whatever their encoding, have the version that was recorded and that others go by."""
    with review.guarded("the tables' contents"):
        folder = source.fetch(review.asset, partition)
        made, version = source.made(review.asset, partition), folder_version(TABLES[review.asset], folder)
        review.looked_at["tables"] += len(TABLES[review.asset])
        if version != made.version:
            review.find(f"{PROVENANCE_FILE}, version", f"is {made.version}, that of the tables is {version}")


def verify_inputs(review: Review, source: Source, partition: str) -> None:
    """What the partition was made from is still what lies there."""
    with review.guarded(PROVENANCE_FILE):
        for made_from in source.made(review.asset, partition).inputs:
            where = f"made from {made_from.asset} {made_from.partition}"
            review.looked_at["inputs"] += 1
            with review.guarded(where):
                now = _version_now(source, made_from)
                if now is None:
                    review.find(where, "of which nothing is there, or whose provenance.json is missing")
                elif now != made_from.version:
                    review.find(where, f"which is no longer the same: version {made_from.version} then, {now} now")


def verify_copied_root(review: Review, source: Source, partition: str) -> None:
    """The copied folder of a root, file by file against the checksums taken when it was copied."""
    student_run, _, root = partition.partition(SEPARATOR)
    with review.guarded(root):
        folder, made = source.root(partition), source.made("selected_roots", student_run)
        _verify_copy(review, folder)
        version = root_version(read_root(folder))
        if root in made.folders and made.folders[root] != version:
            review.find(root, f"is not as it was copied: version {version} now, {made.folders[root]} then")


def _verify_copy(review: Review, folder: Path) -> None:
    """A copied folder against the checksums beside it."""
    files = [folder / name for name in provenance.files_below(folder)]
    review.looked_at["files"] += len(files)
    review.looked_at["bytes"] += sum(file.stat().st_size for file in files)
    for name, problem in provenance.copy_changes(folder, folder.parent / checksums_of(folder.name), {SUPERSEDED_FILE}):
        review.find(f"{folder.name}/{name}", problem)


def _version_now(source: Source, made_from: Input) -> str | None:
    """None where there is nothing."""
    if made_from.asset == "student_run":
        return provenance.checksum(source.student_run(made_from.partition) / TASK_FILE).sha256
    if made_from.asset == "selected_roots" and SEPARATOR in made_from.partition:
        folder = source.root(made_from.partition)
        return root_version(read_root(folder)) if folder.is_dir() else None
    made = provenance.read(source.fetch(made_from.asset, made_from.partition))
    return None if made is None else made.version


def _files_of_partition(folder: Path, made: Provenance) -> Iterator[str]:
    """Names of the files that lie in the partition's folder, without what lies there by itself."""
    others = {WORK_FOLDER} if made.asset == "explored_trees" else set()
    for name in provenance.files_below(folder):
        top = name.split("/")[0]
        is_copied = made.asset == "selected_roots" and "/" in name and top != CHECKSUMS_FOLDER
        if not (top in others or is_copied or top.startswith(".") or name in (PROVENANCE_FILE, SUPERSEDED_FILE)):
            yield name
