"""Did a tool call read or write shared knowledge? (method T8)

Shared knowledge is the notes, skills, attempts, roles and agents of a CORAL run. An agent reaches it by
file tools and shell commands on those folders, or by CORAL commands that show or change them. ``coral
eval`` and ``coral wait`` do not count: every turn has them.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

FOLDERS = r"(?:notes|skills|attempts|roles|agents)"
KNOWLEDGE_PATH = re.compile(rf"(?:^|/)(?:\.opencode|\.coral/public)/{FOLDERS}(?:/|$)")
"""Knowledge as the agent sees it: through the links in its worktree, or in the shared state itself."""
KNOWLEDGE_MENTION = re.compile(rf"(?:\.opencode|\.coral/public)/{FOLDERS}\b")
"""The same inside a program's text."""
FILE_TOOLS = {
    "read": ("filePath",),
    "list": ("path",),
    "grep": ("path", "include"),
    "glob": ("path", "pattern"),
    "write": ("filePath",),
    "edit": ("filePath",),
    "multiedit": ("filePath",),
}
"""OpenCode's file tools and the arguments in which they take a path; a later one lies inside an earlier one."""
READING_TOOLS = frozenset({"read", "list", "grep", "glob"})
PATCH_TOOLS = frozenset({"patch", "apply_patch"})
CORAL_READS = frozenset({"log", "attempts", "show", "attempt", "notes", "skills", "status", "runs", "heartbeat"})
HEARTBEAT_WRITES = frozenset({"set", "remove", "reset"})
WRAPPERS = frozenset({"env", "sudo", "nice", "time", "nohup", "command", "exec", "timeout", "uv", "stdbuf", "xargs"})
SHELLS = frozenset({"sh", "bash", "zsh", "dash"})
INTERPRETERS = re.compile(r"^(?:python[\d.]*|perl|ruby|node)$")
SAYERS = frozenset({"echo", "printf", "coral", "git", "cd", "pushd"})
"""Commands whose arguments are words, not files they open."""
WRITERS = frozenset({"tee", "touch", "mkdir", "rm", "rmdir", "mv", "ln", "truncate", "install", "rsync"})
LISTERS = frozenset({"ls", "tree", "find", "grep", "rg"})
"""Commands that read the folder they stand in when no file is named."""
PROGRAM_WRITES = re.compile(r"""["'][wax]\+?["']|write_text|write_bytes|\.write\(|\.mkdir\(|\.unlink\(|writeFile""")
HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1[^\n]*\n(.*?)^\s*\2[ \t]*$", re.DOTALL | re.MULTILINE)
SUBSTITUTION = re.compile(r"\$\(([^()]*)\)|`([^`]*)`")
SEPARATORS = frozenset({";", "&&", "||", "|", "&", "|&", "(", ")", ";;", "{", "}", "do", "then", "else", "\n"})
REDIRECTIONS = frozenset({">", ">>", ">|", "&>", "&>>"})


@dataclass(frozen=True)
class Touch:
    """What a tool call did to shared knowledge."""

    read: bool = False
    write: bool = False

    def __or__(self, other: Touch) -> Touch:
        """What both did, taken together."""
        return Touch(self.read or other.read, self.write or other.write)


READ, WRITE = Touch(read=True), Touch(write=True)


def touched(calls: Iterable[Touch]) -> Touch:
    """Everything that some calls did, taken together."""
    total = Touch()
    for call in calls:
        total |= call
    return total


def touch_of_call(tool: str, arguments: Mapping[str, Any]) -> Touch:
    """What one call of an OpenCode tool, with these arguments, did to shared knowledge.

    Judged by what the call asked for; a call the runtime refused did nothing and is not for this function.
    """
    if tool == "bash":
        return touch_of_command(str(arguments.get("command") or ""), str(arguments.get("workdir") or ""))
    if tool in PATCH_TOOLS:
        return WRITE if KNOWLEDGE_MENTION.search(str(arguments.get("patchText") or "")) else Touch()
    path = posixpath.join("", *(str(arguments[name]) for name in FILE_TOOLS.get(tool, ()) if arguments.get(name)))
    if not _is_knowledge(path):
        return Touch()
    return READ if tool in READING_TOOLS else WRITE


def touch_of_command(command: str, folder: str = "") -> Touch:
    """What a shell command, run in ``folder``, did to shared knowledge."""
    program, texts = _without_heredocs(command)
    total = Touch()
    for words in _simple_commands(program):
        folder, touch = _touch_of_words(words, texts, folder)
        total |= touch
    for match in SUBSTITUTION.finditer(program):
        total |= touch_of_command(match.group(1) or match.group(2) or "", folder)
    return total


