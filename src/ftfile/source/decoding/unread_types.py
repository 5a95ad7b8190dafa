"""Types of Parquet whose bytes Arrow reads without their meaning (pyarrow 26)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.parquet as pq

_INTERVAL_BYTES = 12
_INTERVAL = (
    "it is an INTERVAL, which Spark does not have in Parquet, and Arrow reads as bytes. Write the file again with the "
    "column as a text or a number, such as `CAST(column AS VARCHAR)` in DuckDB"
)
_VARIANT = (
    "it is a VARIANT, which Arrow reads as a struct of its encoded parts. Write the file again with the column as a "
    "text, such as `CAST(column AS JSON)` in DuckDB or `to_json(column)` in Spark"
)
# A line of Arrow's text of a schema, which is the only place of the annotations of groups.
_GROUP = re.compile(r"( +)(?:required|optional|repeated) group field_id=\S+ (.*?)(?: \((\w+)(?:\(\d+\))?\))? \{")


def refuse_unread_types(schema: pq.ParquetSchema) -> None:
    """Raise a SchemaError for a column of type INTERVAL or VARIANT, also within a column."""
    for column in schema:
        if column.converted_type == "INTERVAL" or str(column.logical_type) == "Interval":
            raise SchemaError(f"column `{column.path}`: {_INTERVAL}")
    for path in _variants(str(schema)):
        raise SchemaError(f"column `{path}`: {_VARIANT}")


def may_be_unread(kind: pa.DataType) -> bool:
    """Return True for a type as which Arrow reads an INTERVAL or a VARIANT, and for types that contain it."""
    if pa.types.is_fixed_size_binary(kind):
        return bool(kind.byte_width == _INTERVAL_BYTES)
    if pa.types.is_struct(kind) and kind.get_field_index("metadata") >= 0:
        return True
    return any(may_be_unread(kind.field(number).type) for number in range(kind.num_fields))


def _variants(text: str) -> Iterator[str]:
    """Yield the paths of the columns of type VARIANT. A line is indented by two spaces for each level."""
    groups: list[str] = []
    for line in text.splitlines():
        match = _GROUP.fullmatch(line)
        if match is not None:
            level = len(match[1]) // 2 - 1
            groups = [*groups[:level], match[2]]
            if match[3] == "Variant":
                yield ".".join(groups)
