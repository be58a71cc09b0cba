"""What the agent knows, and how that decides what it tries."""

from __future__ import annotations

import json
import random
import subprocess
from collections import Counter
from itertools import permutations
from pathlib import Path

import pytest

from coral_pipeline.settings import EmbeddedSettings
from coral_pipeline.teacher.embedded.lessons import SCORES_COMMAND, Lessons, lesson
from coral_pipeline.teacher.embedded.moves import Move
from coral_pipeline.teacher.embedded.programs import targets_in
from coral_pipeline.teacher.embedded.states import LastMove, Session
from coral_pipeline.teacher.embedded.strategy import Choice, Strategy, named_in, wanted_targets

SESSION = Session(root_commit="r", best_commit="b", best_score=1.0, moment=0)
NUDGE = Move(kind="nudge", file="a.py", name="X", which=0, places=(0,), changes=(0.5,))
NUMBERS = "X = [1.0, 2.0, 4.0]"
ORDER = f"X = {list(range(40))}"
SWAP = Move(kind="swap", file="a.py", name="X", which=0, places=(0, 1))
DIRECT = EmbeddedSettings(extend_chance=1)


def choices(
    session: Session,
    lessons: Lessons,
    follows_up: bool = True,
    source: str = NUMBERS,
    settings: EmbeddedSettings = DIRECT,
) -> list[Choice]:
    """What the strategy chooses with 200 different random generators."""
    targets, sources = targets_in("a.py", source), {"a.py": source}
    return [
        Strategy(settings, "maximize", follows_up, random.Random(seed)).choose(targets, sources, session, lessons)
        for seed in range(200)
    ]


def after(improved: bool, settled: bool = False, base: str = "b") -> Session:
    """The session after a nudge."""
    last = LastMove(move=NUDGE, base=base, improved=improved, settled=settled)
    return SESSION.model_copy(update={"last": last})


def test_lessons_are_read_as_they_are_written() -> None:
    lines = [
        lesson("nudge X at 0 by +0.5", 1.0, 1.5, "maximize"),
        lesson("reverse TOUR 1..4", 10.0, 11.0, "minimize"),
        lesson("swap TOUR 2..3", 10.0, 10.0, "minimize"),
        lesson("shift TOUR 1..1 by -2", 10.0, None, "minimize"),
    ]
    assert lines == [
        "- nudge X at 0 by +0.5: helped, 1 -> 1.5",
        "- reverse TOUR 1..4: hurt, 10 -> 11",
        "- swap TOUR 2..3: changed nothing, 10 -> 10",
        "- shift TOUR 1..1 by -2: crashed",
    ]
    lessons = Lessons()
    lessons.learn_notes("# Title\n\n" + "\n".join(lines) + "\n- try 3: best so far 1.2\n")
    assert lessons.tries == Counter(nudge=1, X=1, reverse=1, swap=1, shift=1, TOUR=3)
    assert +lessons.helped == Counter(nudge=1, X=1)
    assert (lessons.weight("nudge"), lessons.weight("TOUR"), lessons.weight("unknown")) == (2 / 3, 1 / 5, 1 / 2)


def test_the_first_score_of_all_helped() -> None:
    assert lesson("nudge X at 0 by +1", None, 2.0, "minimize") == "- nudge X at 0 by +1: helped, first score 2"


def test_the_command_shows_lowest_and_highest_score(tmp_path: Path) -> None:
    folder = tmp_path / ".opencode" / "attempts"
    folder.mkdir(parents=True)
    scores = [3.5, -2.0, None, 1e-07, 12.25, float("nan")]
    for number, score in enumerate(scores):
        record = {"commit_hash": str(number), "score": score, "feedback": "a score: 99"}
        (folder / f"{number}.json").write_text(json.dumps(record, indent=2))
    shown = subprocess.run(["/bin/sh", "-c", SCORES_COMMAND], cwd=tmp_path, capture_output=True, text=True).stdout
    lessons = Lessons()
    lessons.learn_scores(shown)
    assert lessons.scores == (-2.0, 12.25)


def test_without_scores_nothing_is_far() -> None:
    lessons = Lessons()
    lessons.learn_scores("grep: no such file")
    assert lessons.gap(1.0, "maximize") == 0.0


@pytest.mark.parametrize(
    ("direction", "score", "gap"),
    [("maximize", 4.0, 0.6), ("minimize", 4.0, 0.4), ("maximize", 10.0, 0.0), ("maximize", 12.0, 0.0)],
)
def test_the_gap_to_the_best_known_score(direction: str, score: float, gap: float) -> None:
    """Known scores reach from 0 to 10; better than the best known is no gap either."""
    lessons = Lessons(scores=(0.0, 10.0))
    assert lessons.gap(score, "minimize" if direction == "minimize" else "maximize") == pytest.approx(gap)


def test_what_helped_is_gone_on_with() -> None:
    chosen = {choice.move for choice in choices(after(improved=True), Lessons())}
    assert chosen == {NUDGE}


