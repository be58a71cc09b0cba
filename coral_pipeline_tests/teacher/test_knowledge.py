"""Which tool calls read or write shared knowledge (method T8)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coral_pipeline.teacher.knowledge import READ, WRITE, Touch, touch_of_call, touch_of_command

NOTHING = Touch()
BOTH = READ | WRITE


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        # CORAL commands that show knowledge
        ("coral log", READ),
        ("coral log --recent -n 5", READ),
        ("coral show abc123 --diff", READ),
        ("coral notes --read 3", READ),
        ("coral skills", READ),
        ("cd /coral/agents/agent-1 && coral log | head -20", READ),
        ("env FOO=1 timeout 60 coral attempts", READ),
        ("X=1 coral status", READ),
        ("echo $(coral notes)", READ),
        ('echo "best: `coral log -n 1`"', READ),
        ("bash -c 'coral log'", READ),
        ("coral heartbeat", READ),
        ("coral heartbeat set reflect --every 3", WRITE),
        # CORAL commands that are no knowledge action by themselves
        ('coral eval -m "see .opencode/notes/a.md"', NOTHING),
        ("coral eval -m 'wrote notes' && coral wait abc", NOTHING),
        ("coral diff; coral revert; coral checkout abc", NOTHING),
        # files
        ("cat .opencode/notes/*.md 2>/dev/null | tail -5", READ),
        ("ls -la /coral/.coral/public/attempts", READ),
        ("cd .opencode/notes && ls", READ),
        ("cd .coral && cat public/roles/agent-1.md", READ),
        ("python3 -c \"print(open('.opencode/notes/a.md').read())\"", READ),
        ("python .opencode/skills/tune/run.py", READ),
        ("grep -rn gamma .opencode/notes/", READ),
        ("wc -l < .opencode/notes/a.md", READ),
        ("cp .opencode/skills/x/run.py .", READ),
        ("echo done >> .opencode/notes/log.md", WRITE),
        ("cat > .opencode/notes/a.md << 'EOF'\n# a\nX=2 tried\nEOF", WRITE),
        ("cd .opencode/notes && cat > a.md <<EOF\nx\nEOF", WRITE),
        ("mkdir -p .opencode/skills/tune && cp run.py .opencode/skills/tune/", WRITE),
        ("sed -i 's/a/b/' .opencode/notes/a.md", WRITE),
        ("printf x | tee -a /coral/.coral/public/notes/a.md", WRITE),
        ("mv .opencode/notes/a.md .opencode/notes/b.md", WRITE),
        ("rm .opencode/notes/a.md", WRITE),
        ("python3 - <<'EOF'\nopen('.opencode/notes/a.md', 'w').write('x')\nEOF", WRITE),
        ("coral log && echo x > .opencode/notes/a.md", BOTH),
        ("cp .opencode/notes/a.md .opencode/notes/b.md", BOTH),
        # neither
        ("sed -i 's/^X = .*/X = 2/' params.py && python params.py", NOTHING),
        ("cat > solve.py << 'EOF'\n# reads .opencode/notes/a.md\nEOF", NOTHING),
        ("cat public/notes/index.html", NOTHING),
        ("ls .opencode && cat notes.md", NOTHING),
        ("echo .opencode/notes/a.md", NOTHING),
        ("git commit -m 'add .opencode/notes/a.md'", NOTHING),
        ("./coral.sh log", NOTHING),
        ("", NOTHING),
    ],
)
def test_shell_commands(command: str, expected: Touch) -> None:
    assert touch_of_command(command) == expected


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("read", {"filePath": "/coral/agents/agent-1/.opencode/notes/a.md"}, READ),
        ("read", {"filePath": "/coral/.coral/public/attempts/abc.json"}, READ),
        ("read", {"filePath": "/coral/agents/agent-1/notes/a.md"}, NOTHING),
        ("grep", {"pattern": "gamma", "path": ".opencode/skills"}, READ),
        ("grep", {"pattern": ".opencode/notes/a"}, NOTHING),
        ("glob", {"pattern": "notes/*.md", "path": "/coral/.coral/public"}, READ),
        ("glob", {"pattern": "**/*.py"}, NOTHING),
        ("write", {"filePath": ".opencode/notes/a.md", "content": "x"}, WRITE),
        ("write", {"filePath": "solve.py", "content": "open('.opencode/notes/a.md')"}, NOTHING),
        ("edit", {"filePath": ".coral/public/roles/agent-1.md", "oldString": "a", "newString": "b"}, WRITE),
        ("apply_patch", {"patchText": "*** Update File: .opencode/notes/a.md\n"}, WRITE),
        ("bash", {"command": "cat a.md", "workdir": "/coral/.coral/public/notes"}, READ),
        ("invalid", {"tool": "read", "error": ".opencode/notes"}, NOTHING),
        ("read", {}, NOTHING),
    ],
)
def test_tool_calls(tool: str, arguments: dict[str, Any], expected: Touch) -> None:
    assert touch_of_call(tool, arguments) == expected


SHELL_PIECES = [*"ab /.;|&<>'\"$()`{}\n\\-=", "coral ", "cat ", ".opencode/notes/x", "<<EOF\n", "\nEOF"]


@given(st.lists(st.sampled_from(SHELL_PIECES)).map("".join))
def test_any_text_at_all_is_judged(command: str) -> None:
    assert isinstance(touch_of_command(command), Touch)
