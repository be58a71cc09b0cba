"""Hugging Face tokenizers: paths rendered with a model's chat template, dealt out to the messages."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coral_pipeline import tables
from coral_pipeline.chat import chat_messages
from coral_pipeline.conversations import Conversations
from coral_pipeline.credit.token_table import TokenTable
from coral_pipeline.credit.tokenizers import Tokenizer, load_tokenizer
from coral_pipeline.credit.tokens import write_tokens
from coral_pipeline.errors import BadInput, is_outage
from coral_pipeline_tests.tiny_tokenizer import CHATML, FORGETFUL, QWEN3_TOKENS, save_tokenizer
from coral_pipeline_tests.transcripts import (
    ADVANTAGES,
    Row,
    call,
    changed,
    message,
    result,
    talking_rows,
    text,
    thought,
    write_talking_tree,
)


@pytest.fixture(scope="module")
def chatml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tokenizer(tmp_path_factory.mktemp("chatml"), CHATML, merges=["n g", "Ċ Ċ"])


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"{save_tokenizer(tmp_path_factory.mktemp('qwen3'), None)}@qwen3"


def shown(tokenizer: Tokenizer, path: list[Row]) -> list[tuple[str, str]]:
    """Per message, its tokens as text, and the sampled ones among them."""
    return [
        (tokenizer.decode(each.token_ids), tokenizer.decode(each.token_ids[each.mask]))
        for each in tokenizer.render(path)
    ]


PATH = [
    message("0", None, 0, "system", text("Be brief.")),
    message("1", "0", 0, "user", text("long\n")),
    message("2", "1", 0, "assistant", thought("hm"), call("a", "ls", {"p": "ü"})),
    message("3", "2", 0, "tool", result("a", "ls", "x.py")),
    message("4", "3", 0, "assistant", text("ok")),
]


class TestChatTemplate:
    def test_the_sampled_part_is_what_follows_the_generation_prompt_up_to_the_end(self, chatml: Path) -> None:
        assert shown(load_tokenizer(str(chatml)), PATH) == [
            ("<|im_start|>system\nBe brief.<|im_end|>\n", ""),
            ("<|im_start|>user\nlong\n<|im_end|>\n", ""),
            (
                '<|im_start|>assistant\n[hm]<tool_call>ls {"p": "ü"}</tool_call><|im_end|>\n',
                '[hm]<tool_call>ls {"p": "ü"}</tool_call><|im_end|>',
            ),
            ("<|im_start|>tool\nx.py<|im_end|>\n", ""),
            ("<|im_start|>assistant\nok<|im_end|>\n", "ok<|im_end|>"),
        ]

    def test_the_tokens_of_every_path_are_what_the_tokenizer_makes_of_it(
        self, tree: Path, chatml: Path, tmp_path: Path
    ) -> None:
        from transformers import AutoTokenizer

        write_tokens(tree, ADVANTAGES, tmp_path, tokenizer=str(chatml))
        conversations, table = Conversations.read(tree), TokenTable.read(tmp_path)
        tokenizer = AutoTokenizer.from_pretrained(chatml)
        for path in conversations.leaf_paths():
            rows = [conversations.rows[position] for position in conversations.path(path.edge_ids)]
            stored = np.concatenate([table.token_ids(place) for place in table.places(rows)])
            whole = tokenizer.apply_chat_template([m for row in rows for m in chat_messages(row)], return_dict=False)
            assert stored.tolist() == whole
        assert table.tokenizer == chatml.name

    def test_several_results_of_one_message_are_its_tokens(self, chatml: Path) -> None:
        both = message("3", "2", 0, "tool", result("a", "ls", "x"), result("b", "ls", "y"))
        ((tokens, sampled),) = shown(load_tokenizer(str(chatml)), [*PATH[:3], both])[3:]
        assert (tokens, sampled) == ("<|im_start|>tool\nx<|im_end|>\n<|im_start|>tool\ny<|im_end|>\n", "")

    def test_recorded_ids_stand_in_for_the_sampled_part(self, chatml: Path, tmp_path: Path) -> None:
        tokenizer = load_tokenizer(str(chatml))
        (stop,) = tokenizer.stop_ids
        rows = changed(talking_rows(), "e0.9", sampled_token_ids=[5, stop], sampled_logprobs=[-0.1, -0.2])
        write_tokens(write_talking_tree(tmp_path / "tree", rows), ADVANTAGES, tmp_path / "out", tokenizer=str(chatml))
        row = next(row for row in tables.TOKENS.rows(tmp_path / "out") if row["message_id"] == "e0.9")
        # <|im_start|> and "assistant\n" before, "\n" after.
        assert row["mask"] == [False] * 11 + [True, True] + [False]
        assert row["token_ids"][11:13] == [5, stop]
        assert row["logprobs"] == [-0.1, -0.2]

    def test_a_template_that_rewrites_earlier_messages_is_refused(self, tmp_path: Path) -> None:
        tokenizer = load_tokenizer(str(save_tokenizer(tmp_path, FORGETFUL)))
        with pytest.raises(BadInput, match=r"message 2: is written differently .* once others follow"):
            tokenizer.render(PATH)

    def test_a_template_that_refuses_a_conversation_is_named(self, tmp_path: Path) -> None:
        template = "{{ raise_exception('no tools here') }}"
        tokenizer = load_tokenizer(str(save_tokenizer(tmp_path, template)))
        with pytest.raises(BadInput, match=r"chat template refuses a path .*no tools here"):
            tokenizer.render(PATH)

    def test_a_template_that_needs_a_user_first_gives_the_system_prompt_to_the_user(self, tmp_path: Path) -> None:
        template = "{% if messages | length == 1 %}{{ raise_exception('no user') }}{% endif %}" + CHATML
        ((system, _), (user, _), *_) = shown(load_tokenizer(str(save_tokenizer(tmp_path, template))), PATH)
        assert system == ""
        assert user == "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nlong\n<|im_end|>\n"

    def test_a_template_without_end_token_leaves_the_whole_rest_sampled(self, tmp_path: Path) -> None:
        template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        path = [PATH[1], message("2", "1", 0, "assistant", text("ok"))]
        _, (tokens, sampled) = shown(load_tokenizer(str(save_tokenizer(tmp_path, template))), path)
        assert (tokens, sampled) == ("assistant: ok\n", "assistant: ok\n")

    def test_without_a_template_there_is_no_rendering(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match="has no chat template"):
            load_tokenizer(str(save_tokenizer(tmp_path, None)))


class TestRenderers:
    """``@qwen3``: the template as the ``renderers`` package has it."""

    def test_it_says_which_tokens_are_sampled(self, qwen3: str) -> None:
        assert shown(load_tokenizer(qwen3), PATH)[2:] == [
            (
                "<|im_start|>assistant\n<think>\nhm\n</think>\n\n"
                '<tool_call>\n{"name": "ls", "arguments": {"p": "ü"}}\n</tool_call><|im_end|>\n',
                '<think>\nhm\n</think>\n\n<tool_call>\n{"name": "ls", "arguments": {"p": "ü"}}\n</tool_call><|im_end|>',
            ),
            ("<|im_start|>user\n<tool_response>\nx.py\n</tool_response><|im_end|>\n", ""),
            ("<|im_start|>assistant\n<think>\n\n</think>\n\nok<|im_end|>\n", "<think>\n\n</think>\n\nok<|im_end|>"),
        ]

    def test_reasoning_of_past_turns_is_left_out_on_every_path_as_the_model_sees_it(
        self, tree: Path, qwen3: str, tmp_path: Path
    ) -> None:
        summary = write_tokens(tree, ADVANTAGES, tmp_path, tokenizer=qwen3)
        assert summary.messages == 60
        tokenizer, table = load_tokenizer(qwen3), TokenTable.read(tmp_path)
        assert "<think>" not in tokenizer.decode(table.token_ids(table.place_of["e0.1"]))
        assert "<think>" in tokenizer.decode(table.token_ids(table.place_of["e3.9"]))

    def test_a_message_that_would_be_rendered_in_two_ways_is_refused(self, qwen3: str, tmp_path: Path) -> None:
        # Edge 0 ends with reasoning. Edge 2 goes on with a user's words, which drop it; edge 3 without, which do not.
        rows = changed(talking_rows(), "e0.9", content=[thought("why"), text("Done.")])
        rows = changed(rows, "e3.0", role="tool", content=[result("z", "ls", "x")])
        rows = [
            row for row in rows if not (row["edge_id"] == 3 and row["message_id"] in {f"e3.{i}" for i in range(2, 10)})
        ]
        with pytest.raises(BadInput, match=r"message e0\.\d: the template of .* renders it differently from path to"):
            write_tokens(write_talking_tree(tmp_path / "tree", rows), ADVANTAGES, tmp_path / "out", tokenizer=qwen3)

    def test_tools_recorded_with_the_tree_are_part_of_the_first_message(self, qwen3: str) -> None:
        tools: list[Any] = [{"type": "function", "function": {"name": "ls", "parameters": {}}}]
        tokenizer = load_tokenizer(qwen3)
        first, *others = tokenizer.render(PATH[1:], tools)
        assert "# Tools" in tokenizer.decode(first.token_ids)
        assert all("# Tools" not in tokenizer.decode(other.token_ids) for other in others)

    def test_an_unknown_renderer_is_refused_and_the_known_ones_named(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match=r"has no such renderer.*qwen3"):
            load_tokenizer(f"{save_tokenizer(tmp_path, None)}@gpt7")

    def test_a_renderer_whose_special_tokens_are_missing_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match="no such renderer"):
            load_tokenizer(f"{save_tokenizer(tmp_path, None, special_tokens=QWEN3_TOKENS[:3])}@qwen3")


class TestNotThere:
    def test_a_folder_that_is_not_there_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match=r"tokenizer .*nowhere: cannot be loaded"):
            load_tokenizer(str(tmp_path / "nowhere"))

    def test_a_folder_without_a_tokenizer_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match="cannot be loaded"):
            load_tokenizer(str(tmp_path))

    def test_a_hub_that_cannot_be_reached_is_asked_once_and_may_be_there_later(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with socket.socket() as nobody:  # bound, but nobody listens: connections are refused
            nobody.bind(("127.0.0.1", 0))
            monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{nobody.getsockname()[1]}")
            with pytest.raises(BadInput, match="tokenizer nobody/nothing: cannot be loaded") as raised:
                load_tokenizer("nobody/nothing")
        assert is_outage(raised.value)
