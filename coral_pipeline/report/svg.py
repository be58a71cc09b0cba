"""Matplotlib figures as SVG text that is the same in every run."""

from __future__ import annotations

import io
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWABLE = 1e300
"""Matplotlib cannot draw axes out to the largest float, which penalties reach."""
_DRAWING = threading.Lock()
"""Matplotlib's settings are global to the process, and trees are drawn from several threads at once."""


def drawable(number: float) -> float:
    """The nearest number that can be drawn."""
    return max(-DRAWABLE, min(DRAWABLE, number))


def svg_text(figure: Figure) -> str:
    """The figure as one SVG document: text kept as text, no date, stable ids."""
    import matplotlib

    out = io.StringIO()
    with _DRAWING, matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "coral-pipeline"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()
