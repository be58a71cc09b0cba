"""The ``http`` value model against a real server in the test."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from coral_pipeline.credit import DirectBranchTd, HttpCritic, prepare
from coral_pipeline.credit.value_models import priors
from coral_pipeline.errors import BadInput, is_outage
from coral_pipeline.explored import ExploredTree
from coral_pipeline.settings import HttpCriticSettings
from coral_pipeline_tests.trees import ROOT, N, write_tree

NODES = [N(score=1.0)] + [N(0, float(k), leaf="open") for k in range(2)] + [N(1, 2.0), N(1, 3.0, leaf="open")]
Body = dict[str, Any]
Answer = Callable[[Body], tuple[int, Any]]


def value_of(checkpoint: Body) -> float:
    """What the server's critic thinks: something only this checkpoint has."""
    return 10.0 * int(checkpoint["node_id"]) + len(checkpoint["messages"])


def good(body: Body) -> tuple[int, Any]:
    entries = [{"id": c["id"], "value": value_of(c)} for c in body["checkpoints"]]
    return 200, {"values": entries[::-1]}  # the other way round: ids say whose is whose


class Critic(ThreadingHTTPServer):
    """Answers each request by the next of ``script``, then by ``good``; keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[Answer] = []
        self.asked: list[Body] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/values"


class Handler(BaseHTTPRequestHandler):
    server: Critic

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        status, answer = (self.server.script.pop(0) if self.server.script else good)(body)
        if status == 0:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def critic() -> Iterator[Critic]:
    server = Critic()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def tree(tmp_path: Path) -> ExploredTree:
    return ExploredTree.read(write_tree(tmp_path, NODES))


def model(critic: Critic, **settings: Any) -> HttpCritic:
    return HttpCritic(HttpCriticSettings(url=critic.url, **{"backoff_seconds": 0.001, **settings}))


EXPECTED = [0.0, 14.0, 24.0, 0.0, 48.0]
"""By node: 10 times its id, and four messages for each edge; node 3 is a good leaf."""


@pytest.mark.parametrize(("size", "requests"), [(16, 1), (4, 1), (3, 2), (1, 4)])
def test_values_come_back_in_order_however_they_are_batched(
    critic: Critic, tree: ExploredTree, size: int, requests: int
) -> None:
    assert priors(tree, model(critic, batch_size=size)).tolist() == EXPECTED
    assert len(critic.asked) == requests
    checkpoints = [checkpoint for body in critic.asked for checkpoint in body["checkpoints"]]
    assert [c["id"] for c in checkpoints] == [f"{ROOT}/{k}" for k in (0, 1, 2, 4)], "good leaves are not asked about"


def test_a_request_holds_the_checkpoints_contexts(critic: Critic, tree: ExploredTree) -> None:
    priors(tree, model(critic))
    root, first, *_ = critic.asked[0]["checkpoints"]
    assert root == {"id": f"{ROOT}/0", "root": ROOT, "node_id": 0, "messages": []}
    assert first["messages"][:2] == [
        {"role": "user", "content": "user of turn 1 towards node 1"},
        {"role": "assistant", "content": "assistant of turn 1 towards node 1"},
    ]


def test_priors_of_the_endpoint_are_those_of_the_batch(critic: Critic, tree: ExploredTree) -> None:
    batch = prepare(tree, DirectBranchTd(), value_model=model(critic))
    assert batch.critic_table()["prior"].to_pylist() == EXPECTED
    assert batch.value_model == "http"


@pytest.mark.parametrize("status", [429, 500, 502, 503, 0])
def test_an_overloaded_or_failing_endpoint_is_asked_again(critic: Critic, tree: ExploredTree, status: int) -> None:
    critic.script = [lambda body: (status, "busy")] * 3
    assert priors(tree, model(critic, retries=3, batch_size=3)).tolist() == EXPECTED
    assert critic.asked[0] == critic.asked[1] == critic.asked[3], "the same request"
    assert len(critic.asked) == 5


def test_pauses_between_tries_double(critic: Critic, tree: ExploredTree, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    critic.script = [lambda body: (503, "")] * 4
    priors(tree, model(critic, retries=4, backoff_seconds=0.5))
    assert pauses == [0.5, 1.0, 2.0, 4.0]


def test_retries_are_used_up(critic: Critic, tree: ExploredTree) -> None:
    critic.script = [lambda body: (503, "warming up")] * 9
    with pytest.raises(
        BadInput, match=r"value model http, http://127\S+: answered 503: 'warming up' \(3 tries\)"
    ) as refused:
        priors(tree, model(critic, retries=2))
    assert len(critic.asked) == 3 and is_outage(refused.value)


def test_a_slow_endpoint_is_timed_out_and_asked_again(critic: Critic, tree: ExploredTree) -> None:
    given_up = threading.Event()

    def slow(body: Body) -> tuple[int, Any]:
        given_up.wait(30)
        return good(body)

    critic.script = [slow]
    try:
        assert priors(tree, model(critic, timeout_seconds=0.2)).tolist() == EXPECTED
    finally:
        given_up.set()
    assert len(critic.asked) == 2


def test_nobody_there(tree: ExploredTree) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        settings = HttpCriticSettings(url=url, retries=1, backoff_seconds=0)
        with pytest.raises(BadInput, match=r"value model http, http://127\S+: ConnectError.* \(2 tries\)") as refused:
            priors(tree, HttpCritic(settings))
        assert is_outage(refused.value)


@pytest.mark.parametrize("status", [301, 400, 401, 404, 422])
def test_an_endpoint_that_refuses_is_not_asked_again(critic: Critic, tree: ExploredTree, status: int) -> None:
    critic.script = [lambda body: (status, "no such model")]
    with pytest.raises(BadInput, match=f"answered {status}: 'no such model'") as refused:
        priors(tree, model(critic))
    assert len(critic.asked) == 1 and not is_outage(refused.value)


def changed(change: Callable[[list[Body]], Any]) -> Answer:
    def answer(body: Body) -> tuple[int, Any]:
        entries = [{"id": c["id"], "value": value_of(c)} for c in body["checkpoints"]]
        change(entries)
        return 200, {"values": entries}

    return answer


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (changed(lambda entries: entries.pop()), "gave 3 values for 4 checkpoints"),
        (changed(lambda entries: entries.append(entries[0])), "gave 5 values for 4 checkpoints"),
        (changed(lambda entries: entries[1].update(id="other/1")), f"checkpoint {ROOT}/1: got no finite value"),
        (changed(lambda entries: entries[1].update(id=f"{ROOT}/0")), f"checkpoint {ROOT}/1: got no finite value"),
        (changed(lambda entries: entries[2].update(value=float("nan"))), f"checkpoint {ROOT}/2: got no finite value"),
        (changed(lambda entries: entries[2].update(value=float("inf"))), f"checkpoint {ROOT}/2: got no finite value"),
        (changed(lambda entries: entries[2].update(value=None)), f"checkpoint {ROOT}/2: got no finite value"),
        (changed(lambda entries: entries[2].update(value=True)), f"checkpoint {ROOT}/2: got no finite value"),
        (changed(lambda entries: entries[2].update(value="0.5")), f"checkpoint {ROOT}/2: got no finite value"),
        (changed(lambda entries: entries[2].update(value=10**400)), f"checkpoint {ROOT}/2: got no finite value"),
        (changed(lambda entries: entries[3].pop("value")), "answered "),
        (changed(lambda entries: entries[3].update(id=["x"])), "answered "),
        (lambda body: (200, {"predictions": []}), "answered "),
        (lambda body: (200, [1.0, 2.0]), "answered "),
        (lambda body: (200, {"values": 3}), "answered "),
        (lambda body: (200, {"values": {"id": 3}}), "answered "),
        (lambda body: (200, "<html>"), "answered '<html>'"),
        (lambda body: (200, ""), "answered ''"),
    ],
)
def test_an_answer_with_anything_amiss_is_refused(
    critic: Critic, tree: ExploredTree, answer: Answer, problem: str
) -> None:
    critic.script = [answer]
    with pytest.raises(BadInput) as refused:
        priors(tree, model(critic))
    assert str(refused.value).startswith(f"value model http, {critic.url}")
    assert problem in str(refused.value)
    assert len(critic.asked) == 1, "asking again would not help"


@pytest.mark.parametrize("url", ["", "critic:8000", "ftp://critic/values", "http://", "http://a:b"])
def test_an_address_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(BadInput, match=f"url '{re.escape(url)}': is no HTTP address; give --value-url"):
        HttpCritic(HttpCriticSettings(url=url))
