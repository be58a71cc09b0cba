"""Local-search moves: a small change of some literals of one program."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Literal

from pydantic import BaseModel, ConfigDict

from coral_pipeline.teacher.embedded.programs import Number, Target

MoveKind = Literal["nudge", "reverse", "shift", "swap"]
MOVE_KINDS: dict[str, tuple[MoveKind, ...]] = {"numbers": ("nudge",), "order": ("reverse", "shift", "swap")}
"""Moves for each kind of target."""

_NUDGED = (1, 1, 1, 2, 2, 3)
"""How many numbers one nudge changes: drawn from these."""
_SHIFTED = (1, 1, 1, 2, 2, 3)
"""How long a shifted segment is: drawn from these."""
_PLAIN_FLOAT = re.compile(r"-?\d*\.(\d*)$")


class Move(BaseModel):
    """One change, so described that it can be told, kept, and made again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: MoveKind
    file: str
    name: str
    """Name of the target."""
    which: int
    """Ordinal of the target among those of its name and kind."""
    places: tuple[int, ...]
    """nudge: which numbers. reverse: first, last. swap: the two. shift: first, last, and places moved (signed)."""
    changes: tuple[float, ...] = ()
    """nudge: what is added to each."""

    def mirrored(self) -> Move:
        """The nudge in the opposite direction."""
        return self.model_copy(update={"changes": tuple(-change for change in self.changes)})

    def title(self) -> str:
        """One line for an eval's message and the notes."""
        match self.kind:
            case "nudge":
                by = ", ".join(f"{change:+.3g}" for change in self.changes)
                return f"nudge {self.name} at {', '.join(map(str, self.places))} by {by}"
            case "shift":
                first, last, distance = self.places
                return f"shift {self.name} {first}..{last} by {distance:+d}"
            case _:
                return f"{self.kind} {self.name} {self.places[0]}..{self.places[1]}"


def find_target(move: Move, targets: Sequence[Target]) -> Target | None:
    """The target a move was made for, in the present source; None where it is gone."""
    same = [t for t in targets if (t.file, t.name) == (move.file, move.name) and move.kind in MOVE_KINDS[t.kind]]
    return same[move.which] if move.which < len(same) else None


def propose(
    rng: random.Random, target: Target, targets: Sequence[Target], weights: Mapping[str, float], step: float, reach: int
) -> Move:
    """A random move for ``target``, one of ``targets``.

    ``weights``: how much each kind of move is favoured. ``step``: standard deviation of a nudge, as a
    share of the target's spread. ``reach``: elements of an order that a move spans at most.
    """
    kinds = MOVE_KINDS[target.kind]
    kind = rng.choices(kinds, [weights[kind] for kind in kinds])[0]
    size = len(target.numbers)
    changes: tuple[float, ...] = ()
    if kind == "nudge":
        places = tuple(sorted(rng.sample(range(size), min(rng.choice(_NUDGED), size))))
        changes = tuple(_change(rng, target.numbers[place], step * target.spread) for place in places)
    elif kind == "shift":
        places = _shift(rng, size, reach)
    else:
        length = rng.randint(2, max(2, min(reach, size)))
        first = rng.randrange(size - length + 1)
        places = (first, first + length - 1)
    same = [t for t in targets if (t.file, t.name, t.kind) == (target.file, target.name, target.kind)]
    return Move(kind=kind, file=target.file, name=target.name, which=same.index(target), places=places, changes=changes)


def new_texts(move: Move, target: Target, source: str) -> dict[Number, str]:
    """The text each literal gets by the move; those that keep theirs are left out."""
    numbers = target.numbers
    texts = [source[number.start : number.end] for number in numbers]
    if move.kind == "nudge":
        pairs = [
            (numbers[place], _nudged(texts[place], numbers[place].value, change))
            for place, change in zip(move.places, move.changes, strict=True)
        ]
    else:
        pairs = list(zip(numbers, reordered(move, texts), strict=True))
    return {number: text for number, text in pairs if text != source[number.start : number.end]}


def reordered(move: Move, items: Sequence[str]) -> list[str]:
    """The items as a move of an order leaves them."""
    result = list(items)
    first, last = move.places[0], move.places[1]
    if move.kind == "reverse":
        result[first : last + 1] = result[first : last + 1][::-1]
    elif move.kind == "swap":
        result[first], result[last] = result[last], result[first]
    else:
        segment = result[first : last + 1]
        del result[first : last + 1]
        result[first + move.places[2] : first + move.places[2]] = segment
    return result


def _shift(rng: random.Random, size: int, reach: int) -> tuple[int, int, int]:
    """A segment and how far it moves: first, last, signed distance (not 0)."""
    length = min(rng.choice(_SHIFTED), size - 1)
    first = rng.randrange(size - length + 1)
    furthest = max(1, reach - length)
    distances = [d for d in range(-furthest, furthest + 1) if d and 0 <= first + d <= size - length]
    return first, first + length - 1, rng.choice(distances)


def _change(rng: random.Random, number: Number, deviation: float) -> float:
    """What to add to a number: never nothing; whole for an integer."""
    change = rng.gauss(0.0, max(deviation, 1.0) if isinstance(number.value, int) else deviation)
    if isinstance(number.value, int):
        return float(round(change) or math.copysign(1, change))
    return float(f"{change:.2g}") or deviation


def _nudged(text: str, value: int | float, change: float) -> str:
    """The literal's new text: as many decimals as it had, more where the change needs them."""
    if isinstance(value, int):
        return str(value + int(change))
    plain = _PLAIN_FLOAT.match(text)
    if plain is None:
        return repr(value + change)
    needed = -int(Decimal(f"{change:.2g}").as_tuple().exponent)
    return f"{value + change:.{max(len(plain.group(1)), needed, 1)}f}"
