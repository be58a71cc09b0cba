"""The agent: one Rollout Turn of a local search that reads and writes shared knowledge.

A turn goes back to the best code of the session, makes one small change that the agent believes in, sees
whether the program still loads, submits one eval, and notes what came of it. What the agent believes comes
from the notes and attempts it has read, and from its last change: a change of numbers that failed is tried
the other way, one that helped is gone on with. The grader is never looked into.
"""

from __future__ import annotations

import random
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from coral_pipeline.settings import Direction, EmbeddedSettings
from coral_pipeline.teacher.embedded.evals import Eval, EvalCommand
from coral_pipeline.teacher.embedded.lessons import NOTE_NAME, NOTE_TITLE, SCORES_COMMAND, Lessons, lesson
from coral_pipeline.teacher.embedded.moves import Move, find_target, new_texts, propose
from coral_pipeline.teacher.embedded.programs import Target, rewritten, targets_in
from coral_pipeline.teacher.embedded.states import LINKS, LastMove, Session
from coral_pipeline.teacher.embedded.task import Task
from coral_pipeline.teacher.embedded.toolbox import CODE, Call, Toolbox

SYSTEM = f"""You improve a program by small changes. The code is in {CODE}, a git repository; shared knowledge \
(notes, attempts, roles, skills) is under {CODE}/{LINKS}. Submit with `coral eval -m "what you changed"`. \
Write down in the notes what others should know."""
NOTES = f"{LINKS}/notes"
EDIT_CONTEXT = 8
"""Characters around a change that the agent quotes at first."""
MARGIN_LINES = 2
"""Lines around a change that it quotes when even whole lines are not unique."""


@dataclass(frozen=True)
class Choice:
    """A change the agent decided on."""

    move: Move
    settled: bool
    """As in ``LastMove``."""
    why: str


