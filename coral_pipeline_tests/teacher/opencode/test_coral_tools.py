"""``coral`` in the agents' sandbox, and the desk that grades outside of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from coral_pipeline.settings import OpenCodeSettings, SandboxSettings
from coral_pipeline.teacher.grading.task import Task
from coral_pipeline.teacher.opencode.agent_files import AgentFolder
from coral_pipeline.teacher.opencode.desk import GradingDesk
from coral_pipeline.teacher.opencode.forks import View
from coral_pipeline.teacher.opencode.programs import Programs, find_coral
from coral_pipeline.teacher.opencode.root import SEEN, lay_out
from coral_pipeline.teacher.opencode.sandbox import PROGRAMS, Mount, Sandbox, environment
from coral_pipeline.teacher.processes import ProcessFamily
from coral_pipeline.teacher.protocol import InfrastructureFault
from coral_pipeline_tests.teacher.grading.packages import packaged_grader
from coral_pipeline_tests.teacher.opencode.lab import require_coral
from coral_pipeline_tests.teacher.opencode.roots import make_root

SETTINGS = OpenCodeSettings(grading_grace_seconds=0.5)


@dataclass
class Worktree:
    """An agent's worktree, and the desk that grades what is submitted from it."""

    view: View
    sandbox: Sandbox
    mounts: list[Mount]
    desk: GradingDesk
    task: Task

    def run(self, script: str, grading: bool = True) -> tuple[int, str]:
        """Exit code and output of the agent's shell script, with its evals graded meanwhile, unless told not to."""
        worktree = SEEN / "agents" / "agent-1"
        command = self.sandbox.command(self.view, self.mounts, ["sh", "-c", script], worktree)
        env = environment(self.sandbox)
        env["PATH"] = f"{PROGRAMS}:{env['PATH']}"
        done: list[subprocess.CompletedProcess[str]] = []
        agent = threading.Thread(
            target=lambda: done.append(subprocess.run(command, capture_output=True, text=True, env=env))
        )
        agent.start()
        while agent.is_alive():
            if grading:
                self.desk.look()
            agent.join(0.02)
        if grading:
            self.desk.look()
        return done[0].returncode, done[0].stdout + done[0].stderr

    def attempts(self) -> dict[str, Any]:
        """Records in the shared state, by the first digits of their commits."""
        folder = self.view.files / "coral/.coral/public/attempts"
        records = [json.loads(path.read_text()) for path in folder.glob("*.json")]
        return {record["commit_hash"][:6]: record for record in records}


@pytest.fixture(params=["built-in", "installed"])
def worktree(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Worktree]:
    require_coral(request.param)
    root, task_dir = make_root(tmp_path)
    with worktree_of(root, Task.read(task_dir), tmp_path, request.param) as worktree:
        yield worktree


@contextmanager
def worktree_of(
    root: Path, task: Task, tmp_path: Path, coral: str = "built-in", settings: OpenCodeSettings = SETTINGS
) -> Iterator[Worktree]:
    """A worktree of the root under ``tmp_path``."""
    files, scratch = tmp_path / "fork", tmp_path / "scratch"
    lay_out(root, task.config.model_dump(), "agent-1", files)
    scratch.mkdir()
    view = View(files, files, ())
    sandbox = Sandbox(settings.sandbox)
    script, folders, version = find_coral(OpenCodeSettings.model_validate({"coral": coral}))
    programs = Programs(Path("/bin/true"), "", version, script, folders)
    mounts = [Mount(files / "coral", SEEN, "write"), *programs.mounts(sandbox, scratch)]
    with ProcessFamily("test-desk") as family:
        grading = tmp_path / "grading"
        desk = GradingDesk(view, grading, "agent-1", 1.0, None, task, sandbox, family, settings)
        yield Worktree(view, sandbox, mounts, desk, task)


