"""The agent: one Rollout Turn of a local search that reads and writes shared knowledge.

A turn goes back to the best code of the session, reads what others wrote down, makes one small change, sees
whether the program still loads, submits one eval, and notes what came of it. The grader is never looked
into: all that is known of the score is what evals gave.
"""

from __future__ import annotations

import keyword
import re
import shlex
from pathlib import Path

from coral_pipeline.settings import Direction, EmbeddedSettings
from coral_pipeline.teacher.embedded.evals import Eval, EvalCommand
from coral_pipeline.teacher.embedded.lessons import NOTE_NAME, NOTE_TITLE, SCORES_COMMAND, Lessons, lesson
from coral_pipeline.teacher.embedded.moves import find_target, new_texts
from coral_pipeline.teacher.embedded.programs import Target, rewritten
from coral_pipeline.teacher.embedded.states import LINKS, Session
from coral_pipeline.teacher.embedded.strategy import Choice, Strategy, named_in, wanted_targets
from coral_pipeline.teacher.embedded.toolbox import CODE, Call, Toolbox
from coral_pipeline.teacher.grading.task import Task

SYSTEM = f"""You improve a program by small changes. The code is in {CODE}, a git repository; shared knowledge \
(notes, attempts, roles, skills) is under {CODE}/{LINKS}. Submit with `coral eval -m "what you changed"`. \
Write down in the notes what others should know."""
NOTES = f"{LINKS}/notes"
EDIT_CONTEXT = 2
"""Characters around a change that the agent quotes at first."""
MARGIN_LINES = 2
"""Lines around a change that it quotes when even whole lines are not unique."""


