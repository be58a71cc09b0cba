"""Numbers and orders in Python source, found with ``ast`` and changed in place, all other text untouched."""

from __future__ import annotations

import ast
import contextlib
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from coral_pipeline.scores import numeric

Kind = Literal["numbers", "order"]

MIN_ORDER = 3
"""Fewer distinct integers are numbers, not an order."""
_PARSING = threading.Lock()
"""Python 3.11 counts the depth of parsing in one place for all threads: two at once may end in a SystemError."""
_PARSING_TRIES = 20
"""Other code parses as well: a thread, say, that formats a traceback."""
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$")


@dataclass(frozen=True, slots=True)
class Number:
    """A numeric literal: its place in the source (characters, end exclusive) and its value."""

    start: int
    end: int
    value: int | float


@dataclass(frozen=True, slots=True)
class Target:
    """Literals that are changed together: an order (distinct consecutive integers), or other numbers."""

    file: str
    """Path in the code folder."""
    name: str
    """Name assigned to, or of the function or class the literals stand in."""
    kind: Kind
    numbers: tuple[Number, ...]
    top_level: bool
    """Assigned at the top of the module: data, rather than part of a computation."""

    @property
    def spread(self) -> float:
        """A scale for changes: the range of many numbers, the size of a few, 1 where that is 0."""
        values = [number.value for number in self.numbers]
        spread = max(values) - min(values) if len(values) >= MIN_ORDER else max(map(abs, values))
        return numeric(spread) or 1.0


def targets_in(file: str, source: str) -> list[Target]:
    """What can be changed in a program, in source order; nothing where it does not parse."""
    try:
        module = _parsed(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    places = _Places(source)
    targets: list[Target] = []
    for statement in module.body:
        name = _name_of(statement)
        if name is None:
            continue
        orders, numbers = _literals(statement, places)
        top_level = isinstance(statement, (ast.Assign, ast.AnnAssign))
        targets += [Target(file, name, "order", order, top_level) for order in orders]
        if numbers:
            targets.append(Target(file, name, "numbers", tuple(numbers), top_level))
    return targets


def _parsed(source: str) -> ast.Module:
    for _ in range(_PARSING_TRIES - 1):
        with _PARSING, contextlib.suppress(SystemError):
            return ast.parse(source)
    with _PARSING:
        return ast.parse(source)


def rewritten(source: str, texts: Mapping[Number, str]) -> str:
    """The source with these literals replaced by other text."""
    for number in sorted(texts, key=lambda number: number.start, reverse=True):
        source = source[: number.start] + texts[number] + source[number.end :]
    return source


def _name_of(statement: ast.stmt) -> str | None:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
    return None


def _literals(statement: ast.AST, places: _Places) -> tuple[list[tuple[Number, ...]], list[Number]]:
    """The orders under a statement, and the numbers that belong to none."""
    orders: list[tuple[Number, ...]] = []
    numbers: list[Number] = []
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.List, ast.Tuple)):
            elements = [_number(element, places) for element in node.elts]
            found = tuple(element for element in elements if element is not None)
            if len(found) == len(elements) and _is_order(found):
                orders.append(found)
                continue
        number = _number(node, places)
        if number is not None:
            numbers.append(number)
            continue
        waiting.extend(_searched(node))
    orders.sort(key=lambda order: order[0].start)
    numbers.sort(key=lambda number: number.start)
    return orders, numbers


def _searched(node: ast.AST) -> Iterator[ast.AST]:
    """The children in which literals are looked for: not indices, nor format strings, whose places are unknown."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.JoinedStr) and not (isinstance(node, ast.Subscript) and child is node.slice):
            yield child


def _number(node: ast.AST, places: _Places) -> Number | None:
    match node:
        case ast.Constant(value=int() | float() as value):
            sign = 1
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            sign = -1
        case _:
            return None
    if numeric(value) is None:
        return None
    start, end = places.span(node)
    return Number(start, end, sign * value)


def _is_order(numbers: tuple[Number, ...]) -> bool:
    values = {number.value for number in numbers if isinstance(number.value, int)}
    return len(numbers) >= MIN_ORDER and len(values) == len(numbers) and max(values) - min(values) == len(values) - 1


class _Places:
    """From ast's places (line, UTF-8 bytes into the line) to characters into the source."""

    def __init__(self, source: str) -> None:
        self._lines: list[tuple[int, str]] = []
        position = 0
        for line in _LINE.findall(source):
            self._lines.append((position, line))
            position += len(line)

    def span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr) and node.end_lineno is not None and node.end_col_offset is not None
        return self._place(node.lineno, node.col_offset), self._place(node.end_lineno, node.end_col_offset)

    def _place(self, line: int, column: int) -> int:
        start, text = self._lines[line - 1]
        return start + (column if text.isascii() else len(text.encode()[:column].decode()))
