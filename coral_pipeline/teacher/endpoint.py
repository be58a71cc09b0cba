"""The recording model endpoint: between each fork's agent and the model server, one line per turn.

Answers stream through as they come. On the way the request gets what the pipeline asks of the server
(token ids, routing), the system prompt a fixed date, and both are kept. A server that cannot be reached or
is overloaded is asked again here, so that the agent never sees it; one that fails in mid-answer spoils the
turn, which the turn's owner finds in ``Line.fault``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from aiohttp import web

from coral_pipeline.settings import EndpointSettings
from coral_pipeline.teacher.calls import BrokenStream, Call, read_stream, with_fixed_date

T = TypeVar("T")

_BODY_BYTES = 1 << 28
_CLOSING = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"stop"}]}\n\n'
_DONE = b"data: [DONE]\n\n"
_STREAM = {"Content-Type": "text/event-stream"}
_JSON = {"Content-Type": "application/json"}
_TRIED_AGAIN = frozenset({408, 429, 500, 502, 503, 504})
_WRONG_SETTINGS = frozenset({401, 403, 404})


class ServerFault(Exception):
    """The model server failed."""


class Line:
    """What passes between one turn's agent and the model server. Read from another thread than it is written in."""

    def __init__(self, endpoint: ModelEndpoint, tree: str, date: str) -> None:
        """``tree``: key of the tree, for routing. ``date``: what the system prompt says today is."""
        self.calls: list[Call] = []
        self.fault: str | None = None
        """How the server failed; the turn is spoiled."""
        self.refusal: str | None = None
        """A 4xx answer that says that the settings are wrong, not the conversation (401, 403, 404)."""
        self.closing = threading.Event()
        """Set: whatever the agent still asks is answered by an empty last word."""
        self.open_requests = 0
        self.last_activity = time.monotonic()
        self._endpoint = endpoint
        self._tree = tree
        self._date = date
        self._tasks: set[asyncio.Task[Any]] = set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request of the agent."""
        raw = await request.read()
        if self.closing.is_set():
            return await self._close(request, raw)
        call = Call(raw, time.time())
        self.calls.append(call)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.open_requests += 1
        try:
            return await self._pass_on(request, call)
        except ServerFault as fault:
            call.outcome, call.problem = "fault", f"model endpoint {self._endpoint.url}: {fault}"
            return _break_off(request, call)
        finally:
            self._judge(call)
            self._tasks.discard(task)
            self.open_requests -= 1
            self.last_activity = time.monotonic()

    def cut(self) -> None:
        """Give up what is still being asked; called in the endpoint's thread."""
        for task in self._tasks:
            task.cancel()

    async def _close(self, request: web.Request, raw: bytes) -> web.StreamResponse:
        self.calls.append(Call(raw, time.time(), status=200, outcome="closing"))
        response = web.StreamResponse(headers=_STREAM)
        await response.prepare(request)
        await response.write(_CLOSING + _DONE)
        return response

    async def _pass_on(self, request: web.Request, call: Call) -> web.StreamResponse:
        body = json.loads(call.request)
        with_fixed_date(body["messages"], self._date)
        async with await self._endpoint.ask(body, self._tree, call) as upstream:
            call.status = upstream.status
            if upstream.status != 200:
                call.response += await upstream.read()
                return web.Response(status=upstream.status, body=bytes(call.response), content_type="application/json")
            response = web.StreamResponse(headers=_STREAM)
            await response.prepare(request)
            with contextlib.suppress(ConnectionResetError):  # the agent hung up: the answer stays cut
                async for data in self._endpoint.pieces(upstream):
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
                if not read_stream(call.response).complete:
                    call.outcome, call.problem = "fault", "the answer ended without a reason to finish"
            except BrokenStream as error:
                call.outcome, call.problem = "fault", str(error)
        elif call.outcome == "cut" and call.status not in (0, 200):
            call.outcome, call.problem = "refused", call.response[:500].decode("utf-8", "replace")
            if call.status in _WRONG_SETTINGS:
                self.refusal = f"HTTP {call.status}: {call.problem}"
        if call.outcome == "fault":
            self.fault = call.problem


