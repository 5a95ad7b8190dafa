"""Tables: on a terminal as wide as it is, in a pipe as plain text with tabs between, whole and without colours."""

import re
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from ftfile.core.units import bytes_text, count_text, duration_text, exact_time, time_text

if TYPE_CHECKING:
    from rich.console import Console


_GAP = 2  # between columns
_FOLDED = 24  # cells at least for a column that is folded into several lines
ALWAYS = 9  # see `Column`
_RATHER_FOLDED = 3
# Control characters; those that turn the order of letters, end lines or have no width; and what UTF-8 cannot say.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
# Rows of which a table is laid out together.
ROWS_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Kind:
    """How values of a column are written: for people, and for programs."""

    on_terminal: Callable[[Any], str]
    in_pipe: Callable[[Any], str] = str
    is_number: bool = False


BYTES = Kind(bytes_text, is_number=True)
COUNT = Kind(count_text, is_number=True)
SECONDS = Kind(duration_text, lambda value: f"{value:.3f}", is_number=True)
TEXT = Kind(str)
TIME = Kind(time_text, exact_time)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Those that `keep` the least are left out first where a terminal is narrow; `ALWAYS` stay. Up to 3, they are also
    left out where others would have to be folded.
    """

    name: str  # its heading
    value: Callable[[Any], Any]  # returns its value in an item; None for nothing
    kind: Kind = TEXT
    keep: int = ALWAYS
    folds: bool = False  # its values go on in the next line where they are too long
    style: Callable[[Any], str] | None = None  # of rich, for a value


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
        print("\t".join(printable(_text(column.kind.in_pipe, column.value(item))) for column in columns))


def _print_laid_out(columns: Sequence[Column], items: Sequence[Any], *, with_heading: bool) -> None:
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    screen = console()
    columns = [
        column for column in columns if column.keep == ALWAYS or any(column.value(item) is not None for item in items)
    ]
    values = [[column.value(item) for item in items] for column in columns]
    texts = [
        [printable(_text(column.kind.on_terminal, value)) for value in column_values]
        for column, column_values in zip(columns, values, strict=True)
    ]
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
            cells.append(Text(texts[number][row], style(values[number][row]) if style else ""))
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


def _text(write: Callable[[Any], str], value: Any) -> str:  # noqa: ANN401 - of any column
    return "" if value is None else write(value)
