"""The message graph as verifiers reads it: branches that say, per path, what the edges say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from coral_pipeline import tables
from coral_pipeline.conversations import Conversations
from coral_pipeline.credit.token_table import TokenTable
from coral_pipeline.credit.tokens import write_tokens
from coral_pipeline_tests.transcripts import (
    ADVANTAGES,
    call,
    changed,
    message,
    result,
    talking_rows,
    text,
    write_talking_tree,
)
from coral_pipeline_tests.trees import N, write_tree

if TYPE_CHECKING:
    from verifiers.v1.trace import Branch, Trace


def read_trace(folder: Path) -> Trace[Any]:
    """The one trace in ``folder``, by verifiers' own reader, which takes every value that was written as it is."""
    from verifiers.v1.trace import WireTrace
    from verifiers.v1.utils.trace_store import read_episodes

    (episode,) = read_episodes(folder, WireTrace)
    assert_told(json.loads((folder / "traces.jsonl").read_text()), episode.to_record(float_decimals=None))
    (trace,) = episode.traces
    return trace


def assert_told(written: Any, read: Any, where: str = "") -> None:
    """Every value in ``written`` is in ``read``, at the same place and of the same type."""
    if isinstance(written, dict):
        for key, value in written.items():
            assert key in read, f"{where}/{key}"
            assert_told(value, read[key], f"{where}/{key}")
    elif isinstance(written, list):
        assert len(written) == len(read), where
        for place, (value, other) in enumerate(zip(written, read, strict=True)):
            assert_told(value, other, f"{where}/{place}")
    else:
        assert (type(written), written) == (type(read), read), where


def written(tmp_path: Path, advantages: Mapping[int, float | None], rows: Any = None) -> Trace[Any]:
    write_tokens(write_talking_tree(tmp_path / "tree", rows), advantages, tmp_path / "credit")
    return read_trace(tmp_path / "credit")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graph")
    written(folder, ADVANTAGES)
    return folder


@pytest.fixture(scope="module")
def trace(folder: Path) -> Trace[Any]:
    return read_trace(folder / "credit")


def by_leaf(trace: Trace[Any]) -> dict[int, Branch]:
    leaves = [entry["leaf_id"] for entry in trace.info["branches"]]
    return dict(zip(leaves, trace.branches, strict=True))


def spread(conversations: Conversations, tokens: TokenTable, edge_ids: tuple[int, ...]) -> list[float]:
    """Per token of a path: its edge's advantage where the Teacher sampled it, else 0. Straight from the tables."""
    values: list[float] = []
    for position in conversations.path(edge_ids):
        row = conversations.rows[position]
        advantage = ADVANTAGES[row["edge_id"]] or 0.0
        values += [advantage if sampled else 0.0 for sampled in tokens.mask(tokens.place_of[row["message_id"]])]
    return values


def test_every_message_of_a_searched_edge_is_one_node(trace: Trace[Any]) -> None:
    ids = trace.info["message_ids"]
    assert len(ids) == len(set(ids)) == len(trace.nodes) == 50
    assert not any(message_id.startswith("e5.") for message_id in ids)


def test_directions_from_the_root_are_sessions_of_their_own(trace: Trace[Any]) -> None:
    roots = [trace.info["message_ids"][i] for i, node in enumerate(trace.nodes) if node.parent is None]
    assert roots == ["e0.0", "e1.0"]


def test_the_branches_are_the_paths_to_the_leaves(trace: Trace[Any]) -> None:
    assert [entry["leaf_id"] for entry in trace.info["branches"]] == [3, 4, 5]
    for branch, entry in zip(trace.branches, trace.info["branches"], strict=True):
        ids = [trace.info["message_ids"][trace.nodes.index(node)] for node in branch.nodes]
        assert ids == [f"e{edge_id}.{place}" for edge_id in entry["edge_ids"] for place in range(10)]


def test_a_branch_reads_what_the_edges_of_its_path_say_to_the_last_digit(folder: Path, trace: Trace[Any]) -> None:
    conversations, tokens = Conversations.read(folder / "tree"), TokenTable.read(folder / "credit")
    for path in conversations.leaf_paths():
        branch = by_leaf(trace)[path.leaf_id]
        assert branch.advantages == spread(conversations, tokens, path.edge_ids)
        assert len(branch.advantages) == len(branch.token_ids) == len(branch.sampled_mask)


