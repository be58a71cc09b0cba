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
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coral_pipeline.chat import chat_messages
from coral_pipeline.credit.tokenizers import Mask, Rendered, TokenIds
from coral_pipeline.errors import BadInput
from coral_pipeline.message_links import Row

Places = NDArray[np.int64]
Chat = dict[str, Any]
"""An OpenAI chat message."""
Dealt = tuple[TokenIds, Places, Mask]
"""Token ids of a conversation, and per token its message (never decreasing) and whether a model would sample it."""

OTHER_TEMPLATE = "use a tokenizer whose template leaves earlier messages as they are, or NAME@RENDERER"


class TemplateTokenizer(ABC):
    """What both kinds share: from rows to chat messages, and their tokens back to the rows."""

    def __init__(self, name: str, tokenizer: Any, stop_ids: Iterable[int]) -> None:
        """``tokenizer``: of the ``transformers`` library."""
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

    def refusal(self, message: str, problem: str) -> BadInput:
        """What to raise about a message the template cannot do."""
        return BadInput(f"tokenizer {self.name}, message {message}", problem, OTHER_TEMPLATE)


class RendererTokenizer(TemplateTokenizer):
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
            raise self.refusal(names[message_of[back[0]]], "has tokens before and after those of another message")
        return token_ids, message_of, np.array(rendered.sampled_mask, dtype=np.bool_)


def _leading_up(message_of: Places) -> Places:
    """Tokens outside any message (-1) given to the message they lead up to; those at the end to the last one."""
    inside = np.flatnonzero(message_of >= 0)
    if not inside.size:
        return np.zeros_like(message_of)
    following = np.searchsorted(inside, np.arange(len(message_of)))
    return message_of[inside[np.minimum(following, len(inside) - 1)]]
