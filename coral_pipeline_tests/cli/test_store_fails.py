"""A store that fails while a command works is told in one line, as everything is that is not the program's fault."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

import pytest

from coral_pipeline.cli import main
from coral_pipeline.storage import SCRATCH
from coral_pipeline.storage.store import ObjectStore

OUTAGE = OSError(errno.EIO, "503 Slow Down", "s3://bucket/selected_roots/tour/provenance.json")


@pytest.mark.parametrize(
    "arguments",
    [
        ["audit", "tour", "--out", "URL"],
        ["report", "tour", "--out", "URL"],
        ["lineage", "tour/sft/0", "--student-runs", ".", "--out", "URL"],
        ["backfill", "tour"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_it_is_one_line(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise OUTAGE

    url = f"file://{tmp_path}/store"
    (tmp_path / "tour").mkdir()
    (tmp_path / "dagster.yaml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ObjectStore, "read", fail)
    monkeypatch.setattr(ObjectStore, "names", fail)
    monkeypatch.setattr("coral_pipeline.defs.backfill.backfill_roots", fail)
    for name, value in {SCRATCH: "scratch", "DAGSTER_HOME": str(tmp_path), "CORAL_PIPELINE_OUTPUT": url}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["coral-pipeline", *(url if word == "URL" else word for word in arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    line = f"coral-pipeline: {OUTAGE.filename}: 503 Slow Down; mend that and run it again\n"
    assert (ended.value.code, capsys.readouterr().err) == (1, line)
