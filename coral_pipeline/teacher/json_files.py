"""JSON files that somebody else wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def json_object(file: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None where there is none that can be read."""
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
