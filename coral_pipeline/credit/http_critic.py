"""The ``http`` value model: asks an endpoint for the values of checkpoints, in batches (method C6).

Request, as JSON::

    {"checkpoints": [{"id": "eval-…/7", "root": "eval-…", "node_id": 7, "messages": [{"role": …, "content": …}, …]}, …]}

Answer, in any order::

    {"values": [{"id": "eval-…/7", "value": 0.25}, …]}
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from coral_pipeline.credit.checkpoints import Checkpoint
from coral_pipeline.credit.checks import number
from coral_pipeline.credit.value_models import ValueModel
from coral_pipeline.errors import BadInput
from coral_pipeline.settings import CreditSettings, HttpCriticSettings

if TYPE_CHECKING:
    import httpx

SHAPE = 'it must answer {"values": [{"id": …, "value": …}, …]}, one finite value per checkpoint of the request'


class HttpCritic(ValueModel):
    """Values from an endpoint. Ids, not order, say which value is whose; anything amiss in an answer is refused."""

    name = "http"

    def __init__(self, settings: HttpCriticSettings) -> None:
        """Raises ``BadInput`` where ``settings.url`` is no HTTP address."""
        import httpx

        try:
            url = httpx.URL(settings.url)
        except httpx.InvalidURL:
            url = httpx.URL()
        if url.scheme not in ("http", "https") or not url.host:
            raise BadInput(f"value model http, url {settings.url!r}", "is no HTTP address", "give --value-url http://…")
        self.settings = settings

    @classmethod
    def from_settings(cls, settings: CreditSettings) -> HttpCritic:
        """As ``settings.http`` says."""
        return cls(settings.http)

    def predict(self, checkpoints: Sequence[Checkpoint]) -> list[float | None]:
        """The endpoint's values; raises ``BadInput`` naming the endpoint where it has none to give.

        Where it cannot be reached, or fails, that is an outage (``errors.is_outage``).
        """
        import httpx

        values: list[float | None] = []
        size = self.settings.batch_size
        with httpx.Client(timeout=self.settings.timeout_seconds) as client:
            for start in range(0, len(checkpoints), size):
                entries = [_entry(checkpoint) for checkpoint in checkpoints[start : start + size]]
                answer = self._post(client, {"checkpoints": entries})
                values += self._values(answer, [entry["id"] for entry in entries])
        return values

    def _post(self, client: httpx.Client, body: dict[str, Any]) -> httpx.Response:
        """The endpoint's answer, asked again with growing pauses while it cannot be reached or is overloaded."""
        import httpx

        problem = ""
        for attempt in range(self.settings.retries + 1):
            if attempt:
                time.sleep(self.settings.backoff_seconds * 2 ** (attempt - 1))
            try:
                answer = client.post(self.settings.url, json=body)
            except httpx.TransportError as error:
                problem = f"{type(error).__name__}: {error}".rstrip(": ")
                continue
            if answer.is_success:
                return answer
            problem = f"answered {answer.status_code}: {answer.text[:200]!r}"
            if answer.status_code != httpx.codes.TOO_MANY_REQUESTS and not answer.is_server_error:
                raise BadInput(self._thing, problem, "check the address and what it expects")
        tries = f"{problem} ({self.settings.retries + 1} tries)"
        raise BadInput(self._thing, tries, "start it, or raise the retries") from ConnectionError(problem)

    def _values(self, answer: httpx.Response, ids: Sequence[str]) -> list[float]:
        """The values of an answer in the order of ``ids``."""
        try:
            entries = answer.json()["values"]
            found = {entry["id"]: number(entry["value"]) for entry in entries}
        except (json.JSONDecodeError, KeyError, TypeError, UnicodeDecodeError) as error:
            raise BadInput(self._thing, f"answered {answer.text[:200]!r}", SHAPE) from error
        if len(entries) != len(ids):
            raise BadInput(self._thing, f"gave {len(entries)} values for {len(ids)} checkpoints", SHAPE)
        values = []
        for key in ids:
            value = found.get(key)
            if value is None or not math.isfinite(value):
                raise BadInput(f"{self._thing}, checkpoint {key}", "got no finite value", SHAPE)
            values.append(value)
        return values

    @property
    def _thing(self) -> str:
        return f"value model http, {self.settings.url}"


def _entry(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "id": f"{checkpoint.root}/{checkpoint.node.node_id}",
        "root": checkpoint.root,
        "node_id": checkpoint.node.node_id,
        "messages": checkpoint.messages(),
    }