class ModelEndpoint:
    """The way to the model server for all forks of a tree. Works in a thread of its own."""

    def __init__(self, url: str, key: str, settings: EndpointSettings) -> None:
        """``url``: base address of the API (ends in ``/v1``). ``key``: sent to it and to nobody else; may be empty."""
        self.url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._settings = settings
        self._token_fields = dict(settings.token_fields)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="model-endpoint", daemon=True)
        self._thread.start()
        self._session = self.run(self._open_session())

    def close(self) -> None:
        """End everything."""
        self.run(self._session.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Carry out ``work`` in the endpoint's thread and return what it gives."""
        return self.begin(work).result()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin ``work`` in the endpoint's thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    @contextlib.contextmanager
    def line(self, listener: socket.socket, tree: str, date: str) -> Iterator[Line]:
        """A line that serves ``listener`` until the block ends; requests still open then are given up."""
        line = Line(self, tree, date)
        runner = self.run(self._serve(line, listener))
        try:
            yield line
        finally:
            self.run(self._end(line, runner))

    async def ask(self, body: dict[str, Any], tree: str, call: Call) -> aiohttp.ClientResponse:
        """The server's answer, not yet read; asked again for a while where the server is away or overloaded.

        Puts into ``call`` what was sent. Raises ``ServerFault`` where the server cannot be asked.
        """
        deadline = time.monotonic() + self._settings.patience_seconds
        while True:
            call.tries += 1
            try:
                answer = await self._ask_once(body, tree, call, self._token_fields)
                if answer.status == 400 and self._token_fields:
                    answer = await self._ask_without_token_fields(answer, body, tree, call)
                if answer.status not in _TRIED_AGAIN and _is_stream(answer):
                    return answer
                problem = f"HTTP {answer.status}: {(await answer.text(errors='replace'))[:200]}"
                answer.close()
            except TimeoutError as error:
                problem = str(error) or f"no answer in {self._settings.first_byte_seconds:g} s"
            except (aiohttp.ClientError, OSError) as error:
                problem = f"{type(error).__name__}: {error}"
            if time.monotonic() + self._settings.retry_seconds > deadline:
                raise ServerFault(problem)
            await asyncio.sleep(self._settings.retry_seconds)

    async def pieces(self, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        """The answer's bytes as they come. Raises ``ServerFault`` where it breaks off or falls silent."""
        limit = self._settings.first_byte_seconds
        while True:
            try:
                async with asyncio.timeout(limit):
                    data = await answer.content.readany()
            except TimeoutError as error:
                raise ServerFault(f"fell silent for {limit:g} s in mid-answer") from error
            except (aiohttp.ClientError, OSError) as error:
                raise ServerFault(f"broke off in mid-answer ({error})") from error
            if not data:
                return
            limit = self._settings.stall_seconds
            yield data

    async def _ask_once(
        self, body: dict[str, Any], tree: str, call: Call, token_fields: dict[str, Any]
    ) -> aiohttp.ClientResponse:
        whole = {**body, **self._settings.extra_body, **token_fields, "stream_options": {"include_usage": True}}
        call.request = json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        headers = {**self._headers, **dict.fromkeys(self._settings.routing_headers, tree)}
        async with asyncio.timeout(self._settings.first_byte_seconds):
            return await self._session.post(
                f"{self.url}/chat/completions", data=call.request, headers={**headers, **_JSON}
            )

    async def _ask_without_token_fields(
        self, refused: aiohttp.ClientResponse, body: dict[str, Any], tree: str, call: Call
    ) -> aiohttp.ClientResponse:
        """Ask again without what the server may not know; where that was it, never ask for it again."""
        refused.close()
        answer = await self._ask_once(body, tree, call, {})
        if answer.status == 200:
            self._token_fields = {}
        return answer

    async def _open_session(self) -> aiohttp.ClientSession:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._settings.connect_seconds)
        connector = aiohttp.TCPConnector(limit=0)
        return aiohttp.ClientSession(timeout=timeout, connector=connector, read_bufsize=1 << 20)

    async def _serve(self, line: Line, listener: socket.socket) -> web.AppRunner:
        app = web.Application(client_max_size=_BODY_BYTES)
        app.router.add_post("/v1/chat/completions", line.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.0)
        await runner.setup()
        await web.SockSite(runner, listener).start()
        return runner

    async def _end(self, line: Line, runner: web.AppRunner) -> None:
        line.cut()
        await runner.cleanup()


def listen_at(folder: Path, name: str) -> socket.socket:
    """A unix socket ``folder/name`` that accepts connections, however long the folder's path is."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"/proc/self/fd/{descriptor}/{name}")
        listener.listen()
    finally:
        os.close(descriptor)
    return listener


def _is_stream(answer: aiohttp.ClientResponse) -> bool:
    """An answer to be passed on: a stream, or the server's own word that the request is wrong."""
    return answer.status != 200 or answer.content_type == "text/event-stream"


def _break_off(request: web.Request, call: Call) -> web.StreamResponse:
    """What the agent gets of a failed answer: an error, or a connection that ends."""
    if call.first_byte is None:
        return web.Response(status=502, text="the model server failed")
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=502)