def test_a_partly_assigned_path_spreads_with_its_unassigned_nodes_reading_zero(trace: Trace[Any]) -> None:
    # Leaf 4 is reached by edge 0 (0.1) and edge 3 (None).
    branch = by_leaf(trace)[4]
    assert branch.advantages is not None
    assert set(branch.advantages) == {0.0, 0.1}
    assert all(node.advantages is None for node in branch.nodes[10:])


def test_a_path_without_any_credit_has_none_and_one_of_zeros_has_zeros(tmp_path: Path) -> None:
    trace = written(tmp_path, {0: 1.0, 1: None, 2: 0.0, 3: None, 4: None})
    assert by_leaf(trace)[5].advantages is None
    zeros = written(tmp_path / "again", {0: 0.0, 1: 0.0, 2: 0.0, 3: 0.0, 4: 0.0})
    assert set(by_leaf(zeros)[5].advantages or ()) == {0.0}


def test_credit_is_on_the_sampled_nodes_in_the_layout_of_logprobs(trace: Trace[Any]) -> None:
    for node, edge_id in zip(trace.nodes, trace.info["edge_ids"], strict=True):
        if node.sampled and ADVANTAGES[edge_id] is not None:
            assert node.advantages == [ADVANTAGES[edge_id]] * sum(node.mask)
        else:
            assert node.advantages is None
        assert node.logprobs == []


def test_recorded_log_probabilities_keep_every_digit(tmp_path: Path) -> None:
    logprobs = [-1 / 3, -2e-17]
    rows = changed(talking_rows(), "e2.9", sampled_token_ids=[1, 2], sampled_logprobs=logprobs)
    trace = written(tmp_path, ADVANTAGES, rows)
    node = trace.nodes[trace.info["message_ids"].index("e2.9")]
    assert node.logprobs == logprobs
    assert [value for value in by_leaf(trace)[3].logprobs if value] == logprobs


def test_each_branch_says_what_an_earlier_one_already_carries(trace: Trace[Any]) -> None:
    shared = {entry["leaf_id"]: (entry["shared_nodes"], entry["shared_tokens"]) for entry in trace.info["branches"]}
    prefix = sum(len(node.token_ids) for node in by_leaf(trace)[3].nodes[:10])
    assert shared == {3: (0, 0), 4: (10, prefix), 5: (0, 0)}


def test_taking_each_branch_without_its_shared_nodes_takes_every_node_once(trace: Trace[Any]) -> None:
    taken = [
        id(node)
        for branch, entry in zip(trace.branches, trace.info["branches"], strict=True)
        for node in branch.nodes[entry["shared_nodes"] :]
    ]
    assert sorted(taken) == sorted(id(node) for node in trace.nodes)


def test_messages_have_verifiers_types_and_arguments_are_as_the_teacher_wrote_them(trace: Trace[Any]) -> None:
    nodes = dict(zip(trace.info["message_ids"], trace.nodes, strict=True))
    spoken, answer = nodes["e4.1"].message, nodes["e4.2"].message
    assert (spoken.reasoning_content, spoken.content) == ("Perhaps the step is too small.", "Let me look.")
    assert [(c.id, c.name, c.arguments) for c in spoken.tool_calls] == [
        ("a", "read", '{"filePath": "solution.py", "limit": 4}')
    ]
    assert (answer.tool_call_id, answer.name, answer.content) == ("a", "read", "step = 0.1\n")
    assert nodes["e4.3"].message.content is None


def test_a_message_with_two_results_is_two_nodes_with_its_tokens_on_the_first(tmp_path: Path) -> None:
    rows = [
        message("0", None, 0, "user", text("go")),
        message("1", "0", 0, "assistant", call("a", "ls", "{}"), call("b", "ls", "not json")),
        message("2", "1", 0, "tool", result("a", "ls", "x"), result("b", "ls", "y")),
    ]
    tree = write_tree(tmp_path / "tree", [N(score=1.0), N(0, 2.0)])
    tables.MESSAGES.write(rows, tree)
    write_tokens(tree, {0: 1.0}, tmp_path / "credit")
    trace = read_trace(tmp_path / "credit")
    assert trace.info["message_ids"] == ["0", "1", "2", "2"]
    assert [node.message.content for node in trace.nodes[2:]] == ["x", "y"]
    assert [len(node.token_ids) for node in trace.nodes[2:]] == [6, 0]
    (branch,) = trace.branches
    assert branch.token_ids == [i for row in tables.TOKENS.rows(tmp_path / "credit") for i in row["token_ids"]]
    assert [c.arguments for c in trace.nodes[1].message.tool_calls] == ["{}", "not json"]


