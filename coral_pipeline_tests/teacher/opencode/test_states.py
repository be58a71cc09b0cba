"""States of a tree: laid out as a CORAL run, kept whole or not at all, reduced when nobody needs them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from coral_pipeline.errors import BadInput
from coral_pipeline.teacher.opencode.forks import choose_method
from coral_pipeline.teacher.opencode.root import lay_out, place_at
from coral_pipeline.teacher.opencode.states import FILES, ROOT, STATE_FILE, State, StateStore
from coral_pipeline.teacher.protocol import TeacherError
from coral_pipeline_tests.teacher.opencode.roots import TASK, make_root
from coral_pipeline_tests.teacher.opencode.test_forks import fingerprint


@pytest.fixture
def root_files(tmp_path: Path) -> Path:
    root, _ = make_root(tmp_path)
    lay_out(root, yaml.safe_load(TASK), "agent-1", tmp_path / "files")
    return tmp_path / "files"


def test_the_root_state_is_a_coral_run_without_its_private_part(root_files: Path) -> None:
    worktree, public = root_files / "coral/agents/agent-1", root_files / "coral/.coral/public"
    assert (worktree / "answer.py").read_text() == "X = 1.0\n"
    assert not (worktree / "AGENTS.md").exists()
    assert (worktree / ".coral_dir").read_text() == "/coral/.coral"
    assert (worktree / ".coral_agent_id").read_text() == "agent-1"
    assert (worktree / ".opencode/notes/first.md").read_text() == (public / "notes/first.md").read_text()
    assert sorted(path.name[:1] for path in (public / "attempts").iterdir()) == ["a", "b"]  # c is pending
    assert not (public / "manager.pid").exists() and not (public / "logs").exists()
    assert list((root_files / "coral/.coral/private").iterdir()) == []
    config = yaml.safe_load((root_files / "coral/.coral/config.yaml").read_text())
    assert config["grader"]["max_pending_per_agent"] == 1


def test_the_worktree_is_clean_on_its_agents_branch(root_files: Path) -> None:
    place_at(root_files, root_files / "coral", "agent-1")
    worktree = root_files / "coral/agents/agent-1"
    command = ["git", "status", "--porcelain", "--branch"]
    said = subprocess.run(command, cwd=worktree, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["## coral/agent-1"]
    # the code is kept once: the repository itself has nothing checked out
    assert [path.name for path in (root_files / "coral/repo").iterdir()] == [".git"]


def test_paths_are_written_anew_whatever_an_agent_left_in_their_place(root_files: Path, tmp_path: Path) -> None:
    worktree = root_files / "coral/agents/agent-1"
    (tmp_path / "outside").write_text("mine")
    (worktree / ".coral_dir").unlink()
    (worktree / ".coral_dir").symlink_to(tmp_path / "outside")
    (worktree / ".git").unlink()
    (worktree / ".git" / "hooks").mkdir(parents=True)
    place_at(root_files, Path("/elsewhere"), "agent-1")
    assert (worktree / ".coral_dir").read_text() == "/elsewhere/.coral"
    assert (worktree / ".git").read_text() == "gitdir: /elsewhere/repo/.git/worktrees/agent-1\n"
    assert (tmp_path / "outside").read_text() == "mine"


def test_equal_roots_give_equal_commits(root_files: Path, tmp_path: Path) -> None:
    root, _ = make_root(tmp_path / "again")
    lay_out(root, yaml.safe_load(TASK), "agent-1", tmp_path / "other")
    heads = [(files / "coral/repo/.git/refs/heads/master").read_text() for files in (root_files, tmp_path / "other")]
    assert heads[0] == heads[1]


def test_a_folder_that_is_no_root_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="shared"):
        lay_out(tmp_path, {}, "agent-1", tmp_path / "files")


def store_of(folder: Path, max_layers: int = 32) -> StateStore:
    store = StateStore(folder / "states", choose_method(folder), max_layers)
    store.place(ROOT).mkdir(parents=True)
    (store.place(ROOT) / FILES).mkdir()
    (store.place(ROOT) / FILES / "path").write_text("root")
    state = State(name=ROOT, layers=(ROOT,), agent_id="agent-1", date="Mon Nov 30 2026")
    (store.place(ROOT) / STATE_FILE).write_text(state.model_dump_json())
    return store


def grow(store: StateStore, name: str, parent: str) -> State:
    """A child state that adds its name to a file."""
    above, scratch = store.get(parent), store.folder.parent / "forks" / name
    new = above.model_copy(update={"name": name})
    with store.fork(parent, scratch) as view:
        with (view.files / "path").open("a") as file:
            file.write(f" {name}")
        store.prepare(name, above, view)
    return store.commit(new, above, scratch)


def path_in(store: StateStore, name: str) -> str:
    with store.fork(name, store.folder.parent / "look" / name) as view:
        return (view.files / "path").read_text()


@pytest.mark.parametrize("max_layers", [1, 2, 32])
def test_states_grow_from_states_at_any_limit_of_layers(tmp_path: Path, max_layers: int) -> None:
    store = store_of(tmp_path, max_layers)
    names = ["a", "b", "c", "d"]
    for parent, name in zip([ROOT, *names], names, strict=False):
        assert len(grow(store, name, parent).layers) <= max_layers or not store.method.stacks()
    assert path_in(store, "d") == "root a b c d"
    assert path_in(store, "b") == "root a b"


def test_a_state_begun_but_not_committed_does_not_count(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    with store.fork(ROOT, tmp_path / "fork") as view:
        store.prepare("a", store.get(ROOT), view)
    assert store.find("a") is None
    store.discard("a")
    assert [path.name for path in store.folder.iterdir()] == [ROOT]


def test_released_states_are_reduced_once_nobody_stands_on_them(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    grow(store, "a", ROOT)
    grow(store, "a.b", "a")
    before = fingerprint(store.place("a.b") / FILES)
    store.release("a")
    store.release("a")
    if store.method.stacks():
        assert (store.place("a") / FILES).exists()  # a.b is stacked on it
    assert path_in(store, "a.b") == "root a a.b"
    assert fingerprint(store.place("a.b") / FILES) == before
    store.release("a.b")
    assert not (store.place("a") / FILES).exists() and not (store.place("a.b") / FILES).exists()
    with pytest.raises(TeacherError, match="released"):
        store.get("a")
    assert path_in(store, ROOT) == "root"


def test_a_state_released_while_it_is_forked_stays_until_the_fork_ends(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    grow(store, "a", ROOT)
    with store.fork("a", tmp_path / "fork") as view:
        store.release("a")
        assert (view.files / "path").read_text() == "root a"
        assert (store.place("a") / FILES).exists()
    assert not (store.place("a") / FILES).exists()


def test_releasing_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    store_of(tmp_path).release("never made")


def test_a_broken_record_is_named(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    (store.place(ROOT) / STATE_FILE).write_text("{")
    with pytest.raises(TeacherError, match=r"state\.json"):
        store.get(ROOT)
