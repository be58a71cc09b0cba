"""The OpenCode that tests and benchmarks run: pinned in package.json beside this, installed here on first use."""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path

FOLDER = Path(__file__).parent
PROGRAM = FOLDER / "node_modules" / ".bin" / "opencode"


def opencode_program() -> Path:
    """OpenCode's program, installed by npm where it is not there yet."""
    with (FOLDER / "package.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not PROGRAM.exists():
            # Without a lock file: npm writes the packages of one platform into it, and registries' addresses.
            quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
            subprocess.run(["npm", "install", *quiet], cwd=FOLDER, check=True)
    return PROGRAM
