"""``coral-pipeline report``: under which name a Student run is looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from coral_pipeline.cli.report import report
from coral_pipeline_tests.report.page.runs import RUN, write_selection


@pytest.mark.parametrize("named", [RUN, "linked", f"{RUN}/inside/.."])
def test_a_student_run_has_the_name_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    """As ``run`` names it, however it is pointed at."""
    (tmp_path / RUN / "inside").mkdir(parents=True)
    (tmp_path / "linked").symlink_to(RUN)
    write_selection(tmp_path / "out", roots=1)
    monkeypatch.chdir(tmp_path)
    report(Path(named), out="out")
    assert [path.name for path in (tmp_path / "out").glob("*.html")] == [f"report-{RUN}.html"]


def test_behind_a_link_it_has_the_name_under_which_it_arrived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sensor ``arrivals`` goes by what lies in the folder of the Student runs."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / RUN).symlink_to("elsewhere")
    write_selection(tmp_path / "out", roots=1)
    made = tmp_path / "out" / "filtered_snapshots" / RUN / "provenance.json"
    made.parent.mkdir(parents=True)
    made.touch()
    monkeypatch.chdir(tmp_path)
    report(Path(RUN), out="out")
    assert [path.name for path in (tmp_path / "out").glob("*.html")] == [f"report-{RUN}.html"]
