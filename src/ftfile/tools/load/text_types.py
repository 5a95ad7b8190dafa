"""The types of columns in text files, and the values that pyarrow does not read in these types itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.rows.buffers import leaf_types
from ftfile.tools.load.exact_texts import RefusedText, read_exactly
from ftfile.tools.load.schema_texts import schema_option

if TYPE_CHECKING:
    from ftfile.core.errors import ConfigError
    from ftfile.formats.reading.time_formats import TimeFormats
    from ftfile.tools.load.input_files import FileToLoad


def check_known(file: FileToLoad, schema: pa.Schema) -> None:
    """Raise a `SchemaError` for a column without values in the first rows, and for two columns of one name."""
    seen = set()
    for field in schema:
        if field.name in seen:
            raise file.misfit(field.name, "occurs twice")
        seen.add(field.name)
        if any(pa.types.is_null(leaf) for leaf in leaf_types(field.type)):
            raise file.misfit(
                field.name,
                "has no value in the first rows, so its type is not known: give it, as in "
                f"{schema_option(field.name, 'string')}",
            )


def in_types(
    file: FileToLoad, batch: pa.RecordBatch, schema: pa.Schema, times: TimeFormats, row: int
) -> pa.RecordBatch:
    """Return the columns of `schema` in their types: texts become binary values (Base64), and times.

    Args:
        file: for errors.
        batch: the columns, also as texts.
        schema: of the result.
        times: the zone of times without a zone.
        row: the number of the first row, for errors.

    Raises:
        ConfigError: a text is not a value of the type.
    """
    columns = []
    for field, column in zip(schema, batch.columns, strict=True):
        typed = column
        if not column.type.equals(field.type):
            try:
                typed = read_exactly(column, field.type, times)
            except (pa.ArrowException, ValueError):
                raise _misfit(file, column, field=field, times=times, row=row) from None
        columns.append(typed)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _misfit(file: FileToLoad, column: pa.Array, field: pa.Field, times: TimeFormats, row: int) -> ConfigError:
    """Return the error for the first text that is not a value of its column."""
    for number, text in enumerate(column):
        try:
            read_exactly(pa.array([text.as_py()], pa.string()), field.type, times)
        except (pa.ArrowException, ValueError) as error:
            problem = error.with_remedy(field.name) if isinstance(error, RefusedText) else str(error)
            return file.damaged(f"column `{field.name}`, Row #{row + number}: {problem}")
    raise AssertionError("a text that cannot be read together with others cannot be read alone")
