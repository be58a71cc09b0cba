"""``coral-pipeline audit`` on the bundled Student run, as it was made by ``coral-pipeline run``."""

from __future__ import annotations

import pytest

from coral_pipeline_tests.end_to_end.conftest import TOUR, Finished, coral_pipeline

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("options", [[], ["--recompute"]], ids=["checksums", "recomputed"])
def test_the_bundled_run_is_audited_clean(bundled: Finished, options: list[str]) -> None:
    ended = coral_pipeline("audit", TOUR, "--out", bundled.out, *options)
    assert (ended.code, ended.err) == (0, ""), ended.out
    counts, verdict = ended.out.splitlines()
    assert counts.startswith("tour: 10 partitions, ") and "64 folders" in counts
    assert verdict.startswith("no difference found")
