"""Virtual time and tokens of simulated trees."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coral_pipeline.search.forecast import forecast, forecast_widths, makespan, summarise, wall_seconds
from coral_pipeline.settings import SearchSettings, SimulationSettings

ALWAYS_FINE = SimulationSettings(
    no_score_chance=0,
    messy_chance=0,
    tool_error_chance=0,
    median_seconds=100,
    sigma_seconds=0,
    first_context_tokens=1000,
    median_turn_tokens=500,
    sigma_turn_tokens=0,
    median_tool_calls=9,
    sigma_tool_calls=0,
    sampled_share=0.25,
)
"""Every turn takes 100 s, 500 tokens and 9 tool calls, hence 10 model calls, and none fails."""


@pytest.mark.parametrize(
    ("seconds", "slots", "expected"),
    [
        ([], 3, 0),
        ([5, 4, 3], 3, 5),
        ([5, 4, 3], 1, 12),
        ([5, 4, 3, 2], 2, 7),  # 5 and 4 begin; 3 follows the 4, until 7; 2 follows the 5, until 7
        ([1, 1, 9], 2, 10),  # in order: the long one waits for a slot
    ],
)
def test_jobs_start_in_order_as_slots_become_free(seconds: list[float], slots: int, expected: float) -> None:
    assert makespan(seconds, slots) == expected


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20), st.integers(1, 8))
def test_no_schedule_beats_the_longest_job_or_the_shared_work(seconds: list[float], slots: int) -> None:
    span = makespan(seconds, slots)
    assert span >= max(seconds) and span * slots >= sum(seconds) * (1 - 1e-9)
    assert span <= sum(seconds) * (1 + 1e-9)


def test_a_tree_of_equal_turns_worked_by_hand() -> None:
    """Width 100 and no leaf target: rounds of 3, 6, 12 and 19 edges (the budget of 40), two turns of 100 s each."""
    search = SearchSettings(parallel_width=100, target_good_leaf_count=1000)
    (cost,) = forecast(search, ALWAYS_FINE, trees=1, seed=0)
    assert (cost.valid_edges, cost.failed_edges, cost.depth, cost.stop_reason) == (40, 0, 4, "edge_budget")
    assert cost.good_leaves == 19
    assert cost.busy_seconds == pytest.approx(40 * 200)
    assert cost.wall_seconds == pytest.approx(4 * 200)
    assert cost.added_tokens == 1000 + 80 * 500
    assert cost.sampled_tokens == 80 * 500 // 4
    # A turn's 10 calls read its mean context: turn t at depth d has 2(d - 1) + t - 1 turns before it, and half its own.
    means = [1000 + 500 * (2 * (depth - 1) + turn - 0.5) for depth in (1, 2, 3, 4) for turn in (1, 2)]
    edges = [3, 3, 6, 6, 12, 12, 19, 19]
    assert cost.read_tokens == sum(10 * mean * count for mean, count in zip(means, edges, strict=True))


def test_narrow_widths_take_longer_and_wait_less() -> None:
    search = SearchSettings(target_good_leaf_count=1000)
    forecasts = list(forecast_widths([1, 4, 100], search, SimulationSettings(sigma_seconds=1.0), trees=5, seed=0))
    assert [f.width for f in forecasts] == [1, 4, 100]
    assert forecasts[0].wall_seconds > forecasts[1].wall_seconds > forecasts[2].wall_seconds
    assert forecasts[0].busy_share == pytest.approx(1.0)
    assert forecasts[0].busy_share > forecasts[1].busy_share > forecasts[2].busy_share > 0


def test_second_tries_of_directions_wait_for_the_first() -> None:
    """Nothing ever gets a score: three first tries, one turn each; three second tries, two turns each."""
    search = SearchSettings(max_depth=1, parallel_width=8)
    simulation = ALWAYS_FINE.model_copy(update={"no_score_chance": 1.0})
    (cost,) = forecast(search, simulation, trees=1, seed=0)
    assert (cost.valid_edges, cost.failed_edges) == (3, 3)
    assert cost.wall_seconds == pytest.approx(100 + 200)


def test_means_are_over_trees_and_seeds_count_on() -> None:
    search, simulation = SearchSettings(), SimulationSettings()
    costs = forecast(search, simulation, trees=4, seed=10)
    assert costs[1:] == forecast(search, simulation, trees=3, seed=11)
    summary = summarise(8, costs)
    assert summary.valid_edges == sum(cost.valid_edges for cost in costs) / 4
    assert summary.stop_reasons.total() == 4


def test_faults_lengthen_trees_and_change_nothing_else() -> None:
    search, sound = SearchSettings(), SimulationSettings()
    faulty = sound.model_copy(update={"infrastructure_fault_chance": 0.3, "fault_seconds": 1000.0})
    for one, other in zip(forecast(search, sound, 3, 0), forecast(search, faulty, 3, 0), strict=True):
        assert other.wall_seconds > one.wall_seconds
        assert (other.valid_edges, other.added_tokens, other.stop_reason) == (
            one.valid_edges,
            one.added_tokens,
            one.stop_reason,
        )


def test_no_edges_take_no_time() -> None:
    assert wall_seconds([], SearchSettings()) == 0.0
