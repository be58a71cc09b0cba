"""Two diffs, one after the other, as one: what an edge's two turns changed in the code of its parent.

Done on the text of the diffs alone, for the code itself may be gone. A hunk tells all lines of the stretch it
changes, before and after; so where hunks of both diffs touch, all lines of the stretch they make together are
known, and elsewhere each stands as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_FILE = "diff --git "
_PLAIN = ("index ", "--- ", "+++ ")
"""How the lines begin that git writes above the hunks of a file that was merely changed."""
_NEW = ("new file mode ",)
_MOVED = ("rename ", "copy ", "similarity ")
"""Likewise, where the other diff may tell of the file under another name."""
_CUT = "\\ Cut here"
"""How the line begins with which a diff ends that is not all of it; see ``teacher.code_diff``."""
_CONTEXT = 3


class Unfit(Exception):
    """The two diffs cannot be made one: files renamed, deleted or binary, or a diff that was cut."""


@dataclass(frozen=True)
class Hunk:
    """A stretch of lines and what became of it. Lines keep their ends; starts count from 0."""

    old_start: int
    old: tuple[str, ...]
    new_start: int
    new: tuple[str, ...]


@dataclass(frozen=True)
class FileDiff:
    """What a diff says of one file."""

    text: str
    """As git writes it."""
    head: tuple[str, ...]
    """Lines above the hunks, after the one that names the file."""
    hunks: tuple[Hunk, ...]


def combined(first: str, second: str) -> str | None:
    """The diff from before ``first`` to after ``second``, which begins where ``first`` ends; None: cannot be said."""
    if not first or not second:
        return first or second
    try:
        before, after = _files(first), _files(second)
        parts = [_file(name, before.get(name), after.get(name)) for name in sorted(before.keys() | after.keys())]
    except Unfit:
        return None
    return "".join(parts)


def _file(name: str, first: FileDiff | None, second: FileDiff | None) -> str:
    if first is None or second is None:
        return (first or second or FileDiff("", (), ())).text
    if not all(line.startswith(_PLAIN) for line in second.head):
        raise Unfit
    if not all(line.startswith(_PLAIN + _NEW) for line in first.head):
        raise Unfit
    hunks = "".join(_hunk(hunk) for group in _groups(first.hunks, second.hunks) for hunk in _narrowed(group))
    return "".join((name, *first.head, hunks)) if hunks else ""


def _files(diff: str) -> dict[str, FileDiff]:
    """The files of a diff by the line that names them; ``Unfit`` where a name is not all there is to a file."""
    lines = [f"{line}\n" for line in diff.removesuffix("\n").split("\n")]
    if lines[-1].startswith(_CUT):
        raise Unfit
    starts = [i for i, line in enumerate(lines) if line.startswith(_FILE)]
    found: dict[str, FileDiff] = {}
    for start, end in zip(starts, [*starts, len(lines)][1:], strict=True):
        own = lines[start + 1 : end]
        first = next((i for i, line in enumerate(own) if line.startswith("@@")), len(own))
        if any(line.startswith(_MOVED) for line in own[:first]):
            raise Unfit
        found[lines[start]] = FileDiff("".join(lines[start:end]), tuple(own[:first]), tuple(_hunks(own[first:])))
    return found


def _hunks(lines: Sequence[str]) -> Iterator[Hunk]:
    place = 0
    while place < len(lines):
        match = _HUNK.match(lines[place])
        if match is None:
            raise Unfit
        old_start, old_count, new_start, new_count = (1 if text is None else int(text) for text in match.groups())
        old: list[str] = []
        new: list[str] = []
        place += 1
        while place < len(lines) and (len(old) < old_count or len(new) < new_count or lines[place][0] == "\\"):
            sign, line = lines[place][0], lines[place][1:]
            if sign == "\\" and lines[place].startswith("\\ No newline"):
                for side in (old, new):
                    if side and lines[place - 1][0] in (" ", "-" if side is old else "+"):
                        side[-1] = side[-1].removesuffix("\n")
            elif sign in " +-":
                old += [line] if sign != "+" else []
                new += [line] if sign != "-" else []
            else:
                raise Unfit
            place += 1
        if (len(old), len(new)) != (old_count, new_count):
            raise Unfit
        # Of no lines at all git gives the line before them.
        yield Hunk(old_start - bool(old_count), tuple(old), new_start - bool(new_count), tuple(new))


def _groups(first: Sequence[Hunk], second: Sequence[Hunk]) -> Iterator[Hunk]:
    """Stretches in which hunks of the two diffs touch in the text between them, as one hunk each."""
    stretches = [(h.new_start, h.new_start + len(h.new), 0, h) for h in first]
    stretches += [(h.old_start, h.old_start + len(h.old), 1, h) for h in second]
    stretches.sort(key=lambda stretch: stretch[:3])
    shift_old = shift_new = 0
    while stretches:
        start, end = stretches[0][:2]
        size = 1
        while size < len(stretches) and stretches[size][0] <= end:
            end = max(end, stretches[size][1])
            size += 1
        group, stretches = stretches[:size], stretches[size:]
        of_first = [hunk for *_, side, hunk in group if side == 0]
        of_second = [hunk for *_, side, hunk in group if side == 1]
        middle = _middle(start, end, of_first, of_second)
        old = _replaced(middle, start, [(hunk.new_start, hunk.new, hunk.old) for hunk in of_first])
        new = _replaced(middle, start, [(hunk.old_start, hunk.old, hunk.new) for hunk in of_second])
        yield Hunk(start + shift_old, tuple(old), start + shift_new, tuple(new))
        shift_old += len(old) - len(middle)
        shift_new += len(new) - len(middle)


def _middle(start: int, end: int, first: Sequence[Hunk], second: Sequence[Hunk]) -> list[str]:
    """The lines of a stretch between the two diffs; ``Unfit`` where they do not agree on them."""
    lines: list[str | None] = [None] * (end - start)
    told = [(hunk.new_start, hunk.new) for hunk in first] + [(hunk.old_start, hunk.old) for hunk in second]
    for at, own in told:
        for place, line in enumerate(own, at - start):
            if lines[place] not in (None, line):
                raise Unfit
            lines[place] = line
    return [line for line in lines if line is not None]


def _replaced(
    middle: Sequence[str], start: int, pieces: Sequence[tuple[int, tuple[str, ...], tuple[str, ...]]]
) -> list[str]:
    """The stretch with each piece (its start, its lines, what is in their place) replaced."""
    lines: list[str] = []
    done = start
    for at, own, others in sorted(pieces, key=lambda piece: piece[0]):
        lines += [*middle[done - start : at - start], *others]
        done = at + len(own)
    return lines + list(middle[done - start :])


def _narrowed(hunk: Hunk) -> Iterator[Hunk]:
    """The hunk's changes alone, each with a few lines around it."""
    matcher = SequenceMatcher(None, hunk.old, hunk.new, autojunk=False)
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        old, new = slice(group[0][1], group[-1][2]), slice(group[0][3], group[-1][4])
        yield Hunk(hunk.old_start + old.start, hunk.old[old], hunk.new_start + new.start, hunk.new[new])


def _hunk(hunk: Hunk) -> str:
    lines = [f"@@ -{_range(hunk.old_start, hunk.old)} +{_range(hunk.new_start, hunk.new)} @@\n"]
    for tag, a, b, c, d in SequenceMatcher(None, hunk.old, hunk.new, autojunk=False).get_opcodes():
        if tag == "equal":
            lines += [_line(" ", line) for line in hunk.old[a:b]]
        else:
            lines += [_line("-", line) for line in hunk.old[a:b]] + [_line("+", line) for line in hunk.new[c:d]]
    return "".join(lines)


def _range(start: int, lines: Sequence[str]) -> str:
    return f"{start + bool(lines)},{len(lines)}"


def _line(sign: str, line: str) -> str:
    return f"{sign}{line}" if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"
