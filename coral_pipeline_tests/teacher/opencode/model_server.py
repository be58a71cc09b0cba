"""A scripted OpenAI-compatible model server on loopback, streaming as SGLang does, with faults on demand.

A policy sees each request and says what to answer: ``Say`` (text, reasoning, tool calls) or ``Fault``.
Tokens are four characters each, so that counts, ids and log-probabilities can be checked by hand.
"""

from __future__ import annotations

import asyncio
import json
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from aiohttp import web

TOKEN_CHARACTERS = 4
LOGPROB = -0.25


@dataclass(frozen=True)
class Say:
    """One answer of the model."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, dict[str, Any] | str], ...] = ()
    """Tool calls: name, and arguments as an object or as the raw text the model wrote."""

    @property
    def whole(self) -> str:
        """All that was sampled, as one text."""
        called = "".join(name + _arguments(arguments) for name, arguments in self.calls)
        return self.reasoning + self.text + called


@dataclass(frozen=True)
class Fault:
    """How a request goes wrong.

    ``status``: an HTTP error · ``close``: no answer, connection closed · ``hang``: no answer at all ·
    ``stall``: headers and one chunk, then silence · ``garbage``: 200 with a body that is no stream ·
    ``broken_line``: a data line that is no JSON · ``drop``: closed in mid-answer.
    """

    kind: str
    status: int = 500
    body: str = '{"error": {"message": "on purpose"}}'


Answer = Say | Fault
Policy = Callable[[dict[str, Any]], Answer]


def bash(command: str, **more: Any) -> tuple[str, dict[str, Any]]:
    """A call of the agent's shell tool."""
    return "bash", {"command": command, "description": "step", **more}


def tokens_of(text: str) -> list[int]:
    """Token ids: one per four characters, the same for the same text."""
    pieces = [text[start : start + TOKEN_CHARACTERS] for start in range(0, len(text), TOKEN_CHARACTERS)]
    return [zlib.crc32(piece.encode()) % 50_000 for piece in pieces]


def prompt_text(request: dict[str, Any]) -> str:
    """The prompt a request renders to."""
    return json.dumps([request.get("tools", []), request["messages"]])


def turn_of(request: dict[str, Any]) -> tuple[str, int]:
    """The prompt of the running turn, and how many answers it has had."""
    messages = request["messages"]
    last = max(index for index, message in enumerate(messages) if message["role"] == "user")
    content = messages[last]["content"]
    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    return text, sum(message["role"] == "assistant" for message in messages[last + 1 :])


def steps(*script: Answer) -> Policy:
    """A policy that takes the same steps in every turn, and says ``done`` after them."""

    def policy(request: dict[str, Any]) -> Answer:
        _, step = turn_of(request)
        return script[step] if step < len(script) else Say("done")

    return policy


