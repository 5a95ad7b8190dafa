"""The index of a DataFrame of pandas, which pyarrow exports as columns."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa

from ftfile.core.errors import SchemaError

_UNNAMED = re.compile(r"__index_level_\d+__")


def columns_without_labels(schema: pa.Schema) -> list[int]:
    """Return the places of the columns that contain data: all but the unnamed index, such as of a filtered DataFrame.

    Raises:
        SchemaError: the unnamed index is not one column of integers, so it is more than the numbers of rows. Or the
            index has a name, and no column has its values.
    """
    described = _description(schema)
    _check_names(described)
    index = [name for name in described.get("index_columns", []) if isinstance(name, str)]
    labels = [name for name in index if _UNNAMED.fullmatch(name) and name in schema.names]
    kinds = [schema.field(name).type for name in labels]
    if labels and (len(index) > 1 or not pa.types.is_integer(kinds[0])):
        raise SchemaError(
            f"the index of the DataFrame has values ({', '.join(map(str, kinds))}) without a name, so they "
            "cannot be a column. Name them with `df.rename_axis(names)`, or drop them with `df.reset_index(drop=True)`"
        )
    return [place for place, name in enumerate(schema.names) if name not in labels]


def _check_names(described: dict[str, Any]) -> None:
    """Raise a SchemaError for a named index that pyarrow exports without values, or without its name."""
    names = {}
    for column in described.get("columns", []):
        if isinstance(column, dict) and isinstance(column.get("field_name"), str):
            names[column["field_name"]] = column.get("name")
    for level in described.get("index_columns", []):
        name = names.get(level) if isinstance(level, str) and _UNNAMED.fullmatch(level) else None
        if isinstance(level, dict):  # a range
            name = level.get("name")
        if name is not None:
            raise SchemaError(
                f"the index of the DataFrame has the name {name!r:.80}, and no column has its values: the index "
                "is a range, or a column has the same name. Use `df.reset_index()`, or give the index another name"
            )


def _description(schema: pa.Schema) -> dict[str, Any]:
    """Return the description of a DataFrame in a schema; empty if it is not by pandas."""
    try:
        described = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
    except (ValueError, RecursionError):
        return {}
    if not isinstance(described, dict):
        return {}
    lists = [described.get(name, []) for name in ("index_columns", "columns")]
    return described if all(isinstance(value, list) for value in lists) else {}
