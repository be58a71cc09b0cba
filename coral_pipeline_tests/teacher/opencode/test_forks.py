"""Forks leave their source as it was, whatever is done in them, and nothing of themselves behind."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coral_pipeline.disk_use import disk_bytes
from coral_pipeline.errors import BadInput
from coral_pipeline.settings import SandboxSettings
from coral_pipeline.teacher.file_trees import copy_state, flush
from coral_pipeline.teacher.opencode.forks import _NAMESPACES, Copy, ForkMethod, Overlay, choose_method, why_not
from coral_pipeline.teacher.opencode.root import SEEN
from coral_pipeline.teacher.opencode.sandbox import Sandbox, environment, fork_mounts
from coral_pipeline.teacher.protocol import InfrastructureFault
from coral_pipeline.tree_copy import remove_tree

METHODS: list[ForkMethod] = [Overlay(_NAMESPACES[0]), Overlay(_NAMESPACES[1]), Copy("reflink"), Copy("copy")]
NAMES = ["overlay", "overlay in a user namespace", "reflink", "copy"]

DAMAGE = """
cd "$1"
echo changed >> file
rm removed
mv moved somewhere
mkdir -p deep/er && echo new > deep/er/new
ln -sf deep/er/new link
chmod 600 kept
git -C repo commit -q --allow-empty -m more
rm -rf folder && echo now a file > folder
"""


def fingerprint(folder: Path) -> dict[str, str]:
    """Every file, folder and link below ``folder``: type, permissions, contents, modification time."""
    prints = {}
    for parent, folders, files in os.walk(folder):
        for name in folders + files:
            path = Path(parent) / name
            status = path.lstat()
            content = str(path.readlink()) if path.is_symlink() else ""
            if path.is_file() and not path.is_symlink():
                content = hashlib.sha256(path.read_bytes()).hexdigest()
            prints[str(path.relative_to(folder))] = f"{status.st_mode:o} {status.st_mtime_ns} {content}"
    return prints


@pytest.fixture
def state(tmp_path: Path) -> Path:
    state = tmp_path / "states" / "root" / "files"
    (state / "folder").mkdir(parents=True)
    for name in ("file", "removed", "moved", "kept", "folder/inner"):
        (state / name).write_text(f"{name} as it was\n")
    (state / "link").symlink_to("/coral/absolute")
    script = "git init -q repo && cd repo && git config user.name t && git config user.email t@t && "
    script += "cp ../file . && git add -A && git commit -q -m first"
    subprocess.run(["sh", "-c", script], cwd=state, check=True)
    return state


def method_or_skip(method: ForkMethod, folder: Path) -> ForkMethod:
    reason = why_not(method, folder)
    if reason is not None:
        pytest.skip(f"{method.name} does not work here: {reason}")
    return method


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_the_source_is_never_changed_and_the_changes_are_kept(method: ForkMethod, state: Path, tmp_path: Path) -> None:
    method = method_or_skip(method, tmp_path)
    before = fingerprint(state)
    scratch = tmp_path / "forks" / "0"
    with method.open([state], scratch) as view:
        done = subprocess.run([*view.enter, "sh", "-ec", DAMAGE, "sh", str(view.seen)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        inside = fingerprint(view.files)
    assert inside["folder"] != before["folder"] and "removed" not in inside
    # the fork of the fork sees what the fork left
    frozen = tmp_path / "states" / "0" / "files"
    frozen.parent.mkdir()
    method.changed(scratch).rename(frozen)
    layers = [frozen, state] if method.stacks() else [frozen]
    with method.open(layers, tmp_path / "forks" / "0.0") as view:
        assert fingerprint(view.files) == inside
        (view.files / "file").write_text("grandchild")
    assert fingerprint(state) == before


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_two_forks_at_once_stay_apart(method: ForkMethod, state: Path, tmp_path: Path) -> None:
    method = method_or_skip(method, tmp_path)
    with method.open([state], tmp_path / "a") as one, method.open([state], tmp_path / "b") as other:
        (one.files / "file").write_text("one")
        (other.files / "file").write_text("other")
        assert (one.files / "file").read_text() == "one"
        (other.files / "kept").unlink()
        assert (one.files / "kept").exists()


def test_overlay_forks_cost_no_bytes_and_leave_no_mount(state: Path, tmp_path: Path) -> None:
    method = method_or_skip(Overlay(), tmp_path)
    (state / "big").write_bytes(b"x" * 4_000_000)
    with method.open([state], tmp_path / "fork") as view:
        assert (view.files / "big").stat().st_size == 4_000_000
        assert disk_bytes(tmp_path / "fork" / "upper") == 0
        # the mount is only seen behind `enter`
        assert "fork/merged" not in Path("/proc/self/mountinfo").read_text()
    assert list((tmp_path / "fork" / "merged").iterdir()) == []


def test_many_layers_are_stacked(state: Path, tmp_path: Path) -> None:
    method = method_or_skip(Overlay(), tmp_path)
    layers = [state]
    for number in range(12):
        scratch = tmp_path / "forks" / str(number)
        with method.open(layers, scratch) as view:
            (view.files / f"new-{number}").write_text("x")
        layers.insert(0, method.changed(scratch))
    with method.open(layers, tmp_path / "last") as view:
        assert sum(path.name.startswith("new-") for path in view.files.iterdir()) == 12


def test_no_mount_and_no_process_outlive_a_killed_owner(state: Path, tmp_path: Path) -> None:
    method_or_skip(Overlay(), tmp_path)
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom coral_pipeline.teacher.opencode.forks import Overlay\n"
        "with Overlay().open([Path(sys.argv[1])], Path(sys.argv[2])) as view:\n"
        "    print(view.files.parts[2], flush=True)\n    time.sleep(600)\n"
    )
    command = [sys.executable, "-c", program, str(state), str(tmp_path / "fork")]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    holder = Path("/proc") / owner.stdout.readline().strip()
    assert holder.exists()
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    deadline = time.monotonic() + 20
    while holder.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not holder.exists()


TAMPERING = """
cd /coral
for file in $(find repo/.git/objects -type f -size +1000k); do
  chmod u+w $file; echo tampered >> $file; truncate -s 1 $file; rm -f $file; ln -f $file $file.2; cp /dev/null $file.2
  mv repo/.git/objects repo/.git/moved; truncate -s 1 repo/.git/moved/pack/*.pack; mv repo/.git/moved repo/.git/objects
done 2> /dev/null
unshare --user --map-root-user --mount sh -c 'umount -a; mount --bind . /tmp; truncate -s 1 /tmp/repo/.git/*/*/*'
echo more > repo/more && git -C repo add -A && git -C repo commit -q -m more && git -C repo log --oneline | wc -l
"""


def test_an_agent_cannot_change_the_git_objects_that_a_copy_shares_with_its_source(state: Path, tmp_path: Path) -> None:
    (state / "coral").mkdir()
    (state / "repo").rename(state / "coral" / "repo")
    (state / "coral" / "repo" / "large").write_bytes(os.urandom(2 << 20))
    commit = "git add -A && git commit -q -m large && git repack -adq"
    subprocess.run(["sh", "-c", commit], cwd=state / "coral" / "repo", check=True)
    before = fingerprint(state)
    sandbox = Sandbox(SandboxSettings())
    scratch = tmp_path / "fork"
    with Copy("copy", links=True).open([state], scratch) as view:
        assert [file.suffix for file in view.shared] == [".pack"]
        assert disk_bytes(tmp_path) - disk_bytes(state) < 3 << 20, "a working copy and no second pack"
        command = sandbox.command(view, fork_mounts(view, "coral", SEEN), ["sh", "-c", TAMPERING], SEEN)
        done = subprocess.run(command, capture_output=True, text=True, env=environment(sandbox))
        assert done.stdout.splitlines()[-1:] == ["3"], done.stderr
    assert fingerprint(state) == before
    # what it left is a state like any other
    with Copy("copy", links=True).open([scratch / "files"], tmp_path / "next") as view:
        assert view.shared


def test_without_a_sandbox_a_copy_shares_nothing(state: Path, tmp_path: Path) -> None:
    (state / "repo" / "large").write_bytes(os.urandom(2 << 20))
    subprocess.run(["sh", "-c", "git add -A && git commit -q -m large"], cwd=state / "repo", check=True)
    with choose_method(tmp_path, "copy").open([state], tmp_path / "fork") as view:
        assert view.shared == ()
        assert all(path.stat().st_nlink == 1 for path in view.files.rglob("*") if path.is_file())


def test_what_cannot_be_forked_is_said(state: Path, tmp_path: Path) -> None:
    with (
        pytest.raises(InfrastructureFault, match="overlayfs"),
        Overlay().open([tmp_path / "states" / "missing"], tmp_path / "fork"),
    ):
        pass
    with pytest.raises(InfrastructureFault, match="copied"), Copy("copy").open([tmp_path / "missing"], tmp_path / "c"):
        pass


def test_the_method_is_chosen_by_trying(tmp_path: Path) -> None:
    assert choose_method(tmp_path / "new" / "work").name in ("overlay", "reflink", "copy")
    assert choose_method(tmp_path, "copy").name == "copy"
    assert list(tmp_path.glob(".fork-*")) == []


def test_a_folder_that_cannot_be_written_to_is_named() -> None:
    with pytest.raises(BadInput, match=r"/proc/1: cannot be written to"):
        choose_method(Path("/proc/1"))


def test_a_method_that_does_not_work_is_told_with_the_reason(tmp_path: Path) -> None:
    if why_not(Copy("reflink"), tmp_path) is not None:
        with pytest.raises(BadInput, match="reflink"):
            choose_method(tmp_path, "reflink")


def test_a_copied_state_is_the_state(state: Path, tmp_path: Path) -> None:
    os.mkfifo(state / "pipe")
    (state / "closed").mkdir(mode=0o500)
    copy_state(state, tmp_path / "copy", link_git_objects=True)
    (state / "pipe").unlink()
    before, after = fingerprint(state), fingerprint(tmp_path / "copy")
    assert before.pop("folder").split()[0] == after.pop("folder").split()[0]
    assert before == after
    flush(tmp_path / "copy")
    remove_tree(tmp_path / "copy")
    remove_tree(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
