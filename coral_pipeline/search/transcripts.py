"""The messages of every finished turn, one JSON Lines file per turn, beside the journal.

Kept apart so that neither the journal nor the memory of a search grows with the length of its transcripts.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from coral_pipeline.durable import sync
from coral_pipeline.errors import BadInput
from coral_pipeline.search.records import write_all
from coral_pipeline.teacher.protocol import InfrastructureFault, Message

_MEND = "bring the file back from a copy, or delete the tree's folder and explore the root anew"


class Transcript(BaseModel):
    """What the journal remembers of a turn's transcript."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    """Name of the file in the folder of transcripts."""
    bytes: int
    sha256: str


def write_transcript(folder: Path, name: str, messages: Sequence[Message]) -> Transcript | None:
    """Write the messages to ``<name>.jsonl`` and flush them; None, and no file, where there are none.

    Replaces what an unfinished try left. Raises ``InfrastructureFault`` where the disk does not take it.
    """
    if not messages:
        return None
    data = b"".join(message.model_dump_json(exclude_defaults=True).encode() + b"\n" for message in messages)
    path = folder / f"{name}.jsonl"
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            write_all(file, data, 0)
            os.fsync(file)
        finally:
            os.close(file)
        sync(folder)
    except OSError as error:
        raise InfrastructureFault(f"{path} cannot be written ({error.strerror})") from error
    return Transcript(file=path.name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


def check_transcript(folder: Path, transcript: Transcript) -> None:
    """Raise ``BadInput`` where the file is gone or of another length than it was written with."""
    path = folder / transcript.file
    try:
        size = path.stat().st_size
    except OSError as error:
        raise BadInput(path, f"cannot be read ({error.strerror})", _MEND) from error
    if size != transcript.bytes:
        raise BadInput(path, f"has {size} bytes, but {transcript.bytes} were written", _MEND)


def read_transcript(folder: Path, transcript: Transcript) -> Iterator[Message]:
    """The messages, one at a time. Raises ``BadInput`` where the file is not what was written."""
    path = folder / transcript.file
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            for line in file:
                digest.update(line)
                yield Message.model_validate_json(line)
    except OSError as error:
        raise BadInput(path, f"cannot be read ({error.strerror})", _MEND) from error
    except ValidationError as error:
        raise BadInput(path, "holds what is no message", _MEND) from error
    if digest.hexdigest() != transcript.sha256:
        raise BadInput(path, "has been changed since it was written", _MEND)
