"""What a model server says of itself: models, context length, tokens, how much it can do at once."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from coral_pipeline.errors import BadInput
from coral_pipeline.settings import OpenCodeSettings
from coral_pipeline.teacher.opencode.calls import BrokenStream, Sampled, read_stream, without_key
from coral_pipeline.teacher.opencode.endpoint import shown

_SECONDS = 60.0
_SAID_CHARACTERS = 200
_TRIAL_TOKENS = 4
_INFO_PATHS = ("/get_server_info", "/server_info")
"""Where SGLang describes itself, beside the API."""


@dataclass(frozen=True)
class ModelServerInfo:
    """What was found out."""

    models: dict[str, int | None]
    """Models, each with its context length in tokens where the server tells."""
    requests_at_once: int | None
    """How many requests it runs at once; None: it does not tell."""


def ask_server(settings: OpenCodeSettings, key: str) -> ModelServerInfo:
    """Ask the server about itself. Raises ``BadInput`` where it cannot be reached or refuses."""

    async def ask() -> ModelServerInfo:
        async with _session(key) as session:
            listed = await _json(session, f"{_base(settings)}/models")
            info: Any = None
            for path in _INFO_PATHS:
                try:
                    info = await _json(session, _base(settings).removesuffix("/v1") + path)
                    break
                except (aiohttp.ClientError, ValueError):
                    continue
            models = {str(model["id"]): model.get("max_model_len") for model in listed["data"]}
            return ModelServerInfo(models, _requests_at_once(info))

    try:
        return asyncio.run(ask())
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError) as error:
        problem = f"does not answer as a model endpoint should ({type(error).__name__}: {_told(error, key)})"
        mend = "start the server, or mend opencode.endpoint or the key"
        raise BadInput(shown(settings.endpoint), problem, mend) from error


def try_server(settings: OpenCodeSettings, key: str, with_tokens: bool) -> Sampled:
    """Have the model say a few tokens. Raises ``BadInput`` where it does not."""
    body = {
        "model": settings.model,
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": _TRIAL_TOKENS,
        "stream": True,
        "stream_options": {"include_usage": True},
        **(settings.recording.token_fields if with_tokens else {}),
    }

    async def ask() -> Sampled:
        url = f"{_base(settings)}/chat/completions"
        async with _session(key) as session, session.post(url, json=body) as answer:
            if answer.status != 200:
                raise aiohttp.ClientError(f"HTTP {answer.status}: {await answer.text(errors='replace')}")
            return read_stream(await answer.read())

    try:
        return asyncio.run(ask())
    except (aiohttp.ClientError, OSError, TimeoutError, BrokenStream) as error:
        problem = f"model {settings.model!r} does not answer ({_told(error, key)})"
        mend = "see the server's own log; try another opencode.model, or another server"
        raise BadInput(shown(settings.endpoint), problem, mend) from error


def width_for(settings: OpenCodeSettings, key: str) -> int:
    """Agents of one tree at once: what the server can take, if this machine's CPUs and memory are enough for them."""
    if not settings.endpoint:
        raise BadInput("width auto", "needs a model endpoint to ask", "give --endpoint, or a number")
    server = ask_server(settings, key).requests_at_once
    cpus = len(os.sched_getaffinity(0)) * settings.agents_per_cpu
    memory = available_bytes(Path("/proc/meminfo").read_text()) // settings.agent_bytes
    return max(1, min(limit for limit in (server, cpus, memory) if limit is not None))


def _told(error: Exception, key: str) -> str:
    """What an error says, without the key and passwords."""
    return shown(without_key(str(error), key))[:_SAID_CHARACTERS]


def available_bytes(meminfo: str) -> int:
    """Memory that new programs can have, by the text of ``/proc/meminfo``: what caches would give up, too."""
    kilobytes = dict(line.split(":", 1) for line in meminfo.splitlines())["MemAvailable"]
    return int(kilobytes.split()[0]) * 1024


def _requests_at_once(info: Any) -> int | None:
    if not isinstance(info, dict):
        return None
    states = info.get("internal_states")
    per_worker: list[int] = [
        state["effective_max_running_requests_per_dp"]
        for state in (states if isinstance(states, list) else [])
        if isinstance(state, dict) and isinstance(state.get("effective_max_running_requests_per_dp"), int)
    ]
    if per_worker:
        return sum(per_worker)
    whole = info.get("max_running_requests")
    return whole if isinstance(whole, int) else None


def _base(settings: OpenCodeSettings) -> str:
    return settings.endpoint.rstrip("/")


def _session(key: str) -> aiohttp.ClientSession:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=_SECONDS))


async def _json(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.get(url) as answer:
        if answer.status != 200:
            raise aiohttp.ClientError(f"HTTP {answer.status}: {await answer.text(errors='replace')}")
        return await answer.json(content_type=None)
