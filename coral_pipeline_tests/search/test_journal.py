"""The journal: interrupted anywhere, a search ends in the same tree; what cannot be continued is refused."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coral_pipeline import tables
from coral_pipeline.errors import BadInput
from coral_pipeline.search.explorer import SearchHalted
from coral_pipeline.search.journal import OtherTree
from coral_pipeline.search.records import RecordFile, decode, encode
from coral_pipeline.settings import EmbeddedSettings, OpenCodeSettings, RetrySettings, SimulationSettings
from coral_pipeline.teacher.protocol import InfrastructureFault
from coral_pipeline_tests.search.growing import ROOT, AnswerTeacher
from coral_pipeline_tests.search.on_disk import contents, explore, journal, talkative

SECTIONS = {"simulated": SimulationSettings(), "embedded": EmbeddedSettings(), "opencode": OpenCodeSettings()}


def records(folder: Path) -> list[dict]:
    return [json.loads(line) for line in journal(folder).read_bytes().splitlines()]


def without_crc(record: dict) -> dict:
    return {name: value for name, value in record.items() if name != "crc"}


def interrupted(finished: Path, folder: Path, cut: bytes) -> Path:
    """What a search leaves that was killed when the journal held ``cut``: tables are written only at the end."""
    shutil.copytree(finished / "work", folder / "work")
    journal(folder).write_bytes(cut)
    return folder


def test_there_is_a_record_per_finished_turn_and_edge(finished: Path) -> None:
    kinds = [record["kind"] for record in records(finished)]
    assert kinds[0] == "header" and kinds[-1] == "done"
    counts = json.loads((finished / "tree.json").read_text())["counts"]
    assert (kinds.count("turn"), kinds.count("edge")) == (counts["turns"], counts["edges"])


def test_a_journal_from_before_there_were_code_diffs_is_gone_on_from(finished: Path, tmp_path: Path) -> None:
    """Its turns have none; the rest of the tree is the same."""
    old = records(finished)[:-1]
    for record in old:
        record.pop("crc")
        if record["kind"] == "turn":
            del record["answer"]["code_diff"]
    folder = interrupted(finished, tmp_path, b"".join(map(encode, old)))
    teacher = AnswerTeacher(lambda edge, number: pytest.fail("asked again for what the journal knows"))
    explore(folder, teacher)
    assert contents(folder) == contents(finished)


def test_a_code_diff_comes_through_the_journal_into_the_table(tmp_path: Path) -> None:
    diff = "diff --git a/x b/x\n@@ -1 +1 @@\n-\x1b[31m\0\n+é\n"
    explore(
        tmp_path, AnswerTeacher(lambda edge, number: talkative(edge, number).model_copy(update={"code_diff": diff}))
    )
    (tmp_path / "turns.parquet").unlink()
    explore(tmp_path, AnswerTeacher(lambda edge, number: pytest.fail("asked again")))  # from the journal alone
    assert {row["code_diff"] for row in tables.TURNS.rows(tmp_path)} == {diff}


def test_turns_of_earlier_versions_read_as_without_code_diff(finished: Path, tmp_path: Path) -> None:
    old = tables.TURNS.read(finished).drop_columns("code_diff")
    pq.write_table(old, tmp_path / tables.TURNS.file_name)
    assert tables.TURNS.read(tmp_path).column("code_diff").null_count == len(old) > 0


@pytest.mark.slow
def test_cut_off_after_any_record_the_search_runs_what_is_missing_and_ends_in_the_same_tree(
    finished: Path, tmp_path: Path
) -> None:
    lines = journal(finished).read_bytes().splitlines(keepends=True)
    for kept in range(len(lines)):
        folder = interrupted(finished, tmp_path / str(kept), b"".join(lines[:kept]))
        teacher = AnswerTeacher(talkative)
        explore(folder, teacher)
        assert contents(folder) == contents(finished)
        known = {(r["edge"], r["turn"]) for r in map(json.loads, lines[:kept]) if r["kind"] == "turn"}
        every = {(r["edge"], r["turn"]) for r in map(json.loads, lines) if r["kind"] == "turn"}
        assert sorted(teacher.asked) == sorted(every - known), "exactly what was missing, each once"


def test_a_turn_that_was_finished_is_gone_on_from(finished: Path, tmp_path: Path) -> None:
    lines = journal(finished).read_bytes().splitlines(keepends=True)
    second = next(n for n, line in enumerate(lines) if json.loads(line).get("turn") == 2)
    name = json.loads(lines[second])["edge"]
    folder = interrupted(finished, tmp_path, b"".join(lines[:second]))
    teacher = AnswerTeacher(talkative)
    explore(folder, teacher)
    assert (name, 1) not in teacher.asked
    assert teacher.forked[name] == f"{name}/1"


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_a_torn_last_line_is_dropped(finished: Path, tmp_path_factory: pytest.TempPathFactory, data) -> None:
    whole = journal(finished).read_bytes()
    cut = data.draw(st.integers(0, len(whole) - 1))
    junk = data.draw(st.sampled_from([b"", b"\0" * 100, b'{"kind":"turn"']))
    folder = interrupted(finished, tmp_path_factory.mktemp("torn"), whole[:cut] + junk)
    explore(folder)
    assert contents(folder) == contents(finished)
    assert all(decode(line) for line in journal(folder).read_bytes().splitlines(keepends=True))


def test_a_damaged_line_in_the_middle_is_refused_by_its_number(finished: Path, tmp_path: Path) -> None:
    lines = journal(finished).read_bytes().splitlines(keepends=True)
    lines[4] = lines[4].replace(b'"turn"', b'"TURN"', 1) if b'"turn"' in lines[4] else lines[4][:-9] + lines[4][-1:]
    folder = interrupted(finished, tmp_path, b"".join(lines))
    before = journal(folder).read_bytes()
    with pytest.raises(BadInput, match=r"journal\.jsonl, line 5: is damaged"):
        explore(folder)
    assert journal(folder).read_bytes() == before, "nothing is cut off"


@given(st.dictionaries(st.text(max_size=5), st.floats(allow_nan=False) | st.text()), st.data())
def test_any_changed_byte_of_a_record_is_noticed(record: dict, data) -> None:
    line = encode(record)
    assert decode(line) == record
    place = data.draw(st.integers(0, len(line) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != line[place]))
    assert decode(line[:place] + bytes([byte]) + line[place + 1 :]) is None
    assert decode(line[:place]) is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"parallel_width": 4}, "settings.parallel_width was 3, now 4"),
        ({"soft_weights": {"outcome": 0.5}}, "settings.soft_weights.outcome was 0.3, now 0.5"),
        ({"direction": "minimize"}, 'direction was "maximize", now "minimize"'),
        ({"root": replace(ROOT, key="eval-000004-agent-1-0123456789ab")}, "root.key was"),
        ({"root": replace(ROOT, fingerprint="other")}, 'root.fingerprint was "fingerprint", now "other"'),
        ({"root": replace(ROOT, score=2.0)}, "root.score was 1.0, now 2.0"),
        ({"teacher": AnswerTeacher(talkative, name="other")}, 'teacher.name was "answers", now "other"'),
    ],
)
def test_a_journal_of_another_tree_is_refused_naming_what_differs(finished: Path, tmp_path: Path, change, told) -> None:
    folder = interrupted(finished, tmp_path, journal(finished).read_bytes())
    with pytest.raises(BadInput) as refused:
        explore(folder, **change)
    assert told in str(refused.value)
    assert str(refused.value).count(", now ") == 1, "the one field and no other"


@pytest.mark.parametrize("teacher", ["answers", "simulated", "embedded", "opencode"])
def test_a_setting_that_joined_since_with_its_default_stops_no_tree(tmp_path: Path, teacher: str) -> None:
    """At the end of the settings, within a group of them, and among the teacher's own."""
    kept = {"seed": 0} | ({"settings": own.model_dump(mode="json")} if (own := SECTIONS.get(teacher)) else {})
    explore(tmp_path, AnswerTeacher(talkative, name=teacher, described=kept))
    written = contents(tmp_path)
    first, *rest = records(tmp_path)
    del first["crc"], first["settings"]["exempt_depth"], first["settings"]["soft_weights"]["outcome"]
    if own:
        first["teacher"]["settings"].popitem()
    journal(tmp_path).write_bytes(b"".join([encode(first), *(encode(without_crc(record)) for record in rest[:-3])]))
    for name in written:
        (tmp_path / name).unlink()
    explore(tmp_path, AnswerTeacher(talkative, name=teacher, described=kept))
    again = contents(tmp_path)
    assert {name for name in written if again[name] != written[name]} == {"tree.json"}
    began = json.loads(again["tree.json"])["configuration"]
    assert began == {"search": first["settings"], "teacher": first["teacher"]}
    with pytest.raises(BadInput, match=r"settings\.exempt_depth was 2, now 7"):
        explore(tmp_path, AnswerTeacher(talkative, name=teacher, described=kept), exempt_depth=7)


