"""Random finished trees for properties."""

from __future__ import annotations

from hypothesis import strategies as st

from coral_pipeline_tests.trees import N

SCORES = st.integers(-8, 8).map(lambda k: k / 4) | st.floats(-1e6, 1e6)
"""Often tied, sometimes not."""
LEAVES = st.sampled_from(["depth_limit", "depth_limit", "token_limit", "exhausted", "open"])


@st.composite
def random_nodes(draw: st.DrawFn, max_size: int = 14) -> list[N]:
    """A root with a score and up to ``max_size`` nodes below it, some without a score, some leaves open."""
    nodes = [N(score=draw(SCORES), leaf="open")]
    for index in range(1, 1 + draw(st.integers(0, max_size))):
        nodes.append(
            N(
                parent=draw(st.integers(0, index - 1)),
                score=draw(SCORES | st.none()),
                leaf=draw(LEAVES),
                steps=draw(st.integers(0, 40)),
                cleanliness=draw(st.sampled_from([1.0, 0.79, 0.55, 0.3])),
                knowledge=draw(st.sampled_from([1.0, 0.8, 0.6, 0.4])),
                soft=draw(st.floats(0, 1)),
            )
        )
    return nodes
