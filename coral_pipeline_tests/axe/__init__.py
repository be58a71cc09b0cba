"""Deque's accessibility checks: pinned in package.json beside this, installed here on first use."""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path

FOLDER = Path(__file__).parent
SCRIPT = FOLDER / "node_modules" / "axe-core" / "axe.min.js"


def axe_script() -> str:
    """The checks as JavaScript, installed by npm where they are not there yet."""
    with (FOLDER / "package.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not SCRIPT.exists():
            # Without a lock file: npm writes registries' addresses into it.
            quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
            subprocess.run(["npm", "install", *quiet], cwd=FOLDER, check=True)
    return SCRIPT.read_text(encoding="utf-8")