def test_a_setting_that_is_gone_since_makes_another_tree(finished: Path, tmp_path: Path) -> None:
    header, *rest = records(finished)
    header["settings"]["patience"] = 3
    cut = b"".join(encode(without_crc(record)) for record in (header, *rest))
    with pytest.raises(OtherTree, match=r"settings\.patience was 3, now absent"):
        explore(interrupted(finished, tmp_path, cut))


def test_patience_with_faults_is_not_part_of_a_trees_identity(finished: Path, tmp_path: Path) -> None:
    folder = interrupted(finished, tmp_path, journal(finished).read_bytes())
    explore(folder, retry=RetrySettings(attempts=9))


def test_a_journal_in_another_format_is_refused(finished: Path, tmp_path: Path) -> None:
    header, *rest = journal(finished).read_bytes().splitlines(keepends=True)
    fields = {key: value for key, value in json.loads(header).items() if key != "crc"}
    folder = interrupted(finished, tmp_path, encode(fields | {"format": 0}) + b"".join(rest))
    with pytest.raises(BadInput, match="format was 0, now 1"):
        explore(folder)


def test_a_journal_these_rules_would_not_have_written_is_refused(finished: Path, tmp_path: Path) -> None:
    lines = journal(finished).read_bytes().splitlines(keepends=True)[:-1]
    turn = {key: value for key, value in json.loads(lines[1]).items() if key != "crc"}
    stranger = encode(turn | {"edge": "0.7", "turn": 1})
    with pytest.raises(BadInput, match=r"edge 0\.7 is in it, but with these rules it is never asked for"):
        explore(interrupted(finished, tmp_path / "stranger", b"".join([*lines, stranger])))

    place = next(n for n, line in enumerate(lines) if json.loads(line)["kind"] == "edge")
    edge = {key: value for key, value in json.loads(lines[place]).items() if key != "crc"}
    lines[place] = encode(edge | {"failure_reason": "tool_errors"})
    with pytest.raises(BadInput, match=f"edge {edge['edge']} ended with"):
        explore(interrupted(finished, tmp_path / "otherwise", b"".join(lines)))


