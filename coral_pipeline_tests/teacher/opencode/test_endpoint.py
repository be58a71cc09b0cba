"""The recording endpoint: passes on unchanged, remembers everything but keys, hides short faults, names long ones."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coral_pipeline.settings import EndpointSettings
from coral_pipeline.teacher.opencode import line as lines
from coral_pipeline.teacher.opencode.calls import (
    BrokenStream,
    Call,
    failing_seconds,
    prompt_text,
    read_stream,
    shared_share,
    with_tokens,
    write_calls,
)
from coral_pipeline.teacher.opencode.endpoint import ModelEndpoint, listen_at, shown
from coral_pipeline.teacher.opencode.line import Line
from coral_pipeline.teacher.protocol import Message
from coral_pipeline_tests.teacher.opencode.lab import files_with, read_calls
from coral_pipeline_tests.teacher.opencode.model_server import (
    LOGPROB,
    Answer,
    Fault,
    ModelServer,
    Say,
    bash,
    steps,
    tokens_of,
)

KEY = "sk-very-secret"
IMPATIENT = EndpointSettings(patience_seconds=0, retry_seconds=0.01, stall_seconds=1, first_byte_seconds=2)
PATIENT = EndpointSettings(patience_seconds=60, retry_seconds=0.01)
SYSTEM = "You help.\nToday's date: Mon Nov 30 2026\nBe brief."


class Agent(http.client.HTTPConnection):
    """A client on a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


@contextmanager
def line_to(server: ModelServer, folder: Path, settings: EndpointSettings = IMPATIENT) -> Iterator[tuple[Line, Path]]:
    """A line to the server, and the socket it listens at."""
    endpoint = ModelEndpoint(server.url, KEY, "scripted", settings)
    try:
        with endpoint.line(listen_at(folder, "model.sock"), "tree-1", "Tue Dec 01 2026") as line:
            yield line, folder / "model.sock"
    finally:
        endpoint.close()
        (folder / "model.sock").unlink()


def ask(path: Path, text: str = "go", **more: Any) -> tuple[int, bytes]:
    """Status and body of one request, as an agent makes it; a broken connection has status 0."""
    agent = Agent(path)
    try:
        agent.request("POST", "/v1/chat/completions", json.dumps(request_body(text, **more)))
        response = agent.getresponse()
        return response.status, response.read()
    except (http.client.HTTPException, ConnectionError):
        return 0, b""
    finally:
        agent.close()


