"""Tables of results, as text and as JSON."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ("Cell", "Table", "percentile", "render_facts", "render_table", "table_as_json")

Cell = str | int | float | None
DECIMALS_BELOW = 100


@dataclass(frozen=True, slots=True)
class Table:
    """One benchmark's result: a title, column names with their units, rows, and how to read them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the value below which ``percent`` of 100 of the values lie.

    Raises:
        statistics.StatisticsError: there are no values.
    """
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def render_table(table: Table) -> str:
    """Return the table as aligned Markdown, good for a terminal and for a page."""
    lines = [table.columns, *(tuple(_format(cell) for cell in row) for row in table.rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(table.columns))]
    body = [_join(_align(cells, widths)) for cells in lines]
    rules = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    body.insert(1, _join(rules))
    note = ["", table.note] if table.note else []
    return "\n".join([f"### {table.title}", "", *body, *note])


def render_facts(facts: Mapping[str, Cell]) -> str:
    """Return named facts as one line."""
    return ", ".join(f"{name} {_format(value)}" for name, value in facts.items())


def table_as_json(table: Table) -> dict[str, object]:
    """Return the table as plain values that ``json`` can write; each row is keyed by column."""
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    return {"title": table.title, "note": table.note, "rows": rows}


def _join(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _align(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Put names to the left and figures to the right."""
    figures = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
    return [cells[0].ljust(widths[0]), *figures]


def _format(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.2f}" if abs(cell) < DECIMALS_BELOW else f"{cell:.0f}"
    return str(cell)
