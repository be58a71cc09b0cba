"""What `coral-pipeline doctor` finds, and what it says to do about it; how wide `--width auto` is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coral_pipeline.cli import app
from coral_pipeline.errors import BadInput
from coral_pipeline.settings import OpenCodeSettings
from coral_pipeline.teacher.opencode.checks import Check, run_checks
from coral_pipeline.teacher.opencode.model_server import ask_server, available_bytes, width_for
from coral_pipeline.teacher.opencode.programs import find_programs
from coral_pipeline.teacher.opencode.prompts import prompts_for
from coral_pipeline.teacher.opencode.teacher import OpenCodeTeacher
from coral_pipeline_tests.teacher.grading.packages import packaged_grader
from coral_pipeline_tests.teacher.opencode.model_server import Fault, ModelServer, Say, steps
from coral_pipeline_tests.teacher.opencode.roots import make_root

ANY_PROGRAM = "/bin/true"


def settings_for(server: ModelServer | None = None, **changes: Any) -> OpenCodeSettings:
    given: dict[str, Any] = {"opencode_command": ANY_PROGRAM, "min_free_bytes": 0, "model": "scripted"}
    return OpenCodeSettings.model_validate({**given, "endpoint": server.url if server else "", **changes})


def checks(settings: OpenCodeSettings, folder: Path) -> dict[str, Check]:
    return {check.name: check for check in run_checks(settings, folder, "")}


def test_all_is_looked_at_and_nothing_is_left(tmp_path: Path) -> None:
    with ModelServer(steps(Say("hello"))) as server:
        found = checks(settings_for(server), tmp_path / "out" / "deeper")
    names = ["OpenCode", "git", "rg", "bubblewrap", "forks", "CORAL", "disk", "endpoint", "model", "usage", "token ids"]
    assert list(found) == names
    assert all(check.ok or check.optional for check in found.values()), found
    assert "16 requests at once" in found["endpoint"].found and "131072" in found["model"].found
    assert found["token ids"].found == "exact, with log-probabilities"
    assert list(tmp_path.iterdir()) == []


def test_each_lack_comes_with_its_mend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_for(opencode_command="no-such-opencode", min_free_bytes=1 << 60, coral="installed")
    for name in ("git", "sh", "unshare", "mount", "umount", "nsenter", "mv"):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).symlink_to(
            next(f"{p}/{name}" for p in os.defpath.split(":") if Path(p, name).exists())
        )
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    found = checks(settings, tmp_path)
    lacking = {name: check.mend for name, check in found.items() if not check.ok}
    assert "npm install" in lacking["OpenCode"] and "ripgrep" in lacking["rg"]
    assert "apt-get install bubblewrap" in lacking["bubblewrap"]
    assert "opencode.coral" in lacking["CORAL"] and "make room" in lacking["disk"]
    assert found["endpoint"].optional


@pytest.mark.parametrize("program", ["git", "rg", "bwrap"])
def test_a_program_that_does_not_run_is_told_like_one_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    broken = tmp_path / "bin" / program
    broken.parent.mkdir()
    broken.write_text('#!/bin/sh\n[ "$1" != --version ]\n')
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{broken.parent}:{os.environ['PATH']}")
    found = checks(settings_for(), tmp_path)
    lacking = found["sandbox" if program == "bwrap" else program]
    assert not lacking.ok and program in lacking.found and "install it anew" in lacking.mend


def test_a_key_or_password_is_in_nothing_that_is_told(tmp_path: Path) -> None:
    with ModelServer(lambda _: Fault("status", 401, "no: Bearer sk-secret")) as server:
        told = "".join(str(check) for check in run_checks(settings_for(server), tmp_path, "sk-secret"))
        assert "Bearer [key]" in told and "sk-secret" not in told
        away = settings_for(endpoint=server.url.replace("http://", "http://user:pass-secret@"))
        told = "".join(str(check) for check in run_checks(away, tmp_path, ""))
        assert f"{server.url} answers" in told and "pass-secret" not in told


@pytest.mark.parametrize(
    ("changes", "lack", "mend"),
    [
        ({"endpoint": "http://127.0.0.1:1/v1"}, "endpoint", "start the server"),
        ({"model": "another"}, "model", "choose of scripted"),
        ({"context_limit": 200_000}, "model", "set opencode.context_limit to 131072"),
    ],
)
def test_an_endpoint_that_does_not_fit_is_told(tmp_path: Path, changes: dict[str, Any], lack: str, mend: str) -> None:
    with ModelServer(steps(Say("hello"))) as server:
        found = checks(settings_for(server, **changes), tmp_path)
    assert mend in found[lack].mend


def test_a_server_without_token_ids_or_usage_is_told(tmp_path: Path) -> None:
    with ModelServer(steps(Say("hello")), token_ids=False, usage=False) as server:
        found = checks(settings_for(server), tmp_path)
    assert found["token ids"].optional and "tokenizer" in found["token ids"].mend
    assert not found["usage"].ok and not found["usage"].optional
    with ModelServer(lambda _: Fault("status", 500)) as server:
        assert "HTTP 500" in checks(settings_for(server), tmp_path)["answers"].found


def test_the_width_fits_server_and_machine() -> None:
    with ModelServer(steps()) as server:
        small = settings_for(server, agents_per_cpu=1000, agent_bytes=1)
        assert width_for(small, "") == 16
        assert width_for(settings_for(server, agent_bytes=1 << 60), "") == 1
        cpus = len(os.sched_getaffinity(0))
        assert width_for(settings_for(server, agents_per_cpu=2, agent_bytes=1), "") == min(16, 2 * cpus)
        server.info = {"internal_states": [{"effective_max_running_requests_per_dp": 3}] * 2}
        assert ask_server(small, "").requests_at_once == 6
        server.info = None
        assert ask_server(small, "").requests_at_once is None
    with pytest.raises(BadInput, match="--endpoint"):
        width_for(settings_for(), "")


def test_memory_that_caches_would_give_up_can_be_had() -> None:
    meminfo = "MemFree:          100000 kB\nMemAvailable:    6000000 kB\nHugePages_Total:  0\n"
    assert available_bytes(meminfo) == 6_000_000 * 1024
    assert available_bytes(Path("/proc/meminfo").read_text()) > 0


def test_the_command_says_what_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("opencode: {opencode_command: no-such-opencode}")
    done = CliRunner().invoke(app, ["doctor", "--settings", str(file), "--out", str(tmp_path)])
    assert done.exit_code == 1
    assert "LACK  OpenCode" in done.output and "-> install it" in done.output and "ok    git" in done.output


@pytest.mark.parametrize("width", ["0", "-1", "many", "AUTO", "²"])
def test_a_width_that_is_none_is_a_usage_error(tmp_path: Path, width: str) -> None:
    root, _ = make_root(tmp_path)
    done = CliRunner().invoke(app, ["explore", str(root), "--out", str(tmp_path / "o"), "--width", width])
    assert done.exit_code == 2 and "--width" in done.output


def test_the_teacher_names_what_it_lacks_before_anything_is_written(tmp_path: Path) -> None:
    root, task = make_root(tmp_path)
    work = tmp_path / "out" / "teacher"

    def opening(**changes: Any) -> None:
        OpenCodeTeacher.open(root, task, work, settings_for(**{"endpoint": "http://x/v1", **changes}))

    with pytest.raises(BadInput, match="--endpoint"):
        opening(endpoint="")
    with pytest.raises(BadInput, match="--model"):
        opening(model="")
    with pytest.raises(BadInput, match="npm install"):
        opening(opencode_command="no-such-opencode")
    with pytest.raises(BadInput, match="can read"):
        opening(sandbox={"read_only": [str(task)]})
    with pytest.raises(BadInput, match=r"task"):
        OpenCodeTeacher.open(root, None, work, settings_for(endpoint="http://x/v1"))
    (tmp_path / "own.md").write_text("Do $something else")
    with pytest.raises(BadInput, match=r"\$task_name"):
        opening(first_prompt=str(tmp_path / "own.md"))
    assert not (tmp_path / "out").exists()


def test_a_grader_in_the_environment_of_the_agents_coral_is_told(tmp_path: Path) -> None:
    """Agents can read all of that environment."""
    root, task = make_root(tmp_path)
    python = packaged_grader(tmp_path / "environment")
    [packages] = (tmp_path / "environment").glob("lib/*/site-packages")
    for file, text in (
        ("coral/__init__.py", ""),
        ("coral-0.6.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: coral\nVersion: 0.6.0\n"),
    ):
        (packages / file).parent.mkdir()
        (packages / file).write_text(text)
    coral = python.with_name("coral")
    coral.write_text(f"#!{python}\n")
    coral.chmod(0o755)
    (task / "task.yaml").write_text("grader: {entrypoint: 'answer_grader.scoring:Scoring'}")
    settings = settings_for(endpoint="http://x/v1", coral="installed", coral_command=str(coral), grader_python=python)
    with pytest.raises(BadInput, match=r"answer_grader: lies in .*environment.*an environment of its own"):
        OpenCodeTeacher.open(root, task, tmp_path / "work", settings)


def test_a_script_in_opencodes_place_is_told(tmp_path: Path) -> None:
    shim = tmp_path / "opencode"
    shim.write_text("#!/bin/sh\n")
    shim.chmod(0o755)
    with pytest.raises(BadInput, match="script"):
        find_programs(settings_for(opencode_command=str(shim)))


def test_prompts_can_be_replaced(tmp_path: Path) -> None:
    from coral_pipeline.teacher.grading.task import TaskConfig

    task = TaskConfig.model_validate({"task": {"name": "N", "description": "Costs $5"}})
    (tmp_path / "own.md").write_text("Now $direction $task_name: $task_description")
    default = prompts_for(task, "agent-1", OpenCodeSettings())
    own = prompts_for(task, "agent-1", OpenCodeSettings(second_prompt=tmp_path / "own.md"))
    assert own.of_turn(2) == "Now maximize N: Costs $5" and own.of_turn(1) == default.of_turn(1)
    assert "exactly once" in default.of_turn(1) and "Higher is better." in default.instructions
    assert own.fingerprint != default.fingerprint
