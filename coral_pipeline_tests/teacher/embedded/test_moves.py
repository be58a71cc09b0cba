"""Literals of a program, found and changed in place."""

from __future__ import annotations

import ast
import contextlib
import gc
import io
import math
import random
import sys
import threading
import tokenize
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coral_pipeline.teacher.embedded.moves import Move, find_target, new_texts, propose
from coral_pipeline.teacher.embedded.programs import Target, rewritten, targets_in

WEIGHTS = {"nudge": 0.5, "reverse": 0.5, "shift": 0.5, "swap": 0.5}


def found(source: str) -> list[tuple[str, str, bool, list[float]]]:
    """Name, kind, whether at the top level, and values of each target."""
    return [
        (target.name, target.kind, target.top_level, [number.value for number in target.numbers])
        for target in targets_in("program.py", source)
    ]


def texts(source: str) -> list[str]:
    """The text that each literal of each target is said to stand at."""
    targets = targets_in("program.py", source)
    return [source[number.start : number.end] for target in targets for number in target.numbers]


def test_a_list_of_distinct_consecutive_integers_is_an_order() -> None:
    assert found("TOUR = [2, 0, 1]") == [("TOUR", "order", True, [2, 0, 1])]
    assert found("TOUR = (3, 1, 2)") == [("TOUR", "order", True, [3, 1, 2])], "from 1 on as well, and a tuple"


@pytest.mark.parametrize("value", ["[2, 0, 3]", "[1, 1, 0]", "[1, 0]", "[2.0, 0.0, 1.0]", "[2, 0, 1, 'x']"])
def test_other_lists_are_numbers(value: str) -> None:
    """A gap, a repetition, too few, no integers, not only integers."""
    ((_, kind, _, _),) = found(f"X = {value}")
    assert kind == "numbers"


def test_orders_within_data_are_apart_from_the_numbers_around_them() -> None:
    source = "PLAN = {'speed': 0.5, 'routes': [[0, 2, 1], [1, 0, 2]]}\nGAP = -3"
    assert found(source) == [
        ("PLAN", "order", True, [0, 2, 1]),
        ("PLAN", "order", True, [1, 0, 2]),
        ("PLAN", "numbers", True, [0.5]),
        ("GAP", "numbers", True, [-3]),
    ]


def test_literals_inside_functions_and_classes_are_found_by_their_name() -> None:
    source = "def solve(rate=0.1):\n    return rate * 2\n\n\nclass Model:\n    depth: int = 4\n"
    assert found(source) == [("solve", "numbers", False, [0.1, 2]), ("Model", "numbers", False, [4])]


@pytest.mark.parametrize(
    "source",
    [
        "X = y[3]",
        "X = f'{1.5}'",
        "X = True",
        "X = 'text 1'",
        "X = 1e999",
        "X = 2j",
        f"X = {'9' * 400}",
        "import math",
        "def broken(:",
        "",
    ],
)
def test_what_is_no_number_to_change(source: str) -> None:
    """Indices, numbers in format strings, booleans, text, infinity, complex and enormous numbers; broken programs."""
    assert found(source) == []


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_places_are_right_behind_wide_characters_and_any_line_end(end: str) -> None:
    source = end.join(['"""Länge in 米"""', "A = ['ü', 1.25, '😀', -7]", "Bß = 3  # ß", ""])
    assert texts(source) == ["1.25", "-7", "3"]
    numbers = targets_in("program.py", source)[0].numbers
    assert rewritten(source, {numbers[0]: "9.5", numbers[1]: "8"}) == source.replace("1.25", "9.5").replace("-7", "8")


def move(kind: str, *places: int, changes: tuple[float, ...] = ()) -> Move:
    return Move(kind=kind, file="program.py", name="X", which=0, places=places, changes=changes)


def applied(source: str, made: Move) -> str:
    target = find_target(made, targets_in("program.py", source))
    assert target is not None
    return rewritten(source, new_texts(made, target, source))


@pytest.mark.parametrize(
    ("made", "after"),
    [
        (move("reverse", 1, 3), "X = [0, 3,  2, 1, 4]"),
        (move("swap", 0, 4), "X = [4, 1,  2, 3, 0]"),
        (move("shift", 0, 1, 2), "X = [2, 3,  0, 1, 4]"),
        (move("shift", 3, 4, -3), "X = [3, 4,  0, 1, 2]"),
    ],
)
def test_moves_of_orders(made: Move, after: str) -> None:
    """The elements change places; what stands between them, two spaces here, does not."""
    assert applied("X = [0, 1,  2, 3, 4]", made) == after


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ("0.15", 0.02, "0.17"),
        ("0.1500", 0.02, "0.1700"),  # as many decimals as before
        ("0.15", 0.0021, "0.1521"),  # more where the change needs them: two significant digits of it
        ("-0.5", -0.25, "-0.75"),
        ("5.", 0.1, "5.1"),
        ("1e-3", 0.001, "0.002"),  # written otherwise: as Python writes it
        ("7", -2.0, "5"),  # an integer stays one
        ("0x10", 1.0, "17"),
    ],
)
def test_nudged_numbers_keep_their_look(before: str, change: float, after: str) -> None:
    assert applied(f"X = {before}", move("nudge", 0, changes=(change,))) == f"X = {after}"


