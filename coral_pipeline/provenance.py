"""What stands behind the files of one asset and partition: ``provenance.json``, beside them.

It names the code, the settings and the versions of the inputs that they were made with, and holds a checksum of
every file and of itself; it is written last, so its presence says that the others are complete.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import platform
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from coral_pipeline.errors import BadInput
from coral_pipeline.settings import UNDECIDING, with_defaults
from coral_pipeline.tables import replaced_when_done, text_file

PROVENANCE_FILE = "provenance.json"
CHECKSUMS_FOLDER, CHECKSUMS_SUFFIX = "checksums", ".sha256"
"""Beside copied folders: a file for each of them that ``sha256sum --check`` reads."""
MAKE_AGAIN = "make the partition again"
_CHUNK = 1 << 20


def _confined(name: str) -> str:
    if any(part in ("", ".", "..") for part in re.split(r"[/|]", name)):
        raise ValueError("does not name something inside a folder")
    return name


Name = Annotated[str, AfterValidator(_confined)]
"""Of something in a folder, ``/`` or (partitions) ``|`` between the parts: it never leads out of it."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Checksum(_Record):
    """A file's bytes."""

    bytes: int
    sha256: str
    """In hex."""


class Input(_Record):
    """One partition of an asset that something was made from; asset ``student_run`` is the Student run itself."""

    asset: Name
    partition: Name
    version: str
    """Of its contents, when it was read."""


class Provenance(_Record):
    """What the files of one partition are and what they were made from."""

    format: Literal[1] = 1
    asset: Name
    partition: Name
    """``<student_run>`` or ``<student_run>|<root>``."""
    code: int
    """Number of the code that makes the asset; raised whenever a change of it changes what the asset holds."""
    settings: dict[str, Any]
    """All sections of the settings that the asset is made with, in full. Of files they name, just the names."""
    inputs: tuple[Input, ...]
    version: str = ""
    """Of the contents of the tables, whatever their encoding."""
    folders: dict[Name, str] = {}
    """Version of each copied folder beside the tables, by name."""
    files: dict[Name, Checksum] = {}
    """By path relative to the partition's folder, ``/`` between the parts."""
    run_id: str = ""
    """Dagster run that made them."""
    made_at: dt.datetime
    software: dict[str, str]
    """Versions of what they were made with."""
    seal: str = ""
    """SHA-256 of all the above, in hex."""

    def sealed(self) -> Provenance:
        """The same with its seal."""
        return self.model_copy(
            update={"seal": hashlib.sha256(self.model_dump_json(exclude={"seal"}).encode()).hexdigest()}
        )

    def text(self) -> str:
        """As it stands in the file."""
        return self.model_dump_json(indent=2) + "\n"


def deciding(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Of recorded settings those that have a part in what is made, such as joined since among them."""
    return {
        section: {name: value for name, value in values.items() if name not in UNDECIDING.get(section, ())}
        for section, values in with_defaults(recorded).items()
    }


def software() -> dict[str, str]:
    """Versions of what can change the bytes of a file."""
    packages = ("coral-pipeline", "dagster", "numpy", "pyarrow")
    return {"python": platform.python_version()} | {package: version(package) for package in packages}


def checksum(path: Path) -> Checksum:
    """Of a regular file, read piece by piece."""
    with path.open("rb") as file:
        digest = hashlib.sha256()
        size = 0
        while piece := file.read(_CHUNK):
            digest.update(piece)
            size += len(piece)
    return Checksum(bytes=size, sha256=digest.hexdigest())


def write(provenance: Provenance, folder: Path) -> Path:
    """Write ``provenance.json`` into ``folder``, whole or not at all; returns the file."""
    with text_file(folder / PROVENANCE_FILE) as file:
        file.write(provenance.sealed().text())
    return folder / PROVENANCE_FILE


def read(folder: Path) -> Provenance | None:
    """The provenance of what lies in ``folder``; None where there is none. Raises ``BadInput`` where it is damaged."""
    path = folder / PROVENANCE_FILE
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    return parse(text, path)


def parse(text: bytes, path: object) -> Provenance:
    """The provenance in the bytes of its file; ``path`` tells which it is. Raises ``BadInput`` where it is damaged."""
    try:
        provenance = Provenance.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        problem = f"is damaged ({'.'.join(map(str, first['loc'])) or 'not JSON'}: {first['msg']})"
        raise BadInput(path, problem, MAKE_AGAIN) from error
    if text != provenance.sealed().text().encode():
        raise BadInput(path, "is not as it was written: its seal does not match", MAKE_AGAIN)
    return provenance


def changes(provenance: Provenance, folder: Path) -> Iterator[str]:
    """One line per file that is not, or no longer, as ``provenance`` says: ``<file>: <what>``."""
    for name, recorded in provenance.files.items():
        path = folder / name
        if not path.is_file():
            yield f"{name}: is missing"
            continue
        found = checksum(path)
        if found != recorded:
            yield (
                f"{name}: has changed ({found.bytes} bytes, SHA-256 {found.sha256[:12]}…;"
                f" recorded: {recorded.bytes} bytes, {recorded.sha256[:12]}…)"
            )


def files_below(folder: Path) -> Iterator[str]:
    """Paths of all regular files below ``folder``, relative to it, sorted; links are not followed."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield path.relative_to(folder).as_posix()


def write_checksums(folder: Path, target: Path) -> None:
    """Write what ``sha256sum --check``, run inside ``folder``, reads: a line per regular file below it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with replaced_when_done(target) as partial, partial.open("wb") as file:
        for name in files_below(folder):
            escaped = name.replace("\\", "\\\\").replace("\n", "\\n")
            mark = "\\" if escaped != name else ""
            file.write(os.fsencode(f"{mark}{checksum(folder / name).sha256}  {escaped}\n"))


def read_checksums(target: Path) -> dict[str, str]:
    """SHA-256 by file name, as ``write_checksums`` wrote them. Raises ``BadInput`` where a line is no checksum."""
    found = {}
    for number, line in enumerate(os.fsdecode(target.read_bytes()).split("\n")[:-1], 1):
        digest, separator, name = line.removeprefix("\\").partition("  ")
        if not separator or len(digest) != 64:
            raise BadInput(f"{target}, line {number}", "is no checksum", MAKE_AGAIN)
        if line.startswith("\\"):
            name = name.replace("\\\\", "\0").replace("\\n", "\n").replace("\0", "\\")
        found[name] = digest
    return found


def copy_changes(folder: Path, target: Path, apart_from: Container[str] = ()) -> Iterator[tuple[str, str]]:
    """Name and what is the matter, per file of a copied ``folder`` that is not as ``write_checksums`` found it.

    ``apart_from``: names of files that came later. Raises ``BadInput`` where the checksums in ``target`` are damaged.
    """
    recorded = read_checksums(target)
    found = {name for name in files_below(folder) if name not in apart_from}
    for name in sorted(recorded.keys() | found):
        if name not in found:
            yield name, "is missing"
        elif name not in recorded:
            yield name, "should not be there: it was not copied with the others"
        elif (now := checksum(folder / name).sha256) != recorded[name]:
            yield name, f"has changed (SHA-256 {now[:12]}…; recorded: {recorded[name][:12]}…)"


def checksums(folder: Path, names: Iterable[str]) -> dict[str, Checksum]:
    """Checksums of files below ``folder``, by name."""
    return {name: checksum(folder / name) for name in names}
