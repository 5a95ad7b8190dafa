"""Text on a terminal and in a pipe.

Results go to stdout. Announcements, questions, progress and errors go to stderr. A table is as wide as the terminal. In
a pipe, it is complete plain text, with tabs between the columns and without colours.
"""

import contextlib
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ftfile.core.units import bytes_text, duration_text
from ftfile.tools.report.views import ALWAYS, TableColumn, TableView, used_columns

if TYPE_CHECKING:
    from rich.console import Console


_GAP = 2  # between columns
_FOLDED = 24  # least width in cells of a column that is folded into several lines
_RATHER_FOLDED = 3
# Control characters, characters that change the direction, end lines or have no width, and surrogates.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
# Number of rows of a table that share the widths of columns.
ROWS_AT_ONCE = 1_000


def printable(text: str, keeps: str = "") -> str:
    """Escape characters that a terminal would execute or hide, except for the characters in `keeps`."""

    def escaped(match: re.Match[str]) -> str:
        if match[0] in keeps:
            return match[0]
        return repr(match[0])[1:-1]

    return _CONTROL.sub(escaped, text)


def printable_json(text: str) -> str:
    """Return an equal JSON text in which no character controls a terminal or is invisible."""

    def escaped(match: re.Match[str]) -> str:
        if match[0] == "\n":
            return match[0]
        return f"\\u{ord(match[0]):04x}"

    return _CONTROL.sub(escaped, text)


def is_terminal() -> bool:
    """Return True if the output goes to a terminal."""
    return sys.stdout.isatty()


def console(*, stderr: bool = False) -> "Console":
    """Return a console of rich with the current width of the terminal."""
    from rich.console import Console

    return Console(stderr=stderr, width=shutil.get_terminal_size().columns, highlight=False, markup=False, emoji=False)


def print_table(columns: Sequence[TableColumn], items: Iterable[Any], *, with_heading: bool = True) -> None:
    """Print items as rows; on a terminal, optional columns without values are left out."""
    if not is_terminal():
        _print_plain(columns, items, with_heading=with_heading)
        return
    rest = iter(items)
    while (rows := [*islice(rest, ROWS_AT_ONCE)]) or with_heading:
        _print_laid_out(columns, rows, with_heading=with_heading)
        with_heading = False


def _print_plain(columns: Sequence[TableColumn], items: Iterable[Any], *, with_heading: bool) -> None:
    if with_heading:
        print("\t".join(printable(column.name) for column in columns))
    for item in items:
        print("\t".join(_plain_text(column, item) for column in columns))


def _plain_text(column: TableColumn, item: Any) -> str:  # noqa: ANN401 - of any table
    """Return the value of an item as text in a pipe."""
    value = column.value_of(item)
    if value is None:
        return ""
    return printable(column.kind.in_pipe(value))


def _print_laid_out(columns: Sequence[TableColumn], items: Sequence[Any], *, with_heading: bool) -> None:
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    screen = console()
    columns = used_columns(columns, items)
    texts: list[list[str]] = []
    widths: list[int] = []
    for column in columns:
        column_texts = [printable(column.text(item)) for item in items]
        texts.append(column_texts)
        widths.append(max(map(cell_len, [printable(column.name), *column_texts])))
    chosen, left_out = chosen_columns(columns, widths, screen.width)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), show_header=with_heading, header_style="bold")
    for number in chosen:
        column = columns[number]
        justify: Literal["left", "right"] = "right" if column.kind.is_number else "left"
        table.add_column(Text(printable(column.name)), justify=justify, overflow="fold", no_wrap=not column.folds)
    for row, item in enumerate(items):
        cells = []
        for number in chosen:
            cells.append(Text(texts[number][row], _style_of(columns[number], item)))
        table.add_row(*cells)
    screen.print(table)
    if left_out and with_heading:
        names = ", ".join(printable(columns[number].name) for number in left_out)
        console(stderr=True).print(f"Not shown in {screen.width} columns: {names}. See --json.", style="dim")


