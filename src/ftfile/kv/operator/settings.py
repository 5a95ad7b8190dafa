"""The arguments of an operator's store as settings of a writer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ftfile.arrays.spark_types import arrow_schema, spark_schema_json
from ftfile.core.errors import ConfigError
from ftfile.kv.config import StoreConfig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ("Columns", "config_of")

_BINARY = pa.binary()
# In SQL, and in the JSON of schemas.
_SQL_NAMES = {"bigint": "long", "int": "integer", "smallint": "short", "tinyint": "byte"}

_OF_SPARK = "it is for writes by Spark, and has no effect here: leave it out"
# Options of writers that an operator does not take, in lower case, each with what to do.
_REFUSED = {
    "path": "give the path as the first argument",
    "keycolumns": "give the columns as the argument keys={name: type}",
    "bucketby": "give the columns as the argument bucket_by=[name]",
    "buckets": "give the number as the argument buckets=",
    "merge": "give the functions as the argument merge=",
    "deletecolumn": "there is no such column: call delete(key)",
    "sequencecolumn": "a store with one is written by Spark alone: write it by Spark, or make a store without it",
    "tombstonettl": "it is for stores with a sequenceColumn, which Spark alone writes: leave it out",
    **dict.fromkeys(("badrecords", "maxrecordbytes", "maxopenbytes", "fingerprint"), _OF_SPARK),
    **dict.fromkeys(("onnewquery", "ongap", "onreplaymismatch"), _OF_SPARK),
    **dict.fromkeys(("txnappid", "txnversion"), "it is for batches of Spark: give the argument writer="),
}


class Columns(NamedTuple):
    """The columns of a store as its user gives them."""

    keys: Mapping[str, str | pa.DataType] | None
    values: Mapping[str, str | pa.DataType] | None
    buckets: int
    bucket_by: Sequence[str]
    merge: str


def config_of(
    path: str,
    columns: Columns,
    options: Mapping[str, str],
    *,
    key_provider: str | None,
    has_codec: bool,
) -> StoreConfig:
    """Return the settings of a writer, with further options; with a key provider, what is written is encrypted.

    Raises:
        ConfigError: something does not fit, or an option is an argument of its own, or has no effect.
        SchemaError: a column cannot be stored.
    """
    for name in options:
        if name.lower() in _REFUSED:
            raise ConfigError(f"option {name!r} of a KeyValueStore: {_REFUSED[name.lower()]}")
    keys, values = _fields(columns.keys or {"key": "binary"}), _fields(columns.values or {"value": "binary"})
    if has_codec and [each.type for each in (*keys, *values)] != [_BINARY, _BINARY]:
        raise ConfigError("a codec is for stores with one binary key column and one binary value column")
    encryption = {} if key_provider is None else {"encryption": "aes-gcm", "keyProvider": key_provider}
    given = {
        **encryption,
        **options,
        "path": path,
        "keyColumns": ",".join(each.name for each in keys),
        **({"bucketBy": ",".join(columns.bucket_by)} if columns.bucket_by else {}),
        "buckets": str(columns.buckets),
        "merge": columns.merge,
    }
    return StoreConfig.from_options(given, spark_schema_json(pa.schema([*keys, *values])))


def _fields(types: Mapping[str, str | pa.DataType]) -> list[pa.Field]:
    """Return columns by Spark's names of their types, or by Arrow's types."""
    found = []
    for name, kind in types.items():
        if isinstance(kind, pa.DataType):
            found.append(pa.field(name, kind))
            continue
        field: dict[str, Any] = {"name": name, "type": _SQL_NAMES.get(kind, kind), "nullable": True, "metadata": {}}
        found += arrow_schema(json.dumps({"type": "struct", "fields": [field]}))
    return found
