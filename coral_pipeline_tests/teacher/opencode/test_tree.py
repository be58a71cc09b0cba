"""A whole small tree by the real Teacher, killed in mid-turn and gone on with, from the command line into Parquet."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from coral_pipeline import tables
from coral_pipeline_tests.opencode import opencode_program
from coral_pipeline_tests.teacher.opencode.lab import climbing, processes_of, require_coral
from coral_pipeline_tests.teacher.opencode.model_server import ModelServer
from coral_pipeline_tests.teacher.opencode.roots import make_root

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

DIRECTIONS, EDGES, REQUESTS_OF_A_TURN = 3, 6, 2


def explore(root: Path, out: Path, settings: Path, server: ModelServer, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "coral_pipeline.cli", "explore", str(root), "--out", str(out)]
    command += ["--teacher", "opencode", "--endpoint", server.url, "--model", "scripted", "--settings", str(settings)]
    environment = {**os.environ, "CORAL_PIPELINE_API_KEY": "sk-test-key"}
    return subprocess.Popen([*command, *more], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def gone_within(seconds: float, text: str) -> bool:
    deadline = time.monotonic() + seconds
    while processes_of(text) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not processes_of(text)


@pytest.mark.parametrize("coral", ["built-in", "installed"])
def test_a_tree_killed_in_mid_turn_goes_on_and_ends_in_parquet(tmp_path: Path, coral: str) -> None:
    require_coral(coral)
    root, _ = make_root(tmp_path)
    out, settings = tmp_path / "tree", tmp_path / "settings.yaml"
    search = {"max_depth": 2, "max_children_per_non_root_node": 1, "max_logical_edges": EDGES, "parallel_width": "auto"}
    teacher = {
        "opencode_command": str(opencode_program()),
        "start_seconds": 300,
        "min_free_bytes": 0,
        "coral": coral,
    }
    settings.write_text(yaml.safe_dump({"search": search, "opencode": teacher}))
    with ModelServer(climbing(), info={"max_running_requests": 3}) as server:
        first = explore(root, out, settings, server)
        # every direction has finished a turn, and the next ones are under way
        while len(server.requests) < DIRECTIONS * REQUESTS_OF_A_TURN + 1 and first.poll() is None:
            time.sleep(0.05)
        first.send_signal(signal.SIGKILL)
        said, _ = first.communicate()
        assert first.returncode == -signal.SIGKILL, said.decode()
        assert gone_within(30, str(tmp_path / "tree"))
        before = len(server.requests)
        server.info = {"max_running_requests": 1}  # the tree stays as wide as it was begun
        second = explore(root, out, settings, server, "--resume")
        said, _ = second.communicate()
        assert second.returncode == 0, said.decode()
        asked = len(server.requests)
    # at most what was in flight was asked again
    assert asked <= (2 * EDGES + DIRECTIONS) * REQUESTS_OF_A_TURN and asked - before < 2 * EDGES * REQUESTS_OF_A_TURN
    check_tables(out)
    ran = json.loads((out / "tree.json").read_text())["configuration"]
    assert (ran["teacher"]["coral"] == "built-in") == (coral == "built-in")
    assert ran["search"]["parallel_width"] == 3
    assert processes_of(str(tmp_path / "tree")) == []
    assert not list((out / "work" / "teacher" / "forks").iterdir())
    assert str(out) not in Path("/proc/self/mountinfo").read_text()


def check_tables(out: Path) -> None:
    edges, turns = tables.EDGES.rows(out), tables.TURNS.rows(out)
    assert len(edges) == EDGES and len(turns) == 2 * EDGES
    assert all(edge["improved"] and edge["has_knowledge_action"] and edge["child_id"] for edge in edges)
    assert {edge["depth"] for edge in edges} == {1, 2}
    scores = [turn["score"] for turn in turns]
    assert None not in scores and len(set(scores)) == len(scores)
    assert all(turn["commit_hash"] and turn["context_tokens"] > 0 for turn in turns)
    nodes = {node["node_id"]: node for node in tables.NODES.rows(out)}
    assert all(
        nodes[edge["child_id"]]["max_token_total"] > nodes[edge["parent_id"]]["max_token_total"] for edge in edges
    )
    messages = tables.MESSAGES.rows(out)
    sampled = [message for message in messages if message["sampled"]]
    assert len(sampled) == 2 * EDGES * 2
    assert all(len(message["sampled_token_ids"]) == message["output_tokens"] for message in sampled)
    # three sessions, each with its own system prompt; all others begin where their parent ended
    assert sum(message["parent_message_id"] is None for message in messages) == DIRECTIONS
    described = json.loads((out / "tree.json").read_text())
    assert "sk-test-key" not in json.dumps(described)
    assert '"fork_method"' in json.dumps(described) and '"isolation": "bubblewrap"' in json.dumps(described)
