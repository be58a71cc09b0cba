"""Where the folders of roots lie, as the command line and the Dagster assets write them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from coral_pipeline import tables
from coral_pipeline.errors import BadInput
from coral_pipeline.tree_file import TREE_FILE

TREES, RANKED, CREDIT = tables.PER_ROOT
ROOTS = "selected_roots"
"""Assets; each has a folder ``OUTPUT/<asset>/<Student run>/<root>/`` (roots: ``OUTPUT/<asset>/<Student run>/``)."""


@dataclass(frozen=True)
class RootFolders:
    """The folders of one root."""

    tree: Path
    ranked: Path
    credit: Path | None = None
    """None where exports need no credit."""
    stage: str | None = None
    """Stage of the root (method S8), where it is known from elsewhere than ``tree.json``."""

    @classmethod
    def fetched(cls, fetch: Callable[[str, str], Path], partition: str, stage: str | None = None) -> RootFolders:
        """The folders that ``fetch`` gives, by asset and partition, of what was made from a root."""
        tree, ranked, credit = (fetch(asset, partition) for asset in tables.PER_ROOT)
        return cls(tree, ranked, credit, stage)


def find_roots(
    sources: Iterable[Path], ranked: Path | None = None, credit: Path | None = None, *, need_credit: bool = True
) -> list[RootFolders]:
    """The roots whose trees are at or below ``sources``, in the order given, then by name.

    A source is a tree's folder, a folder of such folders (``explored_trees/RUN``), or the folder that
    holds ``explored_trees``. Ranked paths and credit are looked for below ``ranked`` and ``credit``, by
    Student run and root; without these, in the folders beside ``explored_trees``. Raises ``BadInput``
    where a source has no finished tree, or a tree has no ranked paths (no credit, with ``need_credit``).
    """
    trees = list(dict.fromkeys(tree for source in sources for tree in _trees(source)))
    alone = len(trees) == 1
    roots = []
    for tree in trees:
        ranked_dir = _beside(tree, ranked, RANKED, tables.RANKED_PATHS.file_name, alone)
        if ranked_dir is None:
            raise BadInput(tree, "its ranked paths are not there", "rank the tree, and name that folder with --ranked")
        credit_dir = _beside(tree, credit, CREDIT, tables.TOKENS.file_name, alone)
        if credit_dir is None and need_credit:
            mend = "compute its credit and name that folder with --credit, or export only sft"
            raise BadInput(tree, "its credit is not there", mend)
        roots.append(RootFolders(tree, ranked_dir, credit_dir, _stage(tree)))
    return roots


def _trees(source: Path) -> Sequence[Path]:
    top = source / TREES if (source / TREES).is_dir() else source
    found = sorted(file.parent for depth in ("", "*/", "*/*/") for file in top.glob(depth + TREE_FILE))
    if not found:
        raise BadInput(source, f"no finished tree ({TREE_FILE}) here", "give a folder explore wrote, or one above it")
    return found


def _beside(tree: Path, given: Path | None, asset: str, file: str, alone: bool) -> Path | None:
    """The folder of the same root that has ``file``."""
    tree = tree.resolve()
    run, root = tree.parent.name, tree.name
    if given is not None:
        places = [given / run / root, given / root, *([given] if alone else [])]
    elif tree.parent.parent.name == TREES:
        places = [tree.parent.parent.parent / asset / run / root]
    else:
        places = [tree] if alone else []
    return next((place for place in places if (place / file).is_file()), None)


def _stage(tree: Path) -> str | None:
    """The stage of the root, where the table of selected roots lies beside the trees."""
    tree = tree.resolve()
    folder = tree.parent.parent.parent / ROOTS / tree.parent.name
    if tree.parent.parent.name != TREES or not (folder / tables.SELECTED_ROOTS.file_name).is_file():
        return None
    stages = {row["root"]: row["stage"] for row in tables.SELECTED_ROOTS.rows(folder)}
    return stages.get(tree.name)
