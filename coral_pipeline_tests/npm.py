"""What tests take from npm: pinned in a package.json, installed beside it on first use."""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path


def installed(folder: Path, file: str) -> Path:
    """``file`` of ``node_modules`` in ``folder``; npm installs what package.json there names where it is missing."""
    path = folder / "node_modules" / file
    with (folder / "package.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            # Without a lock file: npm writes the packages of one platform into it, and registries' addresses.
            quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
            subprocess.run(["npm", "install", *quiet], cwd=folder, check=True)
    return path
