"""The output of commands: fields, headings and JSON on stdout; announcements and questions on stderr."""

import base64
import contextlib
import dataclasses
import json
import logging
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal

import typer

from ftfile.cli.display.tables import console, is_terminal
from ftfile.cli.exit_codes import USAGE

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
            print(f"ftfile: {record.levelname.lower()}: {text}", file=sys.stderr, flush=True)


def say(text: str, style: str = "") -> None:
    """Print a line on stderr, for people."""
    if sys.stderr.isatty():
        console(stderr=True).print(text, style=style, soft_wrap=True)
    else:
        print(text, file=sys.stderr, flush=True)


def heading(text: str, style: str = "bold") -> None:
    """Print the heading of what follows."""
    if is_terminal():
        console().print(f"\n{text}", style=style)
    else:
        print(f"\n{text}")


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print names with values, one a line; those without a value are left out."""
    shown = [(name, str(value)) for name, value in fields if value not in (None, "")]
    if not is_terminal():
        for name, value in shown:
            print(f"{name}\t{value}")
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
        found = _plain(value)
        return {**found, **more(value)} if isinstance(found, dict) else found

    print(json.dumps(document, default=plain, ensure_ascii=False, indent=2 if is_terminal() else None))


def print_json_lines(items: Iterable[object]) -> None:
    """Print one document a line."""
    for item in items:
        print(json.dumps(item, default=_plain, ensure_ascii=False))


def write_utf8(data: bytes) -> None:
    """Write UTF-8 to stdout, through the text stream where that has no bytes below it."""
    below = getattr(sys.stdout, "buffer", None)
    if below is None:
        sys.stdout.write(bytes(data).decode())
        return
    sys.stdout.flush()
    below.write(data)


def agree(question: str, *, yes: bool) -> None:
    """Return if a person agrees that data may be lost, or has said so by `--yes`; else end the command."""
    if yes:
        return
    if not is_watched():
        say("ftfile: nobody is there to be asked: give --yes. Nothing was changed")
        raise typer.Exit(USAGE)
    try:
        if typer.confirm(question, err=True):
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
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value) if each.repr}
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value) if isinstance(value, Decimal) else repr(value)
