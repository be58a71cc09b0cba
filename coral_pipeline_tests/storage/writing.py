"""Partitions of a few small files, written and read by this process or by another."""

from __future__ import annotations

import datetime as dt
import itertools
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from coral_pipeline import provenance
from coral_pipeline.errors import BadInput
from coral_pipeline.provenance import Provenance, checksum, write_checksums
from coral_pipeline.storage import Storage, archive, fetch_whole, open_storage
from coral_pipeline.storage.interface import CHANGED
from coral_pipeline.storage.store import ObjectStore

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


def who_wrote(storage: Storage) -> str:
    """The first word of what lies there, all of which one process has written; "" while nothing can be read."""
    try:
        before = storage.provenance(ASSET, PARTITION)
        folder = storage.fetch(ASSET, PARTITION)
        said = {(folder / name).read_text() for name in FILES}
        after = storage.provenance(ASSET, PARTITION)
    except (BadInput, FileNotFoundError) as error:
        assert isinstance(error, FileNotFoundError) or CHANGED in str(error) or "nothing yet" in str(error), error
        return ""
    # A folder tells its readers that it changed by its provenance; what was fetched from a store cannot change.
    if folder == storage.place(ASSET, PARTITION) and not (before and after and before.seal == after.seal):
        return ""
    assert len(said) == 1, f"a mixture of {len(said)} versions"
    return said.pop().split()[0]


def write_until(storage: Storage, who: str, stop: Path) -> None:
    """Write versions, each of which says the same in all of its files, until ``stop`` exists."""
    for number in itertools.count(1):
        write(storage, dict.fromkeys(FILES, f"{who} {number} " + "." * 20_000))
        if stop.exists():
            return


def read_until(storage: Storage, writers: Collection[str]) -> None:
    """Read versions until many of each of the writers were read, all of them whole."""
    seen = Counter[str]()
    while any(seen[writer] < 20 for writer in writers):
        seen[who_wrote(storage)] += 1


def kill_at_step(number: int) -> None:
    """From now on this process is killed when it is about to flush a file, or change a store, the ``number``th time."""
    steps = itertools.count(1)

    def killing(step: Callable[..., object]) -> Callable[..., object]:
        def killed(*arguments: object) -> object:
            if next(steps) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return step(*arguments)

        return killed

    os.fsync = killing(os.fsync)
    for change in ("upload", "write", "remove"):
        setattr(ObjectStore, change, killing(getattr(ObjectStore, change)))


if __name__ == "__main__":
    output, what, *arguments = sys.argv[1:]
    if what == "killed":
        kill_at_step(int(arguments[0]))
        write(open_storage(output), dict.fromkeys(FILES, "killed"))
    elif what == "read":
        read_until(open_storage(output), arguments)
    else:
        write_until(open_storage(output), arguments[0], Path(arguments[1]))
