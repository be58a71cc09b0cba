"""References: how people name one thing of a Student run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

from coral_pipeline.errors import BadInput

OfRoot = Literal["root", "node", "edge", "path", "message", "token"]
OfDataset = Literal["sft", "branches"]
Kind = Literal[OfRoot, OfDataset]

FORMS = (
    "RUN/ROOT",
    "RUN/ROOT/node/7",
    "RUN/ROOT/edge/12",
    "RUN/ROOT/path/1",
    "RUN/ROOT/message/0.1/2/5",
    "RUN/ROOT/token/0.1/2/5/17",
    "RUN/sft/3",
    "RUN/sft/3/8",
    "RUN/branches/3",
    "RUN/branches/3/1042",
)
"""Every form of a reference; `coral-pipeline lineage --help` says what each means."""
_MEND = "write one of " + ", ".join(FORMS)


@dataclass(frozen=True)
class Reference:
    """One thing, named. Whether it is there is another question."""

    student_run: str
    kind: Kind
    root: str = ""
    """Name of the root, or its beginning; empty for things of the dataset."""
    name: str = ""
    """Number of a node, edge or row, rank of a path, id of a message; empty for a root."""
    position: int | None = None
    """Of a token or message in what ``name`` says; None: all of that."""

    @staticmethod
    def parse(text: str) -> Reference:
        """The reference in ``text``. Raises ``BadInput`` where it has none of ``FORMS``."""
        parts = text.strip("/").split("/")
        match parts:
            case [run, ("sft" | "branches") as kind, row]:
                return Reference(run, cast(Kind, kind), name=str(_number(text, row)))
            case [run, ("sft" | "branches") as kind, row, place]:
                return Reference(run, cast(Kind, kind), name=str(_number(text, row)), position=_number(text, place))
            case [run, root] if root not in get_args(OfDataset):
                return Reference(run, "root", root)
            case [run, root, ("node" | "edge" | "path") as kind, number]:
                return Reference(run, cast(Kind, kind), root, str(_number(text, number)))
            case [run, root, "message", _, *_]:
                return Reference(run, "message", root, "/".join(parts[3:]))
            case [run, root, "token", _, *_, place] if len(parts) > 4:
                return Reference(run, "token", root, "/".join(parts[3:-1]), _number(text, place))
        raise BadInput(f"reference {text!r}", "names nothing", _MEND)


def _number(text: str, part: str) -> int:
    if not (part.isascii() and part.isdecimal()):
        raise BadInput(f"reference {text!r}", f"{part!r} is no number", _MEND)
    return int(part)


def the_one(kind: str, wanted: str, there: Sequence[str], where: str) -> str:
    """The one of ``there`` that is ``wanted`` or begins with it. Raises ``BadInput`` that says what exists."""
    if wanted in there:
        return wanted
    found = [name for name in there if name.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        raise BadInput(f"{kind} {wanted!r}", f"could be {some(found)}", "write more of its name")
    raise BadInput(
        f"{kind} {wanted!r}", f"is not in {where}", f"what is there: {some(there)}" if there else "make it first"
    )


def some(names: Sequence[str], shown: int = 6) -> str:
    """Some of the names, and how many more there are; runs of numbers as their ends."""
    if len(names) > shown and all(name.isdecimal() for name in names):
        return f"{names[0]} to {names[-1]}"
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
