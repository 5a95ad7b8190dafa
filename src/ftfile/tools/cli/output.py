"""The result of a command: text for people, or JSON for programs."""

import base64
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, TypeVar

import typer

from ftfile.core.remedies import PATH, command_in
from ftfile.tools.cli.terminal import is_terminal, print_table, printable_json, say
from ftfile.tools.report.views import TableColumn

Json = Annotated[bool, typer.Option("--json", help="Print JSON with the field names of the Python function's result.")]
Result = TypeVar("Result")

# Number of items that a terminal shows without `--limit`. A pipe gets all items.
SHOWN = 1_000


@dataclasses.dataclass(frozen=True)
class Output:
    """The option that selects JSON, and the printing of results with and without it."""

    json: Json = False

    def show(self, result: Result, print_text: Callable[[Result], object], *, path: str | None = None) -> None:
        """Print the result of a command.

        Args:
            result: printed as one JSON document with `--json`.
            print_text: prints the result as text.
            path: the directory that commands in the JSON document name.
        """
        if self.json:
            print_document(result, path)
        else:
            print_text(result)

    def show_list(self, items: Sequence[Any], columns: Sequence[TableColumn], limit: int | None, noun: str) -> None:
        """Print the newest items, each as a JSON document on a line or as a row of a table.

        Args:
            items: oldest first; read up to `limit_to_read(limit)`.
            columns: of the table.
            limit: number of items that the user asked for. Without it, a terminal shows `SHOWN` items.
            noun: the plural of an item.
        """
        if self.json:
            for item in items:
                print(printable_json(json.dumps(item, default=_to_plain_items, ensure_ascii=False)))
            return
        is_cut = limit is None and is_terminal() and len(items) > SHOWN
        print_table(columns, items[-SHOWN:] if is_cut else items)
        if is_cut:
            say(f"Only the newest {SHOWN:,} {noun}: --limit sets another number, --json shows all", "dim")

    def limit_to_read(self, limit: int | None) -> int | None:
        """Return the number of items to read: on a terminal one more than it shows, to detect further items."""
        if limit is None and not self.json and is_terminal():
            return SHOWN + 1
        return limit


def print_document(document: object, path: str | None = None) -> None:
    """Print a value as one JSON document; objects with a remedy also contain the command for the path."""

    def to_plain(value: object) -> object:
        encoded = _to_plain_items(value)
        if isinstance(encoded, dict):
            return {**encoded, **_command_for(value, path or PATH)}
        return encoded

    indent = 2 if is_terminal() else None
    print(printable_json(json.dumps(document, default=to_plain, ensure_ascii=False, indent=indent)))


def _command_for(value: object, path: str) -> dict[str, object]:
    """Return fields to add to the JSON of an object: the command that helps, and values of properties."""
    from ftfile.operate.findings import CheckReport, Finding
    from ftfile.operate.open_files import OpenFile
    from ftfile.operate.status import UnpublishedFile

    if isinstance(value, Finding):
        return {"title": value.title, "command": value.command(path)}
    if isinstance(value, CheckReport):
        return {"ok": value.ok, "verdict": value.verdict, "command": command_in(value.verdict, path)}
    if isinstance(value, OpenFile):
        return {"command": command_in(value.waiting, path)}
    if isinstance(value, UnpublishedFile):
        return {"command": command_in(value.problem, path)}
    return {}


def _to_plain_items(value: object) -> object:
    """Return a value with JSON types."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        document = {}
        for field in dataclasses.fields(value):
            if field.repr:
                document[field.name] = getattr(value, field.name)
        return document
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value) if isinstance(value, Decimal) else repr(value)
