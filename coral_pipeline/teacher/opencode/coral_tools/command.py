"""Stand-in for CORAL's command line, run by agents in their sandbox: eval, wait, log, show, notes, skills.

Same layout on disk, exit codes and forms of output as CORAL's. It commits and queues; who grades is outside.
This folder is all of the package that is in the sandbox: it imports nothing beyond itself.
"""

from __future__ import annotations

import argparse
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .listings import RULE, listed, result, table
from .shared_state import (
    TURN_OVER,
    attempts,
    budget_class,
    checkpoint,
    eval_count,
    fail,
    find_attempt,
    find_coral,
    front_matter,
    git,
    grader_setting,
    is_pending,
    list_notes,
    must_git,
    read_attempt,
    read_text,
    write_attempt,
)

POLL_SECONDS = 0.1


def main() -> None:
    """Parse the command line and carry it out."""
    parser = argparse.ArgumentParser(prog="coral", description="Submit evals; browse attempts, notes and skills.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for names, function, options in _COMMANDS:
        sub = commands.add_parser(names[0], aliases=names[1:], help=function.__doc__)
        sub.set_defaults(function=function)
        for flags, settings in options:
            sub.add_argument(*flags, **settings)
    arguments = parser.parse_args()
    arguments.function(arguments)


def cmd_eval(arguments: argparse.Namespace) -> None:
    """Stage all changes, commit, and submit them for grading."""
    workdir = Path(arguments.workdir or ".").resolve()
    coral = find_coral(workdir)
    agent = arguments.agent or read_text(workdir / ".coral_agent_id") or "unknown"
    waiting = [attempt for attempt in attempts(coral) if attempt["agent_id"] == agent and is_pending(attempt)]
    if waiting:
        over = any(attempt["commit_hash"] == TURN_OVER for attempt in waiting)
        hint = (
            "This turn has had its eval: stop here." if over else f"Run `coral wait {waiting[0]['commit_hash'][:12]}`."
        )
        fail(f"You already have {len(waiting)} pending attempt(s) (limit: 1). {hint}")
    must_git(workdir, "add", "-A")
    if git(workdir, "diff", "--cached", "--quiet").returncode == 0:
        fail("Nothing to commit — no changes detected.")
    must_git(workdir, "commit", "-m", arguments.message)
    commit = must_git(workdir, "rev-parse", "HEAD")
    parents = must_git(workdir, "log", "--format=%P", "-n", "1", commit).split()
    record = {
        "commit_hash": commit,
        "agent_id": agent,
        "title": arguments.message,
        "score": None,
        "status": "pending",
        "parent_hash": parents[0] if parents else None,
        "timestamp": datetime.now(UTC).isoformat(),
        "feedback": "",
    }
    shared_state = checkpoint(coral, agent, arguments.message)
    if shared_state is not None:
        record["shared_state_hash"] = shared_state
    write_attempt(coral, record)
    if not arguments.wait:
        print(result(record, "CORAL Eval", ""))
        return
    wait_for(coral, commit, arguments.timeout, "CORAL Eval")


def cmd_wait(arguments: argparse.Namespace) -> None:
    """Block until a submitted attempt has been graded."""
    coral = find_coral(Path(arguments.workdir or ".").resolve())
    wait_for(coral, find_attempt(coral, arguments.hash)["commit_hash"], arguments.timeout, "CORAL Wait")


def cmd_log(arguments: argparse.Namespace) -> None:
    """List and search attempts."""
    coral = find_coral(Path.cwd())
    found = [a for a in attempts(coral) if arguments.all or budget_class(a) == "real"]
    found = [a for a in found if a["commit_hash"] != TURN_OVER]
    if arguments.search:
        wanted = arguments.search.lower()
        found = [a for a in found if wanted in f"{a['title']} {a.get('feedback', '')} {a['status']}".lower()]
        heading, nothing = f"Search results for '{arguments.search}':", f"No attempts matching '{arguments.search}'."
    elif arguments.agent:
        found = [a for a in found if a["agent_id"] == arguments.agent]
        heading, nothing = f"Attempts by {arguments.agent}:", f"No attempts by {arguments.agent}."
    elif arguments.recent:
        found.sort(key=lambda a: str(a.get("timestamp")), reverse=True)
        heading, nothing = f"Recent {min(len(found), arguments.count)} attempt(s):", "No attempts yet."
    else:
        found = [a for a in found if a.get("score") is not None]
        found.sort(key=lambda a: a["score"], reverse=grader_setting(coral, "direction") != "minimize")
        heading, nothing = f"Leaderboard (top {min(len(found), arguments.count)}):", "No attempts yet."
    print("\n".join([heading, *table(found[: arguments.count])]) if found else nothing)


def cmd_show(arguments: argparse.Namespace) -> None:
    """Show an attempt, and what its commit changed."""
    coral = find_coral(Path.cwd())
    attempt = find_attempt(coral, arguments.hash)
    score = attempt.get("score")
    for name, value in (
        ("Commit", attempt["commit_hash"]),
        ("Agent", attempt["agent_id"]),
        ("Title", attempt["title"]),
        ("Score", "—" if score is None else score),
        ("Status", attempt["status"]),
        ("Budget", budget_class(attempt)),
        ("Time", attempt.get("timestamp", "—")),
        ("Parent", attempt.get("parent_hash")),
        ("Feedback", attempt.get("feedback")),
    ):
        if value is not None and value != "":
            print(f"{name + ':':<8} {value}")
    done = git(Path.cwd(), "show", *([] if arguments.diff else ["--stat"]), attempt["commit_hash"])
    if done.returncode == 0:
        print(f"\n--- {'Diff' if arguments.diff else 'Summary'} ---\n{done.stdout}")


def cmd_notes(arguments: argparse.Namespace) -> None:
    """List, search or read shared notes."""
    notes = list_notes(find_coral(Path.cwd()) / "public" / "notes")
    if arguments.read is not None and not arguments.read.isdigit():
        print("\n\n---\n\n".join(note["body"] for note in notes))
    elif arguments.read is not None:
        number = int(arguments.read)
        print(notes[number - 1]["body"] if 1 <= number <= len(notes) else f"Note #{number} not found.")
    elif arguments.search:
        wanted = arguments.search.lower()
        found = [note for note in notes if wanted in f"{note['title']} {note['body']}".lower()]
        print(
            "\n".join([f"Notes matching '{arguments.search}':", *listed(found)])
            if found
            else f"No notes matching '{arguments.search}'."
        )
    else:
        shown = notes[-arguments.recent :] if arguments.recent else notes
        heading = f"Recent notes ({len(shown)}):" if arguments.recent else f"Notes ({len(shown)}):"
        print("\n".join([heading, *(listed(shown) or ["No notes yet."])]))


def cmd_skills(arguments: argparse.Namespace) -> None:
    """List shared skills or show one."""
    folder = find_coral(Path.cwd()) / "public" / "skills"
    skills = sorted(path.parent for path in folder.glob("*/SKILL.md"))
    if not arguments.read:
        print(f"Skills ({len(skills)}):")
        for number, skill in enumerate(skills, 1):
            meta, _ = front_matter(read_text(skill / "SKILL.md"))
            about = f" — {meta['description']}" if meta.get("description") else ""
            print(f"  {number}. {meta.get('name', skill.name)}{about}")
        if not skills:
            print("No skills yet.")
        return
    matching = [s for s in skills if s.name == arguments.read] or [
        s for s in skills if s.name.startswith(arguments.read)
    ]
    if len(matching) != 1:
        names = "".join(f"\n  {skill.name}" for skill in matching)
        print(
            f"Ambiguous name '{arguments.read}'. Matches:{names}"
            if matching
            else f"Skill '{arguments.read}' not found."
        )
        return
    print(read_text(matching[0] / "SKILL.md"))
    files = sorted(str(path.relative_to(matching[0])) for path in matching[0].rglob("*") if path.is_file())
    print(f"\nFiles: {', '.join(files)}")


def wait_for(coral: Path, commit: str, timeout: float | None, header: str) -> None:
    """Wait for an attempt's grade and print it; exit code 2 where none comes in time."""
    limit = grader_setting(coral, "timeout")
    seconds = timeout if timeout is not None else max(2 * float(limit) + 60, 300) if limit else 3600
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        attempt = read_attempt(coral / "public" / "attempts" / f"{commit}.json")
        if attempt is not None and not is_pending(attempt):
            print(result(attempt, header, eval_count(coral)))
            return
        time.sleep(POLL_SECONDS)
    problem = f"Attempt {commit[:12]} was not graded within {seconds:.0f}s."
    print(f"\n{RULE}\n{header}: STILL PENDING\n{problem}\nUse `coral wait {commit[:12]}`.\n{RULE}\n", file=sys.stderr)
    sys.exit(2)


_WORKDIR = (("--workdir",), {"help": "working directory (default: the current one)"})
_TIMEOUT = (("--timeout",), {"type": float, "help": "seconds to wait"})
_HASH = (("hash",), {"help": "commit or the beginning of one"})
_COMMANDS: list[tuple[list[str], Any, list[tuple[tuple[str, ...], dict[str, Any]]]]] = [
    (
        ["eval"],
        cmd_eval,
        [
            (("-m", "--message"), {"required": True, "help": "what you changed and why"}),
            (("--agent",), {"help": "agent id (default: from .coral_agent_id)"}),
            (("--wait",), {"action": argparse.BooleanOptionalAction, "default": True, "help": "wait for the score"}),
            _WORKDIR,
            _TIMEOUT,
        ],
    ),
    (["wait"], cmd_wait, [_HASH, _WORKDIR, _TIMEOUT]),
    (
        ["log", "attempts"],
        cmd_log,
        [
            (("-n", "--count"), {"type": int, "default": 20, "help": "number of results"}),
            (("--recent",), {"action": "store_true", "help": "newest first"}),
            (("--agent",), {"help": "of one agent"}),
            (("--search",), {"help": "words to look for"}),
            (("--all",), {"action": "store_true", "help": "also those that do not count"}),
        ],
    ),
    (["show", "attempt"], cmd_show, [_HASH, (("--diff",), {"action": "store_true", "help": "the whole diff"})]),
    (
        ["notes"],
        cmd_notes,
        [
            (("-s", "--search"), {"help": "words to look for"}),
            (("-n", "--recent"), {"type": int, "help": "the last so many"}),
            (("-r", "--read"), {"help": "a note's number, or all"}),
        ],
    ),
    (["skills"], cmd_skills, [(("-r", "--read"), {"help": "a skill's name"})]),
]

if __name__ == "__main__":
    main()
