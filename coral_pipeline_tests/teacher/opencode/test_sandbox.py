"""What programs in the sandbox see, and what they cannot do."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from coral_pipeline.errors import BadInput
from coral_pipeline.settings import SandboxSettings
from coral_pipeline.teacher.opencode.forks import View
from coral_pipeline.teacher.opencode.inside import entry
from coral_pipeline.teacher.opencode.sandbox import PROGRAMS, Mount, Sandbox, environment

ENTRY = Path(entry.__file__)


@pytest.fixture
def fork(tmp_path: Path) -> View:
    (tmp_path / "fork" / "coral" / "agents" / "agent-1").mkdir(parents=True)
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("secret")
    return View(tmp_path / "fork", tmp_path / "fork", ())


def run_in(fork: View, script: str, settings: SandboxSettings | None = None, *more: Mount) -> tuple[int, str]:
    """Exit code and output of a shell script in the sandbox."""
    sandbox = Sandbox(settings or SandboxSettings())
    mounts = [Mount(fork.seen / "coral", Path("/coral"), "write"), *more]
    command = sandbox.command(fork, mounts, ["sh", "-c", script], Path("/coral/agents/agent-1"))
    done = subprocess.run(command, capture_output=True, text=True, env=environment(sandbox))
    return done.returncode, done.stdout + done.stderr


def test_paths_are_the_same_in_every_fork_and_nothing_else_is_there(fork: View, tmp_path: Path) -> None:
    code, said = run_in(fork, f"pwd; ls /; ls {tmp_path} 2>&1; cat {tmp_path}/private/key 2>&1")
    lines = said.split()
    assert lines[0] == "/coral/agents/agent-1"
    assert not {"srv", "var", "mnt", "sys", "boot", "data"} & set(lines)
    assert "secret" not in said and code != 0


def test_the_fork_can_be_written_and_the_system_cannot(fork: View) -> None:
    _, said = run_in(fork, "echo new > file; for f in /usr/x /etc/x /x /dev/x /opt/x; do echo > $f && echo WROTE; done")
    assert (fork.files / "coral/agents/agent-1/file").read_text() == "new\n"
    assert "WROTE" not in said


def test_there_is_no_network(fork: View) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        program = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        code, said = run_in(fork, f'{sys.executable} -c "{program}"')
        assert code != 0 and "refused" in said
    _, said = run_in(fork, "cat /proc/net/dev")
    assert [line.split(":")[0].strip() for line in said.splitlines()[2:]] == ["lo"]


def test_other_processes_are_invisible_and_none_is_left(fork: View) -> None:
    _, said = run_in(fork, "ls /proc | grep -c '^[0-9]'; sleep 5432 & echo $!")
    assert int(said.split()[0]) < 8
    assert "5432" not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout


def test_memory_written_to_tmp_is_bounded(fork: View) -> None:
    fill = "for f in $TMPDIR/x $HOME/x /dev/shm/x; do head -c 3000000 /dev/zero > $f 2> /dev/null; stat -c %s $f; done"
    _, said = run_in(fork, fill, SandboxSettings(tmp_bytes=1 << 20))
    sizes = [int(size) for size in said.split()]
    assert len(sizes) == 3 and all(0 < size <= 1 << 20 for size in sizes)


def test_nothing_of_our_environment_reaches_the_agent(fork: View, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_API_KEY", "sk-secret")
    monkeypatch.setenv("WANTED", "yes")
    _, said = run_in(fork, "env", SandboxSettings(keep_environment=("WANTED", "NOT_SET")))
    assert "sk-secret" not in said and "WANTED=yes" in said


def test_programs_may_be_brought_along(fork: View, tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho brought\n")
    tool.chmod(0o755)
    brought = Mount(tool, PROGRAMS / "thetool")
    assert run_in(fork, f"{PROGRAMS}/thetool", None, brought) == (0, "brought\n")


def test_what_is_shown_is_seen_wherever_it_lies(fork: View, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Below /tmp too, which is a memory of the sandbox's own: the Python this runs on may lie there."""
    with tempfile.TemporaryDirectory(dir="/tmp") as below_tmp:
        for folder in (Path(below_tmp), tmp_path_factory.mktemp("tools")):
            (folder / "tool").write_text("here")
            assert run_in(fork, f"cat {folder}/tool", SandboxSettings(read_only=(folder,))) == (0, "here")


def test_a_folder_that_must_stay_hidden_is_found_in_what_is_shown(tmp_path: Path) -> None:
    shown = Sandbox(SandboxSettings(read_only=(tmp_path,)))
    with pytest.raises(BadInput, match="private"):
        shown.require([tmp_path / "private"])
    Sandbox(SandboxSettings()).require([tmp_path / "private"])


def test_a_missing_bubblewrap_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(BadInput, match="apt-get install bubblewrap"):
        Sandbox(SandboxSettings()).require([])


def test_a_refused_bubblewrap_is_told_with_what_to_allow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # as a kernel without user namespaces answers
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(BadInput, match=r"No permissions.*userns"):
        Sandbox(SandboxSettings()).require([])


def test_unisolated_is_an_explicit_setting(fork: View) -> None:
    sandbox = Sandbox(SandboxSettings(isolation="none"))
    sandbox.require([])
    assert sandbox.command(fork, [], ["true"], fork.seen) == ["true"]


def test_programs_end_by_signals_whatever_those_who_started_them_ignore(tmp_path: Path) -> None:
    """A job in the background of a script ignores SIGINT, and Dagster then has SIGTERM ignored as well."""
    ends_itself = ["sh", "-c", "kill -TERM $$; echo survived"]
    request = {"database": None, "cwd": str(tmp_path), "command": ends_itself, "forwards": []}
    ignoring = "trap '' INT TERM HUP QUIT; exec \"$@\""
    command = ["sh", "-c", ignoring, "sh", sys.executable, "-I", str(ENTRY), json.dumps(request)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 128 + signal.SIGTERM), done.stderr


def test_the_entry_joins_the_loopback_to_sockets_and_back(fork: View, tmp_path: Path) -> None:
    sockets = tmp_path / "sockets"
    sockets.mkdir()
    inside = Path("/run/teacher", *["a-folder-with-a-long-name"] * 5)  # longer than a socket's address may be
    with socket.socket(socket.AF_UNIX) as model:
        model.bind(str(sockets / "model.sock"))
        model.listen()

        def answer() -> None:
            connection, _ = model.accept()
            with connection:
                connection.sendall(b"answer to " + connection.recv(100))

        thread = threading.Thread(target=answer)
        thread.start()
        asking = (
            "import socket; c = socket.create_connection(('127.0.0.1', 8000)); c.sendall(b'question');"
            "c.shutdown(socket.SHUT_WR); import os; print(c.recv(100).decode(), os.environ['PWD'])"
        )
        request = {
            "database": None,
            "cwd": "/coral/agents/agent-1/gone",
            "command": [sys.executable, "-c", asking],
            "forwards": [[8000, f"{inside}/model.sock"]],
        }
        program = [sys.executable, "-I", "/opt/teacher/entry.py", json.dumps(request)]
        mounts = [
            Mount(fork.seen / "coral", Path("/coral"), "write"),
            Mount(sockets, inside, "write"),
            Mount(ENTRY, Path("/opt/teacher/entry.py")),
        ]
        sandbox = Sandbox(SandboxSettings())
        command = sandbox.command(fork, mounts, program, Path("/coral"))
        done = subprocess.run(command, capture_output=True, text=True, env=environment(sandbox))
        thread.join()
    assert (done.stdout, done.returncode) == ("answer to question /coral/agents/agent-1/gone\n", 0), done.stderr