@dataclass
class ModelServer:
    """The server, in a thread of its own; a context manager. ``url`` is the endpoint for clients."""

    policy: Policy
    token_ids: bool = True
    """It can report token ids and log-probabilities; otherwise it refuses a request that asks for them."""
    usage: bool = True
    gate: threading.Event | None = None
    """Given: an answer's second chunk waits until it is set."""
    port: int = 0
    info: dict[str, Any] | None = field(default_factory=lambda: {"max_running_requests": 16})
    """What the server says of itself; None: nothing."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    running: int = 0
    most_running: int = 0

    @property
    def url(self) -> str:
        """Base address of the API."""
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> ModelServer:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> None:
        app = web.Application(client_max_size=1 << 28)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/get_server_info", self._info)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        assert site._server is not None
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]  # asyncio.Server

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "scripted", "max_model_len": 131_072}]})

    async def _info(self, request: web.Request) -> web.Response:
        return web.json_response(self.info) if self.info is not None else web.Response(status=404)

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw)
        self.bodies.append(raw)
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        if body.get("return_token_ids") and not self.token_ids:
            return web.json_response({"error": {"message": "unknown field return_token_ids"}}, status=400)
        answer = self.policy(body)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            return await self._answer(request, body, answer)
        finally:
            self.running -= 1

    async def _answer(self, request: web.Request, body: dict[str, Any], answer: Answer) -> web.StreamResponse:
        if isinstance(answer, Fault) and answer.kind == "status":
            return web.Response(status=answer.status, text=answer.body, content_type="application/json")
        if isinstance(answer, Fault) and answer.kind == "garbage":
            return web.Response(text="<html>not a stream</html>", content_type="text/html")
        if isinstance(answer, Fault) and answer.kind in {"close", "hang"}:
            if answer.kind == "hang":
                await asyncio.sleep(3600)
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        said = answer if isinstance(answer, Say) else Say("half an answer that will never be ended")
        count = 0
        async for chunk in self._chunks(body, said):
            await response.write(f"data: {chunk}\n\n".encode())
            count += 1
            if isinstance(answer, Fault) and count == 2:
                await self._spoil(request, response, answer)
                return response
            while self.gate is not None and not self.gate.is_set():
                await asyncio.sleep(0.002)
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _spoil(self, request: web.Request, response: web.StreamResponse, fault: Fault) -> None:
        if fault.kind == "stall":
            await asyncio.sleep(3600)
        if fault.kind == "broken_line":
            await response.write(b'data: {"choices": [{"delta"\n\n')
            return
        assert request.transport is not None
        request.transport.abort()

    async def _chunks(self, body: dict[str, Any], said: Say) -> AsyncIterator[str]:
        asked_ids, asked_logprobs = bool(body.get("return_token_ids")), bool(body.get("logprobs"))
        prompt = tokens_of(prompt_text(body))
        first = True
        for delta, finish in _deltas(said):
            choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": finish}
            piece = _sampled(delta)
            if piece and asked_ids:
                choice["token_ids"] = tokens_of(piece)
            if piece and asked_logprobs:
                choice["logprobs"] = {"content": [{"token": "t", "logprob": LOGPROB} for _ in tokens_of(piece)]}
            chunk: dict[str, Any] = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
            if first and asked_ids:
                chunk["prompt_token_ids"] = prompt
            first = False
            yield json.dumps({**chunk, "choices": [choice]})
        if self.usage:
            sampled = sum(len(tokens_of(_sampled(delta))) for delta, _ in _deltas(said))
            usage = {"prompt_tokens": len(prompt), "completion_tokens": sampled, "total_tokens": len(prompt) + sampled}
            yield json.dumps(
                {
                    "id": "x",
                    "object": "chat.completion.chunk",
                    "created": 1,
                    "model": "scripted",
                    "choices": [],
                    "usage": usage,
                }
            )


def _arguments(arguments: dict[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _deltas(said: Say) -> Sequence[tuple[dict[str, Any], str | None]]:
    deltas: list[tuple[dict[str, Any], str | None]] = [({"role": "assistant", "content": ""}, None)]
    if said.reasoning:
        deltas.append(({"reasoning_content": said.reasoning}, None))
    half = len(said.text) // 2 // TOKEN_CHARACTERS * TOKEN_CHARACTERS
    deltas += [({"content": piece}, None) for piece in (said.text[:half], said.text[half:]) if piece]
    for index, (name, arguments) in enumerate(said.calls):
        identity = f"call_{zlib.crc32((name + _arguments(arguments)).encode()):08x}_{index}"
        function = {"name": name, "arguments": _arguments(arguments)}
        called = {"index": index, "id": identity, "type": "function", "function": function}
        deltas.append(({"tool_calls": [called]}, None))
    return [*deltas, ({}, "tool_calls" if said.calls else "stop")]


def _sampled(delta: dict[str, Any]) -> str:
    """The text of a delta that the model sampled."""
    called = "".join(call["function"]["name"] + call["function"]["arguments"] for call in delta.get("tool_calls", ()))
    return str(delta.get("reasoning_content", "")) + str(delta.get("content", "")) + called
