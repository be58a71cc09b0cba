"""Storage in a folder of this machine, or of one file system that all machines see."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from coral_pipeline import provenance
from coral_pipeline.errors import BadInput
from coral_pipeline.provenance import PROVENANCE_FILE, Provenance
from coral_pipeline.storage import workshop
from coral_pipeline.storage.interface import SEPARATOR, Describe, complete, recorded
from coral_pipeline.tables import text_file

_REPLACING = ".replacing.json"
"""Names of all files of the earlier and of the new version, there while one takes the place of the other."""
_IN_THE_WAY = "move it away"


class LocalStorage:
    """``Storage`` in ``OUTPUT/<asset>/<student_run>[/<root>]``, where everyone finds the files under their names.

    A reader may come while a partition is replaced: file by file, ``provenance.json`` away before the first and
    back after the last. Who reads several has to look at it before and after.
    """

    def __init__(self, output: Path) -> None:
        """``output``: absolute, so that every process means the same."""
        self._output = output

    def address(self, asset: str, partition: str) -> str:
        """The folder."""
        return str(self.place(asset, partition))

    def partitions(self, asset: str) -> list[str]:
        """As in ``Storage``."""
        top = self._output / asset
        files = sorted([*top.glob(f"*/{PROVENANCE_FILE}"), *top.glob(f"*/*/{PROVENANCE_FILE}")])
        return [SEPARATOR.join(file.parent.relative_to(top).parts) for file in files]

    def provenance(self, asset: str, partition: str) -> Provenance | None:
        """As in ``Storage``."""
        return provenance.read(self.place(asset, partition))

    def fetch(self, asset: str, partition: str, *copied: str) -> Path:
        """The folder itself, whether anything is in it or not: its readers know what they need."""
        return self.place(asset, partition)

    def is_being_written(self, asset: str, partition: str) -> bool:
        """Whether a process of this machine replaces the partition now, or grows it."""
        return workshop.is_held(self.place(asset, partition))

    @contextmanager
    def writing(self, asset: str, partition: str, describe: Describe) -> Iterator[Path]:
        """As in ``Storage``."""
        folder = self.place(asset, partition)
        with workshop.workshop(folder) as aside:
            yield aside
            made = complete(describe(aside), aside)
            with workshop.locked(folder):
                _replace(folder, made, aside)

    def place(self, asset: str, partition: str) -> Path:
        """The partition's own folder."""
        return self._output.joinpath(asset, *partition.split(SEPARATOR))

    def alone(self, asset: str, partition: str) -> AbstractContextManager[None]:
        """As in ``Storage``."""
        return workshop.alone(self.place(asset, partition), partition)

    def seal(self, asset: str, partition: str, describe: Describe, files: Iterable[str]) -> None:
        """As in ``Storage``."""
        folder = self.place(asset, partition)
        made = describe(folder)
        provenance.write(made.model_copy(update={"files": provenance.checksums(folder, files)}), folder)

    def supersede(self, asset: str, partition: str) -> str:
        """Move the folder to ``OUTPUT/superseded/<student_run>/<root>/<n>``."""
        above = self.place("superseded", partition)
        above.mkdir(parents=True, exist_ok=True)
        aside = next(path for n in itertools.count(1) if not (path := above / str(n)).exists())
        self.place(asset, partition).rename(aside)
        return str(aside)

    def note(self, asset: str, partition: str, name: str, text: str | None) -> None:
        """As in ``Storage``."""
        folder = self.place(asset, partition)
        if not folder.is_dir():
            return
        if text is None:
            (folder / name).unlink(missing_ok=True)
        else:
            with text_file(folder / name) as file:
                file.write(text)


def _replace(folder: Path, made: Provenance, aside: Path) -> None:
    """Put what lies in ``aside`` in place of what lies in ``folder``; the earlier folders are left in ``aside``.

    All is written in ``aside``, and only moved from there when nothing is in the way: a process that is killed
    leaves nothing half-written in ``folder``, and one that fails leaves the earlier version.
    """
    _require_free(folder, made)
    names = _names_before(folder, made) | made.files.keys()
    provenance.write(made, aside)
    with text_file(aside / _REPLACING) as file:
        json.dump(sorted(names), file)
    (aside / _REPLACING).replace(folder / _REPLACING)
    (folder / PROVENANCE_FILE).unlink(missing_ok=True)
    for name in made.folders:
        if (folder / name).exists():
            (folder / name).rename(aside / f".earlier-{name}")
        (aside / name).rename(folder / name)
    for name in made.files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (aside / name).replace(folder / name)
    for name in names - made.files.keys():
        if name.split("/")[0] not in made.folders:  # an earlier version's file in what is a copied folder now
            (folder / name).unlink(missing_ok=True)
            _remove_if_empty(folder, (folder / name).parent)
    (aside / PROVENANCE_FILE).replace(folder / PROVENANCE_FILE)
    (folder / _REPLACING).unlink()


def _require_free(folder: Path, made: Provenance) -> None:
    """Raise ``BadInput`` where something lies in the way of what is about to be moved there."""
    for name in made.folders:
        target = folder / name
        if target.is_symlink() or (target.exists() and not target.is_dir()):
            raise BadInput(target, "lies where a copied folder belongs, but is none", _IN_THE_WAY)
    for name in (*made.files, PROVENANCE_FILE):
        target = folder / name
        if target.is_dir() and not target.is_symlink():
            raise BadInput(target, "is a folder where a file belongs", _IN_THE_WAY)
        for above in target.parents:
            if above == folder:
                break
            if above.exists() and not above.is_dir():
                raise BadInput(above, "is a file where a folder belongs", _IN_THE_WAY)


def _names_before(folder: Path, made: Provenance) -> set[str]:
    """Files of the earlier version, and of those whose writers were killed while they replaced it.

    Where its provenance is damaged: what lies in the folders, not copied ones, in which ``made`` has files as well.
    """
    replacing = folder / _REPLACING
    names = set(json.loads(replacing.read_bytes())) if replacing.exists() else set()
    earlier = recorded(lambda: provenance.read(folder))
    if earlier is not None:
        return names | earlier.files.keys()
    if (folder / PROVENANCE_FILE).exists():
        tops = {name.split("/")[0] for name in made.files if "/" in name}
        names |= {f"{top}/{name}" for top in tops for name in provenance.files_below(folder / top)}
    return names


def _remove_if_empty(top: Path, folder: Path) -> None:
    while folder != top and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
