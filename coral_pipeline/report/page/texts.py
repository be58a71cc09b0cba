"""What agents and tools wrote, made fit to be shown: every character visible, nothing longer than the page bears."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
"""Terminal colours, which say nothing without a terminal."""
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters that turn the text around them, and so can make it read as what it is not."""
_UNSEEN = (*range(0x80, 0xA0), 0xAD, 0x200B, 0x2028, 0x2029, 0x2060, 0xFEFF, *range(0xFFF9, 0xFFFC))
_VISIBLE = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"},
    0x7F: "\u2421",
    **{code: f"⟨U+{code:04X}⟩" for code in (*_DIRECTIONS, *_UNSEEN)},
    **{code: "\ufffd" for code in range(0xD800, 0xE000)},
}
_TAIL_SHARE = 4
"""One character in so many that are kept of a long text is of its end."""


def visible(text: str) -> str:
    """The text with control and direction characters as visible signs (``␀``, ``␛``, ``⟨U+202E⟩``)."""
    return _COLOURS.sub("", text.replace("\r\n", "\n")).translate(_VISIBLE)


@dataclass
class TextPool:
    """The texts of one root's transcripts and diffs, each kept once, long ones without their middle."""

    limit: int
    """Characters kept of one text."""
    texts: list[str | tuple[str, int, str]] = field(default_factory=list)
    """A whole text; or how it begins, how many characters are left out, and how it ends."""
    cut: int = 0
    """Texts that are not whole."""
    _places: dict[str | tuple[str, int, str], int] = field(default_factory=dict)

    def put(self, text: str) -> int:
        """The text's place in ``texts``."""
        kept = self._kept(text)
        if kept not in self._places:
            self._places[kept] = len(self.texts)
            self.texts.append(kept)
            self.cut += not isinstance(kept, str)
        return self._places[kept]

    def _kept(self, text: str) -> str | tuple[str, int, str]:
        if len(text) <= self.limit:
            return visible(text)
        tail = self.limit // _TAIL_SHARE
        head = self.limit - tail
        return visible(text[:head]), len(text) - self.limit, visible(text[len(text) - tail :])
