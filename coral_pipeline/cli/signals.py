"""Ending well when the terminal or an orchestrator asks for it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """Whether a signal asked to stop, and which."""

    def __init__(self) -> None:
        """Not asked yet."""
        self.event = threading.Event()
        self.signal: signal.Signals | None = None

    @property
    def exit_code(self) -> int:
        """128 + the signal, as shells report it: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + (self.signal or signal.SIGTERM)


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Within the block the first SIGINT, SIGTERM or SIGHUP sets ``event``; the same signal again kills at once."""
    stop = Stop()

    def ask(number: int, frame: FrameType | None) -> None:
        stop.signal = signal.Signals(number)
        signal.signal(number, signal.SIG_DFL)
        typer.echo(f"{stop.signal.name}: stopping", err=True)
        stop.event.set()

    before = {number: signal.signal(number, ask) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
