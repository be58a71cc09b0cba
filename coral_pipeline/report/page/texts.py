"""What agents and tools wrote, made fit to be shown: every character visible, nothing longer than the page bears."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field

_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
"""Terminal colours, which say nothing without a terminal."""
_UNSEEN = {"Cc", "Cf", "Zl", "Zp"}
"""Categories of characters that are not seen, or that turn the text around them so that it reads as what it is not."""
_IGNORED = {
    *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2065, 0x3164, 0xFFA0),
    *(*range(0x180B, 0x1810), *range(0xFE00, 0xFE0E), *range(0xFFF0, 0xFFF9), *range(0xE0000, 0xE1000)),
}
"""What Unicode says is not to be drawn (Default_Ignorable_Code_Point) beside category Cf: fillers, selectors of
variants, tags. U+FE0E and U+FE0F are left, by which many a sign is drawn as text or as an emoji; the joiner of emoji,
U+200D, is not: what it joins is shown in its parts."""
_TAIL_SHARE = 4
"""One character in so many that are kept of a long text is of its end."""

Shown = str | tuple[str, int, str]
"""A whole text; or how it begins, how many characters are left out, and how it ends."""


class _Signs(dict[int, str]):
    """What each character is shown as, by code point."""

    def __missing__(self, code: int) -> str:
        self[code] = _sign(chr(code))
        return self[code]


def _sign(character: str) -> str:
    code, category = ord(character), unicodedata.category(character)
    if character in "\t\n":
        return character
    if code < 0x20 or code == 0x7F:
        return chr(0x2400 + min(code, 0x21))
    if category == "Cs":  # half a surrogate pair, which UTF-8 cannot say
        return "\ufffd"
    return f"⟨U+{code:04X}⟩" if category in _UNSEEN or code in _IGNORED else character


_SIGNS = _Signs()


def visible(text: str) -> str:
    """The text with what is not seen as visible signs (``␀``, ``␛``, ``⟨U+202E⟩``)."""
    return _COLOURS.sub("", text.replace("\r\n", "\n")).translate(_SIGNS)


@dataclass
class TextPool:
    """The texts of one root's transcripts and diffs, each kept once, long ones without their middle."""

    limit: int
    """Characters kept of one text."""
    _places: dict[tuple[str, int, str], int] = field(default_factory=dict)

    def put(self, text: str) -> int:
        """The text's place in the pool."""
        return self._places.setdefault(_cut((text, 0, ""), self.limit), len(self._places))

    def shown(self, limit: int) -> list[Shown]:
        """The texts as they are shown where no more than ``limit`` characters of each can be, in order of place."""
        cut = (_cut(kept, limit) for kept in self._places)
        return [(visible(head), missing, visible(tail)) if missing else visible(head) for head, missing, tail in cut]


def _cut(kept: tuple[str, int, str], limit: int) -> tuple[str, int, str]:
    """The ends that are kept of a text, made shorter; cut at once or bit by bit, they come out the same."""
    head, missing, tail = kept
    ends = head + tail
    if len(ends) <= limit:
        return kept
    of_tail = limit // _TAIL_SHARE
    return ends[: limit - of_tail], missing + len(ends) - limit, ends[len(ends) - of_tail :]
