"""The output of commands: results on stdout, tables too; announcements, questions, progress and errors on stderr.

Tables are as wide as the terminal, and in a pipe plain text with tabs between, whole and without colours.
"""

import base64
import contextlib
import dataclasses
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import islice
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

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
from ftfile.core.remedies import PATH, in_commands
from ftfile.core.units import bytes_text, duration_text
from ftfile.tools.report.views import ALWAYS, Column, View, used_columns

if TYPE_CHECKING:
    from rich.console import Console


_GAP = 2  # between columns
_FOLDED = 24  # cells at least for a column that is folded into several lines
_RATHER_FOLDED = 3
# Control characters; those that turn the order of letters, end lines or have no width; and what UTF-8 cannot say.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
# Rows of which a table is laid out together.
ROWS_AT_ONCE = 1_000


def printable(text: str, keeps: str = "") -> str:
    """Return a text with escapes in place of what a terminal would obey or hide, but for characters that it `keeps`."""
    return _CONTROL.sub(lambda match: match[0] if match[0] in keeps else repr(match[0])[1:-1], text)


def printable_json(text: str) -> str:
    """Return a JSON text that means the same, also to those who see it on a terminal."""
    return _CONTROL.sub(lambda match: match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}", text)


def is_terminal() -> bool:
    """Return True if the output goes to a terminal."""
    return sys.stdout.isatty()


def console(*, stderr: bool = False) -> "Console":
    """Return a console of rich, as wide as the terminal is now."""
    from rich.console import Console

    return Console(stderr=stderr, width=shutil.get_terminal_size().columns, highlight=False, markup=False, emoji=False)


def print_table(columns: Sequence[Column], items: Iterable[Any], *, with_heading: bool = True) -> None:
    """Print items as rows; on a terminal, without columns that have no value and may be left out."""
    if not is_terminal():
        _print_plain(columns, items, with_heading=with_heading)
        return
    rest = iter(items)
    while (rows := [*islice(rest, ROWS_AT_ONCE)]) or with_heading:
        _print_laid_out(columns, rows, with_heading=with_heading)
        with_heading = False


def _print_plain(columns: Sequence[Column], items: Iterable[Any], *, with_heading: bool) -> None:
    if with_heading:
        print("\t".join(printable(column.name) for column in columns))
    for item in items:
        values = [(column, column.value(item)) for column in columns]
        print("\t".join("" if value is None else printable(column.kind.in_pipe(value)) for column, value in values))


def _print_laid_out(columns: Sequence[Column], items: Sequence[Any], *, with_heading: bool) -> None:
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    screen = console()
    columns = used_columns(columns, items)
    texts = [[printable(column.text(item)) for item in items] for column in columns]
    widths = [
        max(map(cell_len, [printable(column.name), *column_texts]), default=0)
        for column, column_texts in zip(columns, texts, strict=True)
    ]
    chosen, left_out = chosen_columns(columns, widths, screen.width)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), show_header=with_heading, header_style="bold")
    for number in chosen:
        column = columns[number]
        justify: Literal["left", "right"] = "right" if column.kind.is_number else "left"
        table.add_column(Text(printable(column.name)), justify=justify, overflow="fold", no_wrap=not column.folds)
    for row in range(len(items)):
        cells = []
        for number in chosen:
            style = columns[number].style
            cells.append(Text(texts[number][row], style(columns[number].value(items[row])) if style else ""))
        table.add_row(*cells)
    screen.print(table)
    if left_out and with_heading:
        names = ", ".join(printable(columns[number].name) for number in left_out)
        console(stderr=True).print(f"Not shown in {screen.width} columns: {names}. See --json.", style="dim")


