"""``coral-pipeline simulate`` as a person at a shell meets it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from coral_pipeline.cli import main

Simulate = Callable[..., tuple[int | str | None, str, str]]


@pytest.fixture
def simulate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Simulate:
    """Run the command; gives exit code, stdout, stderr."""

    def run(*arguments: object) -> tuple[int | str | None, str, str]:
        monkeypatch.setattr(sys, "argv", ["coral-pipeline", "simulate", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit:
            main()
        said = capsys.readouterr()
        return exit.value.code, said.out, said.err

    return run


def row(out: str, name: str) -> list[str]:
    """The cells of the first row of that name."""
    (line, *_) = (line for line in out.splitlines() if re.match(rf"│ {name} +│", line))
    return [cell.strip() for cell in line.split("│")[2:-1]]


def test_a_column_per_width_in_order(simulate: Simulate) -> None:
    code, out, err = simulate("--trees", 2, "--width", 16, "--width", 2, "--width", 16)
    assert (code, err) == (0, "")
    assert re.search(r"width +┃ +2 ┃ +16 ┃", out)
    edges = [float(cell) for cell in row(out, "valid edges")]
    assert len(edges) == 2 and all(12 <= count <= 40 for count in edges)
    assert "How to read this" in out


def test_the_same_seed_gives_the_same_table(simulate: Simulate) -> None:
    assert simulate("--trees", 2, "--seed", 5) == simulate("--trees", 2, "--seed", 5)
    assert simulate("--trees", 2, "--seed", 5) != simulate("--trees", 2, "--seed", 6)


def test_settings_from_a_file(simulate: Simulate, tmp_path: Path) -> None:
    """Turns of 10 h with no spread, trees of three edges at once, two turns each: 20 h; 6 roots, 3 at once: 40 h."""
    file = tmp_path / "settings.yaml"
    file.write_text(
        "search: {max_depth: 1}\n"
        "simulation: {median_seconds: 36000, sigma_seconds: 0, no_score_chance: 0, messy_chance: 0}\n"
    )
    code, out, _ = simulate("--trees", 1, "--width", 3, "--roots", 6, "--concurrent-trees", 3, "--settings", file)
    assert code == 0
    assert (row(out, "hours per tree"), row(out, "hours for all roots")) == (["20.00"], ["40.0"])
    assert (row(out, "  slots busy"), row(out, "turns at once")) == (["100%"], ["9.0"])
    assert row(out, "stopped by") == ["exhausted 1"]


@pytest.mark.parametrize("text", ["simulation: {median_seconds: -1}", "simulation: {no_score_chance: 1.5}", "other: 1"])
def test_settings_that_cannot_be_used_are_named(simulate: Simulate, tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    code, out, err = simulate("--settings", file)
    assert (code, out) == (1, "")
    assert "settings.yaml" in err and re.search("median_seconds|no_score_chance|other", err) and err.count("\n") == 1


@pytest.mark.parametrize("option", ["--trees", "--width", "--roots", "--concurrent-trees"])
def test_nothing_less_than_one(simulate: Simulate, option: str) -> None:
    code, _, err = simulate(option, 0)
    assert code == 2 and option in err