def test_an_eval_is_committed_graded_and_told(worktree: Worktree) -> None:
    note = "echo learned > .opencode/notes/n.md"
    code, said = worktree.run(f"{note}; echo 'X = 2.5' > answer.py && coral eval -m 'try 2.5'")
    graded = worktree.desk.graded
    assert graded is not None and code == 0
    assert (graded.verdict.score, graded.verdict.status, graded.title) == (2.5, "improved", "try 2.5")
    assert "CORAL Eval (#4): 2.5000000000\n" in said  # the root's shared state had counted 3
    assert f"Commit:  {graded.commit[:12]}\nStatus:  improved\nFeedback: eval: X=2.5" in said
    assert graded.patch.startswith(b"diff --git a/answer.py") and b"+X = 2.5" in graded.patch
    assert graded.code_diff is not None and graded.code_diff.startswith("diff --git a/answer.py b/answer.py\n")
    assert "-X = 1" in graded.code_diff and "+X = 2.5\n" in graded.code_diff
    record = worktree.attempts()[graded.commit[:6]]
    assert record["score"] == 2.5 and record["status"] == "improved"
    assert len(record["shared_state_hash"]) == 40


def test_the_code_diff_tells_all_commits_since_the_eval_before(worktree: Worktree) -> None:
    """Commits of the agent's own too."""
    own = "echo 'Y = 1' > helper.py && git add helper.py && git commit -q -m mine"
    worktree.run(f"{own} && echo 'X = 2.5' > answer.py && coral eval -m both")
    graded = worktree.desk.graded
    assert graded is not None and graded.code_diff is not None
    assert "+Y = 1\n" in graded.code_diff and "+X = 2.5\n" in graded.code_diff
    assert b"helper.py" not in graded.patch


@pytest.mark.parametrize(
    ("mode", "status", "feedback"),
    [
        ("raise", "crashed", "grader blew up on purpose"),
        ("none", "crashed", "no score for this one"),
        ("exit", "crashed", "without returning a result"),
        ("nan", "crashed", "no number"),
        ("sleep", "timeout", "timed out after 3s"),
    ],
)
def test_an_eval_that_gives_no_score_is_an_eval_all_the_same(
    worktree: Worktree, mode: str, status: str, feedback: str
) -> None:
    code, said = worktree.run(f"printf 'X = 2.5\\nMODE = \"{mode}\"\\n' > answer.py && coral eval -m 'try {mode}'")
    graded = worktree.desk.graded
    assert graded is not None and code == 0
    assert (graded.verdict.score, graded.verdict.status) == (None, status)
    assert feedback in said and "FAILED" in said and f"Status:  {status}" in said


def test_a_refused_eval_is_no_eval(worktree: Worktree) -> None:
    code, said = worktree.run("coral eval -m 'nothing'")
    assert (code, worktree.desk.graded) == (1, None)
    assert said == "Error: Nothing to commit — no changes detected.\n"
    worktree.run("echo 'X = 3' > answer.py && coral eval -m 'something'")
    assert worktree.desk.graded is not None


def test_two_evals_in_one_go_are_one(worktree: Worktree) -> None:
    go = "echo 'X = {0}' > answer.py && coral eval -m 'try {0}' 2>&1; echo code $?;"
    _, said = worktree.run(go.format(2) + go.format(3))
    graded = worktree.desk.graded
    assert graded is not None and graded.verdict.score == 2.0
    first, second, rest = said.split("code ")
    assert "CORAL Eval (#4): 2.0" in first and "limit: 1" in second and rest == "1\n"
    # refused before it was committed, and nothing is left that would keep the next turn from submitting
    worktree.desk.close()
    assert {record["status"] for record in worktree.attempts().values()} == {"improved"}


def test_evals_submitted_at_once_are_one(worktree: Worktree) -> None:
    worktree.run("echo 'X = 2' > answer.py; coral eval -m a --no-wait; coral eval -m b & coral eval -m c & wait")
    worktree.desk.close()
    assert worktree.desk.graded is not None
    assert all(record["status"] != "pending" for record in worktree.attempts().values())


