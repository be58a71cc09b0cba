"""Partitions of a few small files, written and read by this process or by another."""

from __future__ import annotations

import datetime as dt
import itertools
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from coral_pipeline import provenance
from coral_pipeline.errors import BadInput
from coral_pipeline.provenance import Provenance, checksum, write_checksums
from coral_pipeline.storage import Storage, archive, fetch_whole, open_storage
from coral_pipeline.storage.interface import CHANGED

ASSET, PARTITION = "ranked_paths", "run|root"
FILES = ("a", "sub/b", "c")


def described(folder: Path, **fields: object) -> Provenance:
    """A provenance whose copied folders are those in ``folder`` named ``copied…``."""
    copied = {path.name: "1" for path in folder.iterdir() if path.name.startswith("copied")}
    made = Provenance(
        asset=ASSET,
        partition=PARTITION,
        code=1,
        settings={},
        inputs=(),
        version=checksum(folder / "a").sha256 if (folder / "a").exists() else "",
        folders=copied,
        made_at=dt.datetime.now(dt.UTC),
        software={},
    )
    return made.model_copy(update=fields)


def write(storage: Storage, content: Mapping[str, str], asset: str = ASSET, partition: str = PARTITION) -> None:
    """Write files by name; those in a folder ``copied…`` belong to a copied folder."""
    with storage.writing(asset, partition, described) as out:
        put(out, content)


def put(folder: Path, content: Mapping[str, str]) -> None:
    for name, text in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for copied in sorted(folder.glob("copied*")):
        write_checksums(copied, folder / archive.checksums_of(copied.name))


def read(storage: Storage, asset: str = ASSET, partition: str = PARTITION) -> dict[str, str]:
    """The files, copied folders' as well, by name."""
    folder = fetch_whole(storage, asset, partition)
    names = [name for name in provenance.files_below(folder) if name.split("/")[0] != provenance.CHECKSUMS_FOLDER]
    return {name: (folder / name).read_text() for name in names if name != provenance.PROVENANCE_FILE}


def write_again_and_again(storage: Storage, who: str, times: int) -> None:
    """Versions of which each says the same in all of its files."""
    for number in range(times):
        write(storage, dict.fromkeys(FILES, f"{who} {number} " + "." * 20_000))


def read_again_and_again(storage: Storage, seconds: float) -> int:
    """Reads until the time is over, each to be of one version or refused; returns how many were of one version."""
    until, whole = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        try:
            before = storage.provenance(ASSET, PARTITION)
            folder = storage.fetch(ASSET, PARTITION)
            said = {(folder / name).read_text() for name in FILES}
            after = storage.provenance(ASSET, PARTITION)
        except (BadInput, FileNotFoundError) as error:
            assert isinstance(error, FileNotFoundError) or CHANGED in str(error) or "nothing yet" in str(error), error
            continue
        # A folder tells its readers that it changed by its provenance; what was fetched from a store cannot change.
        if folder != storage.place(ASSET, PARTITION) or (before and after and before.seal == after.seal):
            assert len(said) == 1, f"a mixture of {len(said)} versions"
            whole += 1
    return whole


def killed_at_flush(number: int) -> None:
    """From now on this process is killed when it has a file flushed to disk for the ``number``th time."""
    flushes = itertools.count(1)

    def flush(descriptor: int) -> None:
        if next(flushes) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    os.fsync = flush


if __name__ == "__main__":
    output, what, argument = sys.argv[1:]
    if what == "killed":
        killed_at_flush(int(argument))
        write(open_storage(output), dict.fromkeys(FILES, "killed"))
    elif what == "read":
        print(read_again_and_again(open_storage(output), float(argument)))
    else:
        write_again_and_again(open_storage(output), what, int(argument))
