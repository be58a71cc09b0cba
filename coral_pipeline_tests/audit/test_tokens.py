"""Token ids are computed anew with the tokenizer they were made with, or the audit says that they were not."""

from __future__ import annotations

from pathlib import Path

import pytest

from coral_pipeline import tables
from coral_pipeline.audit import credit
from coral_pipeline.audit.findings import Review
from coral_pipeline.credit.preparation import prepare
from coral_pipeline.credit.tokenizers import ByteTokenizer
from coral_pipeline.credit.tokens import write_tokens
from coral_pipeline.defs.versions import settings_recorded
from coral_pipeline.settings import PipelineSettings
from coral_pipeline_tests.audit.damage import changed_cell, put_back
from coral_pipeline_tests.tiny_tokenizer import CHATML, FORGETFUL, save_tokenizer
from coral_pipeline_tests.transcripts import talking_rows, write_talking_tree

NAME = "Qwen3-8B"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_talking_tree(tmp_path_factory.mktemp("tree"), talking_rows())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer's folder."""
    return save_tokenizer(tmp_path_factory.mktemp("models") / NAME, CHATML)


@pytest.fixture(scope="module")
def batch(tree: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tokens made with the folder's tokenizer."""
    return make(tree, tmp_path_factory.mktemp("batch"), str(model))


def make(tree: Path, out: Path, tokenizer: str) -> Path:
    made = prepare(tree)
    made.write(out)
    write_tokens(tree, made.advantage_by_edge(), out, tokenizer)
    return out


def verify(tree: Path, batch: Path, recorded: str = NAME, at_hand: str | None = None) -> Review:
    review = Review("advantage_batches", "run|root")
    credit.verify_tokens(review, batch, tree, recorded, at_hand)
    return review


def other_token(ids: list[int]) -> list[int]:
    return [*ids[:-1], ids[-1] ^ 1]


def test_the_folder_at_hand_is_used_where_it_has_the_recorded_name(tree: Path, batch: Path, model: Path) -> None:
    clean = verify(tree, batch, at_hand=str(model))
    assert (list(clean.lines()), clean.notes) == ([], [])
    with changed_cell(tables.TOKENS, batch, "token_ids", 3, other_token):
        found = verify(tree, batch, at_hand=str(model)).lines()
    assert any("tokens.parquet, row 3" in line and "token_ids" in line for line in found)


@pytest.mark.parametrize("at_hand", [None, "byte", "Qwen/Qwen3-8B"])
def test_the_hub_and_the_working_directory_are_not_asked_for_what_was_a_folder(
    tree: Path, batch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_hand: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    save_tokenizer(tmp_path / NAME, FORGETFUL)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "no address at all")
    review = verify(tree, batch, at_hand=at_hand)
    assert list(review.lines()) == []
    assert review.notes == [
        f"token ids were not computed anew: tokenizer {NAME}: may be the name of a folder, which is not known here;"
        " name it with --tokenizer, or in the settings"
    ]


@pytest.mark.parametrize(
    ("recorded", "at_hand", "used"),
    [
        ("byte", None, "byte"),
        ("byte", "Qwen/Qwen3-8B", "byte"),
        ("Qwen/Qwen3-8B", None, "Qwen/Qwen3-8B"),
        ("Qwen/Qwen3-8B@qwen3", "byte", "Qwen/Qwen3-8B@qwen3"),
        ("gpt2", "gpt2", "gpt2"),
    ],
)
def test_names_that_no_folder_can_have_had_are_looked_up(
    tree: Path, batch: Path, monkeypatch: pytest.MonkeyPatch, recorded: str, at_hand: str | None, used: str
) -> None:
    asked: list[str] = []

    def load(name: str) -> ByteTokenizer:
        asked.append(name)
        return ByteTokenizer()

    monkeypatch.setattr(credit, "load_tokenizer", load)
    verify(tree, batch, recorded, at_hand)
    assert asked == [used]


@pytest.mark.parametrize("given", ["absolute", "relative", "link", "renderer"])
def test_what_is_recorded_of_a_folder_is_what_the_tokens_say_themselves(
    tree: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.chdir(model.parent)
    (tmp_path / "link").symlink_to(model)
    tokenizer = {
        "absolute": str(model),
        "relative": f"./{NAME}",
        "link": str(tmp_path / "link"),
        "renderer": f"{model}@qwen3",
    }[given]
    settings = PipelineSettings.model_validate({"credit": {"tokenizer": tokenizer}})
    recorded = settings_recorded("advantage_batches", settings)["credit"]["tokenizer"]
    batch = make(tree, tmp_path / "batch", tokenizer)
    review = verify(tree, batch, recorded, tokenizer)
    assert (list(review.lines()), review.notes) == ([], [])


def test_a_missing_row_is_told_as_missing(tree: Path, tmp_path: Path) -> None:
    batch = make(tree, tmp_path / "batch", "byte")
    with put_back(batch / "tokens.parquet"):
        rows = tables.TOKENS.read(batch)
        gone = rows.column("message_id")[5].as_py()
        tables.TOKENS.write(rows.filter([number != 5 for number in range(rows.num_rows)]), batch)
        found = list(verify(tree, batch, "byte").lines())
    assert [line.partition("tokens.parquet")[2] for line in found if "tokenizer" not in line] == [
        f": has {rows.num_rows - 1} rows, expected {rows.num_rows}",
        f", message_id {gone}: is missing",
    ]