def test_an_eval_not_waited_for_can_be_waited_for(worktree: Worktree) -> None:
    script = "echo 'X = 2' > answer.py; coral eval -m a --no-wait; coral wait $(git rev-parse --short HEAD)"
    code, said = worktree.run(script)
    assert code == 0 and "CORAL Eval: PENDING" in said and "CORAL Wait (#4): 2.0000000000" in said


def test_a_forged_score_counts_for_nothing(worktree: Worktree) -> None:
    forged = json.dumps(
        {"commit_hash": "f" * 40, "agent_id": "agent-1", "title": "t", "score": 999, "status": "improved"}
    )
    worktree.run(f"echo '{forged}' > .opencode/attempts/{'f' * 40}.json")
    assert worktree.desk.graded is None


def test_a_score_written_over_the_graders_counts_for_nothing(worktree: Worktree) -> None:
    overwrite = 'for i in 1 2 3 4 5 6 7 8 9; do sed -i "s/null/999/" .opencode/attempts/*.json; sleep 0.1; done &'
    worktree.run(f"{overwrite} echo 'X = 2' > answer.py; coral eval -m honest; wait")
    graded = worktree.desk.graded
    assert graded is None or graded.verdict.score == 2.0


def test_a_commit_that_is_not_there_is_graded_as_crashed(worktree: Worktree) -> None:
    invented = {"commit_hash": "e" * 40, "agent_id": "agent-1", "title": "t", "score": None, "status": "pending"}
    worktree.run(f"echo '{json.dumps(invented)}' > .opencode/attempts/{'e' * 40}.json")
    graded = worktree.desk.graded
    assert graded is not None and graded.verdict.score is None and "checked out" in graded.verdict.feedback


def test_the_private_part_is_the_graders_alone(worktree: Worktree) -> None:
    private = worktree.task.private["eval"]
    _, said = worktree.run(f"ls -A /coral/.coral/private; cat {private}/secret.txt; ls {private}")
    assert "hidden key" not in said and "grader.py" not in said
    _, said = worktree.run("echo 'X = 2' > answer.py && coral eval -m a")
    assert "graded with the hidden key" in said  # as the task's grader chose to tell
    assert str(private) not in said


def test_private_data_and_a_packaged_grader_are_the_graders_alone(tmp_path: Path) -> None:
    root, task_dir = make_root(tmp_path)
    shutil.rmtree(task_dir / "grader")
    (task_dir / "private" / "hard").mkdir(parents=True)
    (task_dir / "private" / "hard" / "case.txt").write_text("private case")
    python = packaged_grader(tmp_path / "environment")
    grader = {"entrypoint": "answer_grader.scoring:Scoring", "private": ["data/hard"], "setup": ["pip install ."]}
    (task_dir / "task.yaml").write_text(yaml.safe_dump({"task": {"name": "Answer"}, "grader": grader}))
    task = Task.read(task_dir, python)
    Sandbox(SETTINGS.sandbox).require(task.hidden)
    with worktree_of(root, task, tmp_path) as worktree:
        wanted = f"{task_dir}/private/hard/case.txt {tmp_path}/environment/lib/*/site-packages/*/scoring.py"
        _, said = worktree.run(f"cat {wanted}; ls -AR /coral/.coral/private; cat /coral/.coral/config.yaml")
        assert "private case" not in said and "class Scoring" not in said
        assert "hard" not in said.replace(wanted.split()[0], "") and "answer_grader" not in said
        _, said = worktree.run("echo 'X = 2' > answer.py && coral eval -m a")
        assert "2.0000000000" in said and "graded on the private case" in said
        assert "/coral/.coral/private/hard" in said and str(tmp_path) not in said


