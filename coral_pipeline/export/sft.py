"""SFT samples: one per selected path, as OpenAI chat messages with a weight each.

Every chat message has ``role``, ``content`` (a string) and ``weight``; assistants may have
``reasoning_content`` and ``tool_calls`` (arguments as objects) and those the Teacher sampled have
``sampled: true``; tool results have ``tool_call_id`` and ``name``. No message has a key without a value.
Since no two kinds have the same keys, ``datasets`` reads messages as JSON objects from its first batch on,
and never settles on columns that later messages do not fit.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from coral_pipeline import tables
from coral_pipeline.chat import chat_messages, parse_arguments
from coral_pipeline.conversations import Conversations, TreePath, shared_prefixes
from coral_pipeline.export.llama_factory import DATASET_INFO, llama_factory_sample
from coral_pipeline.export.tool_schemas import tools_of
from coral_pipeline.message_links import Row

UNKNOWN_STAGE = "unknown"

LARGEST_INTEGER = 2**63 - 1
"""What the readers of JSON in ``datasets`` and Arrow can hold."""
SCORES = ("avg_cleanliness", "avg_knowledge", "avg_score", "avg_score_rank", "max_score", "max_score_rank")


def samples_of(
    conversations: Conversations, paths: Sequence[TreePath], stage: str | None = None
) -> Iterator[dict[str, Any]]:
    """The samples of one root, best path first: rows of ``tables.SFT_SAMPLES`` with messages as dicts.

    ``stage``: of the root, where ``tree.json`` does not say. A path on which there is nothing to train that an
    earlier one does not carry (in a tree without transcripts: any) makes no sample.
    """
    tools = json.dumps(_plain(tools_of(conversations)))
    routes = [conversations.path(path.edge_ids) for path in paths]
    for path, route, shared in zip(paths, routes, shared_prefixes(routes), strict=True):
        rows = [conversations.rows[position] for position in route]
        messages, message_ids = _messages(rows, shared)
        if any(message["weight"] for message in messages):
            yield {
                "messages": messages,
                "tools": tools,
                **path_identity(conversations, path, stage),
                **{name: path.columns[name] for name in SCORES},
                "node_ids": path.columns["node_ids"],
                "edge_ids": list(path.edge_ids),
                "message_ids": message_ids,
                "shared_messages": sum(len(chat_messages(row)) for row in rows[:shared]),
            }


def path_identity(conversations: Conversations, path: TreePath, stage: str | None) -> dict[str, Any]:
    """The columns of ``tables.PATH_IDENTITY``."""
    return {
        "student_run": conversations.student_run,
        "root": conversations.root,
        "stage": stage or conversations.info.get("stage") or UNKNOWN_STAGE,
        "leaf_id": path.leaf_id,
        "rank": path.columns["rank"],
        "PathScore": path.columns["PathScore"],
    }


def _messages(rows: Sequence[Row], shared: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Chat messages of a path and the message each was made from; the first ``shared`` rows were in a sample before."""
    messages: list[dict[str, Any]] = []
    message_ids: list[str] = []
    for index, row in enumerate(rows):
        for message in chat_messages(row):
            if row["sampled"]:
                message["sampled"] = True
            message["weight"] = int(index >= shared and _learnable(row))
            messages.append(_plain(message))
            message_ids.append(row["message_id"])
    return messages, message_ids


def _learnable(row: Row) -> bool:
    """Whether the Teacher sampled it, it says something, and the arguments of its tool calls are JSON objects.

    An agent runtime leaves an empty message behind where a stream broke off.
    """
    parts = row["content"] or ()
    calls = [parse_arguments(part["arguments"]) for part in parts if part["type"] == "tool_call"]
    return bool(row["sampled"]) and None not in calls and bool(calls or any(part["text"] for part in parts))


def _plain(value: Any) -> Any:
    """The value without what JSON readers choke on: half surrogate pairs (U+FFFD), integers over 64 bits (text)."""
    if isinstance(value, str):
        return value.encode(errors="surrogatepass").decode(errors="replace") if not value.isascii() else value
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > LARGEST_INTEGER:
        return str(value)
    return value


class SftWriter(contextlib.AbstractContextManager["SftWriter"]):
    """Writes samples one by one into a folder; the files appear when the ``with`` block ends well.

    - ``sft.jsonl`` and ``sft.parquet``: the samples. ``datasets.load_dataset`` (4.7 on) reads messages of
      both as objects with no other keys than their own; scores of ``sft.jsonl`` it rounds to ten digits.
      ``tools`` is a JSON text in both. TRL heeds the weights where the chat template puts
      ``{% generation %}`` around messages of weight 1 (``assistant_only_loss``).
    - ``llama_factory/``: the same for LLaMA-Factory, see ``export.llama_factory``.
    """

    def __init__(self, out: Path) -> None:
        """``out``: the folder, made where it is not there."""
        self._out = out
        self._files = contextlib.ExitStack()

    def __enter__(self) -> SftWriter:
        """Begin the files."""
        with contextlib.ExitStack() as files:
            self._parquet = files.enter_context(tables.SFT_SAMPLES.writer(self._out))
            self._jsonl = files.enter_context(tables.text_file(self._out / "sft.jsonl"))
            folder = self._out / "llama_factory"
            folder.mkdir(exist_ok=True)
            self._llama_factory = files.enter_context(tables.text_file(folder / "sft.jsonl"))
            info = files.enter_context(tables.text_file(folder / "dataset_info.json"))
            info.write(json.dumps(DATASET_INFO, indent=2) + "\n")
            self._files = files.pop_all()
        return self

    def write(self, sample: Mapping[str, Any]) -> None:
        """Append one sample."""
        self._jsonl.write(json.dumps(sample, allow_nan=False) + "\n")
        messages = [json.dumps(message, ensure_ascii=False) for message in sample["messages"]]
        self._parquet.write_table(tables.SFT_SAMPLES.build([{**sample, "messages": messages}]))
        self._llama_factory.write(json.dumps(llama_factory_sample(sample)) + "\n")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Put the files in place, or drop them where the block failed."""
        return self._files.__exit__(kind, error, trace)
