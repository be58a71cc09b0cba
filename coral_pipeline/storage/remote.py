"""Storage on an object store, or any other place that fsspec reaches.

Under ``URL/<asset>/<student_run>[/<root>]/`` lie ``provenance.json`` and, in a folder named by its seal, the files
that it tells of; a copied folder is one tar object, ``<folder>/<seal>.tar``. None of these is ever overwritten: a new
version is put beside the earlier one, then ``provenance.json``, one object and so whole at any instant, is pointed at
it, then the earlier version is removed, but for copied folders that the new one has no more. So readers and writers
need no locks, and of the store no more than that this one object appears whole.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from coral_pipeline import provenance
from coral_pipeline.errors import BadInput, Changed
from coral_pipeline.provenance import MAKE_AGAIN, PROVENANCE_FILE, Provenance
from coral_pipeline.storage import archive, workshop
from coral_pipeline.storage.cache import Cache
from coral_pipeline.storage.interface import CHANGED, SEPARATOR, Describe, complete, is_same_making, recorded
from coral_pipeline.storage.store import ObjectStore
from coral_pipeline.tree_copy import copy_file

_TRIES = 5
"""Versions that a reader follows up on when each is replaced while it reads."""
_ABANDONED = dt.timedelta(days=1)
"""Files of a version that no provenance tells of, and the last of which is so old, were left by a process that died."""
_VERSION, _DIGITS = "v-", 16
_SUPERSEDED = "superseded"


class RemoteStorage:
    """``Storage`` on an object store; what was fetched is kept in a cache on this machine, by its seal."""

    def __init__(self, store: ObjectStore, scratch: Path) -> None:
        """``scratch``: folder of this machine for what is fetched, what grows, and what is about to be sent."""
        self._store, self._scratch = store, scratch
        self._cache = Cache(scratch / "fetched")

    def address(self, asset: str, partition: str) -> str:
        """The URL."""
        return self._store.address(_path(asset, partition))

    def partitions(self, asset: str) -> list[str]:
        """As in ``Storage``."""
        names = (path.split("/") for path in self._store.names(asset))
        return sorted(SEPARATOR.join(parts[:-1]) for parts in names if parts[-1] == PROVENANCE_FILE)

    def provenance(self, asset: str, partition: str) -> Provenance | None:
        """As in ``Storage``."""
        path = f"{_path(asset, partition)}/{PROVENANCE_FILE}"
        text = self._store.read(path)
        return None if text is None else provenance.parse(text, self._store.address(path))

    def fetch(self, asset: str, partition: str, *copied: str) -> Path:
        """As in ``Storage``: the files of one version, each with the checksum that its provenance says."""
        made = self._made(asset, partition)
        for _ in range(_TRIES):
            try:
                return self._fetched(asset, partition, made, copied)
            except BadInput:  # if it was only replaced meanwhile, the new one may be whole
                earlier, made = made, self._made(asset, partition)
                if made.seal == earlier.seal:
                    raise
        raise Changed(self.address(asset, partition), CHANGED)

    def is_being_written(self, asset: str, partition: str) -> bool:
        """Never: what was fetched is one version."""
        return False

    @contextmanager
    def writing(self, asset: str, partition: str, describe: Describe) -> Iterator[Path]:
        """As in ``Storage``."""
        with workshop.workshop(self._scratch / "writing") as aside:
            yield aside
            made = complete(describe(aside), aside)
            self._publish(asset, partition, made, aside)
            provenance.write(made, aside)
            self._cache.keep_version(aside, self._cache.folder(asset, partition, made))

    def place(self, asset: str, partition: str) -> Path:
        """A folder under the scratch folder: what grows stays on the machine on which it began."""
        return self._scratch.joinpath("growing", asset, *partition.split(SEPARATOR))

    def alone(self, asset: str, partition: str) -> AbstractContextManager[None]:
        """As in ``Storage``."""
        return workshop.alone(self.place(asset, partition), partition)

    def seal(self, asset: str, partition: str, describe: Describe, files: Iterable[str]) -> None:
        """As in ``Storage``; the files stay in ``place`` too. What is there is moved aside, unless it is the same."""
        now = describe(self.place(asset, partition))
        earlier = recorded(lambda: self.provenance(asset, partition))
        if earlier is not None and not (is_same_making(earlier, now) and earlier.version == now.version):
            self._move_aside(asset, partition, earlier, self._free_number(partition))
        with self.writing(asset, partition, lambda _: now) as aside:
            for name in files:
                (aside / name).parent.mkdir(parents=True, exist_ok=True)
                copy_file(self.place(asset, partition) / name, aside / name)

    def supersede(self, asset: str, partition: str) -> str:
        """Move what is published to ``URL/superseded/…/<n>``, what grows to the scratch folder's ``superseded``."""
        number, growing = self._free_number(partition), self.place(asset, partition)
        aside = self.place(_SUPERSEDED, partition) / number
        if growing.exists():
            aside.parent.mkdir(parents=True, exist_ok=True)
            growing.rename(aside)
        made = recorded(lambda: self.provenance(asset, partition))
        return str(aside) if made is None else self._move_aside(asset, partition, made, number)

    def note(self, asset: str, partition: str, name: str, text: str | None) -> None:
        """As in ``Storage``."""
        path = _path(asset, partition)
        if text is None:
            self._store.remove(f"{path}/{name}")
        elif self._store.names(path):
            self._store.write(f"{path}/{name}", text.encode())

    def salvage(self, asset: str, partition: str, target: Path, dropped: Collection[str] = ()) -> None:
        """Put all that is left of a partition into ``target``, a new folder, whether or not it is what it should be.

        ``dropped``: copied folders that its provenance names no more; they come as they were, and with their notes.
        """
        path = _path(asset, partition)
        found = self._store.modified(path)
        lasting = [name for name in found if "/" not in name or name.rpartition("/")[0] in dropped]
        packed = [name for name in sorted(lasting, key=found.__getitem__) if name.endswith(archive.SUFFIX)]
        folders = {name.split("/")[0]: name for name in packed}  # the latest of each
        files = {name: name for name in lasting if name not in packed}
        if made := recorded(lambda: self.provenance(asset, partition)):
            folders |= {name: _tar(made, name) for name in made.folders}
            files |= {name: f"{_version(made)}/{name}" for name in made.files}
        target.mkdir(parents=True)
        for name, source in folders.items():
            with suppress(BadInput):  # missing, or broken off: what is there of it tells
                self._unpack(f"{path}/{source}", target / name)
        for name, source in files.items():
            self._store.download(f"{path}/{source}", target / name)

    def _free_number(self, partition: str) -> str:
        """The next name for what is moved aside, there and here."""
        there = {path.split("/")[0] for path in self._store.names(_path(_SUPERSEDED, partition))}
        here = self.place(_SUPERSEDED, partition)
        return next(str(n) for n in itertools.count(1) if str(n) not in there and not (here / str(n)).exists())

    def _move_aside(self, asset: str, partition: str, made: Provenance, number: str) -> str:
        path, aside = _path(asset, partition), f"{_path(_SUPERSEDED, partition)}/{number}"
        for name in (*(f"{_version(made)}/{file}" for file in made.files), PROVENANCE_FILE):
            with suppress(FileNotFoundError):  # lost before: what is left is kept, and tells of it
                self._store.copy(f"{path}/{name}", f"{aside}/{name}")
        self._store.remove(f"{path}/{PROVENANCE_FILE}")
        self._store.remove_below(f"{path}/{_version(made)}")
        return self._store.address(aside)

    def _made(self, asset: str, partition: str) -> Provenance:
        made = self.provenance(asset, partition)
        if made is None:
            raise BadInput(self.address(asset, partition), "there is nothing yet", "make it first")
        return made

    def _fetched(self, asset: str, partition: str, made: Provenance, copied: Iterable[str]) -> Path:
        """A version's folder in the cache, with these copied folders in it."""
        path, folder = _path(asset, partition), self._cache.folder(asset, partition, made)
        if not self._cache.holds(folder, made):
            with workshop.workshop(self._scratch / "fetching") as aside:
                for name in made.files:
                    self._store.download(f"{path}/{_version(made)}/{name}", aside / name)
                provenance.write(made, aside)
                if problem := next(provenance.changes(made, aside), None):
                    raise BadInput(self._store.address(f"{path}/{_version(made)}"), problem, MAKE_AGAIN)
                self._cache.keep_version(aside, folder)
        for name in copied:
            if name not in made.folders:
                raise BadInput(self._store.address(f"{path}/{name}"), "is not there", "choose the roots anew")
            if not self._cache.holds_copied(folder / name):
                with workshop.workshop(self._scratch / "fetching") as aside:
                    packed = f"{path}/{_tar(made, name)}"
                    self._unpack(packed, aside / name)
                    if problem := archive.problem_of(aside / name, folder / archive.checksums_of(name)):
                        raise BadInput(self._store.address(packed), problem, MAKE_AGAIN)
                    self._cache.keep(aside / name, folder / name)
        return folder

    def _unpack(self, packed: str, target: Path) -> None:
        """Download a copied folder. Raises ``BadInput`` where it is not there, or cannot be unpacked."""
        with workshop.workshop(self._scratch / "fetching") as aside:
            self._store.download(packed, aside / archive.SUFFIX)
            if not (aside / archive.SUFFIX).exists():
                raise BadInput(self._store.address(packed), "is missing", MAKE_AGAIN)
            archive.unpack(aside / archive.SUFFIX, target)

    def _publish(self, asset: str, partition: str, made: Provenance, aside: Path) -> None:
        path = _path(asset, partition)
        earlier = recorded(lambda: self.provenance(asset, partition))
        for name in made.folders:
            with workshop.workshop(self._scratch / "writing") as packing:
                archive.pack(aside / name, packing / archive.SUFFIX)
                self._store.upload(packing / archive.SUFFIX, f"{path}/{_tar(made, name)}")
        for name in made.files:
            self._store.upload(aside / name, f"{path}/{_version(made)}/{name}")
        self._store.write(f"{path}/{PROVENANCE_FILE}", made.text().encode())
        if earlier is not None and earlier.seal != made.seal:
            self._store.remove_below(f"{path}/{_version(earlier)}")
            self._store.remove(*(f"{path}/{_tar(earlier, name)}" for name in earlier.folders if name in made.folders))
        self._remove_abandoned(path, made)

    def _remove_abandoned(self, path: str, made: Provenance) -> None:
        """Remove versions that processes which were killed have left behind; none that one may still be writing."""
        versions: dict[str, list[str]] = {}
        last: dict[str, dt.datetime] = {}
        for name, modified in self._store.modified(path).items():
            top, _, file = name.partition("/")
            version = file.removesuffix(archive.SUFFIX) if top in made.folders else top
            if version.startswith(_VERSION) and version != _version(made):
                versions.setdefault(version, []).append(f"{path}/{name}")
                last[version] = max(modified, last.get(version, modified))
        for version, modified in last.items():
            if modified < dt.datetime.now(dt.UTC) - _ABANDONED:
                self._store.remove(*versions[version])


def _path(asset: str, partition: str) -> str:
    return "/".join((asset, *partition.split(SEPARATOR)))


def _version(made: Provenance) -> str:
    """Folder of the files of a version; no two makings have the same, their times being different."""
    return f"{_VERSION}{made.seal[:_DIGITS]}"


def _tar(made: Provenance, folder: str) -> str:
    """The object of a version's copied folder, beside those that no version tells of any more."""
    return f"{folder}/{_version(made)}{archive.SUFFIX}"
