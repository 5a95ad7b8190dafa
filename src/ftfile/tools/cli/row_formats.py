"""The output of rows batch by batch: as a table, JSON lines, CSV or lines of text."""

import base64
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from ftfile.core.errors import ConfigError
from ftfile.tools.cli.terminal import is_terminal, print_table, printable, write_bytes
from ftfile.tools.report.views import TableColumn, ValueFormat

if TYPE_CHECKING:
    import pyarrow as pa


RowFormat: TypeAlias = Literal["table", "json", "csv", "text"]
Format = Annotated[
    RowFormat | None,
    typer.Option(
        "--format",
        help="The default is a table on a terminal, and csv in a pipe. text prints each value of one column as a line.",
    ),
]


class RowPrinter:
    """Prints batches of one schema under one heading, in the selected or the default format."""

    def __init__(self, schema: "pa.Schema", row_format: RowFormat | None, *, json: bool) -> None:
        self._schema = schema
        self._format: RowFormat = row_format or ("table" if is_terminal() else "csv")
        if json:
            self._format = "json"
        self._begun = False
        if self._format == "text":
            _check_one_text(schema)

    def print(self, batches: Iterable["pa.RecordBatch"]) -> None:
        """Print rows and flush the output; if the first batch cannot be read, nothing is printed."""
        batches = (batch for batch in batches if batch.num_rows)
        first = next(batches, None)
        batches = chain([] if first is None else [first], batches)
        if self._format == "table":
            self._print_table(batches)
        elif self._format == "text":
            for batch in batches:
                values = batch.column(0).cast("binary").fill_null(b"").to_pylist()
                _write_lines(b"".join([value + b"\n" for value in values]))
        else:
            self._print_lines(batches)
        self._begun = True
        sys.stdout.flush()

    def _print_lines(self, batches: Iterable["pa.RecordBatch"]) -> None:
        from ftfile.formats.api import format_from_options

        schema = self._schema
        options: dict[str, Any] = {"ignoreNullFields": False}
        if self._format == "csv":
            schema = _flatten_schema(schema)
            # RFC 4180, which other programs than Spark follow, doubles quotes.
            options = {"header": True, "escape": '"'}
        lines: Any = format_from_options(self._format, options)
        if not self._begun:
            write_bytes(lines.head(schema))
        for batch in batches:
            _write_lines(lines.encode(_flatten_batch(batch, schema)).data)

    def _print_table(self, batches: Iterable["pa.RecordBatch"]) -> None:
        from pyarrow import types

        columns = []
        for number, field in enumerate(self._schema):
            is_number = types.is_integer(field.type) or types.is_floating(field.type) or types.is_decimal(field.type)
            kind = ValueFormat(_show_value, _show_value, is_number=is_number)
            folds = not is_number and not types.is_temporal(field.type)
            columns.append(TableColumn(field.name, itemgetter(number), kind, keep=5, folds=folds))
        print_table(columns, _rows(batches), with_heading=not self._begun)


def limit_rows(batches: Iterable["pa.RecordBatch"], rows: int | None) -> Iterator["pa.RecordBatch"]:
    """Yield the first `rows` rows; all rows for None."""
    remaining = rows
    for batch in batches if remaining != 0 else ():
        if remaining is None:
            yield batch
            continue
        yield batch.slice(0, remaining)
        remaining -= min(remaining, batch.num_rows)
        if not remaining:
            return


def _write_lines(data: bytes | memoryview) -> None:
    if is_terminal():
        data = printable(bytes(data).decode(errors="backslashreplace"), "\n").encode()
    write_bytes(data)


def _check_one_text(schema: "pa.Schema") -> None:
    """Raise a `ConfigError` unless the schema has exactly one column, of strings or binary values."""
    texts = [field.name for field in schema if _is_text(field.type)]
    if len(schema) == 1 and texts:
        return
    choice = "this version has no such column:"
    if texts:
        choice = f"select one with --columns: {', '.join(texts)}; or"
    raise ConfigError(f"--format text prints one column of strings or binary values: {choice} use table, json or csv")


def _rows(batches: Iterable["pa.RecordBatch"]) -> Iterator[Sequence[Any]]:
    for batch in batches:
        yield from zip(*map(_python_values, batch.columns), strict=True)


def _python_values(column: "pa.Array") -> list[Any]:
    """Return the values of a column, with escapes for strings of Spark that are not valid UTF-8."""
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        from ftfile.rows.messages import with_binaries

        return [_as_text(value) for value in column.view(with_binaries(column.type)).to_pylist()]
    return values


def _as_text(value: Any) -> Any:  # noqa: ANN401 - of any column
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, dict):
        return {name: _as_text(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_text(item) for item in value]
    return value


def _show_value(value: Any) -> str:  # noqa: ANN401 - of any column
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, default=_show_value, ensure_ascii=False)
    return str(value)


def _flatten_schema(schema: "pa.Schema") -> "pa.Schema":
    """Return a schema for CSV in which nested and binary columns are strings."""
    import pyarrow as pa

    fields = []
    for field in schema:
        if _needs_text(field.type):
            fields.append(pa.field(field.name, pa.string()))
        else:
            fields.append(pa.field(field.name, field.type))
    return pa.schema(fields)


def _flatten_batch(batch: "pa.RecordBatch", schema: "pa.Schema") -> "pa.RecordBatch":
    import pyarrow as pa

    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        if column.type == field.type:
            columns.append(column)
        else:
            columns.append(pa.array(map(_to_text_or_null, column.to_pylist()), pa.string()))
    if batch.schema != schema:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return batch


def _to_text_or_null(value: Any) -> str | None:  # noqa: ANN401 - of any column
    if value is None:
        return None
    return _show_value(value)


def _is_text(kind: "pa.DataType") -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_binary(kind))


def _needs_text(kind: "pa.DataType") -> bool:
    from pyarrow import types

    return bool(types.is_nested(kind) or types.is_binary(kind) or types.is_large_binary(kind))