def _style_of(column: TableColumn, item: Any) -> str:  # noqa: ANN401 - of any table
    if column.style is None:
        return ""
    return column.style(column.value_of(item))


def chosen_columns(columns: Sequence[TableColumn], widths: Sequence[int], width: int) -> tuple[list[int], list[int]]:
    """Return the numbers of the columns that fit into a width, and of the other columns."""
    chosen, left_out = [*range(len(columns))], list[int]()

    def measure_width(keep: int) -> int:
        # Less important columns are left out before any other column is folded.
        total = _GAP * (len(chosen) - 1)
        for number in chosen:
            if columns[number].folds and keep > _RATHER_FOLDED:
                total += min(widths[number], _FOLDED)
            else:
                total += widths[number]
        return total

    def importance(number: int) -> tuple[int, int]:
        return columns[number].keep, -number

    for number in sorted(chosen, key=importance):
        keep = columns[number].keep
        if keep == ALWAYS or (keep > _RATHER_FOLDED and measure_width(keep) <= width):
            break
        if measure_width(keep) > width:
            chosen.remove(number)
            left_out.append(number)
    return chosen, sorted(left_out)


def put(text: str, *, stderr: bool = False) -> None:
    """Print lines to stdout or stderr, with escapes, because texts from storage can contain control characters."""
    print(printable(text, "\n\t"), file=sys.stderr if stderr else sys.stdout, flush=stderr)


def say(text: str, style: str = "") -> None:
    """Print a line to stderr, for people."""
    if sys.stderr.isatty():
        console(stderr=True).print(printable(text, "\n"), style=style, soft_wrap=True)
    else:
        put(text, stderr=True)


def heading(text: str, style: str = "bold") -> None:
    """Print the heading of the next output."""
    if is_terminal():
        console().print(f"\n{printable(text)}", style=style)
    else:
        put(f"\n{text}")


def print_view(view: TableView) -> None:
    """Print a view with its title."""
    heading(view.title)
    print_table(view.columns, view.items)


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print names with values, one per line; names without a value are left out."""
    shown = []
    for name, value in fields:
        if value not in (None, ""):
            shown.append((printable(name), printable(str(value), "\n")))
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


def write_bytes(data: bytes | memoryview) -> None:
    """Write UTF-8 or other bytes to stdout; if stdout has no binary buffer, as text."""
    below = getattr(sys.stdout, "buffer", None)
    if below is None:
        sys.stdout.write(bytes(data).decode(errors="backslashreplace"))
        return
    sys.stdout.flush()
    below.write(data)


OnProgress: TypeAlias = "Callable[[Any], object] | None"


@contextlib.contextmanager
def progress_bar(what: str) -> Iterator[OnProgress]:
    """Yield the function that an operation calls with its progress; None if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn

    operation = TextColumn("{task.description}", markup=False)
    far = TextColumn("{task.fields[far]}", markup=False)
    with Progress(operation, BarColumn(bar_width=None), far, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(printable(what), total=None, far="")

        def show(now: Any) -> None:  # noqa: ANN401 - a Progress of any operation
            if now.left_s is None:
                remaining = ""
            else:
                remaining = f", {duration_text(now.left_s)} left"
            size, done, total = "", now.done, now.total
            if now.total_bytes:
                size = f", {bytes_text(now.done_bytes)} of {bytes_text(now.total_bytes)}"
                done, total = now.done_bytes, now.total_bytes
            far = f"{now.done:,} of {now.total:,} {now.unit}{size}{remaining}"
            bar.update(task, description=now.operation, total=max(total, 1), completed=done, far=far)

        yield show


def waiting(what: str) -> contextlib.AbstractContextManager[object]:
    """Show that an operation without a known progress is running."""
    if not sys.stderr.isatty():
        return contextlib.nullcontext()
    from rich.text import Text

    return console(stderr=True).status(Text(f"{printable(what)} …"))
