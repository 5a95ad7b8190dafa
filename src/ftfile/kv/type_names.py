"""The names of column types in Spark and SQL."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import ConfigError
from ftfile.rows.spark_types import JSON_NAMES, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa


_NESTED = {
    "array": "pa.list_(pa.string())",
    "map": "pa.map_(pa.string(), pa.int64())",
    "struct": "pa.struct([('a', pa.string()), ('b', pa.int64())])",
}
_WHOLE_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*\)")


def type_named(column: str, name: str) -> pa.DataType:
    """Return the type of a column from its name in Spark or SQL, ignoring case.

    Raises:
        ConfigError: the type is nested, and must be given as an Arrow type.
        SchemaError: the type does not exist, or cannot be stored.
    """
    base, parenthesis, rest = " ".join(name.lower().split()).partition("(")
    nested = re.match(r"\w*", base)
    if nested is not None and nested[0] in _NESTED:
        raise ConfigError(f"column {column!r}: give {name!r} as a type of Arrow, such as {_NESTED[nested[0]]}")
    json_name = JSON_NAMES.get(base.strip(), base.strip()) + parenthesis + rest
    json_name = _WHOLE_DECIMAL.sub(r"decimal(\1,0)", json_name)
    field: dict[str, Any] = {"name": column, "type": json_name, "nullable": True, "metadata": {}}
    return arrow_schema(json.dumps({"type": "struct", "fields": [field]})).field(0).type