class Agent:
    """The agent in one turn."""

    def __init__(
        self,
        task: Task,
        settings: EmbeddedSettings,
        session: Session,
        turn: int,
        rng: random.Random,
        code: Path,
        tools: Toolbox,
        evaluate: EvalCommand,
    ) -> None:
        """``session`` as the turn begins; ``turn`` 1 or 2; ``evaluate`` is what ``tools`` carries evals out with."""
        self._task = task
        self._settings = settings
        self._session = session
        self._turn = turn
        self._rng = rng
        self._code = code
        self._tools = tools
        self._evaluate = evaluate
        self._direction: Direction = task.config.grader.direction

    def play(self, at_best: bool) -> Session:
        """The whole turn; returns what is remembered after it. ``at_best``: the code is the session's best."""
        self._receive_prompt()
        lessons = self._recall()
        if not at_best:
            best = self._session.best_commit[:12]
            self._tools.step(
                "My last change did not help, so I go back to the best code I have.",
                _shell(f"git checkout --quiet {best} -- .", "Restore best code"),
            )
        choice = self._change_program(lessons)
        title = choice.move.title() if choice else "nothing to change"
        self._tools.step(
            "I submit this." if choice else "I find no number and no order to change here; I submit what there is.",
            _shell(f"coral eval -m {shlex.quote(title)}", "Evaluate"),
        )
        done = self._evaluate.done
        if choice is None or done is None:
            self._tools.step("There was nothing to evaluate.")
            return self._session
        self._take_note(title, done)
        self._tools.step(self._summary(title, done))
        return self._remember(choice, done)

    def _receive_prompt(self) -> None:
        config = self._task.config
        if self._session.evals == 0:
            self._tools.prompt(SYSTEM, role="system")
        wish = "higher" if self._direction == "maximize" else "lower"
        self._tools.prompt(
            f"{config.task.name}: {config.task.description.strip()}\nA {wish} score is better. "
            "Make one improvement, check that the program still runs, submit one eval, then stop."
        )

    def _recall(self) -> Lessons:
        """Read shared knowledge: all of it that matters at the start of a session, now and then afterwards."""
        lessons = Lessons()
        fresh = self._session.evals == 0
        if not fresh and self._rng.random() >= self._settings.reread_chance:
            return lessons
        listing, scores = self._tools.step(
            "I look at what is known so far." if fresh else "I look at the shared notes and the scores again.",
            Call("glob", {"pattern": "*.md", "path": f"{CODE}/{NOTES}"}),
            _shell(SCORES_COMMAND, "Lowest and highest score so far"),
        )
        lessons.learn_scores(scores.output)
        names = [line for line in listing.output.splitlines() if line.startswith(CODE)]
        own = [name for name in names if name.endswith(f"/{NOTE_NAME}")]
        others = [name for name in names if name not in own][: self._settings.max_notes] if fresh else []
        if own or others:
            calls = [Call("read", {"filePath": name}) for name in own + others]
            for note in self._tools.step("I read what the notes say.", *calls):
                lessons.learn_notes(re.sub(r"^\d+: ", "", note.output, flags=re.MULTILINE))
        return lessons

    def _change_program(self, lessons: Lessons) -> Choice | None:
        """Change the program so that it still loads; None where there is nothing to change, or it cannot be done."""
        for _ in range(self._settings.move_tries):
            sources = self._sources()
            targets = self._wanted(sources)
            if not targets:
                return None
            choice = self._choose(targets, lessons)
            file = choice.move.file
            self._tools.step(f"I look at `{file}`.", Call("read", {"filePath": f"{CODE}/{file}"}))
            self._edit(choice, targets, sources[file])
            program = _loading(file)
            (loaded,) = self._tools.step(
                "Does it still load?", _shell(f"python -S -c {shlex.quote(program)}", "Load the program")
            )
            if loaded.exit_code == 0:
                return choice
            self._session = self._session.model_copy(update={"last": None})
            self._tools.step(
                "It does not load any more; I undo this and try something else.",
                _shell(f"git checkout --quiet {self._session.best_commit[:12]} -- .", "Undo"),
            )
        return None

    def _sources(self) -> dict[str, str]:
        """The programs in the code folder: path and text, those the task names first."""
        found: list[str] = []
        for path in sorted(self._code.rglob("*.py")):
            inside = path.relative_to(self._code)
            if any(part.startswith(".") for part in inside.parts) or inside.name.startswith("test_"):
                continue
            if path.is_file() and path.stat().st_size <= self._settings.program_bytes:
                found.append(inside.as_posix())
        found.sort(key=lambda name: name not in self._named())
        sources: dict[str, str] = {}
        for name in found[: self._settings.max_programs]:
            try:
                sources[name] = (self._code / name).read_bytes().decode()
            except UnicodeDecodeError:
                continue  # not in UTF-8: left alone
        return sources

    def _named(self) -> set[str]:
        """What the task's description sets in backticks: files and names it is about."""
        return set(re.findall(r"`([^`\n]+)`", self._task.config.task.description))

    def _wanted(self, sources: dict[str, str]) -> list[Target]:
        """What to change: what the task names; else data at the top of modules; else any literal."""
        targets = [target for file, source in sources.items() for target in targets_in(file, source)]
        named = self._named()
        for wanted in (
            [t for t in targets if t.name in named],
            [t for t in targets if t.file in named and t.top_level],
            [t for t in targets if t.top_level],
        ):
            if wanted:
                return wanted
        return targets

    def _choose(self, targets: list[Target], lessons: Lessons) -> Choice:
        last = self._session.last
        if last is not None and last.move.kind == "nudge" and find_target(last.move, targets):
            if last.improved and self._rng.random() < self._settings.extend_chance:
                return Choice(last.move, settled=True, why="That direction helped, so I go on in it.")
            failed_here = not last.improved and not last.settled and last.base == self._session.best_commit
            if failed_here and (self._turn == 2 or self._rng.random() < self._settings.mirror_chance):
                return Choice(last.move.mirrored(), settled=True, why="The other direction may help.")
        target = self._rng.choices(targets, [len(t.numbers) * lessons.weight(t.name) for t in targets])[0]
        far = lessons.gap(self._session.best_score, self._direction) >= self._settings.far_gap
        bold = self._settings.bold_chance_far if far else self._settings.bold_chance
        reach = len(target.numbers) if self._rng.random() < bold else self._settings.reach
        weights = {kind: lessons.weight(kind) for kind in ("nudge", "reverse", "shift", "swap")}
        move = propose(self._rng, target, targets, weights, self._step(far), reach)
        why = "Far better scores are known, so I may be bold." if far else "I try a small change."
        return Choice(move, settled=False, why=why)

    def _step(self, far: bool) -> float:
        first = self._settings.bold_number_step if far else self._settings.number_step
        return first if self._session.step is None else self._session.step

    def _edit(self, choice: Choice, targets: list[Target], source: str) -> None:
        """Make the change with the edit tool, quoting more around it until the tool knows the place."""
        target = find_target(choice.move, targets)
        assert target is not None
        texts = new_texts(choice.move, target, source)
        spans = [(number.start, number.end) for number in texts]
        if choice.move.kind != "nudge" and spans:
            spans = [(spans[0][0], spans[-1][1])]
        why = f"{choice.why} {choice.move.title().capitalize()}."
        for start, end in reversed(spans):  # from the last: earlier places stay where they are
            inside = {number: text for number, text in texts.items() if start <= number.start < end}
            changed = rewritten(source, inside)
            for first, last in _quotes(source, start, end):
                new = changed[first : last + len(changed) - len(source)]
                arguments = {"filePath": f"{CODE}/{choice.move.file}", "oldString": source[first:last]}
                (done,) = self._tools.step(why, Call("edit", {**arguments, "newString": new}))
                if not done.is_error:
                    break
                why = "That text occurs more than once; I quote more of it."
            source, why = changed, "And the next number."

    def _take_note(self, title: str, done: Eval) -> None:
        """Note what came of the change: always where it helped or crashed, else now and then."""
        line = lesson(title, self._session.best_score, done.verdict.score, self._direction)
        worth_it = done.verdict.status == "improved" or done.verdict.score is None
        if not worth_it and self._rng.random() >= self._settings.note_chance:
            return
        file = f"{NOTES}/{NOTE_NAME}"
        if (self._code / file).is_file():
            call = _shell(f"cat >> {file} <<'EOF'\n{line}\nEOF", "Add to my note")
        else:
            call = Call("write", {"filePath": f"{CODE}/{file}", "content": f"{NOTE_TITLE}{line}\n"})
        self._tools.step("I note down what came of it.", call)

    def _summary(self, title: str, done: Eval) -> str:
        if done.verdict.score is None:
            return (
                f"{title}: no score. {done.verdict.feedback.splitlines()[0] if done.verdict.feedback else ''}".strip()
            )
        return f"{title}: {done.verdict.score:.10g}, {done.verdict.status}."

    def _remember(self, choice: Choice, done: Eval) -> Session:
        session, move = self._session, choice.move
        improved = done.verdict.status == "improved"
        step = session.step
        if move.kind == "nudge":
            step = session.step or self._settings.number_step
            if improved:
                step *= self._settings.step_growth
            elif choice.settled:
                step *= self._settings.step_shrink
        last = LastMove(move=move, base=session.best_commit, improved=improved, settled=choice.settled)
        update = {"evals": session.evals + 1, "last": last, "step": step}
        if improved:
            update |= {"best_commit": done.commit, "best_score": done.verdict.score}
        return session.model_copy(update=update)


def _shell(command: str, description: str) -> Call:
    return Call("bash", {"command": command, "description": description})


def _loading(file: str) -> str:
    """Python text that loads a file of the code folder."""
    name = file.removesuffix(".py")
    return f"import {name}" if name.isidentifier() else f"import runpy; runpy.run_path({file!r})"


def _quotes(source: str, start: int, end: int) -> list[tuple[int, int]]:
    """Ever larger stretches of the source around a place: a few characters, whole lines, more lines, all."""
    first = source.rfind("\n", 0, start) + 1
    last = source.find("\n", end)
    last = len(source) if last < 0 else last
    wide_first, wide_last = first, last
    for _ in range(MARGIN_LINES):
        wide_first = source.rfind("\n", 0, max(wide_first - 1, 0)) + 1
        following = source.find("\n", wide_last + 1)
        wide_last = len(source) if following < 0 else following
    near = (max(0, start - EDIT_CONTEXT), min(len(source), end + EDIT_CONTEXT))
    return [near, (first, last), (wide_first, wide_last), (0, len(source))]
