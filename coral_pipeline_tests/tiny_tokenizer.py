"""Tiny Hugging Face tokenizers made on the spot: one token per byte, a few merges, special tokens, a chat template."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

QWEN3_TOKENS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"),
    *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
)

CHATML = (
    "{%- for message in messages -%}{{ '<|im_start|>' + message.role + '\n' + message.content }}"
    "{%- if message.reasoning_content -%}{{ '[' + message.reasoning_content + ']' }}{%- endif -%}"
    "{%- for call in message.tool_calls or [] -%}"
    "{{ '<tool_call>' + call.function.name + ' ' + call.function.arguments | tojson + '</tool_call>' }}"
    "{%- endfor -%}{{ '<|im_end|>\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}"
)
"""Leaves earlier messages as they are."""

FORGETFUL = CHATML.replace("if message.reasoning_content", "if loop.last and message.reasoning_content")
"""Shows only the last message's reasoning, so what follows a message changes it."""

WEIGHTED = (
    "{%- for message in messages -%}<|im_start|>{{ message.role }}\n"
    "{%- if message.weight == 1 -%}{% generation %}{{ message.content }}"
    "{%- for call in message.tool_calls or [] %}{{ call.function.arguments | tojson }}{% endfor -%}"
    "<|im_end|>{% endgeneration %}{%- else -%}{{ message.content }}"
    "{%- for call in message.tool_calls or [] %}{{ call.function.arguments | tojson }}{% endfor -%}"
    "<|im_end|>{%- endif -%}\n{%- endfor -%}"
)
"""Marks as generated what has weight 1: how TRL's ``assistant_only_loss`` comes to train shared messages once."""


def save_tokenizer(
    folder: Path, chat_template: str | None, special_tokens: Sequence[str] = QWEN3_TOKENS, merges: Sequence[str] = ()
) -> Path:
    """A tokenizer's folder. ``merges``: pairs like ``"a b"``, over the letters of the byte-level alphabet."""
    pairs = [(merge.split(" ")[0], merge.split(" ")[1]) for merge in merges]
    pieces = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *(first + second for first, second in pairs)]
    model = models.BPE(vocab={piece: index for index, piece in enumerate(pieces)}, merges=pairs)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special_tokens])
    fast: Any = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    fast.chat_template = chat_template
    fast.save_pretrained(folder)
    return folder
