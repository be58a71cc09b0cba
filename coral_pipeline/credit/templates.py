"""Hugging Face tokenizers: conversations rendered with a model's chat template (method C7).

A path is rendered whole, as its model would see it, and its tokens are dealt out to the messages.
Templates of known models come from the ``renderers`` package, which says for each token what it belongs
to. Of any other template, the places where one message ends and the next begins are found by rendering
the conversation up to there; a template that then writes the earlier part differently (one that drops
reasoning of past turns, say) is refused, since the tokens of a message would depend on what follows it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coral_pipeline.chat import chat_messages
from coral_pipeline.credit.tokenizers import Mask, Rendered, TokenIds, Tokenizer
from coral_pipeline.errors import BadInput
from coral_pipeline.message_links import Row

Places = NDArray[np.int64]
NOWHERE = np.iinfo(np.int64).max

Chat = dict[str, Any]
"""An OpenAI chat message."""
Dealt = tuple[TokenIds, Places, Mask]
"""Token ids of a conversation, and per token its message (never decreasing) and whether a model would sample it."""

OTHER_TEMPLATE = "use a tokenizer whose template leaves earlier messages as they are, or NAME@RENDERER"


def load_template_tokenizer(spec: str) -> Tokenizer:
    """The tokenizer ``NAME`` or ``NAME@RENDERER``: a directory or a name on the Hugging Face hub.

    RENDERER is one of the ``renderers`` package's (``qwen3``, ``llama-3``, …) and says which model's template
    a local copy has; without it the package is asked by NAME, and where it does not know that, the
    tokenizer's own chat template is used. Raises ``BadInput`` where the tokenizer or the renderer is not there.
    """
    from renderers import config_from_name, create_renderer
    from renderers.base import MODEL_RENDERER_MAP, load_tokenizer

    name, _, renderer = spec.partition("@")
    try:
        tokenizer = load_tokenizer(name)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        mend = "name byte, a directory with a tokenizer, or a model on the Hugging Face hub"
        raise BadInput(f"tokenizer {name}", f"cannot be loaded ({reason})", mend) from error
    if not renderer and name not in MODEL_RENDERER_MAP:
        return ChatTemplateTokenizer(spec, tokenizer)
    try:
        config = config_from_name(renderer or MODEL_RENDERER_MAP[name])
        return RendererTokenizer(spec, tokenizer, create_renderer(tokenizer, config))
    except (ValueError, AssertionError) as error:
        known = ", ".join(sorted(set(MODEL_RENDERER_MAP.values())))
        reason = str(error).splitlines()[0]
        raise BadInput(f"tokenizer {spec}", f"has no such renderer ({reason})", f"known are {known}") from error


class _TemplateTokenizer(ABC):
    """What both kinds share: from rows to chat messages, and their tokens back to the rows."""

    def __init__(self, name: str, tokenizer: Any, stop_ids: Iterable[int]) -> None:
        self.name = name
        self.vocab_size = len(tokenizer)
        self.stop_ids = frozenset(stop_ids)
        self._tokenizer = tokenizer

    def decode(self, token_ids: Sequence[int] | TokenIds) -> str:
        """See ``Tokenizer.decode``."""
        return str(self._tokenizer.decode([int(i) for i in token_ids], skip_special_tokens=False))

    def render(self, path: Sequence[Row], tools: list[Any] | None = None) -> list[Rendered]:
        """See ``Tokenizer.render``."""
        messages: list[Chat] = []
        row_of_message: list[int] = []
        for index, row in enumerate(path):
            made = chat_messages(row)
            messages += made
            row_of_message += [index] * len(made)
        if not messages:
            return []
        token_ids, message_of, mask = self._dealt(messages, tools, [path[i]["message_id"] for i in row_of_message])
        row_of = np.array(row_of_message)[message_of]
        mask &= np.array([bool(row["sampled"]) for row in path])[row_of]
        bounds = np.searchsorted(row_of, np.arange(len(path) + 1)).tolist()
        return [Rendered(token_ids[a:b], mask[a:b]) for a, b in pairwise(bounds)]

    @abstractmethod
    def _dealt(self, messages: list[Chat], tools: list[Any] | None, names: Sequence[str]) -> Dealt:
        """The tokens of a conversation; ``names``: per message, for errors."""

    def _refusal(self, message: str, problem: str) -> BadInput:
        return BadInput(f"tokenizer {self.name}, message {message}", problem, OTHER_TEMPLATE)


class RendererTokenizer(_TemplateTokenizer):
    """A model whose template the ``renderers`` package knows."""

    def __init__(self, name: str, tokenizer: Any, renderer: Any) -> None:
        """``renderer``: a ``renderers.Renderer`` of that tokenizer."""
        super().__init__(name, tokenizer, renderer.get_stop_token_ids())
        self._renderer = renderer

    def _dealt(self, messages: list[Chat], tools: list[Any] | None, names: Sequence[str]) -> Dealt:
        try:
            rendered = self._renderer.render(messages, tools=tools)
        except (ValueError, TypeError, KeyError) as error:
            raise BadInput(f"tokenizer {self.name}", f"cannot render a path ({error})", OTHER_TEMPLATE) from error
        token_ids = np.array(rendered.token_ids, dtype=np.int32)
        if len(rendered.sampled_mask) != len(token_ids):
            raise BadInput(f"tokenizer {self.name}", "does not say which tokens are sampled", "use a fast tokenizer")
        message_of = _leading_up(np.array(rendered.message_indices, dtype=np.int64))
        back = np.flatnonzero(np.diff(message_of) < 0)
        if back.size:
            raise self._refusal(names[message_of[back[0]]], "has tokens before and after those of another message")
        return token_ids, message_of, np.array(rendered.sampled_mask, dtype=np.bool_)


def _leading_up(message_of: Places) -> Places:
    """Tokens outside any message (-1) given to the message they lead up to; those at the end to the last one."""
    inside = np.flatnonzero(message_of >= 0)
    if not inside.size:
        return np.zeros_like(message_of)
    following = np.searchsorted(inside, np.arange(len(message_of)))
    return message_of[inside[np.minimum(following, len(inside) - 1)]]


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


class ChatTemplateTokenizer(_TemplateTokenizer):
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
                raise self._refusal(names[index], "is written differently by the chat template once others follow it")
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
