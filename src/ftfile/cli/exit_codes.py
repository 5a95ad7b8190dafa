"""Exit codes, and the group of commands that ends with them: a message on stderr, and no traceback for a user."""

import contextlib
import os
import re
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from ftfile.core.errors import (
    CommitError,
    ConfigError,
    CorruptData,
    EncodingError,
    FtfileError,
    SchemaError,
    SourceError,
    StorageError,
    UserCodeError,
)

FOUND = 1  # a check found something wrong
USAGE = 2  # the command, its options, the path or a condition is wrong
STORE = 3  # the store failed, is away, or refuses
DAMAGED = 4  # the log or data is not what was committed
CONFLICT = 5  # the operation was refused, or could not be done for all
INTERRUPTED = 130  # by Ctrl-C
CLOSED = 141  # the reader of the output has gone, as `head` does

_CODES = (
    ((ConfigError, SchemaError, UserCodeError, TypeError), USAGE),
    (StorageError, STORE),
    ((CorruptData, EncodingError), DAMAGED),
    ((CommitError, SourceError, FtfileError), CONFLICT),
)
# Arguments of Python in messages, and what does the same here.
_WORDS = {
    "Set force=True": "Add --force",
    "such as version=7, or a timestamp": "such as --version 7, or a --timestamp",
    "readStream.option('checkpointLocation', '/data/checkpoint')": "--checkpoint /data/checkpoint",
    "readStream.option('stateLocation', '/data/state')": "--option stateLocation=/data/state",
    "merge its runs with ftfile.kv.compact": "merge its runs with `ftfile kv compact`",
    "merge its files with ftfile.compact": "merge its files with `ftfile compact`",
    "; without the last it only tells what it would do": "; with --dry-run it only tells what it would do",
}
_CALL = re.compile(r"`?ftfile\.(flush|migrate|repair|vacuum)\(path((?:, \w+=(?:\[[^]]*\]|\w+))*)\)`?")
_ARGUMENT = re.compile(r", (\w+)=(?:\['?(.*?)'?\]|\w+)")
_HINTS = {
    "is a store of keys and values": ". The commands for stores begin with `ftfile kv`",
    "not a store of keys and values": ". The commands for directories of files are those without `kv`",
}


class Commands(TyperGroup):
    """Commands whose errors become messages and exit codes."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - of typer
        """Run a command, and raise `typer.Exit` with a code where it fails."""
        try:
            found = super().invoke(ctx)
            sys.stdout.flush()
        except KeyboardInterrupt:
            _tell("interrupted. What was recorded stays, and nothing else was changed")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # Python would flush what is left at its end, and complain.
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(CLOSED) from None
        except (FtfileError, TypeError) as error:
            if isinstance(error, TypeError) and not _is_of_user(error):
                raise
            _tell(_text_of(error))
            raise typer.Exit(code_of(error)) from None
        return found


def code_of(error: Exception) -> int:
    """Return the exit code of an error that ftfile raises."""
    return next(code for kinds, code in _CODES if isinstance(error, kinds))


def _is_of_user(error: TypeError) -> bool:
    """Return True for an argument of another type than a function takes, as `core.arguments` says it."""
    return ": it takes " in str(error)


def _text_of(error: Exception) -> str:
    text = str(error)
    hints = [hint for words, hint in _HINTS.items() if words in text]
    return "".join([in_commands(text), *hints])


def in_commands(text: str) -> str:
    """Return a text in which calls of Python are commands, and their arguments options."""
    for python, option in _WORDS.items():
        text = text.replace(python, option)
    return _CALL.sub(_command_of, text)


def _command_of(call: re.Match[str]) -> str:
    words = ["ftfile", call[1], "PATH"]
    for name, value in _ARGUMENT.findall(call[2]):
        if name != "dry_run":
            words += [f"--{name.replace('_', '-')}", *([value] if value else [])]
    return f"`{' '.join(words)}`"


def _tell(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(f"ftfile: {text}", file=sys.stderr)
