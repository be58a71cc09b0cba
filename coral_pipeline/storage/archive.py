"""A copied folder as one tar file: thousands of small files are one object on a store."""

from __future__ import annotations

import tarfile
from pathlib import Path

from coral_pipeline import provenance
from coral_pipeline.errors import BadInput
from coral_pipeline.provenance import CHECKSUMS_FOLDER, CHECKSUMS_SUFFIX, MAKE_AGAIN

SUFFIX = ".tar"


def pack(folder: Path, target: Path) -> None:
    """Write the folder's files, folders and links to ``target``; owners are not kept."""
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        tar.add(folder, arcname=".", filter=_without_owner)


def unpack(archive: Path, target: Path) -> None:
    """Unpack into ``target``, which must not exist. Raises ``BadInput`` where it would write outside, or is no tar."""
    target.mkdir()
    try:
        with tarfile.open(archive, "r:") as tar:
            tar.extractall(target, filter="data")
    except tarfile.TarError as error:
        raise BadInput(archive.name, f"cannot be unpacked ({error})", MAKE_AGAIN) from error


def checksums_of(folder: str) -> str:
    """Name of the file, beside a copied folder, with the checksums of the files in it."""
    return f"{CHECKSUMS_FOLDER}/{folder}{CHECKSUMS_SUFFIX}"


def problem_of(folder: Path, checksums: Path) -> str | None:
    """How the files below ``folder`` differ from what ``checksums`` says, the first difference; None if they do not."""
    return next((f"{name}: {problem}" for name, problem in provenance.copy_changes(folder, checksums)), None)


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
