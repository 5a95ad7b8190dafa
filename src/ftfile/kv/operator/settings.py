"""The arguments of an operator's store as settings of a writer."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ftfile.arrays.spark_types import arrow_schema, spark_schema_json
from ftfile.core.errors import ConfigError
from ftfile.kv.config import StoreConfig
from ftfile.kv.driver import recorded_definition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ftfile.core.context import Context

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
    """The columns of a store as its user gives them; what is None, or empty, is as the store has it."""

    keys: Mapping[str, str | pa.DataType] | None
    values: Mapping[str, str | pa.DataType] | None
    buckets: int | None
    bucket_by: Sequence[str]
    merge: str | None


def config_of(
    path: str,
    columns: Columns,
    options: Mapping[str, str],
    context: Context,
    *,
    key_provider: str | None,
    has_codec: bool,
) -> StoreConfig:
    """Return the settings of a writer, with further options; with a key provider, what is written is encrypted.

    Raises:
        ConfigError: something does not fit, or an option is an argument of its own, or has no effect.
        SchemaError: a column cannot be stored.
        StorageError, CorruptData: the log cannot be read.
    """
    for name in options:
        if name.lower() in _REFUSED:
            raise ConfigError(f"option {name!r} of a KeyValueStore: {_REFUSED[name.lower()]}")
    encryption = {} if key_provider is None else {"encryption": "aes-gcm", "keyProvider": key_provider}
    given = {**encryption, **options, "path": path}
    recorded = recorded_definition(given, context, durable=True)  # a log that is lost is no new store
    if recorded is not None:
        recorded = replace(recorded, sequence=None)  # a store with one is refused when it is opened
    keys = _fields(columns.keys, "key", None if recorded is None else recorded.key_fields)
    values = _fields(columns.values, "value", None if recorded is None else recorded.value_fields)
    if has_codec and [each.type for each in (*keys, *values)] != [_BINARY, _BINARY]:
        raise ConfigError("a codec is for stores with one binary key column and one binary value column")
    defining = {
        "keyColumns": ",".join(each.name for each in keys),
        "bucketBy": ",".join(columns.bucket_by) or None,
        "buckets": None if columns.buckets is None else str(columns.buckets),
        "merge": columns.merge,
    }
    given |= {name: value for name, value in defining.items() if value is not None}
    config = StoreConfig.from_options(given, spark_schema_json(pa.schema([*keys, *values])), recorded=recorded)
    if recorded is None or columns.values:
        return config
    # The stored type of a sum of decimals is wider than that of its values, but not than itself.
    schema = pa.schema([*config.definition.key_fields, *recorded.value_fields])
    return replace(config, definition=replace(config.definition, schema=schema))


def _fields(
    types: Mapping[str, str | pa.DataType] | None, otherwise: str, recorded: Sequence[pa.Field] | None
) -> Sequence[pa.Field]:
    """Return columns by Spark's names of their types, or by Arrow's types; else the recorded ones, or a binary one."""
    if not types and recorded is not None:
        return recorded
    found = []
    for name, kind in (types or {otherwise: _BINARY}).items():
        if isinstance(kind, pa.DataType):
            found.append(pa.field(name, kind))
            continue
        if not isinstance(kind, str):
            raise TypeError(f"column {name!r}: {kind!r} is no type: it takes Spark's name of one, or one of Arrow")
        field: dict[str, Any] = {"name": name, "type": _SQL_NAMES.get(kind, kind), "nullable": True, "metadata": {}}
        found += arrow_schema(json.dumps({"type": "struct", "fields": [field]}))
    return found
