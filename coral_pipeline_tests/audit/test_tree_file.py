"""``tree.json`` can hold anything: the checks of what was made of a root find that, and none crashes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coral_pipeline.audit.checks import CHECKS
from coral_pipeline.audit.sources import Source
from coral_pipeline.tables import PER_ROOT
from coral_pipeline.tree_file import TREE_FILE
from coral_pipeline_tests.audit.damage import put_back
from coral_pipeline_tests.defs.world import World

pytestmark = pytest.mark.slow

READ_IT = [check for check in CHECKS if check.asset in PER_ROOT and check.recomputes]
ABSENT = object()
odd = st.sampled_from([ABSENT, None, True, -1, 0.5, 10**30, "", "x", "\ud800", [], ["x"], {}, {"x": 1}, {"": [{}]}])
tools = st.lists(st.one_of(odd, st.fixed_dictionaries({"name": odd}, optional={"function": odd})), max_size=2)


@given(data=st.data())
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)
def test_no_check_crashes_whatever_tree_json_holds(finished: World, source: Source, data: st.DataObject) -> None:
    key = str(finished.keys[0])
    path = finished.folders.asset("explored_trees", key) / TREE_FILE
    info = json.loads(path.read_bytes())
    place = data.draw(st.sampled_from(sorted(places(info), key=str)))
    value = data.draw(tools) if place == ("tools",) else data.draw(odd)
    with put_back(path):
        path.write_text(json.dumps(put(info, place, value), default=lambda absent: None))
        for check in READ_IT:
            check.review(source, key)  # raises nothing


@pytest.mark.parametrize("text", [b"", b"[", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"root": NaN}'])
def test_what_is_no_tree_json_is_a_finding_of_every_check_that_reads_it(
    finished: World, source: Source, text: bytes
) -> None:
    key = str(finished.keys[0])
    path = finished.folders.asset("explored_trees", key) / TREE_FILE
    with put_back(path):
        path.write_bytes(text)
        silent = [check.name for check in READ_IT if not check.review(source, key).total]
    elsewhere = ["trace_is_readable", "turns_count_what_messages_hold"]
    assert silent == ["version_of_contents"] * len(PER_ROOT) + elsewhere


def places(value: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every key in the JSON objects, and that of what no search writes."""
    if not above:
        yield ("tools",)
    if isinstance(value, dict):
        for key, inside in value.items():
            yield (*above, key)
            yield from places(inside, (*above, key))


def put(info: dict[str, Any], place: tuple[str, ...], value: Any) -> dict[str, Any]:
    """With ``value`` at ``place``, or nothing there."""
    first, *rest = place
    if rest:
        return info | {first: put(info[first], tuple(rest), value)}
    others = {key: inside for key, inside in info.items() if key != first}
    return others if value is ABSENT else others | {first: value}
