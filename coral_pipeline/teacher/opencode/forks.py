"""Forks of a frozen state: the same files once more, to be changed at will, the source never touched.

A state is one layer or a stack of layers (folders), the newest first. Three methods, chosen by trying:

- ``overlay``: the layers are stacked by overlayfs under an empty one that takes every change. Costs
  milliseconds and no bytes; what the fork changed is the next layer. The mount lives in a mount namespace of
  its own, held by a small process that ends when its standard input closes: however this process ends, no
  mount is left behind.
- ``reflink``: a whole copy whose files share their blocks with the source's until they are written.
- ``copy``: a whole copy; large git objects, which git itself never changes in place, are hard links where a
  sandbox can keep agents from doing so (``View.shared``).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from coral_pipeline.errors import BadInput
from coral_pipeline.teacher.file_trees import can_share_blocks, copy_state
from coral_pipeline.teacher.protocol import InfrastructureFault
from coral_pipeline.tree_copy import remove_tree

MethodName = Literal["overlay", "reflink", "copy"]
WantedMethod = Literal["auto", "overlay", "reflink", "copy"]

_MOUNT = """
cd "$1" || exit 3
mount -t overlay overlay -o "lowerdir=$2,upperdir=$3,workdir=$4,redirect_dir=on" "$5" 2>/dev/null ||
mount -t overlay overlay -o "lowerdir=$2,upperdir=$3,workdir=$4,userxattr" "$5" || exit 3
echo mounted
read -r _
umount "$5" 2>/dev/null || umount --lazy "$5"
"""
_NAMESPACES = (("unshare", "--mount"), ("unshare", "--user", "--map-root-user", "--mount"))
"""How a mount namespace is entered: as root, else as root of a user namespace."""


@dataclass(frozen=True)
class View:
    """The files of a fork while it lives."""

    files: Path
    """Where this process finds them."""
    seen: Path
    """Where programs started behind ``enter`` find them."""
    enter: tuple[str, ...]
    """What to put before a command so that it sees them."""
    shared: tuple[Path, ...] = ()
    """Files, as paths inside, that are also the source's: agents must not be able to write to them."""


class ForkMethod(Protocol):
    """One way to fork."""

    name: MethodName

    def open(self, layers: Sequence[Path], scratch: Path) -> contextlib.AbstractContextManager[View]:
        """The state made of ``layers`` (newest first), ready to be changed; changes stay in ``scratch``.

        Raises ``InfrastructureFault`` where the machine refuses.
        """

    def changed(self, scratch: Path) -> Path:
        """The folder in ``scratch`` that becomes the new layer once the fork is closed."""

    def stacks(self) -> bool:
        """Whether the new layer needs the older ones below it."""


class Overlay:
    """Forks by overlayfs."""

    name: MethodName = "overlay"

    def __init__(self, namespace: Sequence[str] = _NAMESPACES[0]) -> None:
        """``namespace``: the command that runs another in a mount namespace of its own."""
        self._namespace = tuple(namespace)

    @contextlib.contextmanager
    def open(self, layers: Sequence[Path], scratch: Path) -> Iterator[View]:
        """See ``ForkMethod``."""
        upper, work, merged = (scratch / name for name in ("upper", "work", "merged"))
        for folder in (upper, work, merged):
            folder.mkdir(parents=True)
        # Names relative to a common folder keep the mount's options short and free of this machine's paths.
        base = Path(os.path.commonpath([scratch, *layers]))
        lower = ":".join(str(layer.relative_to(base)) for layer in layers)
        places = [str(base), lower, *(str(path.relative_to(base)) for path in (upper, work, merged))]
        holder = subprocess.Popen(
            [*self._namespace, "--propagation", "private", "sh", "-c", _MOUNT, "sh", *places],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert holder.stdin is not None and holder.stdout is not None
        try:
            said = holder.stdout.readline().strip()
            if said != "mounted":
                raise InfrastructureFault(f"overlayfs cannot be mounted: {said or 'unshare is not allowed'}")
            users = ("--user", "--preserve-credentials") if "--user" in self._namespace else ()
            enter = ("nsenter", f"--target={holder.pid}", "--mount", *users)
            yield View(Path(f"/proc/{holder.pid}/root{merged}"), merged, enter)
        finally:
            holder.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                holder.wait(timeout=10)
            holder.kill()
            holder.wait()
            holder.stdout.close()

    def changed(self, scratch: Path) -> Path:
        """See ``ForkMethod``."""
        return scratch / "upper"

    def stacks(self) -> bool:
        """See ``ForkMethod``."""
        return True


class Copy:
    """Forks by copying the whole state, sharing what can be shared."""

    def __init__(self, name: MethodName, links: bool = False) -> None:
        """``name``: ``reflink`` or ``copy``; ``links``: git objects may be hard links."""
        self.name = name
        self._links = links

    @contextlib.contextmanager
    def open(self, layers: Sequence[Path], scratch: Path) -> Iterator[View]:
        """See ``ForkMethod``; the newest layer is the whole state."""
        files = scratch / "files"
        scratch.mkdir(parents=True, exist_ok=True)
        try:
            shared = copy_state(layers[0], files, self._links)
        except OSError as error:
            raise InfrastructureFault(f"state cannot be copied: {error}") from error
        yield View(files, files, (), shared)

    def changed(self, scratch: Path) -> Path:
        """See ``ForkMethod``."""
        return scratch / "files"

    def stacks(self) -> bool:
        """See ``ForkMethod``."""
        return False


def choose_method(folder: Path, wanted: WantedMethod = "auto", isolated: bool = False) -> ForkMethod:
    """The first method that works in ``folder``, by trying each; or the wanted one.

    ``isolated``: agents run in a sandbox that keeps them from writing to what forks share.
    Raises ``BadInput`` where it does not work there, with the reason.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise BadInput(folder, f"cannot be written to ({error.strerror})", "choose another output folder") from error
    copies = (Copy("reflink"), Copy("copy", links=isolated))
    candidates: list[ForkMethod] = [*(Overlay(namespace) for namespace in _NAMESPACES), *copies]
    reasons: list[str] = []
    for method in candidates:
        if wanted in ("auto", method.name):
            reason = why_not(method, folder)
            if reason is None:
                return method
            reasons.append(f"{method.name}: {reason}")
    raise BadInput(
        folder,
        f"states cannot be forked there ({'; '.join(reasons)})",
        "choose an output folder on ext4, xfs or btrfs, or the fork method `auto`",
    )


def why_not(method: ForkMethod, folder: Path) -> str | None:
    """Why a method does not work in ``folder``, found by forking a small state; None where it does."""
    with tempfile.TemporaryDirectory(prefix=".fork-", dir=folder) as name:
        trial = Path(name).resolve()
        state = trial / "state"
        (state / "folder").mkdir(parents=True)
        (state / "file").write_text("old")
        if method.name == "reflink" and not can_share_blocks(state / "file", trial / "copy"):
            return "the file system cannot share blocks"
        try:
            with method.open([state], trial / "fork") as view:
                script = 'cd "$1" && echo new > file && mv folder moved'
                command = [*view.enter, "sh", "-c", script, "sh", str(view.seen)]
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode or (view.files / "file").read_text() != "new\n":
                    return done.stderr.strip() or "the fork cannot be entered"
        except (InfrastructureFault, OSError) as error:
            return str(error)
        finally:
            remove_tree(trial / "fork")
        if (state / "file").read_text() != "old" or not (state / "folder").is_dir():
            return "the fork changed its source"
    return None