def request_body(text: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
    return {"model": "scripted", "stream": True, "messages": messages, **more}


def test_the_answer_passes_and_its_tokens_are_known(tmp_path: Path) -> None:
    said = Say("four letter", reasoning="thinking", calls=(bash("ls"),))
    with ModelServer(steps(said)) as server, line_to(server, tmp_path) as (line, path):
        status, body = ask(path)
    assert status == 200 and body.endswith(b"data: [DONE]\n\n")
    [call] = line.calls
    assert bytes(call.response) == body and call.outcome == "ok"
    sampled = call.sampled
    assert sampled is not None and sampled.complete and sampled.ids is not None
    # every delta is cut into tokens of its own: reasoning, two pieces of text (4 and 7 letters), a call
    pieces = ["thinking", "four", " letter", "bash" + json.dumps({"command": "ls", "description": "step"})]
    assert sampled.ids == tuple(token for piece in pieces for token in tokens_of(piece))
    assert sampled.logprobs == (LOGPROB,) * len(sampled.ids)
    assert sampled.completion_tokens == len(sampled.ids)


def test_pieces_pass_as_they_come(tmp_path: Path) -> None:
    gate = threading.Event()
    with ModelServer(steps(Say("some text")), gate=gate) as server, line_to(server, tmp_path) as (_, path):
        agent = Agent(path)
        agent.request("POST", "/v1/chat/completions", json.dumps(request_body("go")))
        response = agent.getresponse()
        assert response.readline().startswith(b"data: ")  # the server will not go on before we have read this
        gate.set()
        assert response.read().endswith(b"data: [DONE]\n\n")
        agent.close()


def test_requests_get_a_fixed_date_routing_and_what_the_settings_add(tmp_path: Path) -> None:
    settings = EndpointSettings(extra_body={"temperature": 0.7}, routing_headers=("x-smg-routing-key", "x-other"))
    with ModelServer(steps(Say("a"))) as server, line_to(server, tmp_path, settings) as (_, path):
        ask(path, max_tokens=5)
    [body] = server.requests
    assert body["messages"][0]["content"] == SYSTEM.replace("Mon Nov 30 2026", "Tue Dec 01 2026")
    assert (body["temperature"], body["max_tokens"], body["return_token_ids"]) == (0.7, 5, True)
    assert body["stream_options"] == {"include_usage": True}
    headers = {name.lower(): value for name, value in server.headers[0].items()}
    assert headers["x-smg-routing-key"] == headers["x-other"] == "tree-1"
    assert headers["authorization"] == f"Bearer {KEY}"


def test_only_the_system_prompts_date_is_fixed(tmp_path: Path) -> None:
    with ModelServer(steps(Say("a"))) as server, line_to(server, tmp_path) as (_, path):
        ask(path, "Today's date: Mon Nov 30 2026")
    assert server.requests[0]["messages"][1]["content"] == "Today's date: Mon Nov 30 2026"


@pytest.mark.parametrize(
    "fault",
    [Fault("status", 500), Fault("status", 429), Fault("status", 503), Fault("close"), Fault("garbage")],
    ids=lambda fault: f"{fault.kind} {fault.status}",
)
def test_a_short_fault_is_hidden_from_the_agent(tmp_path: Path, fault: Fault) -> None:
    answers: Iterator[Answer] = iter([fault, fault, Say("at last")])
    with ModelServer(lambda _: next(answers)) as server, line_to(server, tmp_path, PATIENT) as (line, path):
        status, _ = ask(path)
    assert status == 200 and line.fault is None
    assert [(call.outcome, call.tries) for call in line.calls] == [("ok", 3)]


def test_a_server_that_is_away_is_waited_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    server = ModelServer(steps(Say("here again")), port=port)
    with line_to(server, tmp_path, PATIENT) as (line, path):
        answers: list[int] = []
        asking = threading.Thread(target=lambda: answers.append(ask(path)[0]))
        asking.start()
        while not line.calls or line.calls[0].tries < 3:
            asking.join(0.005)
        with server:
            asking.join()
    assert answers == [200] and line.fault is None and failing_seconds(line.calls) > 0.02
    assert not line.waits()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault("status", 500), "HTTP 500"),
        (Fault("close"), "Disconnected"),
        (Fault("garbage"), "not a stream"),
        (Fault("hang"), "no answer"),
        (Fault("stall"), "fell silent"),
        (Fault("drop"), "broke off"),
        (Fault("broken_line"), "no JSON"),
    ],
    ids=lambda value: value.kind if isinstance(value, Fault) else "",
)
def test_a_lasting_fault_spoils_the_turn_and_is_named(tmp_path: Path, fault: Fault, said: str) -> None:
    with ModelServer(lambda _: fault) as server, line_to(server, tmp_path) as (line, path):
        ask(path)
    assert line.fault is not None and said in line.fault
    assert line.calls[0].outcome == "fault"


def test_an_overflowing_context_is_the_agents_own_affair(tmp_path: Path) -> None:
    overflow = Fault("status", 400, '{"error": {"message": "maximum context length is 100"}}')
    with ModelServer(lambda _: overflow) as server, line_to(server, tmp_path) as (line, path):
        status, body = ask(path)
    assert status == 400 and b"maximum context length" in body
    assert line.fault is None and line.refusal is None and line.calls[0].outcome == "refused"


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_key_or_address_or_model_is_a_matter_of_settings(tmp_path: Path, status: int) -> None:
    with ModelServer(lambda _: Fault("status", status)) as server, line_to(server, tmp_path) as (line, path):
        assert ask(path)[0] == status
    assert line.refusal is not None and str(status) in line.refusal


@pytest.mark.parametrize("status", [400, 401, 500])
def test_a_key_that_the_server_repeats_goes_no_further(tmp_path: Path, status: int) -> None:
    repeated = Fault("status", status, json.dumps({"error": {"message": f"no: Bearer {KEY}"}}))
    with ModelServer(lambda _: repeated) as server, line_to(server, tmp_path) as (line, path):
        _, body = ask(path)
    [call] = line.calls
    told = [body.decode(), call.response.decode(), call.problem, line.fault or "", line.refusal or ""]
    assert KEY not in "".join(told) and "no: Bearer [key]" in call.problem