class Agent:
    """The agent in one turn."""

    def __init__(
        self,
        task: Task,
        settings: EmbeddedSettings,
        session: Session,
        strategy: Strategy,
        code: Path,
        tools: Toolbox,
        evaluate: EvalCommand,
    ) -> None:
        """``session`` as the turn begins; ``evaluate`` is what ``tools`` carries evals out with, in ``code``."""
        self._task = task
        self._settings = settings
        self._session = session
        self._strategy = strategy
        self._code = code
        self._tools = tools
        self._evaluate = evaluate
        self._direction: Direction = task.config.grader.direction
        self._is_fresh = session.context_bytes == 0

    def play(self, at_best: bool) -> Session:
        """The whole turn; returns what is remembered after it. ``at_best``: the code is the session's best."""
        self._receive_prompt()
        lessons = self._recall()
        if not at_best:
            self._go_back("My last change did not help, so I go back to the best code I have.")
        choice = self._change_program(lessons)
        title = choice.move.title() if choice else "nothing to change"
        self._tools.step(
            "I submit this." if choice else "I find no number and no order to change here; I submit what there is.",
            _shell(f"coral eval -m {shlex.quote(title)}", "Evaluate"),
        )
        done = self._evaluate.done
        if done is None:
            self._tools.step("There was nothing to evaluate.")
            return self._session
        if choice is None:
            self._tools.step(_summary("as it was", done))
            return self._session
        self._take_note(title, done)
        self._tools.step(_summary(title, done))
        score, improved = done.verdict.score, done.verdict.status == "improved"
        return self._strategy.remember(self._session, choice, done.commit, score, improved)

    def _receive_prompt(self) -> None:
        config = self._task.config
        if self._is_fresh:
            self._tools.prompt(SYSTEM, role="system")
        wish = "higher" if self._direction == "maximize" else "lower"
        self._tools.prompt(
            f"{config.task.name}: {config.task.description.strip()}\nA {wish} score is better. "
            "Make one improvement, check that the program still runs, submit one eval, then stop."
        )

    def _recall(self) -> Lessons:
        """Read shared knowledge: all of it that matters at the start of a session, now and then afterwards."""
        lessons = Lessons()
        fresh = self._is_fresh
        if not fresh and not self._strategy.chance(self._settings.reread_chance):
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

    def _go_back(self, why: str) -> None:
        best = self._session.best_commit[:12]
        self._tools.step(why, _shell(f"git checkout --quiet {best} -- .", "Restore the best code"))

    def _change_program(self, lessons: Lessons) -> Choice | None:
        """Change the program so that it still loads; None where there is nothing to change, or it cannot be done."""
        for _ in range(self._settings.move_tries):
            sources = self._sources()
            targets = wanted_targets(sources, named_in(self._task.config.task.description))
            if not targets:
                return None
            choice = self._strategy.choose(targets, sources, self._session, lessons)
            file = choice.move.file
            self._tools.step(f"I look at `{file}`.", Call("read", {"filePath": f"{CODE}/{file}"}))
            self._edit(choice, targets, sources[file])
            load = f"python -S -c {shlex.quote(_loading(file))}"
            (loaded,) = self._tools.step("Does it still load?", _shell(load, "Load the program"))
            if loaded.exit_code == 0:
                return choice
            tried = (*self._session.tried, choice.digest)
            self._session = self._session.model_copy(update={"last": None, "tried": tried})
            self._go_back("It does not load any more; I undo this and try something else.")
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
        named = named_in(self._task.config.task.description)
        found.sort(key=lambda name: name not in named)
        sources: dict[str, str] = {}
        for name in found[: self._settings.max_programs]:
            try:
                sources[name] = (self._code / name).read_bytes().decode()
            except UnicodeDecodeError:
                continue  # not in UTF-8: left alone
        return sources

    def _edit(self, choice: Choice, targets: list[Target], source: str) -> None:
        """Make the change with the edit tool, quoting more around it until the tool knows the place."""
        target = find_target(choice.move, targets)
        assert target is not None
        texts = new_texts(choice.move, target, source)
        spans = [(number.start, number.end) for number in texts]
        if choice.move.kind != "nudge" and spans:
            spans = [(spans[0][0], spans[-1][1])]
        why = f"{choice.why} I {choice.move.title()}."
        for start, end in reversed(spans):  # from the last: earlier places stay where they are
            changed = rewritten(source, {n: text for n, text in texts.items() if start <= n.start < end})
            for first, last in _quotes(source, start, end):
                old, new = source[first:last], changed[first : last + len(changed) - len(source)]
                arguments = {"filePath": f"{CODE}/{choice.move.file}", "oldString": old, "newString": new}
                (done,) = self._tools.step(why, Call("edit", arguments))
                if not done.is_error:
                    break
                why = "That text occurs more than once; I quote more of it."
            source, why = changed, "And the next number."

    def _take_note(self, title: str, done: Eval) -> None:
        """Note what came of the change: always where it helped or crashed, else now and then."""
        line = lesson(title, self._session.best_score, done.verdict.score, self._direction)
        worth_it = done.verdict.status == "improved" or done.verdict.score is None
        if not worth_it and not self._strategy.chance(self._settings.note_chance):
            return
        file = f"{NOTES}/{NOTE_NAME}"
        if (self._code / file).is_file():
            call = _shell(f"cat >> {file} <<'EOF'\n{line}\nEOF", "Add to my note")
        else:
            call = Call("write", {"filePath": f"{CODE}/{file}", "content": f"{NOTE_TITLE}{line}\n"})
        self._tools.step("I note down what came of it.", call)


def _summary(title: str, done: Eval) -> str:
    verdict = done.verdict
    if verdict.score is None:
        return f"{title}: no score. {verdict.feedback[:200]}".strip()
    return f"{title}: {verdict.score:.10g}, {verdict.status}."


def _shell(command: str, description: str) -> Call:
    return Call("bash", {"command": command, "description": description})


def _loading(file: str) -> str:
    """Python text that loads a file of the code folder."""
    name = file.removesuffix(".py")
    return (
        f"import {name}"
        if name.isidentifier() and not keyword.iskeyword(name)
        else f"import runpy; runpy.run_path({file!r})"
    )


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
