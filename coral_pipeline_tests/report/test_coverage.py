"""What each stage contributes."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pyarrow as pa

from coral_pipeline import tables
from coral_pipeline.paths.rank import rank_tree
from coral_pipeline.report.coverage import StageCoverage, stage_coverage, stage_coverage_svg
from coral_pipeline.settings import PathSettings
from coral_pipeline_tests.trees import N, explored


def roots(**stages: str) -> pa.Table:
    return tables.SELECTED_ROOTS.build(
        {
            "root": name,
            "student_run": "run-a",
            "global_index": 1,
            "agent_id": "agent-1",
            "commit_hash": "0" * 40,
            "score": 1.0,
            "stage": stage,
            "selection_reason": "quota",
        }
        for name, stage in stages.items()
    )


PATHS = rank_tree(
    explored([N(score=1.0)] + [N(0, float(k)) for k in range(3)] + [N(0, 1.0, "open")]), PathSettings(top_k=2)
)
COVERAGE = stage_coverage(roots(a="early", b="late", c="late", d="late"), {"b": PATHS, "c": PATHS})


def test_counts_by_stage() -> None:
    assert [
        StageCoverage("early", roots=1, done=0, excluded=0, candidates=0, selected=0),
        StageCoverage("middle", roots=0, done=0, excluded=0, candidates=0, selected=0),
        StageCoverage("late", roots=3, done=2, excluded=2, candidates=6, selected=4),
    ] == COVERAGE


def test_the_picture_tells_what_is_missing() -> None:
    text = " ".join(ET.fromstring(stage_coverage_svg(COVERAGE)).itertext())
    for word in ("roots", "paths", "early", "middle", "late", "done", "missing", "selected", "passed over", "excluded"):
        assert word in text