def test_nor_does_a_part_of_it_where_what_was_said_is_cut() -> None:
    upstream = ModelEndpoint("http://x/v1", KEY, "scripted", IMPATIENT)
    try:
        for before in range(0, 600, 7):
            line = Line(upstream, "tree", "today")
            said = json.dumps({"error": "x" * before + KEY})
            call = Call(b"", 0.0, response=bytearray(f"data: {said}\n\n".encode()), outcome="ok")
            line._judge(call)
            assert call.outcome == "fault" and KEY[:5] not in str(line.fault)
    finally:
        upstream.close()


def test_messages_name_the_address_without_its_password() -> None:
    assert shown("http://user:pass@word@gpu1:30000/v1") == "http://gpu1:30000/v1"
    assert shown("http://gpu1:30000/v1") == "http://gpu1:30000/v1"


NO_REQUESTS = [
    *(b"", b"[]", b"{}", b"\xff", b'{"model": "scripted", "stream": true, "messages": [1]}'),
    # programs of the agent may look for a model at this address, as servers have it by default
    b'{"model": "scripted", "messages": []}',
    b'{"model": "scripted", "messages": [], "stream": false}',
    b'{"model": "another", "messages": [], "stream": true}',
]


@pytest.mark.parametrize("body", NO_REQUESTS)
def test_what_is_no_request_of_opencodes_is_not_passed_on(tmp_path: Path, body: bytes) -> None:
    with ModelServer(steps(Say("a"))) as server, line_to(server, tmp_path) as (line, path):
        agent = Agent(path)
        agent.request("POST", "/v1/chat/completions", body)
        assert agent.getresponse().status == 400
        agent.close()
        assert server.requests == [] and line.calls == []


def test_a_server_that_does_not_know_token_ids_is_asked_for_them_once(tmp_path: Path) -> None:
    with ModelServer(steps(Say("a")), token_ids=False) as server, line_to(server, tmp_path) as (line, path):
        assert [ask(path)[0] for _ in range(3)] == [200, 200, 200]
    assert ["return_token_ids" in body for body in server.requests] == [True, False, False, False]
    assert line.calls[0].sampled is not None and line.calls[0].sampled.ids is None


def test_a_closing_line_answers_an_empty_last_word(tmp_path: Path) -> None:
    with ModelServer(steps(Say("more work"))) as server, line_to(server, tmp_path) as (line, path):
        line.closing.set()
        status, body = ask(path)
        assert server.requests == []
    assert status == 200 and b'"finish_reason":"stop"' in body and b'"content":""' in body
    assert [call.outcome for call in line.calls] == ["closing"]


def test_leaving_gives_up_what_is_still_asked(tmp_path: Path) -> None:
    with ModelServer(lambda _: Fault("hang")) as server:
        with line_to(server, tmp_path, EndpointSettings()) as (line, path):
            asking = threading.Thread(target=lambda: ask(path))
            asking.start()
            while not server.requests:
                asking.join(0.005)
            assert line.open_requests == 1
        asking.join()
        assert line.open_requests == 0 and line.fault is None
        assert line.calls[0].outcome == "cut"


def test_an_agent_that_hangs_up_is_no_fault(tmp_path: Path) -> None:
    gate = threading.Event()
    with ModelServer(steps(Say("some text")), gate=gate) as server:
        with line_to(server, tmp_path, EndpointSettings()) as (line, path):
            agent = Agent(path)
            agent.request("POST", "/v1/chat/completions", json.dumps(request_body("go")))
            agent.getresponse().readline()
            agent.sock.close()
            agent.close()
        gate.set()
    assert line.fault is None


def test_no_key_reaches_the_disk(tmp_path: Path) -> None:
    call = Call(request=b'{"messages": []}', started=1.0, response=bytearray(f"data: {KEY}".encode()), outcome="ok")
    write_calls(tmp_path / "calls.zst", [call, call], KEY)
    first, second = read_calls(tmp_path / "calls.zst")
    assert first == second and first["request"] == '{"messages": []}' and first["response"] == "data: [key]"
    assert files_with(b"[key]", tmp_path) and files_with(KEY.encode(), tmp_path) == []


