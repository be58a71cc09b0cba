"""A tokenizer's own chat template: which of the rendered text, and so of the tokens, is whose (method C7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np

from coral_pipeline.credit.templates import OTHER_TEMPLATE, Chat, Dealt, Places, TemplateTokenizer
from coral_pipeline.errors import BadInput

NOWHERE = np.iinfo(np.int64).max


@dataclass(frozen=True)
class _Spans:
    """Where the messages of the path rendered last lie in its text: the next one often begins with the same."""

    tools: list[Any] | None
    text: str
    names: tuple[str, ...]
    sampled_from: Places
    ends: Places

    def known(self, tools: list[Any] | None, text: str, names: Sequence[str]) -> int:
        """How many leading messages of another path lie where they lie here."""
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self.names, names, strict=False)))
        known = max(0, same - 1)  # Where a message ends depends on the one after it.
        end = int(self.ends[known - 1]) if known else 0
        return known if tools == self.tools and self.text[:end] == text[:end] else 0


class ChatTemplateTokenizer(TemplateTokenizer):
    """A tokenizer with a chat template of its own.

    The part of an assistant message a model would sample begins where the template's generation prompt
    ends and goes up to the end-of-sequence token, or to the end of the message where it has none.
    """

    def __init__(self, name: str, tokenizer: Any) -> None:
        """Raises ``BadInput`` where the tokenizer has no chat template, or is a slow one."""
        if not tokenizer.chat_template:
            raise BadInput(f"tokenizer {name}", "has no chat template", "use one that has, or NAME@RENDERER")
        if not tokenizer.is_fast:
            raise BadInput(f"tokenizer {name}", "cannot tell which characters a token covers", "use a fast tokenizer")
        eos = tokenizer.eos_token_id
        super().__init__(name, tokenizer, () if eos is None else (eos,))
        nothing = np.empty(0, dtype=np.int64)
        self._last = _Spans(None, "", (), nothing, nothing)

    def _dealt(self, messages: list[Chat], tools: list[Any] | None, names: Sequence[str]) -> Dealt:
        text = self._text(messages, tools)
        sampled_from, ends = self._spans(messages, tools, text, names)
        encoded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        token_ids = np.array(encoded["input_ids"], dtype=np.int32)
        begins = np.array(encoded["offset_mapping"], dtype=np.int64).reshape(-1, 2)[:, 0]
        # A token belongs to the message of its first character.
        message_of = np.minimum(np.searchsorted(ends, begins, side="right"), len(messages) - 1)
        mask = begins >= sampled_from[message_of]
        for stop in self.stop_ids:
            # What a template writes after the token that ends a message is not sampled.
            last = np.full(len(messages), len(token_ids))
            stops = np.flatnonzero(mask & (token_ids == stop))
            last[message_of[stops]] = stops
            mask &= np.arange(len(token_ids)) <= last[message_of]
        return token_ids, message_of, mask

    def _spans(
        self, messages: list[Chat], tools: list[Any] | None, text: str, names: Sequence[str]
    ) -> tuple[Places, Places]:
        """Per message, where in the text its sampled part begins (``NOWHERE``: there is none), and where it ends."""
        sampled_from = np.full(len(messages), NOWHERE, dtype=np.int64)
        ends = np.full(len(messages), len(text), dtype=np.int64)
        known = self._last.known(tools, text, names)
        sampled_from[:known], ends[:known] = self._last.sampled_from[:known], self._last.ends[:known]
        roles = [message["role"] for message in messages]
        for index, role in list(enumerate(roles))[known:]:
            begin = int(ends[index - 1]) if index else 0
            before = messages[:index]
            if role == "assistant":
                prompt = self._text(before, tools, prompt=True) if before else ""
                sampled_from[index] = max(begin, _common_prefix(prompt, text))
            if index == len(roles) - 1:
                break
            at_turn = "assistant" in (role, roles[index + 1])
            try:
                so_far = self._text(messages[: index + 1], tools)
            except BadInput:
                if at_turn:
                    raise
                so_far = text[:begin]  # No conversation yet (a lone system prompt): the next message gets these tokens.
            end = _common_prefix(so_far, text)
            # Where a model takes over, the prefix must stand; between prompts the template may close a block later.
            if end < begin or (at_turn and end < len(so_far)):
                raise self.refusal(names[index], "is written differently by the chat template once others follow it")
            ends[index] = end
        self._last = _Spans(tools, text, tuple(names), sampled_from, ends)
        return sampled_from, ends

    def _text(self, messages: list[Chat], tools: list[Any] | None, prompt: bool = False) -> str:
        from jinja2 import TemplateError

        try:
            text = self._tokenizer.apply_chat_template(
                messages, tools=tools, tokenize=False, add_generation_prompt=prompt
            )
        except (TemplateError, TypeError, ValueError) as error:
            raise BadInput(
                f"tokenizer {self.name}", f"its chat template refuses a path ({error})", OTHER_TEMPLATE
            ) from error
        return str(text)


def _common_prefix(first: str, second: str) -> int:
    """Length of the longest common prefix."""
    if second.startswith(first):
        return len(first)
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if first[:middle] == second[:middle] else (low, middle - 1)
    return low
