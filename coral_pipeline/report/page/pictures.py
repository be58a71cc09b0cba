"""The report's pictures as parts of a page: they take its colours, light or dark, and its width."""

from __future__ import annotations

import re
from html import escape

COLOURS = {
    "#ffffff": "var(--surface)",
    "#000000": "currentColor",
    "#f4f1e8": "var(--stage-early)",
    "#d9e6f2": "var(--stage-middle)",
    "#b4c8dc": "var(--stage-late)",
    "#4d5560": "var(--dot)",
    "#1f3a5f": "var(--curve)",
    "#394b59": "var(--soft)",
}
"""Colours that Matplotlib's pictures are drawn in, and the page's names for them."""
_VIEW_BOX = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
_SIZE = re.compile(r'width="([\d.]+)" height="([\d.]+)"')
_HEAD = re.compile(r"^.*?<svg[^>]*>", re.DOTALL)
_NOISE = re.compile(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>|<!--.*?-->", re.DOTALL)
_NAME = re.compile(r'\b(id="|href="#|url\(#)')


def inline(svg: str, name: str, description: str, kind: str = "plot") -> str:
    """The SVG document as an element of a page that scales to the width it is given.

    ``name`` is unique in the page and begins every id in the picture. ``description`` is what is read out in
    its place. ``kind``: its class.
    """
    head = _HEAD.match(svg)
    box = _VIEW_BOX.search(svg) or _SIZE.search(svg)
    assert head and box, "our own pictures say how large they are"
    width, height = box.groups()
    body = _NOISE.sub("", svg[head.end() :])
    body = _NAME.sub(rf"\g<1>{name}-", body)
    for colour, theirs in COLOURS.items():
        body = body.replace(f": {colour}", f": {theirs}")
    return (
        f'<svg class="{kind}" role="img" aria-label="{escape(description)}" viewBox="0 0 {width} {height}" '
        f'style="--natural:{float(width):.0f}px" xmlns:xlink="http://www.w3.org/1999/xlink">{body}'
    )
