"""YAML as others wrote it."""

from __future__ import annotations

from typing import Any

import yaml

_UNUSABLE = (yaml.YAMLError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError)
"""PyYAML's own errors, and what its constructors meet in a scalar such as ``!!int ""``."""


def parse_yaml(text: str | bytes) -> Any:
    """The plain values that the text says. Raises ``ValueError`` with one line where it says none."""
    try:
        return yaml.safe_load(text)
    except _UNUSABLE as error:
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error