def test_a_grader_whose_sandbox_does_not_start_says_nothing_about_the_code(worktree: Worktree) -> None:
    worktree.run("echo 'X = 2' > answer.py && coral eval -m a --no-wait", grading=False)
    shutil.move(worktree.task.private["eval"], worktree.task.private["eval"].with_name("moved"))
    with pytest.raises(InfrastructureFault, match=r"grader could not be started: bwrap: .*grader"):
        worktree.desk.look()
    assert worktree.desk.graded is None


def test_a_checkout_whose_sandbox_does_not_start_says_nothing_about_the_code(tmp_path: Path) -> None:
    root, task_dir = make_root(tmp_path)
    tools = tmp_path / "tools"
    tools.mkdir()
    settings = SETTINGS.model_copy(update={"sandbox": SandboxSettings(read_only=(tools,))})
    with worktree_of(root, Task.read(task_dir), tmp_path, settings=settings) as worktree:
        worktree.run("echo 'X = 2' > answer.py && coral eval -m a --no-wait", grading=False)
        tools.rmdir()
        with pytest.raises(InfrastructureFault, match=r"could not be looked at: bwrap: .*tools"):
            worktree.desk.look()


def test_graded_code_cannot_put_other_files_in_the_place_of_the_graders(worktree: Worktree, tmp_path: Path) -> None:
    private = tmp_path / "grading" / "private"
    attempts = (
        f"os.rename('{private}', '{private}-moved')",
        f"os.rename('{private}/eval', '{private}/moved')",
        f"os.unlink('{private}/eval')",
        f"open('{private}/eval/secret.txt', 'w')",
        f"os.rename('{private.parent}', '{private.parent}-moved')",
    )
    lines = "".join(f"try: {attempt}; X = 999\nexcept OSError: pass\n" for attempt in attempts)
    (worktree.view.files / "coral/agents/agent-1/answer.py").write_text(f"import os\nX = 2.0\n{lines}")
    _, said = worktree.run("coral eval -m swap")
    assert "2.0000000000" in said and "graded with the hidden key" in said


def test_a_tuning_eval_is_refused_and_is_no_eval(worktree: Worktree) -> None:
    """The installed CORAL knows such evals; the built-in stand-in does not, and is played here."""
    record = {
        **{"commit_hash": "d" * 40, "agent_id": "agent-1", "title": "t", "score": None, "status": "pending"},
        **{"timestamp": "2026-11-30T12:00:00+00:00", "metadata": {"budget_class": "tune"}},
    }
    worktree.run(f"echo '{json.dumps(record)}' > .opencode/attempts/{'d' * 40}.json")
    refused, graded = worktree.attempts()["dddddd"], worktree.desk.graded
    assert graded is None and refused["status"] == "crashed" and "--tune" in refused["feedback"]
    worktree.run("echo 'X = 2' > answer.py && coral eval -m real")
    graded = worktree.desk.graded
    assert graded is not None and graded.verdict.score == 2.0


def test_feedback_names_no_place_of_this_machine(worktree: Worktree, tmp_path: Path) -> None:
    _, said = worktree.run("echo 'X = ' > answer.py && coral eval -m broken")
    assert "SyntaxError" in said or "invalid syntax" in said
    assert str(tmp_path) not in said


def test_hooks_and_filters_of_the_agent_run_nowhere_near_the_private_part(worktree: Worktree, tmp_path: Path) -> None:
    steal = "cat /coral/.coral/private/eval/* >> /coral/.coral/public/notes/stolen.md"
    script = f"""
    mkdir -p /coral/repo/.git/hooks
    printf '#!/bin/sh\\n{steal}\\ntouch {tmp_path}/escaped\\n' > /coral/repo/.git/hooks/post-checkout
    chmod +x /coral/repo/.git/hooks/post-checkout
    git config filter.thief.smudge 'sh -c "{steal}; touch {tmp_path}/escaped; cat"'
    echo '*.py filter=thief' > .gitattributes
    echo 'X = 2' > answer.py && coral eval -m steal
    """
    worktree.run(script)
    assert worktree.desk.graded is not None
    assert not (tmp_path / "escaped").exists()
    stolen = worktree.view.files / "coral/.coral/public/notes/stolen.md"
    assert not stolen.exists() or "hidden key" not in stolen.read_text()


