"""What an edge's turns add up to, and its soft verifier score (method T2, T6–T9; seed 1.7)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from coral_pipeline.search.tree import TURNS_PER_EDGE, EdgeFigures, Node, SoftParts
from coral_pipeline.settings import Direction, SearchSettings, orient
from coral_pipeline.teacher.protocol import Turn


def edge_figures(turns: Sequence[Turn], parent: Node, direction: Direction) -> EdgeFigures:
    """The figures of an edge out of ``parent`` from the one or two turns that were run."""
    oriented = [None if turn.score is None else orient(turn.score, direction) for turn in turns]
    best = max((score for score in oriented if score is not None), default=None)
    tool_calls = sum(turn.tool_calls for turn in turns)
    failed_tool_calls = sum(turn.failed_tool_calls for turn in turns)
    return EdgeFigures(
        best_score=None if best is None else orient(best, direction),
        improved=best is not None and best > orient(parent.nearest_score, direction),
        step_turns=sum(turn.step_turns for turn in turns),
        tool_calls=tool_calls,
        failed_tool_calls=failed_tool_calls,
        tool_error_rate=failed_tool_calls / tool_calls if tool_calls else 0.0,
        max_token_total=turns[-1].context_tokens,
        has_knowledge_action=(
            len(turns) == TURNS_PER_EDGE and all(turn.knowledge_read or turn.knowledge_write for turn in turns)
        ),
        regressed_rate=_regressed_rate(oriented, orient(parent.path_best_score, direction)),
        seconds=math.fsum(turn.seconds for turn in turns),
    )


def _regressed_rate(oriented: Sequence[float | None], best: float) -> float:
    """Share of the edge's turns that regressed (T7); ``best`` is what the path had reached before them.

    A turn that was not run has no numeric score, and so regressed.
    """
    held = 0
    for score in oriented:
        if score is not None:
            held += score >= best
            best = max(best, score)
    return (TURNS_PER_EDGE - held) / TURNS_PER_EDGE


def soft_parts(figures: EdgeFigures, settings: SearchSettings) -> SoftParts:
    """The soft verifier score of an edge that made a child (T9)."""
    weights = settings.soft_weights
    outcome = settings.outcome_improved if figures.improved else settings.outcome_otherwise
    cleanliness = _cleanliness(figures.tool_error_rate, settings)
    knowledge = _knowledge(figures, settings)
    soft = (
        weights.outcome * outcome
        + weights.cleanliness * cleanliness
        + weights.knowledge * knowledge
        + weights.regression_stability * (1 - figures.regressed_rate)
    )
    return SoftParts(outcome, cleanliness, knowledge, soft)


def _cleanliness(tool_error_rate: float, settings: SearchSettings) -> float:
    if tool_error_rate == 0:
        return 1.0
    lost = settings.cleanliness_slope * (tool_error_rate / settings.max_tool_error_rate)
    return max(settings.cleanliness_floor, settings.cleanliness_base - lost)


def _knowledge(figures: EdgeFigures, settings: SearchSettings) -> float:
    scores = settings.knowledge_scores
    if figures.improved:
        return scores.improved_with_knowledge if figures.has_knowledge_action else scores.improved
    return scores.knowledge if figures.has_knowledge_action else scores.neither
