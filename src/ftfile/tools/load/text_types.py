"""The types of columns in text files, and the values that pyarrow does not read in these types itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.formats.json_lines import from_base64
from ftfile.rows import kernels as pc
from ftfile.rows.buffers import leaf_types, rebuild

if TYPE_CHECKING:
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
                f"has no value in the first rows, so its type is not known: give it, as in --schema '{field.name} "
                "string'",
            )


def in_types(file: FileToLoad, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of `schema` in their types: texts become binary values (Base64), dates and times.

    Raises:
        SchemaError: a text is not a value of the type.
    """
    columns = []
    for field in schema:
        try:
            columns.append(rebuild(batch.column(field.name), field.type, _typed))
        except (pa.ArrowException, ValueError) as error:
            raise file.misfit(field.name, f"has a value that is not of the type {field.type}: {error}") from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _typed(array: pa.Array, target: pa.DataType) -> pa.Array:
    if array.type.equals(target):
        return array
    if pa.types.is_binary(target):
        return from_base64(array)
    if pa.types.is_time(target):
        # Arrow casts texts to timestamps, but not to times.
        return pc.binary_join_element_wise("1970-01-01T", array, "").cast(pa.timestamp("us")).cast(target)
    return array.cast(target)