def _is_knowledge(path: str, folder: str = "") -> bool:
    if any(character.isspace() for character in path):
        return False
    return KNOWLEDGE_PATH.search(posixpath.normpath(posixpath.join(folder, path))) is not None


def _without_heredocs(command: str) -> tuple[str, list[str]]:
    """The command with the bodies of its here-documents taken out, and those bodies in order."""
    texts: list[str] = []

    def take(match: re.Match[str]) -> str:
        texts.append(match.group(3))
        first_line = match.group(0).split("\n", 1)[0]
        return re.sub(r"<<-?\s*(['\"]?)\w+\1", "<<HEREDOC", first_line)

    return HEREDOC.sub(take, command), texts


def _simple_commands(program: str) -> Iterator[list[str]]:
    """The simple commands of a shell program, as words; redirections stay among the words."""
    lexer = shlex.shlex(program.replace("\\\n", " "), posix=True, punctuation_chars=";&|()<>\n")
    lexer.whitespace = " \t\r"
    lexer.commenters = ""
    words: list[str] = []
    try:
        for word in lexer:
            if word in SEPARATORS or set(word) <= set(";&|()\n"):
                if words:
                    yield words
                words = []
            else:
                words.append(word)
    except ValueError:
        words = program.split()  # unbalanced quotes: the shell would refuse it too; look at the bare words
    if words:
        yield words


def _touch_of_words(words: list[str], texts: list[str], folder: str) -> tuple[str, Touch]:
    """The folder after a simple command, and what the command did."""
    touch = Touch()
    arguments: list[str] = []
    heredoc = False
    rest = iter(words)
    for word in rest:
        if word in REDIRECTIONS:
            if _is_knowledge(next(rest, ""), folder):
                touch |= WRITE
        elif word == "<<" or word == "<<-":
            next(rest, None)
            heredoc = True
        elif word == "<":
            if _is_knowledge(next(rest, ""), folder):
                touch |= READ
        else:
            arguments.append(word)
    arguments = _unwrapped(arguments)
    if not arguments:
        return folder, touch
    name, arguments = posixpath.basename(arguments[0]), arguments[1:]
    if name in {"cd", "pushd"} and arguments:
        return posixpath.join(folder, arguments[0]), touch
    body = texts.pop(0) if heredoc and texts else ""
    return folder, touch | _touch_of_named(name, arguments, body, folder)


def _unwrapped(words: list[str]) -> list[str]:
    """The words without leading assignments and commands that run another (``env``, ``timeout 60`` …)."""
    wrapped = False
    for index, word in enumerate(words):
        if re.match(r"^\w+=", word):
            continue
        if posixpath.basename(word) in WRAPPERS:
            wrapped = True
            continue
        if wrapped and (word.startswith("-") or re.match(r"^[\d.]+[smhd]?$", word) or word == "run"):
            continue
        return words[index:]
    return []


def _touch_of_named(name: str, arguments: list[str], body: str, folder: str) -> Touch:
    if name == "coral":
        return _touch_of_coral(arguments)
    if name in SHELLS and arguments:
        script = arguments[arguments.index("-c") + 1 :] if "-c" in arguments else []
        return touch_of_command(script[0] if script else body, folder)
    if INTERPRETERS.match(name):
        program = "\n".join([*arguments, body])
        if not KNOWLEDGE_MENTION.search(program) and not any(_is_knowledge(word, folder) for word in arguments):
            return Touch()
        return WRITE if PROGRAM_WRITES.search(program) else READ
    if name in SAYERS:
        return Touch()
    paths = [word.split("=", 1)[-1] for word in arguments if not word.startswith("-") or "=" in word]
    known = [_is_knowledge(path, folder) for path in paths]
    if name == "cp" and any(known):
        return Touch(read=any(known[:-1]), write=known[-1])
    if not any(known):
        return READ if name in LISTERS and not paths and _is_knowledge("", folder) else Touch()
    edits = name == "sed" and any(word.startswith(("-i", "--in-place")) for word in arguments)
    return WRITE if name in WRITERS or edits else READ


def _touch_of_coral(arguments: list[str]) -> Touch:
    words = [word for word in arguments if not word.startswith("-")]
    if not words or words[0] not in CORAL_READS:
        return Touch()
    if words[0] == "heartbeat" and len(words) > 1 and words[1] in HEARTBEAT_WRITES:
        return WRITE
    return READ
