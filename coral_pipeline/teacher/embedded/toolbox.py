"""The agent's tools, as OpenCode names them, and the transcript of their use.

The tools really work, on the fork's files. The agent, and hence the transcript, sees the fork at the same
constant paths whatever its folder on this machine: ``Paths`` translates in both directions.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from coral_pipeline.settings import EmbeddedSettings
from coral_pipeline.teacher.knowledge import Touch, touch_of_call
from coral_pipeline.teacher.processes import ProcessFamily
from coral_pipeline.teacher.protocol import ContentPart, Message

CODE = "/coral/agents/teacher"
"""The code folder as the agent sees it."""
SHARED = "/coral/.coral/public"
"""The shared knowledge as the agent sees it; in the code folder, links under ``.opencode`` lead there."""


@dataclass(frozen=True)
class Call:
    """One tool call."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Result:
    """What a tool call came to."""

    output: str
    is_error: bool = False
    """The call itself failed (method T2); a shell command that ran and exited non-zero did not."""
    exit_code: int | None = None
    """Of a shell command; None: it was ended by a signal, or it is none."""


class ToolFailure(Exception):
    """A tool refuses a call; the message is what the agent reads."""


class Paths:
    """Folders of this machine and the constant names the agent knows them by."""

    def __init__(self, names: Mapping[Path, str]) -> None:
        """``names``: for each folder the name it is shown under."""
        pairs = {str(form): name for folder, name in names.items() for form in (folder, folder.resolve())}
        self._shown = dict(sorted(pairs.items(), key=lambda pair: -len(pair[0])))
        self._pattern = re.compile(rf"(?:{'|'.join(map(re.escape, self._shown))})(?![\w-])")

    def show(self, text: str) -> str:
        """The text with folders of this machine under their constant names."""
        return self._pattern.sub(lambda match: self._shown[match.group()], text)


class Toolbox:
    """Tools at work in one fork during one turn."""

    def __init__(
        self,
        code: Path,
        paths: Paths,
        family: ProcessFamily,
        env: Mapping[str, str],
        settings: EmbeddedSettings,
        evaluate: Callable[[str], Result],
        first_call: int,
    ) -> None:
        """``evaluate`` carries out ``coral eval -m MESSAGE``. ``first_call`` numbers this turn's first tool call."""
        self.messages: list[Message] = []
        self.tool_calls = 0
        self.failed_tool_calls = 0
        self.steps = 0
        """Assistant messages."""
        self.knowledge = Touch()
        self._code = code
        self._paths = paths
        self._family = family
        self._env = env
        self._settings = settings
        self._evaluate = evaluate
        self._next_call = first_call

    def prompt(self, text: str, role: Literal["system", "user"] = "user") -> None:
        """Add a message that nobody sampled."""
        self.messages.append(Message(role=role, content=(ContentPart(type="text", text=text),)))

    def step(self, text: str, *calls: Call) -> list[Result]:
        """One assistant message: what the agent says, and the tool calls it makes; returns their results."""
        self.steps += 1
        ids = [f"call_{number:04d}" for number in range(self._next_call, self._next_call + len(calls))]
        self._next_call += len(calls)
        parts = [ContentPart(type="text", text=text)] + [
            ContentPart(type="tool_call", tool_call_id=id, name=call.tool, arguments=json.dumps(dict(call.arguments)))
            for id, call in zip(ids, calls, strict=True)
        ]
        self.messages.append(Message(role="assistant", content=tuple(parts), sampled=True))
        return [self._carry_out(id, call) for id, call in zip(ids, calls, strict=True)]

    def _carry_out(self, id: str, call: Call) -> Result:
        tools: dict[str, Callable[..., Result]] = {
            "read": self._read,
            "glob": self._glob,
            "edit": self._edit,
            "write": self._write,
            "bash": self._bash,
        }
        try:
            result = tools[call.tool](**call.arguments)
        except ToolFailure as failure:
            result = Result(str(failure), is_error=True)
        self.tool_calls += 1
        if result.is_error:
            self.failed_tool_calls += 1
        else:
            self.knowledge |= touch_of_call(call.tool, call.arguments)
        text = result.output.encode(errors="replace").decode()  # file names need not be Unicode
        part = ContentPart(type="tool_result", tool_call_id=id, name=call.tool, text=text, is_error=result.is_error)
        self.messages.append(Message(role="tool", content=(part,)))
        return result

    def _real(self, shown: str) -> Path:
        """The file of this machine that the agent knows as ``shown``."""
        if not shown.startswith(CODE + "/"):
            raise ToolFailure(f"File not found: {shown}")
        return self._code / posixpath.relpath(shown, CODE)

    def _text(self, shown: str) -> str:
        try:
            return self._real(shown).read_bytes().decode()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise ToolFailure(f"File not found: {shown}") from None
        except UnicodeDecodeError:
            raise ToolFailure(f"Cannot read binary file: {shown}") from None

    def _cut(self, text: str) -> str:
        limit = self._settings.output_characters
        return text if len(text) <= limit else f"{text[:limit]}\n\n(Output truncated after {limit} characters)"

    def _read(self, filePath: str) -> Result:
        lines = self._text(filePath).splitlines()
        numbered = self._cut("\n".join(f"{number}: {line}" for number, line in enumerate(lines, 1)))
        end = f"(End of file - total {len(lines)} lines)"
        head = f"<path>{filePath}</path>\n<type>file</type>\n<content>\n"
        return Result(f"{head}{numbered}\n\n{end}\n</content>")

    def _glob(self, pattern: str, path: str) -> Result:
        folder = self._real(path)
        found = sorted(f"{path}/{file.relative_to(folder).as_posix()}" for file in folder.glob(pattern))
        return Result(self._cut("\n".join(found)) or "No files found")

    def _edit(self, filePath: str, oldString: str, newString: str) -> Result:
        text = self._text(filePath)
        count = text.count(oldString)
        if count == 0:
            raise ToolFailure(
                "Could not find oldString in the file. It must match exactly, including whitespace, indentation, and "
                "line endings."
            )
        if count > 1:
            raise ToolFailure(
                "Found multiple matches for oldString. Provide more surrounding context to make the match unique."
            )
        self._real(filePath).write_bytes(text.replace(oldString, newString).encode())
        return Result("Edit applied successfully.")

    def _write(self, filePath: str, content: str) -> Result:
        file = self._real(filePath)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode())
        return Result("Wrote file successfully.")

    def _bash(self, command: str, description: str) -> Result:
        words = shlex.split(command) if command.startswith("coral eval ") else []
        if words[:3] == ["coral", "eval", "-m"] and len(words) == 4:
            return self._evaluate(words[3])
        limit = self._settings.load_seconds
        done = self._family.run(
            ["/bin/sh", "-c", command],
            cwd=self._code,
            env=self._env,
            timeout=limit,
            output_limit=4 * self._settings.output_characters,
        )
        output = self._cut(self._paths.show(done.text)) or "(no output)"
        if done.timed_out:
            output += (
                "\n\n<shell_metadata>\nshell tool terminated command after exceeding timeout "
                f"{limit * 1000:.0f} ms.\n</shell_metadata>"
            )
        return Result(output, exit_code=done.returncode if done.returncode >= 0 else None)