def chosen_columns(columns: Sequence[Column], widths: Sequence[int], width: int) -> tuple[list[int], list[int]]:
    """Return the numbers of the columns that a width has room for, and of the others."""
    chosen, left_out = [*range(len(columns))], list[int]()

    def needed(keep: int) -> int:
        # Rather than folding others, columns go that matter little.
        folded = [columns[number].folds and keep > _RATHER_FOLDED for number in chosen]
        least = [
            min(widths[number], _FOLDED) if folds else widths[number]
            for number, folds in zip(chosen, folded, strict=True)
        ]
        total: int = sum(least) + _GAP * (len(chosen) - 1)
        return total

    for number in sorted(chosen, key=lambda number: (columns[number].keep, -number)):
        keep = columns[number].keep
        if keep == ALWAYS or (keep > _RATHER_FOLDED and needed(keep) <= width):
            break
        if needed(keep) > width:
            chosen.remove(number)
            left_out.append(number)
    return chosen, sorted(left_out)


# Items on a terminal; a pipe gets all.
SHOWN = 1_000


def limit_to_read(limit: int | None, *, json: bool) -> int | None:
    """Return how many of the newest are asked for: one more than are shown tells if there are others."""
    return SHOWN + 1 if limit is None and not json and is_terminal() else limit


def shown(items: Sequence[Any], limit: int | None) -> Sequence[Any]:
    """Return the items that are printed: the newest ones on a terminal without a limit."""
    return items[-SHOWN:] if limit is None and is_terminal() else items


def say_truncated(items: Sequence[Any], limit: int | None, noun: str) -> None:
    """Say that there are more items than are shown, if there are."""
    if limit is None and is_terminal() and len(items) > SHOWN:
        say(f"Only the newest {SHOWN:,} {noun}: --limit sets another number, --json shows all", "dim")


# The job, query or batch that a line of the log is about; of a command, there is one.
_CONTEXT = re.compile(r"^\[(?:job|query|batch) [^\]]*\] ")


class WarningPrinter(logging.Handler):
    """Prints warnings that are logged on stderr, each in one line, and the same one once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print a line; also above a progress bar, which takes the place of stderr."""
        text = " ".join(_CONTEXT.sub("", record.getMessage()).splitlines())
        if text in self._printed:
            return
        self._printed.add(text)
        with contextlib.suppress(OSError, ValueError):
            put(f"ftfile: {record.levelname.lower()}: {printable(text)}", stderr=True)


def put(text: str, *, stderr: bool = False) -> None:
    """Print lines, on stdout or stderr. Whatever comes from storage may be in them: a terminal obeys none of it."""
    print(printable(text, "\n\t"), file=sys.stderr if stderr else sys.stdout, flush=stderr)


def say(text: str, style: str = "") -> None:
    """Print a line on stderr, for people."""
    if sys.stderr.isatty():
        console(stderr=True).print(printable(text, "\n"), style=style, soft_wrap=True)
    else:
        put(text, stderr=True)


def heading(text: str, style: str = "bold") -> None:
    """Print the heading of what follows."""
    if is_terminal():
        console().print(f"\n{printable(text)}", style=style)
    else:
        put(f"\n{text}")


