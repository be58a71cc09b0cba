"""Hugging Face tokenizers by name."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

from coral_pipeline.credit.chat_template import ChatTemplateTokenizer
from coral_pipeline.credit.templates import RendererTokenizer
from coral_pipeline.credit.tokenizers import Tokenizer, name_of
from coral_pipeline.errors import BadInput

HUB_TIMEOUT_SECONDS = 10


def load_template_tokenizer(spec: str) -> Tokenizer:
    """The tokenizer ``NAME`` or ``NAME@RENDERER``: a directory or a name on the Hugging Face hub.

    RENDERER is one of the ``renderers`` package's (``qwen3``, ``llama-3``, …) and says which model's template
    a local copy has; without it the package is asked by NAME, and where it does not know that, the
    tokenizer's own chat template is used. Raises ``BadInput`` where the tokenizer or the renderer is not there.
    """
    from renderers import config_from_name, create_renderer
    from renderers.base import MODEL_RENDERER_MAP, load_tokenizer

    name, _, renderer = spec.partition("@")
    shown = name_of(spec)
    try:
        _find(name)
        tokenizer = load_tokenizer(name)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        mend = "name byte, a directory with a tokenizer, or a model on the Hugging Face hub"
        raise BadInput(f"tokenizer {name}", f"cannot be loaded ({reason})", mend) from error
    if not renderer and name not in MODEL_RENDERER_MAP:
        return ChatTemplateTokenizer(shown, tokenizer)
    try:
        config = config_from_name(renderer or MODEL_RENDERER_MAP[name])
        return RendererTokenizer(shown, tokenizer, create_renderer(tokenizer, config))
    except (ValueError, AssertionError) as error:
        known = ", ".join(sorted(set(MODEL_RENDERER_MAP.values())))
        reason = str(error).splitlines()[0]
        raise BadInput(f"tokenizer {spec}", f"has no such renderer ({reason})", f"known are {known}") from error


def _find(name: str) -> None:
    """Raise ``OSError`` or ``ValueError`` for a name that is no folder, nor cached, while the hub cannot be reached.

    The libraries would ask for each of some ten files, five times with growing pauses, before they say so.
    """
    from huggingface_hub import constants, try_to_load_from_cache

    if Path(name).is_dir() or constants.HF_HUB_OFFLINE or try_to_load_from_cache(name, "tokenizer_config.json"):
        return
    try:
        urllib.request.urlopen(f"{constants.ENDPOINT}/api/models/{name}", timeout=HUB_TIMEOUT_SECONDS).close()
    except urllib.error.HTTPError:
        return  # It answers; what it has to say about this name, the loader says better.
    except urllib.error.URLError as error:  # of no kind by which to tell that it may answer the next time
        raise ConnectionError(str(error)) from error