def test_conversations_are_kept_small(tmp_path: Path) -> None:
    # each request repeats all before it: kept once, not thirty times
    calls = [Call(request=bytes(range(32, 127)) * 500 + str(n).encode() * n, started=0.0) for n in range(30)]
    write_calls(tmp_path / "calls", calls, "")
    assert (tmp_path / "calls").stat().st_size < 50_000


def answered(prompt: int, *ids: int) -> Call:
    """A call whose answer is these tokens."""
    choice = {"delta": {"content": "x"}, "token_ids": ids, "finish_reason": "stop"}
    usage = {"prompt_tokens": prompt, "completion_tokens": len(ids), "prompt_tokens_details": {"cached_tokens": 5}}
    stream = f"data: {json.dumps({'choices': [choice], 'usage': usage})}\n\ndata: [DONE]\n\n"
    return Call(b"", 0.0, outcome="ok", sampled=read_stream(stream.encode()))


def test_sampled_messages_get_the_tokens_of_their_answers() -> None:
    prompt = Message(role="user", content=())
    said = [
        Message(role="assistant", content=(), sampled=True, input_tokens=asked, output_tokens=given)
        for asked, given in ((7, 2), (9, 1), (12, 3), (15, 1))
    ]
    calls = [
        answered(7, 1, 2),
        Call(b"", 0.0, outcome="refused"),
        answered(9, 3, 4),  # not what the second message says
        answered(2, 8, 9, 10),  # to a program of the agent
        answered(12, 5, 6, 7),
        answered(15, 8),
        Call(b"", 0.0, outcome="closing"),
    ]
    messages = with_tokens([prompt, *said], calls)
    assert [message.sampled_token_ids for message in messages] == [None, (1, 2), None, (5, 6, 7), (8,)]
    assert calls[0].sampled is not None and calls[0].sampled.cached_tokens == 5


def test_seconds_of_a_failing_server_are_counted_once() -> None:
    spans = [(10.0, 20.0), (15.0, 18.0), (15.0, 25.0), (40.0, 41.0), (None, 50.0)]
    calls = [Call(b"", 0.0, failing_since=since, failing_until=until) for since, until in spans]
    assert failing_seconds(calls) == 16.0
    assert failing_seconds([Call(b"", 0.0, failing_since=time.monotonic() - 100)]) >= 100.0


def test_bodies_beyond_a_bound_are_not_kept_but_their_numbers_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "KEPT_BYTES", 40_000)
    with ModelServer(steps(Say("four letter"))) as server, line_to(server, tmp_path) as (line, path):
        assert [ask(path, "x" * 10_000)[0] for _ in range(3)] == [200] * 3
        line.closing.set()
        ask(path)
    assert [bool(call.request) for call in line.calls] == [True, False, False, False]
    assert [call.sampled is not None and call.sampled.ids is not None for call in line.calls] == [True] * 3 + [False]


def test_log_probabilities_that_do_not_fit_the_tokens_are_not_kept() -> None:
    choice = {"token_ids": [1, 2], "logprobs": {"content": [{"logprob": -1.0}]}, "finish_reason": "stop"}
    sampled = read_stream(f"data: {json.dumps({'choices': [choice]})}".encode())
    assert sampled.ids == (1, 2) and sampled.logprobs is None


def test_an_error_in_mid_stream_breaks_it() -> None:
    with pytest.raises(BrokenStream, match="broke off"):
        read_stream(b'data: {"error": {"message": "out of memory"}}\n\n')


TEXTS = st.lists(st.text(max_size=8), min_size=1, max_size=4)


@settings(max_examples=30)
@given(TEXTS, TEXTS)
def test_a_longer_conversation_begins_with_a_shorter_ones_prompt(first: list[str], added: list[str]) -> None:
    def request(texts: list[str]) -> bytes:
        return json.dumps({"tools": [], "messages": [{"role": "user", "content": text} for text in texts]}).encode()

    parent, child = prompt_text(request(first)), prompt_text(request(first + added))
    assert child.startswith(parent)
    assert shared_share(parent, child) == pytest.approx(len(parent) / len(child))


@given(st.text("ab", max_size=12), st.text("ab", min_size=1, max_size=12))
def test_the_shared_share_is_the_common_beginning(parent: str, text: str) -> None:
    common = next(
        (i for i, (a, b) in enumerate(zip(parent, text, strict=False)) if a != b), min(len(parent), len(text))
    )
    assert shared_share(parent, text) == common / len(text)