def print_view(view: View) -> None:
    """Print a view with its title."""
    heading(view.title)
    print_table(view.columns, view.items)


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print names with values, one a line; those without a value are left out."""
    shown = [(printable(name), printable(str(value), "\n")) for name, value in fields if value not in (None, "")]
    if not is_terminal():
        for name, value in shown:
            put(f"{name}\t{value}")
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for name, value in shown:
        table.add_row(name, Text(value))
    console().print(table)


def print_json(document: object, more: Callable[[object], Mapping[str, object]] = lambda _: {}) -> None:
    """Print one document; `more` returns fields for a value of a class, beside its own."""

    def plain(value: object) -> object:
        encoded = _plain(value)
        return {**encoded, **more(value)} if isinstance(encoded, dict) else encoded

    print(printable_json(json.dumps(document, default=plain, ensure_ascii=False, indent=2 if is_terminal() else None)))


def print_json_lines(items: Iterable[object]) -> None:
    """Print one document a line."""
    for item in items:
        print(printable_json(json.dumps(item, default=_plain, ensure_ascii=False)))


def write_bytes(data: bytes | memoryview) -> None:
    """Write UTF-8, or other bytes, to stdout, through the text stream where that has no bytes below it."""
    below = getattr(sys.stdout, "buffer", None)
    if below is None:
        sys.stdout.write(bytes(data).decode(errors="backslashreplace"))
        return
    sys.stdout.flush()
    below.write(data)


def agree(question: str, *, yes: bool) -> None:
    """Return if a person agrees that data may be lost, or has said so by `--yes`; else end the command."""
    if yes:
        return
    if not is_watched():
        say("ftfile: this needs a confirmation, and stdin is not a terminal: give --yes. Nothing was changed")
        raise typer.Exit(USAGE)
    try:
        if typer.confirm(printable(question, "\n"), err=True):
            return
    except typer.Abort:
        raise KeyboardInterrupt from None
    say("Nothing was changed")
    raise typer.Exit(USAGE)


def is_watched() -> bool:
    """Return True if somebody can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _plain(value: object) -> object:
    """Return a value as plain JSON."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.repr}
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value) if isinstance(value, Decimal) else repr(value)


OnProgress: TypeAlias = "Callable[[Any], object] | None"


@contextlib.contextmanager
def progress_bar(what: str) -> Iterator[OnProgress]:
    """Give the function that an operation calls with its progress; None where nobody looks."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn

    operation, far = (TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[far]}"))
    with Progress(operation, BarColumn(bar_width=None), far, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(printable(what), total=None, far="")

        def show(now: Any) -> None:  # noqa: ANN401 - a Progress of any operation
            remaining = "" if now.left_s is None else f", {duration_text(now.left_s)} left"
            size = f", {bytes_text(now.done_bytes)} of {bytes_text(now.total_bytes)}" if now.total_bytes else ""
            far = f"{now.done:,} of {now.total:,} {now.unit}{size}{remaining}"
            done, total = (now.done_bytes, now.total_bytes) if now.total_bytes else (now.done, now.total)
            bar.update(task, description=now.operation, total=max(total, 1), completed=done, far=far)

        yield show


def waiting(what: str) -> contextlib.AbstractContextManager[object]:
    """Show that something goes on which cannot tell how far it is."""
    if not sys.stderr.isatty():
        return contextlib.nullcontext()
    from rich.text import Text

    return console(stderr=True).status(Text(f"{printable(what)} …"))


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
_HINTS = {
    "is a store of keys and values": ". The commands for stores begin with `ftfile kv`",
    "not a store of keys and values": ". The commands for directories of files are those without `kv`",
}


class Commands(TyperGroup):
    """Commands whose errors become messages and exit codes."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - of typer
        """Run a command, and raise `typer.Exit` with a code where it fails."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except KeyboardInterrupt:
            _print_error("interrupted. Recorded changes are kept, and nothing else was changed")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # Python would flush what is left at its end, and complain.
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(CLOSED) from None
        except (FtfileError, TypeError) as error:
            # Of an argument of another type than a function takes, `core.arguments` says so.
            if isinstance(error, TypeError) and ": it takes " not in str(error):
                raise
            _print_error(_text_of(error, ctx.meta.get(PATH, PATH), ctx.invoked_subcommand))
            raise typer.Exit(code_of(error)) from None
        return result


def code_of(error: Exception) -> int:
    """Return the exit code of an error that ftfile raises."""
    return next(code for kinds, code in _CODES if isinstance(error, kinds))


def _text_of(error: Exception, path: str, command: str | None) -> str:
    if command == "source":
        path = PATH  # of files that others write, and not of what is damaged
    text = str(error)
    hints = [hint for words, hint in _HINTS.items() if words in text]
    has_log = path != PATH and command != "migrate"
    if isinstance(error, CorruptData) and has_log and "`ftfile" not in in_commands(text):
        hints.append(f". `ftfile repair {quote(path)} --dry-run` finds all damage and changes nothing")
    return "".join([in_commands(text, path), *hints])


def _print_error(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print("ftfile:", printable(text, "\n"), file=sys.stderr)
