"""What a finished tree's folder holds."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from coral_pipeline import tables
from coral_pipeline.conversations import Conversations
from coral_pipeline.errors import BadInput
from coral_pipeline.explored import ExploredTree
from coral_pipeline.search.output import FILES
from coral_pipeline.teacher.protocol import ContentPart, EdgeRequest, Message, Turn
from coral_pipeline_tests.search.growing import AnswerTeacher, turn
from coral_pipeline_tests.search.on_disk import SMALL, contents, explore, journal, talkative


def test_every_table_has_the_declared_columns_with_their_descriptions(finished: Path) -> None:
    for table in tables.TABLES["explored_trees"]:
        assert pq.read_schema(finished / table.file_name).equals(table.schema, check_metadata=False)
        assert table.read(finished).num_rows > 0
        for field in pq.read_schema(finished / table.file_name):
            assert field.metadata[b"description"]


def test_what_a_killed_process_left_half_written_goes(tmp_path: Path) -> None:
    (tmp_path / ".messages.parquet.1234.partial").write_text("half")
    explore(tmp_path)
    assert not list(tmp_path.glob(".*"))


def test_each_message_is_there_once_and_a_session_goes_on_from_its_parents_last_message(finished: Path) -> None:
    messages = {m["message_id"]: m for m in tables.MESSAGES.rows(finished)}
    edges = tables.EDGES.rows(finished)
    name = {0: ""}
    for e in edges:
        own = f"{name[e['parent_id']]}.{e['expansion']}".removeprefix(".")
        turns = [t["turn"] for t in tables.TURNS.rows(finished) if t["edge_id"] == e["edge_id"]]
        ids = [f"{own}/{number}/{index}" for number in turns for index in (0, 1)]
        parent = name[e["parent_id"]]
        before = f"{parent}/2/1" if parent else None
        for message_id in ids:
            message = messages.pop(message_id)
            assert (message["parent_message_id"], message["edge_id"]) == (before, e["edge_id"])
            assert message["turn"] == int(message_id.split("/")[1])
            before = message_id
        if e["child_id"] is not None:
            name[e["child_id"]] = own
    assert not messages, "and no others"


def test_messages_come_back_as_the_teacher_gave_them(finished: Path) -> None:
    first, second = tables.MESSAGES.rows(finished)[:2]
    assert (first["role"], first["sampled"], first["sampled_token_ids"]) == ("user", False, None)
    text, call = second["content"]
    assert (text["type"], text["text"]) == ("text", "edge 0, turn 1: ë 🙂")
    assert (call["name"], call["arguments"], call["text"]) == ("bash", '{"command": "ls"}', None)
    assert (second["sampled"], second["output_tokens"], second["sampled_token_ids"]) == (True, 3, [1, 2, 3])
    assert second["sampled_logprobs"][:2] == [-0.1, -math.inf] and math.isnan(second["sampled_logprobs"][2])


def test_a_session_passes_over_turns_without_messages(tmp_path: Path) -> None:
    def answer(edge: EdgeRequest, number: int) -> Turn:
        said = Message(role="assistant", content=(ContentPart(type="text", text="hm"),))
        return turn(messages=(said,) if (edge.name, number) in {("0", 1), ("0.0.0", 2)} else ())

    explore(tmp_path, AnswerTeacher(answer), max_logical_edges=40)
    pairs = [(m["message_id"], m["parent_message_id"]) for m in tables.MESSAGES.rows(tmp_path)]
    assert pairs == [("0/1/0", None), ("0.0.0/2/0", "0/1/0")]


def test_tree_json_says_what_was_explored_and_how(finished: Path) -> None:
    tree = json.loads((finished / "tree.json").read_text())
    assert (tree["root"], tree["student_run"]) == ("eval-000003-agent-1-0123456789ab", "run-a")
    assert tree["stage"] == "middle"
    assert (tree["direction"], tree["stop_reason"]) == ("maximize", "edge_budget")
    assert tree["configuration"]["search"]["parallel_width"] == SMALL["parallel_width"]
    assert tree["configuration"]["search"]["soft_weights"]["outcome"] == 0.3, "defaults too"
    assert tree["configuration"]["teacher"] == {"name": "answers", "kind": "test"}
    assert set(tree["versions"]) == {"coral_pipeline", "journal_format", "python", "pyarrow"}
    nodes, edges = tables.NODES.rows(finished), tables.EDGES.rows(finished)
    counts = tree["counts"]
    assert counts["nodes"] == len(nodes) and counts["edges"] == len(edges)
    assert counts["valid_edges"] == SMALL["max_logical_edges"] == len(nodes) - 1
    assert counts["failed_edges"] == sum(e["child_id"] is None for e in edges)
    assert counts["turns"] == len(tables.TURNS.rows(finished))
    assert counts["messages"] == len(tables.MESSAGES.rows(finished))
    assert sum(counts["leaves"].values()) == sum(n["leaf_kind"] is not None for n in nodes)


def test_tree_json_tells_the_tools_of_the_first_edge_that_tells_any_and_goes_on_doing_so(tmp_path: Path) -> None:
    def answer(edge: EdgeRequest, number: int) -> Turn:
        tool = {"type": "function", "function": {"name": edge.name, "parameters": {"type": "object"}}}
        return turn(tools=(tool,) if edge.name in {"1", "2"} and number == 1 else None)

    explore(tmp_path, AnswerTeacher(answer))
    assert [tool["function"]["name"] for tool in json.loads((tmp_path / "tree.json").read_text())["tools"]] == ["1"]
    assert Conversations.read(tmp_path).tools == [
        {"type": "function", "function": {"name": "1", "parameters": {"type": "object"}}}
    ]
    before = (tmp_path / "tree.json").read_bytes()
    (tmp_path / "tree.json").unlink()
    explore(tmp_path, AnswerTeacher(answer))
    assert (tmp_path / "tree.json").read_bytes() == before, "written again from the journal"
    assert "tools" not in tables.TURNS.rows(tmp_path)[0]


def test_the_stages_after_the_search_can_read_it(finished: Path) -> None:
    tree = ExploredTree.read(finished)
    assert len(tree) == SMALL["max_logical_edges"] + 1


def test_no_file_names_a_path_of_this_machine(finished: Path) -> None:
    for file in (path for path in finished.rglob("*") if path.is_file()):
        assert str(finished).encode() not in file.read_bytes(), file.name


def test_the_same_search_gives_the_same_bytes(finished: Path, tmp_path: Path) -> None:
    explore(tmp_path)
    assert contents(tmp_path) == contents(finished)


def test_a_finished_tree_is_left_as_it_is(tmp_path: Path) -> None:
    first = explore(tmp_path)
    written = {name: (tmp_path / name).stat().st_mtime_ns for name in FILES}
    kept = journal(tmp_path).read_bytes()
    teacher = AnswerTeacher(talkative)
    for resume in (True, False):
        again = explore(tmp_path, teacher, resume=resume)
        assert (first.was_finished, again.was_finished) == (False, True)
        assert (again.nodes, again.stop_reason, again.best_score) == (first.nodes, first.stop_reason, first.best_score)
    assert teacher.asked == []
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in FILES} == written
    assert journal(tmp_path).read_bytes() == kept


def test_a_table_that_was_lost_is_written_again_from_the_journal(tmp_path: Path) -> None:
    explore(tmp_path)
    expected = contents(tmp_path)
    (tmp_path / "edges.parquet").unlink()
    teacher = AnswerTeacher(talkative)
    explore(tmp_path, teacher)
    assert contents(tmp_path) == expected
    assert teacher.asked == []


def test_tables_of_another_tree_do_not_pass_for_a_new_trees(tmp_path: Path) -> None:
    explore(tmp_path)
    journal(tmp_path).unlink()
    with pytest.raises(BadInput, match="a tree was begun there"):
        explore(tmp_path, max_logical_edges=5, resume=False)
    assert explore(tmp_path, max_logical_edges=5).was_finished is False
    assert json.loads((tmp_path / "tree.json").read_text())["counts"]["valid_edges"] == 5


def test_the_summary_counts_what_the_tables_hold(tmp_path: Path) -> None:
    summary = explore(tmp_path, max_logical_edges=20)
    nodes, edges = tables.NODES.rows(tmp_path), tables.EDGES.rows(tmp_path)
    assert (summary.nodes, summary.valid_edges) == (len(nodes), len(nodes) - 1)
    assert summary.failed_edges == sum(e["child_id"] is None for e in edges) > 0
    assert summary.kept_edges == sum(e["kept_by"] is not None for e in edges) > 0
    assert summary.improved_edges == sum(e["improved"] for e in edges) > 0
    assert summary.best_score == max(n["score"] for n in nodes if n["score"] is not None)
    assert nodes[summary.best_node]["score"] == summary.best_score
    assert summary.seconds == sum(e["seconds"] for e in edges)
