"""TRL's ``SFTTrainer`` takes a step on every form of the export, with a tiny model and tokenizer made here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coral_pipeline import tables
from coral_pipeline.credit.tokenizers import ByteTokenizer
from coral_pipeline_tests.export.conftest import Exported
from coral_pipeline_tests.tiny_tokenizer import CHATML, WEIGHTED, save_tokenizer

pytestmark = pytest.mark.slow


def tiny_model(vocab_size: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=8192,
    )
    return LlamaForCausalLM(config)


def trained(dataset: Any, tokenizer: Any, vocab_size: int, out: Path, **options: Any) -> Any:
    """A trainer after one step over two samples; fails where TRL cannot use them."""
    from trl import SFTConfig, SFTTrainer  # type: ignore[attr-defined]  # exported lazily

    config = SFTConfig(
        output_dir=str(out),
        max_steps=1,
        per_device_train_batch_size=2,
        max_length=None,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        **options,
    )
    trainer = SFTTrainer(tiny_model(vocab_size), config, train_dataset=dataset, processing_class=tokenizer)
    result = trainer.train()
    assert result.training_loss > 0
    return trainer


def load(kind: str, file: Path, cache: Path) -> Any:
    import datasets

    return datasets.load_dataset(kind, data_files=str(file), split="train", cache_dir=str(cache))


def tokenizer_with(folder: Path, template: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(save_tokenizer(folder, template))


@pytest.mark.parametrize(("kind", "file"), [("json", "sft.jsonl"), ("parquet", "sft.parquet")])
def test_chat_samples_are_rendered_with_their_tools_and_arguments_as_objects(
    exported: Exported, tmp_path: Path, kind: str, file: str
) -> None:
    template = "{{ 'tools ' + (tools | map(attribute='function.name') | join(',')) }}" + CHATML
    tokenizer = tokenizer_with(tmp_path / "tokenizer", template)
    dataset = load(kind, exported.out / file, tmp_path / "cache")
    trainer = trained(dataset, tokenizer, len(tokenizer), tmp_path)
    words = tokenizer.decode(trainer.train_dataset[0]["input_ids"])
    assert words.startswith("tools bash,read,write<|im_start|>user\n")
    (arguments, *_) = json.JSONDecoder().raw_decode(words, words.index("<tool_call>read ") + len("<tool_call>read "))
    assert arguments == {"filePath": "solution.py", "limit": 0}


def test_a_template_that_heeds_weights_trains_shared_messages_once(exported: Exported, tmp_path: Path) -> None:
    tokenizer = tokenizer_with(tmp_path / "tokenizer", WEIGHTED)
    dataset = load("json", exported.out / "sft.jsonl", tmp_path / "cache")
    trainer = trained(dataset, tokenizer, len(tokenizer), tmp_path, assistant_only_loss=True)
    labels = [[label for label in row["labels"] if label != -100] for row in trainer.train_dataset]
    spoken = [tokenizer.decode(row) for row in labels]
    answers = [sum(message["weight"] for message in sample["messages"]) for sample in dataset]
    assert answers == [10, 5]
    assert [words.count("<|im_end|>") for words in spoken] == answers
    assert "of edge 0" in spoken[0] and "of edge 0" not in spoken[1]


def test_token_streams_are_trained_as_they_are(exported: Exported, tmp_path: Path) -> None:
    dataset = load("parquet", exported.out / "branches.parquet", tmp_path / "cache")
    tokenizer = tokenizer_with(tmp_path / "tokenizer", CHATML)  # only to pad with
    trainer = trained(dataset, tokenizer, ByteTokenizer.vocab_size, tmp_path)
    for row, stored in zip(trainer.train_dataset, tables.BRANCHES.rows(exported.out), strict=True):
        assert (row["input_ids"], row["labels"]) == (stored["input_ids"], stored["labels"])
