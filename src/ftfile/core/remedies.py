"""Messages of Python in the words of the command `ftfile`: calls become commands, and arguments options."""

from __future__ import annotations

import ast
import re
import shlex

from ftfile.core.arguments import CONDITION_TAKEN

__all__ = ("PATH", "command_in", "in_commands")

# In the place of a path that is not known.
PATH = "PATH"
_WORDS = {
    CONDITION_TAKEN["where"]: CONDITION_TAKEN["replaceWhere"],
    "Set force=True": "Add --force",
    "such as version=7, or a timestamp": "such as --version 7, or a --timestamp",
    "readStream.option('checkpointLocation', '/data/checkpoint')": "--checkpoint /data/checkpoint",
    "readStream.option('stateLocation', '/data/state')": "--option stateLocation=/data/state",
    "merge its runs with ftfile.kv.compact": "merge its runs with `ftfile kv compact`",
    "merge its files with ftfile.compact": "merge its files with `ftfile compact`",
    ". Without dry_run=False, it only reports what it would do": ". With --dry-run, it only reports what it would do",
    "paths that verify() names": "paths that `ftfile verify` names",
    "is found with full=True": "is found with --full",
    ", or open it with ftfile.kv.open;": ";",
    "give it as one of sources": "give it by --source PATH",
    "that are given as sources": "that are given by --source",
    "ftfile.source_status(path, stateLocation=…)": f"`ftfile source {PATH} --option stateLocation=…`",
    "ftfile.source_status(path, checkpointLocation=…)": f"`ftfile source {PATH} --checkpoint …`",
    "With dry_run=True the report lists them": "--dry-run lists them",
}
_IN_PYTHON = re.compile(r", in Python [\w.]+(?:\(path\)|=True|=\{[^}]*\}|=)(?:,(?= takes))?")
_OF_COMMAND = re.compile(rf"(`ftfile (?:kv )?\w+) {PATH}\b")
# With which errors begin.
_OPTION = re.compile(
    r"^(checkpoint|columns|commit_every|give_up|keep_last|key_provider|older_than|partition_by|quarantine|retention"
    r"|schema|table|target_bytes|threads|timestamp|to|version|where)(?==|: )"
)
_OPTIONS = {"target_bytes": "target"}
_TEXT = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_VALUE = rf"\[(?:{_TEXT}|[^\]'\"])*\]|\w+"
_ARGUMENT = re.compile(rf", (\w+)=({_VALUE})")
_CALL = re.compile(
    rf"`?ftfile\.(?:open\(path\)\.(history|verify)\(\)"
    rf"|(compact|flush|kv\.compact|kv\.verify|migrate|repair|undo_migration|vacuum|verify)"
    rf"\(path((?:, \w+=(?:{_VALUE}))*)\))`?"
)


def in_commands(text: str, path: str = PATH) -> str:
    """Return a text in which calls of Python are commands for a path, between backticks."""
    for python, option in _WORDS.items():
        text = text.replace(python, option)
    shown = path if path == PATH else shlex.quote(path)
    text = _OF_COMMAND.sub(lambda match: f"{match[1]} {shown}", _IN_PYTHON.sub("", text))
    text = _OPTION.sub(lambda match: f"--{_OPTIONS.get(match[1], match[1]).replace('_', '-')}", text)
    return _CALL.sub(lambda call: f"`{_command_for(call, shown)}`", text)


def command_in(text: str, path: str) -> str | None:
    """Return the command for the first call of Python in a text; None where it has none."""
    call = _CALL.search(text)
    return None if call is None else _command_for(call, shlex.quote(path))


def _command_for(call: re.Match[str], path: str) -> str:
    """Return the command for a call, with a path as a shell has it."""
    name = call[1] or call[2]
    words = ["ftfile", *(["migrate", path, "--undo"] if name == "undo_migration" else [*name.split("."), path])]
    for argument, value in _ARGUMENT.findall(call[3] or ""):
        option = f"--{argument.replace('_', '-')}"
        if value.startswith("["):
            words += [word for text in _texts_of(value) for word in (option, text)]
        elif (argument, value) != ("dry_run", "False"):
            words.append(option)
    return " ".join(words)


def _texts_of(value: str) -> list[str]:
    """Return the texts of a list in Python, quoted for a shell; the word FILE for what stands for any."""
    try:
        return [shlex.quote(text) for text in ast.literal_eval(value)]
    except (SyntaxError, ValueError):
        return ["FILE"]