def test_a_nudge_and_its_mirror_lie_on_both_sides() -> None:
    made = move("nudge", 0, 2, changes=(0.25, -0.5))
    assert applied("X = [1.0, 2.0, 3.0]", made) == "X = [1.25, 2.0, 2.5]"
    assert applied("X = [1.0, 2.0, 3.0]", made.mirrored()) == "X = [0.75, 2.0, 3.5]"


def test_a_move_whose_target_is_gone_has_none() -> None:
    assert find_target(move("reverse", 0, 1), targets_in("program.py", "X = [1.5, 2.5, 3.5]")) is None
    assert find_target(move("nudge", 0), targets_in("other.py", "X = 1")) is None


def tokens(source: str) -> list[str]:
    """Every token that is no number, nor its sign."""
    read = tokenize.generate_tokens(io.StringIO(source).readline)
    return [token.string for token in read if token.type != tokenize.NUMBER and token.string != "-"]


VALUES = st.one_of(
    st.integers(-1000, 1000),
    st.floats(-1e6, 1e6, allow_nan=False).filter(lambda value: value == 0 or abs(value) > 1e-6),
)
PROGRAMS = st.one_of(
    st.lists(VALUES, min_size=1, max_size=8).map(repr),
    st.permutations(range(12)).map(repr),
    st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=4).map(repr),
).map(lambda value: f"import math\nX = {value}\ndef f(a):\n    return a\n")


@settings(max_examples=150, deadline=None)
@given(PROGRAMS, st.integers(), st.floats(0.001, 0.5), st.integers(2, 12))
def test_any_proposed_move_changes_numbers_only_and_leaves_a_program(
    source: str, seed: int, step: float, reach: int
) -> None:
    rng = random.Random(seed)
    targets = targets_in("program.py", source)
    target = rng.choice(targets)
    made = propose(rng, target, targets, WEIGHTS, step, reach)
    assert find_target(made, targets) == target
    assert Move.model_validate_json(made.model_dump_json()) == made, "it can be kept and made again"
    after = applied(source, made)
    ast.parse(after)
    assert tokens(after) == tokens(source)
    if target.kind == "order":
        (changed,) = targets_in("program.py", after)
        before_values = [number.value for number in target.numbers]
        after_values = [number.value for number in changed.numbers]
        assert sorted(after_values) == sorted(before_values) and after_values != before_values
        places = [place for place, pair in enumerate(zip(before_values, after_values, strict=True)) if len({*pair}) > 1]
        assert max(places) - min(places) < max(reach, 4), "no further than the reach, the longest segment aside"


@settings(max_examples=100, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=6), st.integers())
def test_a_nudge_adds_what_it_says(values: list[float], seed: int) -> None:
    rng = random.Random(seed)
    source = f"X = {values!r}"
    targets = [target for target in targets_in("program.py", source) if target.kind == "numbers"]
    if not targets:
        return  # the integers happened to be an order
    made = propose(rng, targets[0], targets, WEIGHTS, 0.1, 5)
    after = ast.literal_eval(applied(source, made).removeprefix("X = "))
    assert all(made.changes), "never by nothing"
    for place, change in zip(made.places, made.changes, strict=True):
        assert math.isclose(after[place], values[place] + change, rel_tol=1e-9, abs_tol=abs(change) / 100)
        assert type(after[place]) is type(values[place])


def test_the_spread_is_the_scale_of_the_numbers() -> None:
    def spread(source: str) -> float:
        target: Target = targets_in("program.py", source)[0]
        return target.spread

    assert spread("X = [0.25, 1.5, 1.0]") == 1.25
    assert spread("X = [-4.0, 3.0]") == 4.0, "of two numbers the larger one"
    assert spread("X = 0.0") == 1.0, "of nothing but zeros 1"
    assert spread("X = [1e308, -1e308, 0.0]") == 1.0, "nor more than a number can be"


class Collected:
    """Garbage that only the cycle collector frees, and that runs Python code then: threads take turns there."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        sum(range(50))


def test_programs_are_parsed_by_many_threads_at_once() -> None:
    """Without care Python 3.11 raises a SystemError here some 150 times. One thread parses without asking anyone."""
    source = "x = [" + ",".join(map(str, range(300))) + "]\n"
    expected = targets_in("program.py", source)

    def parse(_: int) -> bool:
        Collected()
        return targets_in("program.py", source) == expected

    done = threading.Event()

    def parse_on() -> None:
        while not done.is_set():
            with contextlib.suppress(SystemError):
                ast.parse(source)

    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(50)
    try:
        with ThreadPoolExecutor(9) as pool:
            pool.submit(parse_on)
            try:
                assert all(pool.map(parse, range(800)))
            finally:
                done.set()
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*thresholds)
