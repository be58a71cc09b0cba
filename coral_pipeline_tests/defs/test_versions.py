"""Versions of contents: the same contents, the same version; and nothing else."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coral_pipeline.content import folder_version, root_version, tables_version
from coral_pipeline.defs.versions import CODE, code_version, settings_recorded
from coral_pipeline.provenance import deciding
from coral_pipeline.search.root_folder import read_root
from coral_pipeline.settings import UNDECIDING, EmbeddedSettings, OpenCodeSettings, PipelineSettings
from coral_pipeline.tables import FILTERED_SNAPSHOTS
from coral_pipeline_tests.student_runs import filtered_table, write_student_run

SCORES = [1.0, None, 2.0]


def test_a_version_tells_values_not_files(tmp_path: Path) -> None:
    table = filtered_table(SCORES)
    version = tables_version({"filtered_snapshots": table})
    pq.write_table(table, tmp_path / "filtered_snapshots.parquet", compression="gzip", row_group_size=1)
    assert folder_version([FILTERED_SNAPSHOTS], tmp_path) == version
    assert tables_version({"filtered_snapshots": filtered_table([1.0, None, 2.5])}) != version
    assert tables_version({"filtered_snapshots": filtered_table([1.0, 0.0, 2.0])}) != version
    assert tables_version({"other": table}) != version


def test_the_version_of_a_large_table_is_found_holding_few_of_its_rows(tmp_path: Path) -> None:
    texts = [f"{number:05}" + "x" * 50_000 for number in range(300)]
    table = pa.table({"text": texts, "number": range(300)})
    pq.write_table(table, tmp_path / FILTERED_SNAPSHOTS.file_name)
    tracemalloc.start()
    found = folder_version([FILTERED_SNAPSHOTS], tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == tables_version({"filtered_snapshots": table})
    assert peak < 10e6, "of 15 MB"


def root(folder: Path) -> Path:
    run = write_student_run(folder, SCORES)
    return sorted((run / "all_snapshots").iterdir())[0]


def test_a_root_is_its_files_wherever_they_lie(tmp_path: Path) -> None:
    one, same = root(tmp_path / "a"), root(tmp_path / "b")
    version = root_version(read_root(one))
    assert root_version(read_root(same)) == version
    (same / "code" / "solve.py").write_text("print(2)\n")
    assert root_version(read_root(same)) != version


def test_a_root_is_another_where_a_file_is_renamed_added_or_linked(tmp_path: Path) -> None:
    changes: dict[str, Callable[[Path], object]] = {
        "renamed": lambda folder: (folder / "code" / "solve.py").rename(folder / "code" / "other.py"),
        "added": lambda folder: (folder / "shared" / "notes" / "more.md").write_text(""),
        "linked": lambda folder: (folder / "code" / "link").symlink_to("solve.py"),
        "metadata": lambda folder: edit_metadata(folder, eval_count=77),
    }
    versions = {"as it was": root_version(read_root(root(tmp_path / "0")))}
    for name, change in changes.items():
        folder = root(tmp_path / name)
        change(folder)
        versions[name] = root_version(read_root(folder))
    assert len(set(versions.values())) == len(versions)


@pytest.mark.parametrize("part", ["task.yaml", "grader/grader.py", "private/answers.json"])
def test_a_root_is_another_where_what_grades_it_is(tmp_path: Path, part: str) -> None:
    folder = root(tmp_path)
    versions = {root_version(read_root(folder))}
    (tmp_path / part).parent.mkdir(exist_ok=True)
    for text in ("task: {name: one}\n", "task: {name: another}\n"):
        (tmp_path / part).write_text(text)
        versions.add(root_version(read_root(folder)))
    (tmp_path / "run.log").write_text("no part of the task")
    versions.add(root_version(read_root(folder)))
    assert len(versions) == 3


def test_why_a_root_was_chosen_does_not_make_it_another(tmp_path: Path) -> None:
    folder = root(tmp_path / "run")
    edit_metadata(folder, score=1.0, stage="early", selection_reason="quota")
    version = root_version(read_root(folder))
    edit_metadata(folder, score=1.0, stage="middle", selection_reason="backfill")
    assert root_version(read_root(folder)) == version


def edit_metadata(folder: Path, **fields: object) -> None:
    path = folder / "metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


ROOM = {"embedded": {"min_free_bytes": 1, "max_tree_bytes": 1 << 40}, "opencode": {"endpoint": "http://b/v1"}}


@pytest.mark.parametrize("teacher", ["embedded", "opencode"])
def test_room_and_whereabouts_of_agents_make_no_tree_stale(teacher: str) -> None:
    here = PipelineSettings.model_validate({"teacher": {"name": teacher}})
    there = PipelineSettings.model_validate({"teacher": {"name": teacher}, **ROOM})
    assert code_version("explored_trees", here) == code_version("explored_trees", there)
    assert deciding(settings_recorded("explored_trees", here)) == deciding(settings_recorded("explored_trees", there))


@pytest.mark.parametrize(("teacher", "changed"), [("embedded", {"draws": 3}), ("opencode", {"model": "other"})])
def test_what_an_agent_does_otherwise_does(teacher: str, changed: dict[str, Any]) -> None:
    before = PipelineSettings.model_validate({"teacher": {"name": teacher}})
    after = PipelineSettings.model_validate({"teacher": {"name": teacher}, teacher: changed})
    assert code_version("explored_trees", before) != code_version("explored_trees", after)
    assert deciding(settings_recorded("explored_trees", before)) != deciding(settings_recorded("explored_trees", after))


def test_what_is_recorded_names_no_folder_of_this_machine_and_no_address() -> None:
    settings = PipelineSettings.model_validate(
        {
            "teacher": {"name": "opencode", "script": "/home/me/answers.jsonl"},
            "opencode": {
                "endpoint": "http://me:word@gpu:30000/v1",
                "opencode_command": "/home/me/bin/opencode",
                "sandbox": {"read_only": ["/home/me/data"], "search_path": ["/home/me/bin"]},
            },
            "credit": {"tokenizer": "/home/me/models/qwen", "http": {"url": "http://me:word@critic/v1"}},
        }
    )
    recorded = {asset: settings_recorded(asset, settings) for asset in ("explored_trees", "advantage_batches")}
    assert "/home/me" not in str(recorded) and "word" not in str(recorded)
    assert recorded["advantage_batches"]["credit"]["tokenizer"] == "qwen"
    assert recorded["explored_trees"]["opencode"]["opencode_command"] == "opencode"


@pytest.mark.parametrize("section", [EmbeddedSettings, OpenCodeSettings])
def test_what_decides_nothing_is_a_setting(section: type[EmbeddedSettings] | type[OpenCodeSettings]) -> None:
    assert section.model_fields.keys() >= section.UNDECIDING


@pytest.mark.parametrize("teacher", ["embedded", "opencode", "scripted", "simulated"])
@pytest.mark.parametrize("asset", CODE)
def test_a_setting_that_joined_since_with_its_default_is_no_other_setting(asset: str, teacher: str) -> None:
    mine = {"teacher": {"name": teacher, "script": "/home/me/answers.jsonl"}, "search": {"max_depth": 4}}
    now = settings_recorded(asset, PipelineSettings.model_validate(mine))
    default = settings_recorded(asset, PipelineSettings.model_validate({"teacher": {"name": teacher}}))
    default |= settings_recorded(asset, PipelineSettings())  # whose teacher is the default one
    for section, values in now.items():
        for name, value in values.items():
            then = json.loads(json.dumps(now))
            del then[section][name]
            assert (deciding(then) == deciding(now)) == (
                value == default[section][name] or name in UNDECIDING.get(section, ())
            )
    then = json.loads(json.dumps(now))
    assert deciding(then) == deciding(now)
    for values in then.values():
        values["of another version"] = 1
        assert deciding(then) != deciding(now)
