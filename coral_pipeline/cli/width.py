"""The option ``--width``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from coral_pipeline.settings import Width

WidthOption = Annotated[
    str | None,
    typer.Option(
        show_default="8",
        help="Expansions of one round; `auto`: what model server and machine can take when a tree is begun.",
    ),
]


def width_option(given: str | None) -> Width | None:
    """What was given, checked. Anything but a number from 1 and ``auto`` is wrong usage."""
    if given is None:
        return None
    if given == "auto":
        return "auto"
    if given.isascii() and given.isdigit() and int(given) >= 1:
        return int(given)
    raise typer.BadParameter(f"{given!r} is neither a number from 1 nor auto", param_hint="--width")
