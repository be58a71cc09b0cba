"""A root on disk with transcripts, ranked paths and credit, and its exports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from coral_pipeline.credit.tokens import write_tokens
from coral_pipeline.export.dataset import write_dataset
from coral_pipeline.export.layout import RootFolders
from coral_pipeline_tests.transcripts import ADVANTAGES, write_ranked, write_talking_tree


@dataclass(frozen=True)
class Exported:
    roots: RootFolders
    out: Path


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """The tree of ``transcripts.NODES``; its selected paths are 0–3 (leaf 4) and then 0–2 (leaf 3)."""
    folder = tmp_path_factory.mktemp("exported")
    tree = write_talking_tree(folder / "tree")
    write_tokens(tree, ADVANTAGES, folder / "credit")
    roots = RootFolders(tree, write_ranked(tree, folder / "ranked"), folder / "credit", "middle")
    write_dataset([roots], folder / "out")
    return Exported(roots, folder / "out")
