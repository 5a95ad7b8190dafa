"""Errors of a command as exit codes and messages, and warnings as messages."""

import contextlib
import logging
import os
import re
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from ftfile.core.errors import (
    ConfigError,
    CorruptData,
    EncodingError,
    FtfileError,
    SchemaError,
    StorageError,
    UserCodeError,
)
from ftfile.core.remedies import PATH, Advice, Remedy
from ftfile.tools.cli.terminal import printable, put

FOUND = 1  # a check found an error or a warning
USAGE = 2  # the command, its options, the path or a condition is wrong
STORAGE = 3  # the storage failed, is not available, or refuses access
DAMAGED = 4  # the log or the data differs from the committed content
CONFLICT = 5  # the operation was refused, or is incomplete
INTERRUPTED = 130  # by Ctrl-C
CLOSED = 141  # the process that read the output has ended, such as `head`

_CODES = (
    ((ConfigError, SchemaError, UserCodeError, TypeError), USAGE),
    (StorageError, STORAGE),
    ((CorruptData, EncodingError), DAMAGED),
)


def code_of(error: Exception) -> int:
    """Return the exit code of an error that ftfile raises."""
    for kinds, code in _CODES:
        if isinstance(error, kinds):
            return code
    return CONFLICT


# After Ctrl-C, unless the command knows more.
_KEPT = "Recorded changes are kept, and nothing else was changed"

# The prefix of a log line with its job, query or batch. A command runs only one, so the prefix is removed.
_CONTEXT = re.compile(r"^\[(?:job|query|batch) [^\]]*\] ")


class WarningPrinter(logging.Handler):
    """Prints logged warnings to stderr, each on one line; repeated warnings are printed once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print a line; during a progress bar, which replaces `sys.stderr`, above the bar."""
        text = " ".join(_CONTEXT.sub("", record.getMessage()).splitlines())
        if text in self._printed:
            return
        self._printed.add(text)
        with contextlib.suppress(OSError, ValueError):
            put(f"ftfile: {record.levelname.lower()}: {printable(text)}", stderr=True)


class Commands(TyperGroup):
    """A group of commands that prints errors as messages and exits with a code."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - of typer
        """Run a command; if it fails, raise `typer.Exit` with a code."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except KeyboardInterrupt as interruption:
            _print_error(f"interrupted. {str(interruption) or _KEPT}")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # At its end, Python would flush the remaining output, and print an error.
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(CLOSED) from None
        except FtfileError as error:
            _print_error(_text_of(error, ctx.meta.get(PATH, PATH), ctx.invoked_subcommand))
            raise typer.Exit(code_of(error)) from None
        return result


def _text_of(error: FtfileError, path: str, command: str | None) -> str:
    if command == "source":
        path = PATH  # this command's path contains files of other writers; the error is about another directory
    text = error.in_commands(path)
    has_log = path != PATH and command != "migrate"
    if isinstance(error, CorruptData) and has_log and not error.remedies:
        advice = Advice(". ", Remedy("repair", dry_run=True), " finds all damage and changes nothing")
        return text + advice.in_commands(path)
    return text


def _print_error(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print("ftfile:", printable(text, "\n"), file=sys.stderr)
