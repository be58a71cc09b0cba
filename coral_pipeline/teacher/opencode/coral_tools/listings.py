"""How attempts and notes are shown, in CORAL's own forms."""

from __future__ import annotations

from typing import Any

from .shared_state import budget_class, is_pending

RULE = "=" * 50


def result(attempt: dict[str, Any], header: str, count: str) -> str:
    """How an attempt ended, the ``count``-th of all (empty: not known), as it is printed."""
    score = "PENDING" if is_pending(attempt) else "FAILED" if attempt["score"] is None else f"{attempt['score']:.10f}"
    status = attempt["status"]
    if budget_class(attempt) != "real":
        status += f"  (budget: {budget_class(attempt)})"
    lines = [f"{header}{f' (#{count})' if count else ''}: {score}", f"Commit:  {attempt['commit_hash'][:12]}"]
    lines.append(f"Status:  {status}")
    if attempt.get("feedback"):
        lines.append(f"Feedback: {attempt['feedback']}")
    if is_pending(attempt):
        lines.append(f"Tip: run `coral wait {attempt['commit_hash'][:12]}` to block on the result.")
    return "\n" + "\n".join([RULE, *lines, RULE]) + "\n"


def table(found: list[dict[str, Any]]) -> list[str]:
    """Attempts as a Markdown table, the form in which CORAL lists them."""
    rows = [("Rank", "Score", "Agent", "Class", "Title", "Time", "Commit")]
    for rank, attempt in enumerate(found, 1):
        score = "—" if attempt.get("score") is None else f"{attempt['score']:.10f}"
        kind = budget_class(attempt).replace("grader_", "")
        when = str(attempt.get("timestamp", ""))[5:19].replace("T", " ")
        short = str(attempt["title"])[:40].replace("\n", " ")
        rows.append((str(rank), score, attempt["agent_id"], kind, short, when, attempt["commit_hash"][:8]))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]


def listed(notes: list[dict[str, str]]) -> list[str]:
    """One line per note."""
    lines = []
    for number, note in enumerate(notes, 1):
        date = f"[{note['date']}] " if note["date"] else ""
        creator = f" ({note['creator']})" if note["creator"] else ""
        lines.append(f"  {number}. {date}{note['title']}{creator}")
    return lines