def test_reported_token_counts_become_model_calls(tmp_path: Path) -> None:
    rows = changed(talking_rows(), "e2.9", input_tokens=900, output_tokens=20)
    trace = written(tmp_path, ADVANTAGES, rows)
    (model_call,) = trace.calls
    assert trace.info["message_ids"][model_call.node] == "e2.9"
    assert by_leaf(trace)[3].num_total_tokens == 920


def test_the_trace_says_which_root_it_is_of_and_is_the_same_in_every_run(folder: Path, tmp_path: Path) -> None:
    written(tmp_path, ADVANTAGES)
    first, again = (folder / "credit" / "traces.jsonl", tmp_path / "credit" / "traces.jsonl")
    assert first.read_bytes() == again.read_bytes()
    record = json.loads(first.read_text())
    assert record["task"]["key"] == "run-a|eval-000003-agent-1-0123456789ab"
    assert record["traces"][0]["info"]["direction"] == "maximize"
    assert record["traces"][0]["info"]["tokenizer"] == "byte"


def test_a_root_s_trace_costs_no_import_of_verifiers(tmp_path: Path) -> None:
    tree = write_talking_tree(tmp_path / "tree")
    code = (
        "import sys\nfrom pathlib import Path\nfrom coral_pipeline.audit.credit import verify_trace\n"
        "from coral_pipeline.audit.findings import Review\nfrom coral_pipeline.credit.tokens import write_tokens\n"
        f"tree, out = Path({str(tree)!r}), Path({str(tmp_path / 'credit')!r})\n"
        f"write_tokens(tree, {ADVANTAGES!r}, out)\n"
        "review = Review('advantage_batches', 'run|root')\nverify_trace(review, out, tree)\n"
        "print(review.total, dict(review.looked_at), 'verifiers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 {'lines': 1} False"


def test_a_tree_without_transcripts_has_no_branches(tmp_path: Path) -> None:
    trace = written(tmp_path, ADVANTAGES, [])
    assert (trace.nodes, trace.branches, trace.info["branches"]) == ([], [], [])


def test_a_path_that_ends_inside_another_is_no_branch_of_its_own(tmp_path: Path) -> None:
    # Nothing is told of edge 3, so the path to leaf 4 ends where edge 0 does, on the way to leaf 3.
    trace = written(tmp_path, ADVANTAGES, [row for row in talking_rows() if row["edge_id"] != 3])
    assert list(by_leaf(trace)) == [3, 5]
    assert [len(branch.nodes) for branch in trace.branches] == [20, 20]


def test_paths_that_are_the_same_are_one_branch(tmp_path: Path) -> None:
    trace = written(tmp_path, ADVANTAGES, [row for row in talking_rows() if row["edge_id"] not in (2, 3, 5)])
    assert list(by_leaf(trace)) == [3, 5]
    assert [len(branch.nodes) for branch in trace.branches] == [10, 20]


def test_tools_recorded_with_the_tree_are_on_the_first_node_of_each_session(tmp_path: Path) -> None:
    tree = write_talking_tree(tmp_path / "tree")
    info = json.loads((tree / "tree.json").read_text())
    info["tools"] = [{"type": "function", "function": {"name": "ls", "description": "d", "parameters": {"a": 1}}}]
    (tree / "tree.json").write_text(json.dumps(info))
    write_tokens(tree, ADVANTAGES, tmp_path / "credit")
    trace = read_trace(tmp_path / "credit")
    assert [(tool.name, tool.parameters) for tool in trace.branches[0].tools] == [("ls", {"a": 1})]
    assert sum(bool(node.tools) for node in trace.nodes) == 2
