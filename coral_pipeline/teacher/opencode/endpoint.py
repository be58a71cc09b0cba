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
import re
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
from coral_pipeline.teacher.opencode.calls import Call, without_key
from coral_pipeline.teacher.opencode.line import Line, ServerFault

T = TypeVar("T")

_BODY_BYTES = 1 << 26
_ERROR_BYTES = 1 << 16
_SAID_CHARACTERS = 200
_JSON = {"Content-Type": "application/json"}
_TRIED_AGAIN = frozenset({408, 429, 500, 502, 503, 504})


class ModelEndpoint:
    """The way of a fork to the model server. Works in a thread of its own."""

    def __init__(self, url: str, key: str, model: str, settings: EndpointSettings) -> None:
        """``url``: base address of the API (ends in ``/v1``). ``key``: sent to it and to nobody else; may be empty.

        ``model``: the only one that may be asked.
        """
        self.name = shown(url)
        self.model = model
        self._url = url.rstrip("/")
        self._key = key
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
        began = time.monotonic()
        try:
            while True:
                call.tries += 1
                answer, problem = await self._try(body, tree, call)
                if answer is not None:
                    return answer
                call.failing_since = began
                if time.monotonic() + self._settings.retry_seconds > began + self._settings.patience_seconds:
                    raise ServerFault(problem)
                await asyncio.sleep(self._settings.retry_seconds)
        finally:
            call.failing_until = time.monotonic()

    async def _try(self, body: dict[str, Any], tree: str, call: Call) -> tuple[aiohttp.ClientResponse | None, str]:
        """An answer that can be passed on, or why there is none."""
        try:
            answer = await self._ask_once(body, tree, call, self._token_fields)
            if answer.status == 400 and self._token_fields:
                answer = await self._ask_without_token_fields(answer, body, tree, call)
            if answer.status not in _TRIED_AGAIN and _is_stream(answer):
                return answer, ""
            async with answer:
                return None, f"HTTP {answer.status}: {(await self.error_text(answer))[:_SAID_CHARACTERS]}"
        except TimeoutError as error:
            return None, str(error) or f"no answer in {self._settings.first_byte_seconds:g} s"
        except ServerFault as fault:
            return None, str(fault)
        except (aiohttp.ClientError, OSError) as error:
            return None, shown(f"{type(error).__name__}: {error}")

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

    async def error_text(self, answer: aiohttp.ClientResponse) -> str:
        """What an answer says that is an error, the first of it, without the key.

        Raises ``ServerFault`` where it breaks off or falls silent.
        """
        said = bytearray()
        async for data in self.pieces(answer):
            said += data
            if len(said) > _ERROR_BYTES:
                break
        return self.cleaned(said[:_ERROR_BYTES].decode("utf-8", "replace"))

    def cleaned(self, text: str) -> str:
        """The text without the key."""
        return without_key(text, self._key)

    async def _ask_once(
        self, body: dict[str, Any], tree: str, call: Call, token_fields: dict[str, Any]
    ) -> aiohttp.ClientResponse:
        whole = {**body, **self._settings.extra_body, **token_fields, "stream_options": {"include_usage": True}}
        call.request = json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        headers = {**self._headers, **dict.fromkeys(self._settings.routing_headers, tree)}
        async with asyncio.timeout(self._settings.first_byte_seconds):
            return await self._session.post(
                f"{self._url}/chat/completions", data=call.request, headers={**headers, **_JSON}
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


def shown(text: str) -> str:
    """An address, or what is said of one, as it may be shown: without user and password."""
    return re.sub(r"//[^/\s]*@", "//", text)


def _is_stream(answer: aiohttp.ClientResponse) -> bool:
    """An answer to be passed on: a stream, or the server's own word that the request is wrong."""
    return answer.status != 200 or answer.content_type == "text/event-stream"