@pytest.mark.parametrize("damage", ["gone", "short", "changed"])
def test_a_transcript_that_is_not_what_was_written_is_refused(finished: Path, tmp_path: Path, damage: str) -> None:
    lines = journal(finished).read_bytes().splitlines(keepends=True)
    folder = interrupted(finished, tmp_path, b"".join(lines[:-1]))
    transcript = folder / "work" / "transcripts" / "0-1.jsonl"
    text = transcript.read_bytes()
    if damage == "gone":
        transcript.unlink()
    else:
        transcript.write_bytes(text[:-10] if damage == "short" else text.replace(b"turn 1", b"turn 9"))
    with pytest.raises(BadInput, match=r"0-1\.jsonl"):
        explore(folder)


def test_a_second_search_of_the_same_tree_is_refused_while_the_first_runs(tmp_path: Path) -> None:
    refusals = []

    def answer(edge, number):
        if (edge.name, number) == ("0", 1):
            code = "import sys\nfrom coral_pipeline_tests.search.on_disk import *\nexplore(Path(sys.argv[1]))"
            second = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
            refusals.append(second.stderr)
        return talkative(edge, number)

    explore(tmp_path, AnswerTeacher(answer))
    assert f"process {os.getpid()} is exploring this tree" in refusals[0]
    assert "BadInput" in refusals[0]


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file may grow beyond so many bytes: the kernel then takes a part of a write, like a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [100, 2500, 4000])
def test_a_disk_that_takes_no_more_halts_the_search_and_it_can_be_resumed(
    finished: Path, tmp_path: Path, size: int
) -> None:
    with files_up_to(size), pytest.raises((SearchHalted, BadInput), match=r"cannot be written \(File too large\)"):
        explore(tmp_path)
    kept = journal(tmp_path).read_bytes()
    assert kept == b"" or kept.endswith(b"\n"), "nothing of the refused record is left"
    explore(tmp_path)
    assert contents(tmp_path) == contents(finished)


def test_a_failed_flush_is_a_fault_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RecordFile(tmp_path / "records")
    file.append({"n": 1})

    def no_space(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(InfrastructureFault, match="No space left on device"):
        patch.setattr(os, "fsync", no_space)
        file.append({"n": 2})
    file.append({"n": 3})
    file.close()
    assert [record["n"] for record in RecordFile(tmp_path / "records").records] == [1, 3]


def test_a_thread_that_outlives_the_file_can_write_to_no_other(tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "records")
    file.close()
    with (tmp_path / "other").open("w"), pytest.raises(InfrastructureFault):
        file.append({"n": 1})
    assert (tmp_path / "other").read_text() == ""


def test_a_full_disk_while_the_tables_are_written_can_be_resumed(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = interrupted(finished, tmp_path, b"".join(journal(finished).read_bytes().splitlines(keepends=True)[:-1]))
    with files_up_to(len(journal(finished).read_bytes()) - 200), pytest.raises(SearchHalted, match="its tables cannot"):
        explore(folder)
    assert not (folder / "tree.json").exists()
    explore(folder)
    assert contents(folder) == contents(finished)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_full_file_system_halts_the_search_and_it_can_be_resumed(finished: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40k", "none", str(disk)], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with pytest.raises((SearchHalted, BadInput), match="No space left on device"):
            explore(disk)
        subprocess.run(["mount", "-o", "remount,size=4m", str(disk)], check=True)
        explore(disk)
        assert contents(disk) == contents(finished)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="file"):
        explore(tmp_path / "file")
