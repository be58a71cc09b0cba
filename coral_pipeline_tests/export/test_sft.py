"""SFT samples: one per selected path, shared messages trained once, read by ``datasets`` without schema trouble."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from coral_pipeline import tables
from coral_pipeline.conversations import Conversations
from coral_pipeline.errors import BadInput
from coral_pipeline.export.dataset import write_dataset
from coral_pipeline.export.layout import RootFolders
from coral_pipeline.export.sft import SftWriter, samples_of
from coral_pipeline_tests.export.conftest import Exported
from coral_pipeline_tests.transcripts import (
    Row,
    call,
    changed,
    message,
    result,
    talking_rows,
    text,
    write_ranked,
    write_talking_tree,
)

Sample = dict[str, Any]


def talking(folder: Path, rows: list[Row] | None = None) -> RootFolders:
    """A tree with ranked paths; ``rows``: its messages."""
    tree = write_talking_tree(folder / "tree", rows)
    return RootFolders(tree, write_ranked(tree, folder / "ranked"), stage="late")


def samples_in(root: RootFolders) -> list[Sample]:
    conversations = Conversations.read(root.tree)
    return list(samples_of(conversations, conversations.selected_paths(root.ranked), root.stage))


def samples_from(folder: Path, rows: list[Row]) -> list[Sample]:
    return samples_in(talking(folder, rows))


@pytest.fixture(scope="module")
def samples(exported: Exported) -> list[Sample]:
    return samples_in(exported.roots)


def load(kind: str, file: Path, cache: Path) -> list[Sample]:
    import datasets

    datasets.disable_progress_bars()
    return list(datasets.load_dataset(kind, data_files=str(file), split="train", cache_dir=str(cache)))


def null_free(value: Any) -> bool:
    """No key of any object, at any depth, was filled with null."""
    if isinstance(value, dict):
        return all(item is not None and null_free(item) for item in value.values())
    return all(map(null_free, value)) if isinstance(value, list) else True


def test_the_samples_are_the_selected_paths_best_first_with_their_scores(
    exported: Exported, samples: list[Sample]
) -> None:
    selected = {row["leaf_id"]: row for row in tables.RANKED_PATHS.rows(exported.roots.ranked) if row["selected"]}
    assert [(sample["leaf_id"], sample["rank"]) for sample in samples] == [(4, 1), (3, 2)]
    for sample in samples:
        row = selected[sample["leaf_id"]]
        shared = sample.keys() & row.keys()
        assert shared >= {"PathScore", "avg_cleanliness", "avg_knowledge", "avg_score", "avg_score_rank"}
        assert {name: sample[name] for name in shared} == {name: row[name] for name in shared}
        assert (sample["student_run"], sample["root"]) == ("run-a", "eval-000003-agent-1-0123456789ab")
        assert sample["stage"] == "middle"


def test_a_sample_is_the_conversation_of_its_path(samples: list[Sample]) -> None:
    ids = [f"e{edge}.{place}" for edge in (0, 3) for place in range(10)]
    assert samples[0]["message_ids"] == ids
    roles = ["user", "assistant", "tool", "assistant", "tool", "assistant", "user", "assistant", "tool", "assistant"]
    assert [message["role"] for message in samples[0]["messages"]] == roles * 2
    assert samples[0]["messages"][11]["tool_calls"] == [
        {
            "id": "a",
            "type": "function",
            "function": {"name": "read", "arguments": {"filePath": "solution.py", "limit": 3}},
        }
    ]
    assert samples[0]["messages"][11]["reasoning_content"] == "Perhaps the step is too small."
    assert samples[0]["messages"][12]["content"] == "step = 0.1\n"


def test_a_message_two_samples_share_has_weight_in_the_first_only(samples: list[Sample]) -> None:
    answers = [1, 3, 5, 7, 9]
    trained = [[i for i, message in enumerate(sample["messages"]) if message["weight"]] for sample in samples]
    assert trained == [answers + [10 + i for i in answers], [10 + i for i in answers]]
    assert [sample["shared_messages"] for sample in samples] == [0, 10]
    assert [message.get("sampled", False) for message in samples[1]["messages"]] == [
        i % 10 in answers for i in range(20)
    ]


def test_tools_are_described_by_the_calls_made_of_them(samples: list[Sample]) -> None:
    definitions = {tool["function"]["name"]: tool["function"] for tool in json.loads(samples[0]["tools"])}
    assert list(definitions) == ["bash", "read", "write"]
    assert definitions["read"]["parameters"] == {
        "type": "object",
        "properties": {"filePath": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["filePath", "limit"],
    }
    assert samples[0]["tools"] == samples[1]["tools"]


def test_arguments_some_calls_leave_out_or_give_other_types_are_described_so(tmp_path: Path) -> None:
    rows = changed(talking_rows(), "e0.3", content=[call("b", "bash", {"timeout": 1.5, "command": ["ls"]})])
    (bash, *_) = json.loads(samples_from(tmp_path, rows)[0]["tools"])
    assert bash["function"]["parameters"] == {
        "type": "object",
        "properties": {"command": {"type": ["string", "array"]}, "timeout": {"type": "number"}},
        "required": ["command"],
    }


def test_tools_recorded_with_the_tree_are_used_as_they_are(tmp_path: Path) -> None:
    root = talking(tmp_path)
    given = [{"type": "function", "function": {"name": "ls", "description": "lists", "parameters": {}}}]
    info = json.loads((root.tree / "tree.json").read_text())
    (root.tree / "tree.json").write_text(json.dumps(info | {"tools": given}))
    (sample, _) = samples_in(root)
    assert json.loads(sample["tools"]) == given


class TestLoading:
    """What ``datasets`` makes of the files."""

    @pytest.mark.parametrize(("kind", "file"), [("json", "sft.jsonl"), ("parquet", "sft.parquet")])
    def test_messages_and_arguments_come_back_with_the_keys_they_have_and_no_others(
        self, exported: Exported, samples: list[Sample], tmp_path: Path, kind: str, file: str
    ) -> None:
        loaded = load(kind, exported.out / file, tmp_path)
        assert [sample["messages"] for sample in loaded] == [sample["messages"] for sample in samples]
        for sample in loaded:
            assert all(null_free(m) for m in sample["messages"] if m.get("tool_calls", [{}])[0].get("id") != "c")
            assert json.loads(sample["tools"]) == json.loads(samples[0]["tools"])

    def test_the_parquet_scores_are_exact(self, exported: Exported, samples: list[Sample], tmp_path: Path) -> None:
        for sample, loaded in zip(samples, load("parquet", exported.out / "sft.parquet", tmp_path), strict=True):
            assert loaded == sample

    def test_the_json_lines_are_the_samples(self, exported: Exported, samples: list[Sample]) -> None:
        lines = (exported.out / "sft.jsonl").read_text().splitlines()
        assert [json.loads(line) for line in lines] == samples

    def test_the_parquet_columns_are_those_of_the_contract(self, exported: Exported) -> None:
        assert pq.read_schema(exported.out / "sft.parquet").equals(tables.SFT_SAMPLES.schema)

    def test_a_first_sample_without_tools_does_not_spoil_the_rest(self, tmp_path: Path) -> None:
        # datasets settles the schema on the first 10 MB: these hold a conversation of texts only.
        long = "x" * 11_000_000
        plain = [
            row
            | {"content": [text(long if row["message_id"] == "e3.0" else "hello")], "role": role, "sampled": sampled}
            for row in talking_rows()
            for role, sampled in [("assistant", True) if int(row["message_id"][3]) % 2 else ("user", False)]
            if row["edge_id"] in (0, 3)
        ]
        rows = plain + [row for row in talking_rows() if row["edge_id"] not in (0, 3)]
        root = talking(tmp_path, rows)
        samples = samples_in(root)
        write_dataset([root], tmp_path / "out", ["sft"])
        loaded = load("json", tmp_path / "out" / "sft.jsonl", tmp_path / "cache")
        assert loaded[1]["messages"] == samples[1]["messages"]
        assert loaded[1]["messages"][13]["tool_calls"][0]["function"]["arguments"] == {
            "command": "sed -i s/0.1/0.2/ solution.py"
        }


class TestHostileTranscripts:
    def reloaded(self, tmp_path: Path, rows: list[Row]) -> list[list[Row]]:
        """The messages of the best sample: as made, and as datasets loads both files."""
        root = talking(tmp_path, rows)
        samples = samples_in(root)
        write_dataset([root], tmp_path / "out", ["sft"])
        files = [("json", "sft.jsonl"), ("parquet", "sft.parquet")]
        loaded = [load(kind, tmp_path / "out" / file, tmp_path / kind) for kind, file in files]
        return [sample["messages"] for (sample, *_) in [samples, *loaded]]

    def with_arguments(self, tmp_path: Path, written: str) -> Any:
        made, *loaded = self.reloaded(tmp_path, changed(talking_rows(), "e0.3", content=[call("b", "bash", written)]))
        assert loaded == [made, made]
        return made[3]

    def test_arguments_that_are_not_json_are_kept_but_not_trained(self, tmp_path: Path) -> None:
        message = self.with_arguments(tmp_path, '{"command": ls}')
        assert message["tool_calls"][0]["function"]["arguments"] == {"unparsed_arguments": '{"command": ls}'}
        assert message["weight"] == 0

    def test_integers_no_reader_holds_become_text(self, tmp_path: Path) -> None:
        message = self.with_arguments(tmp_path, f'{{"n": [{2**70}, {2**63 - 1}, {-(2**63)}, true]}}')
        arguments = message["tool_calls"][0]["function"]["arguments"]
        assert arguments == {"n": [str(2**70), 2**63 - 1, str(-(2**63)), True]}

    def test_half_a_surrogate_pair_is_shown_as_no_character(self, tmp_path: Path) -> None:
        message = self.with_arguments(tmp_path, '{"a": "x\\ud800y", "\\udfff": "\\ud83d\\ude42"}')
        arguments = message["tool_calls"][0]["function"]["arguments"]
        assert set(arguments) == {"a", "\ufffd\ufffd\ufffd"}
        assert arguments["a"].replace("\ufffd", "") == "xy"
        assert arguments["\ufffd\ufffd\ufffd"] == "🙂"

    def test_text_of_any_kind_comes_back(self, tmp_path: Path) -> None:
        words = 'NUL \x00, U+2028 \u2028, quote ", backslash \\, CR \r\n, "\ud7ff\U0010ffff'
        made, *loaded = self.reloaded(tmp_path, changed(talking_rows(), "e0.5", content=[text(words)]))
        assert loaded == [made, made]
        assert made[5]["content"] == words

    def test_an_empty_message_is_kept_but_not_trained(self, tmp_path: Path) -> None:
        (sample, _) = samples_from(tmp_path, changed(talking_rows(), "e0.5", content=[]))
        assert sample["messages"][5] == {"role": "assistant", "content": "", "sampled": True, "weight": 0}

    def test_a_message_with_several_results_is_several_messages_of_one_id(self, tmp_path: Path) -> None:
        rows = changed(talking_rows(), "e0.2", content=[result("a", "read", "x"), result("z", "read", "y")])
        (sample, _) = samples_from(tmp_path, rows)
        assert sample["message_ids"][1:5] == ["e0.1", "e0.2", "e0.2", "e0.3"]
        assert [message["content"] for message in sample["messages"][2:4]] == ["x", "y"]
        assert len(sample["message_ids"]) == len(sample["messages"])

    def test_a_path_on_which_the_teacher_said_nothing_makes_no_sample(self, tmp_path: Path) -> None:
        assert samples_from(tmp_path, []) == []
        prompts = [message(f"p{e}", f"p{b}" if b is not None else None, e, "user", text("go")) for e, b in EDGES]
        assert samples_from(tmp_path / "prompts", prompts) == []

    def test_a_path_that_adds_nothing_to_an_earlier_one_makes_no_sample(self, tmp_path: Path) -> None:
        # Nothing is told of edge 2, so the second path has only what the first already carries.
        samples = samples_from(tmp_path, [row for row in talking_rows() if row["edge_id"] != 2])
        assert [sample["leaf_id"] for sample in samples] == [4]

    def test_no_samples_make_files_that_load(self, tmp_path: Path) -> None:
        assert write_dataset([talking(tmp_path, [])], tmp_path / "out", ["sft"]).samples == 0
        assert pq.read_table(tmp_path / "out" / "sft.parquet").num_rows == 0
        assert (tmp_path / "out" / "sft.jsonl").read_text() == ""


EDGES = ((0, None), (1, None), (2, 0), (3, 0), (4, 1), (5, 0))


def test_a_failure_on_the_way_leaves_no_file_behind(tmp_path: Path, samples: list[Sample]) -> None:
    with pytest.raises(BadInput), SftWriter(tmp_path / "out") as writer:
        writer.write(samples[0])
        raise BadInput("x", "y", "z")
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []
