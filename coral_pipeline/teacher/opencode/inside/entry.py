"""First program in the sandbox: joins its loopback to the sockets that were bound in, then runs the agent.

``python entry.py REQUEST``: REQUEST is JSON with ``cwd``, ``command``, ``database`` and ``forwards``. ``forwards``
is a list of pairs of addresses; what connects to the first is joined to the second. An address is a port of
127.0.0.1 or the path of a unix socket. ``database``, where it is not null and is there, is OpenCode's, whose
sessions are moved to ``cwd``. Ends with the command, and with its exit code.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

_BYTES = 1 << 16

Address = int | str


async def main(request: dict[str, object]) -> int:
    """Open the forwards, run the command."""
    cwd = str(request["cwd"])
    make_folder(Path(cwd))
    os.chdir(cwd)
    if request["database"] is not None and Path(str(request["database"])).exists():
        move_sessions(str(request["database"]), cwd)
    os.environ["PWD"] = cwd  # OpenCode trusts it more than the real working directory
    servers = [await listen(source, target) for source, target in request["forwards"]]  # type: ignore[attr-defined]  # JSON
    process = await asyncio.create_subprocess_exec(*request["command"], stdin=asyncio.subprocess.DEVNULL)  # type: ignore[misc]  # JSON
    code = await process.wait()
    for server in servers:
        server.close()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    return code if code >= 0 else 128 - code


def make_folder(folder: Path) -> None:
    """Have a folder there that can be entered, whatever an agent has put in its place."""
    for place in (*reversed(folder.parents), folder):
        if not place.is_dir():
            place.unlink(missing_ok=True)
            place.mkdir()
        elif not os.access(place, os.X_OK):
            place.chmod(0o700)


def move_sessions(database: str, cwd: str) -> None:
    """Have OpenCode's sessions work in ``cwd``, wherever they were begun; an agent's own database is left alone."""
    import sqlite3

    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(database)) as connection,
        connection,
    ):
        connection.execute("UPDATE session SET directory = ?", (cwd,))
        connection.execute("UPDATE project SET worktree = ? WHERE id != 'global'", (cwd,))
        connection.execute("UPDATE OR REPLACE project_directory SET directory = ?", (cwd,))


async def listen(source: Address, target: Address) -> asyncio.AbstractServer:
    """Accept at ``source`` and join each connection to a new one to ``target``."""

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if isinstance(target, int):
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
            else:
                far_reader, far_writer = await asyncio.open_unix_connection(target)
        except OSError:
            writer.transport.abort()
            return
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    if isinstance(target, str):
        target = fitting(target)
    if isinstance(source, int):
        return await asyncio.start_server(accepted, "127.0.0.1", source)
    return await asyncio.start_unix_server(accepted, fitting(source))


def fitting(socket: str) -> str:
    """Another path of the socket, short enough for an address (107 bytes) wherever its folder lies.

    The folder stays open as long as this process.
    """
    path = Path(socket)
    return f"/proc/self/fd/{os.open(path.parent, os.O_PATH | os.O_DIRECTORY)}/{path.name}"


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes, as it comes; a connection that breaks breaks the other too."""
    try:
        while data := await reader.read(_BYTES):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        else:
            writer.close()
    except OSError:
        writer.transport.abort()


def outlive_signals() -> None:
    """Go on when an agent ends every Python there is; what is started ends by signals as usual.

    They are handled, by doing nothing, rather than ignored: programs inherit what is ignored, and an agent's
    ``timeout 60 COMMAND`` would never end. Those who started this may ignore them: where SIGINT is ignored (a
    background job of a script), Dagster has SIGTERM ignored too.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)


if __name__ == "__main__":
    outlive_signals()
    sys.exit(asyncio.run(main(json.loads(sys.argv[1]))))
