"""One turn's line to the model server: what passes, what is remembered, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator
from typing import Any, Protocol

import aiohttp
from aiohttp import web

from coral_pipeline.teacher.opencode.calls import KEPT_BYTES, BrokenStream, Call, read_stream, with_fixed_date

_CLOSING = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"stop"}]}\n\n'
_DONE = b"data: [DONE]\n\n"
_STREAM = {"Content-Type": "text/event-stream"}
_SAID_CHARACTERS = 500
_WRONG_SETTINGS = frozenset({401, 403, 404})
"""Wrong key, wrong address, or a model that is not there."""


class ServerFault(Exception):
    """The model server failed."""


class Upstream(Protocol):
    """The way to the model server, as a line needs it."""

    name: str
    """What it is called in messages."""
    model: str
    """The model it is the way to."""

    async def ask(self, body: dict[str, Any], tree: str, call: Call) -> aiohttp.ClientResponse:
        """The server's answer, not yet read; puts into ``call`` what was sent. Raises ``ServerFault``."""

    def pieces(self, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        """The answer's bytes as they come. Raises ``ServerFault``."""

    async def error_text(self, answer: aiohttp.ClientResponse) -> str:
        """What an answer says that is an error. Raises ``ServerFault``."""

    def cleaned(self, text: str) -> str:
        """The text without the server's key, should it be in there."""


class Line:
    """What passes between one turn's agent and the model server. Read from another thread than it is written in."""

    def __init__(self, upstream: Upstream, tree: str, date: str) -> None:
        """``tree``: key of the tree, for routing. ``date``: what the system prompt says today is."""
        self.calls: list[Call] = []
        self.fault: str | None = None
        """How the server failed; the turn is spoiled."""
        self.refusal: str | None = None
        """A 4xx answer that says that the settings are wrong, not the conversation."""
        self.closing = threading.Event()
        """Set: whatever the agent still asks is answered by an empty last word."""
        self.open_requests = 0
        self.last_activity = time.monotonic()
        self._upstream = upstream
        self._tree = tree
        self._date = date
        self._bytes = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request of the agent."""
        raw = await request.read()
        body = _request_in(raw, self._upstream.model)
        if body is None:
            return web.Response(status=400, text=f"only streamed chat completions of {self._upstream.model} pass here")
        if self.closing.is_set():
            return await self._close(request, raw)
        call = Call(raw, time.time())
        self.calls.append(call)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.open_requests += 1
        try:
            return await self._pass_on(request, body, call)
        except ServerFault as fault:
            call.outcome, call.problem = "fault", f"model endpoint {self._upstream.name}: {fault}"
            return _break_off(request, call)
        finally:
            self._judge(call)
            self._tasks.discard(task)
            self.open_requests -= 1
            self.last_activity = time.monotonic()

    def waits(self) -> bool:
        """Whether there is a request to which the server has not begun to answer."""
        return any(call.ended is None and call.first_byte is None for call in self.calls)

    def cut(self) -> None:
        """Give up what is still being asked; called in the endpoint's thread."""
        for task in self._tasks:
            task.cancel()

    async def _close(self, request: web.Request, raw: bytes) -> web.StreamResponse:
        now = time.time()
        call = Call(raw, now, status=200, outcome="closing", ended=now)
        self.calls.append(call)
        self._bound(call)
        response = web.StreamResponse(headers=_STREAM)
        await response.prepare(request)
        await response.write(_CLOSING + _DONE)
        return response

    async def _pass_on(self, request: web.Request, body: dict[str, Any], call: Call) -> web.StreamResponse:
        with_fixed_date(body["messages"], self._date)
        async with await self._upstream.ask(body, self._tree, call) as upstream:
            call.status = upstream.status
            if upstream.status != 200:
                said = await self._upstream.error_text(upstream)
                call.response += said.encode()
                return web.Response(status=upstream.status, text=said, content_type="application/json")
            response = web.StreamResponse(headers=_STREAM)
            await response.prepare(request)
            with contextlib.suppress(ConnectionResetError):  # the agent hung up: the answer stays cut
                async for data in self._upstream.pieces(upstream):
                    call.first_byte = call.first_byte or time.time()
                    self.last_activity = time.monotonic()
                    call.response += data
                    await response.write(data)
                call.outcome = "ok"
                await response.write_eof()  # before the answer is looked into: the agent need not wait for that
            return response

    def _judge(self, call: Call) -> None:
        """Say how the call ended, now that it has."""
        call.ended = time.time()
        if call.outcome == "ok":
            try:
                sampled = read_stream(call.response)
                if sampled.complete:
                    call.sampled = sampled
                else:
                    call.outcome, call.problem = "fault", "the answer ended without a reason to finish"
            except BrokenStream as error:
                call.outcome, call.problem = "fault", str(error)
        elif call.outcome == "cut" and call.status not in (0, 200):
            call.outcome, call.problem = "refused", call.response.decode("utf-8", "replace")
        call.problem = self._upstream.cleaned(call.problem)[:_SAID_CHARACTERS]
        if call.outcome == "refused" and call.status in _WRONG_SETTINGS:
            self.refusal = f"HTTP {call.status}: {call.problem}"
        if call.outcome == "fault":
            self.fault = call.problem
        self._bound(call)

    def _bound(self, call: Call) -> None:
        """Count the bytes of an ended call, and keep no more of them than there may be."""
        self._bytes += len(call.request) + len(call.response)
        if self._bytes > KEPT_BYTES:
            call.drop_bodies()


def _request_in(raw: bytes, model: str) -> dict[str, Any] | None:
    """A body that can be passed on; None where it is none: programs of the agent may send anything."""
    try:
        body = json.loads(raw)
    except ValueError:
        return None
    messages = body.get("messages") if isinstance(body, dict) else None
    is_request = isinstance(messages, list) and all(isinstance(message, dict) for message in messages)
    return body if is_request and body.get("stream") is True and body.get("model") == model else None


def _break_off(request: web.Request, call: Call) -> web.StreamResponse:
    """What the agent gets of a failed answer: an error, or a connection that ends."""
    if call.first_byte is None:
        return web.Response(status=502, text="the model server failed")
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=502)
