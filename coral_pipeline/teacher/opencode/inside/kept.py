"""Says ``kept`` where OpenCode's database holds a session, else ``lost``: it is an agent's to write to.

``python kept.py DATABASE SESSION [MESSAGE]``: the database must be whole and writable, and MESSAGE be in the session.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from urllib.parse import quote

_PATIENCE_SECONDS = 60.0


def is_kept(database: str, session: str, message: str | None) -> bool:
    """Whether a next turn can go on in the session."""
    found = (
        "SELECT 1 FROM session WHERE id = ?1 AND (?2 IS NULL OR ?2 IN (SELECT id FROM message WHERE session_id = ?1))"
    )
    try:
        with contextlib.closing(
            sqlite3.connect(
                f"file:{quote(database)}?mode=rw", uri=True, timeout=_PATIENCE_SECONDS, isolation_level=None
            )
        ) as connection:
            if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                return False
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
            return connection.execute(found, (session, message)).fetchone() is not None
    except sqlite3.Error:
        return False


if __name__ == "__main__":
    print("kept" if is_kept(sys.argv[1], sys.argv[2], sys.argv[3] if sys.argv[3:] else None) else "lost")