def test_what_failed_is_tried_the_other_way() -> None:
    chosen = {(choice.move, choice.settled) for choice in choices(after(improved=False), Lessons())}
    assert chosen == {(NUDGE.mirrored(), True)}


def test_the_other_way_is_not_tried_where_it_is_known_not_to_help() -> None:
    for session in (after(improved=False, settled=True), after(improved=False, base="another commit")):
        assert NUDGE.mirrored() not in {choice.move for choice in choices(session, Lessons())}


def test_who_may_not_follow_up_tries_something_else() -> None:
    for session in (after(improved=False), after(improved=True)):
        chosen = {choice.move for choice in choices(session, Lessons(), follows_up=False)}
        assert not chosen & {NUDGE, NUDGE.mirrored()}


def test_what_was_tried_is_not_tried_again() -> None:
    """Three elements can stand in five other orders; four of them were tried."""
    programs = [f"X = {list(order)}" for order in permutations(range(3))]
    tried = [Choice(SWAP, False, "", program).digest for program in programs if program != "X = [2, 1, 0]"]
    session, patient = SESSION.model_copy(update={"tried": tuple(tried)}), EmbeddedSettings(draws=1000)
    chosen = choices(session, Lessons(), source="X = [0, 1, 2]", settings=patient)
    assert {choice.program for choice in chosen} == {"X = [2, 1, 0]"}


def test_where_all_was_tried_something_is_tried_again() -> None:
    every = {choice.digest for choice in choices(SESSION, Lessons(), source="X = [0, 1, 2]")}
    again = choices(SESSION.model_copy(update={"tried": tuple(every)}), Lessons(), source="X = [0, 1, 2]")
    assert {choice.digest for choice in again} <= every


def test_notes_steer_the_kind_of_move() -> None:
    """Ten reversals that helped, ten shifts and swaps that hurt: weights 11/12 against 1/12."""
    lessons = Lessons()
    helped = [f"- reverse X 1..{n}: helped, 1 -> 2" for n in range(2, 12)]
    hurt = [f"- {kind} X 1..{n}: hurt, 2 -> 1" for kind in ("shift", "swap") for n in range(2, 12)]
    lessons.learn_notes("\n".join(helped + hurt))
    kinds = Counter(choice.move.kind for choice in choices(SESSION, lessons, source=ORDER))
    unread = Counter(choice.move.kind for choice in choices(SESSION, Lessons(), source=ORDER))
    assert kinds["reverse"] > 150 > 100 > unread["reverse"] > 40


def test_notes_steer_to_the_targets_that_helped() -> None:
    lessons = Lessons()
    lessons.learn_notes("\n".join(["- nudge GOOD at 0 by +1: helped"] * 10 + ["- nudge BAD at 0 by +1: hurt"] * 10))
    chosen = choices(SESSION, lessons, source="GOOD = 1.0\nBAD = 1.0\n")
    names = Counter(choice.move.name for choice in chosen)
    assert names["GOOD"] > 150


def test_far_from_the_best_known_score_moves_are_bolder() -> None:
    near, far = Lessons(scores=(0.0, 1.0)), Lessons(scores=(0.0, 100.0))

    def spans(lessons: Lessons) -> float:
        moves = [choice.move for choice in choices(SESSION, lessons, source=ORDER)]
        return sum(move.places[1] - move.places[0] for move in moves if move.kind == "reverse")

    def sizes(lessons: Lessons) -> float:
        return sum(abs(change) for choice in choices(SESSION, lessons) for change in choice.move.changes)

    assert spans(far) > 2 * spans(near)
    assert sizes(far) > 1.2 * sizes(near)


def test_the_step_grows_with_success_and_shrinks_when_both_directions_failed() -> None:
    strategy = Strategy(EmbeddedSettings(number_step=0.1), "maximize", True, random.Random(0))
    first, mirror = Choice(NUDGE, False, ""), Choice(NUDGE.mirrored(), True, "")
    failed = strategy.remember(SESSION, first, "c1", 0.5, improved=False)
    assert (failed.step, failed.best_commit, failed.best_score) == (0.1, "b", 1.0)
    both = strategy.remember(failed, mirror, "c2", 0.4, improved=False)
    assert both.step == pytest.approx(0.05)
    helped = strategy.remember(failed, mirror, "c2", 1.5, improved=True)
    assert (helped.step, helped.best_commit, helped.best_score) == (pytest.approx(0.12), "c2", 1.5)


def test_the_task_names_what_to_change() -> None:
    sources = {"tour.py": "TOUR = [2, 0, 1]\nSPEED = 3.5\n", "other.py": "LIMIT = 5\ndef f():\n    return 0.5\n"}

    def wanted(description: str) -> list[str]:
        return [target.name for target in wanted_targets(sources, named_in(description))]

    assert wanted("Reorder `TOUR` in `tour.py`.") == ["TOUR"]
    assert wanted("Improve `tour.py`.") == ["TOUR", "SPEED"]
    assert wanted("Do better.") == ["TOUR", "SPEED", "LIMIT"]
    assert [t.name for t in wanted_targets({"a.py": "def f():\n    return 0.5\n"}, set())] == ["f"]