def test_nothing_is_written_through_links_the_agent_laid(worktree: Worktree, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    public = "/coral/.coral/public"
    worktree.run(f"rm -rf {public}/attempts; ln -s {tmp_path}/outside {public}/attempts")
    worktree.desk.look()
    worktree.desk.close()
    assert list((tmp_path / "outside").iterdir()) == []
    with pytest.raises(OSError):
        AgentFolder(worktree.view.files, "coral/.coral/public/attempts").write("x.json", b"{}")


def test_what_lies_in_the_way_of_a_result_takes_no_score(worktree: Worktree) -> None:
    public = worktree.view.files / "coral/.coral/public"

    def in_the_way() -> None:
        (public / "eval_count").unlink(missing_ok=True)
        (public / "eval_count" / "folder").mkdir(parents=True)
        (public / "attempts").rename(public / "attempts-moved")

    worktree.desk.on_graded = in_the_way
    worktree.run("echo 'X = 2' > answer.py; timeout 5 coral eval -m way")
    graded = worktree.desk.graded
    assert graded is not None and graded.verdict.score == 2.0
    worktree.desk.close()
    assert not list(public.rglob("*.partial"))


def test_an_agent_that_broke_its_repository_gets_no_eval(worktree: Worktree) -> None:
    code, said = worktree.run("echo 'X = 2' > answer.py; rm -rf /coral/repo/.git; coral eval -m a")
    assert (code, worktree.desk.graded) == (1, None) and said.startswith("Error: git add failed")
    code, said = worktree.run("rm -rf /coral/agents/agent-1/.coral_dir; coral eval -m a")
    assert code == 1 and "No .coral directory found" in said


def test_knowledge_can_be_browsed(worktree: Worktree) -> None:
    _, said = worktree.run("coral log")
    assert said.startswith("Leaderboard (top 2):\n| Rank | Score ")
    assert said.index("agent-1 scored 1.0") < said.index("agent-2 scored 0.5")
    assert worktree.run("coral log -n 1 --agent agent-2")[1].startswith("Attempts by agent-2:")
    assert "No attempts matching 'nothing like it'." in worktree.run("coral log --search 'nothing like it'")[1]
    _, said = worktree.run("coral show aaaa")
    assert "Agent:   agent-1" in said and "Score:   1.0" in said and "Feedback: as it was" in said
    assert worktree.run("coral notes")[1] == "Notes (1):\n  1. X may grow (agent-2)\n"
    assert "It helped." in worktree.run("coral notes --read 1")[1]
    assert "Notes matching 'helped'" in worktree.run("coral notes --search helped")[1]
    assert "Skills (0):" in worktree.run("coral skills")[1]
    skill = worktree.view.files / "coral/.coral/public/skills/tune"
    skill.mkdir()
    (skill / "SKILL.md").write_text("---\nname: tune\ndescription: how to\n---\nTurn it.\n")
    assert "1. tune — how to" in worktree.run("coral skills")[1]
    assert "Files: SKILL.md" in worktree.run("coral skills --read tu")[1]


def test_wrong_usage_is_told(worktree: Worktree) -> None:
    assert worktree.run("coral eval")[0] == 2
    assert worktree.run("coral nonsense")[0] == 2
    code, said = worktree.run("coral wait 1234567")
    assert code == 1 and "No attempt matches" in said


def test_the_direction_of_the_task_orders_the_log(worktree: Worktree) -> None:
    config = worktree.view.files / "coral/.coral/config.yaml"
    settings = yaml.safe_load(config.read_text())
    settings["grader"]["direction"] = "minimize"
    config.write_text(yaml.safe_dump(settings))
    _, said = worktree.run("coral log")
    assert said.index("agent-2 scored 0.5") < said.index("agent-1 scored 1.0")
