"""Run by the teacher in a process of its own: grade one code folder, write the result to a pipe.

``python child.py REQUEST CHANNEL``: REQUEST is JSON (see ``grade``), CHANNEL an open file descriptor. On it go
``STARTED`` and then the report. Nothing of the package is imported.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import types
from importlib import import_module
from typing import Any

STARTED = b"\n"
"""Goes ahead of everything: the machine has done its part. White space, to a reader of JSON."""
REPORT_BYTES = 1 << 20
"""Longer reports go without their metadata."""
FEEDBACK_CHARACTERS = 20_000
"""Longer feedback is cut: with it alone a report is never too long."""

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _CAP_SYS_PTRACE = 1, 4, 24, 19


def main() -> None:
    """Grade, then report: ``{"score", "feedback", "metadata"}`` or ``{"error", "traceback"}``."""
    request, channel = json.loads(sys.argv[1]), int(sys.argv[2])
    shut_off(channel)
    os.write(channel, STARTED)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # what is ignored here, graded programs would ignore too
    sys.dont_write_bytecode = True
    sys.path.extend(request["import_paths"])
    try:
        report = grade(request)
    except Exception as error:  # whatever a grader raises is a crashed attempt, as in CORAL's own daemon
        import traceback

        trace = traceback.format_exc()[-FEEDBACK_CHARACTERS:]
        report = {"error": str(error)[:FEEDBACK_CHARACTERS], "traceback": trace}
    with os.fdopen(channel, "wb") as pipe:
        pipe.write(told(report))
    os._exit(0)  # what goes wrong when a library is taken down would say nothing about the score


def shut_off(channel: int) -> None:
    """Close the ways in which a program that the grader starts could reach this process, and so the channel.

    They would be to inherit the descriptor, to open it or this memory in ``/proc``, and to trace: all denied to
    the same user's programs once a process is not dumpable, and to root's once they lack the capability.
    """
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(_PR_CAPBSET_DROP, _CAP_SYS_PTRACE, 0, 0, 0)  # of what is executed from here; refused unless root
    # Whoever ends families by their markers cannot see that of such a process: it ends with the one that began it.
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.set_inheritable(channel, False)

    def in_fork() -> None:
        os.close(channel)
        libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)

    os.register_at_fork(after_in_child=in_fork)


def told(report: dict[str, Any]) -> bytes:
    """The report as JSON; without its metadata where these are too long, or cannot be told."""

    def text(content: dict[str, Any]) -> bytes:
        # Bytes that a grader could not decode, and passed on, are no text; they become question marks.
        return json.dumps(content, default=str, ensure_ascii=False).encode(errors="replace")

    try:
        whole = text(report)
    except (TypeError, ValueError, RecursionError):
        whole = None
    return whole if whole is not None and len(whole) <= REPORT_BYTES else text({**report, "metadata": {}})


def grade(request: dict[str, Any]) -> dict[str, Any]:
    """What the task's grader says of the code."""
    grader = load_grader(request)
    started = time.monotonic()
    result = grader.evaluate()
    if request["timeout"] and time.monotonic() - started > request["timeout"]:
        result = grader.fail(f"Evaluation timed out after {request['timeout']}s")
    if not hasattr(result, "aggregated"):
        return {"score": float(result), "feedback": "", "metadata": {}}
    explanations = [f"{name}: {score.explanation}" for name, score in result.scores.items() if score.explanation]
    feedback = "\n".join([*([result.feedback] if result.feedback else []), *explanations])
    return {
        "score": result.aggregated,
        "feedback": feedback[:FEEDBACK_CHARACTERS],
        "metadata": dict(result.metadata or {}),
    }


def load_grader(request: dict[str, Any]) -> Any:
    """The task's ``Grader``, ready to evaluate; with CORAL's own base class where CORAL is installed."""
    try:
        import_module("coral.grader")
    except ImportError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "coral"]:
            del sys.modules[name]  # another package of that name, or a part of CORAL without what it needs
        sys.path.insert(0, request["stand_in"])
    config = types.SimpleNamespace(timeout=request["timeout"], args=request["args"], direction=request["direction"])
    grader = grader_class(request)(config=config)
    grader.private_dir = request["private_dir"]
    grader.codebase_path = request["codebase_path"]
    task = types.SimpleNamespace(id=request["task_name"], name=request["task_name"], metadata={})
    task.description = request["task_description"]
    grader.tasks = [task]
    return grader


def grader_class(request: dict[str, Any]) -> Any:
    """The class that grades: of an installed package, or ``Grader`` of ``eval/grader.py``."""
    if request["entrypoint"]:
        module_name, _, name = request["entrypoint"].partition(":")
        return getattr(import_module(module_name), name)
    path = f"{request['private_dir']}/eval/grader.py"
    module = types.ModuleType("task_grader")
    module.__file__ = path
    sys.modules["task_grader"] = module
    with open(path, "rb") as source:  # noqa: PTH123 - loading pathlib takes longer than all the rest
        exec(compile(source.read(), path, "exec"), module.__dict__)
    return module.Grader


if __name__ == "__main__":
    main()
