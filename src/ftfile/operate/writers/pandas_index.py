"""The index of a DataFrame of pandas, which pyarrow exports as columns."""

from __future__ import annotations

import json
import re

import pyarrow as pa

from ftfile.core.errors import SchemaError

_UNNAMED = re.compile(r"__index_level_\d+__")


def columns_without_labels(schema: pa.Schema) -> list[int]:
    """Return the places of the columns that contain data: all but the unnamed index, such as of a filtered DataFrame.

    Raises:
        SchemaError: the unnamed index is not one column of integers, so it is more than the numbers of rows.
    """
    index = _index_columns(schema)
    labels = [name for name in index if _UNNAMED.fullmatch(name) and name in schema.names]
    kinds = [schema.field(name).type for name in labels]
    if labels and (len(index) > 1 or not pa.types.is_integer(kinds[0])):
        raise SchemaError(
            f"data: the index of the DataFrame has values ({', '.join(map(str, kinds))}) without a name, so they "
            "cannot be a column. Name them with `df.rename_axis(names)`, or drop them with `df.reset_index(drop=True)`"
        )
    return [place for place, name in enumerate(schema.names) if name not in labels]


def _index_columns(schema: pa.Schema) -> list[str]:
    try:
        described = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
        columns = described.get("index_columns", [])
        return [name for name in columns if isinstance(name, str)]  # a range is described by an object
    except (ValueError, AttributeError, TypeError, RecursionError):  # not the metadata of pandas
        return []
