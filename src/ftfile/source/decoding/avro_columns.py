"""The columns of an Avro file, in the types that Spark derives for `spark.read`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.source.decoding.avro_types import AvroType

COLUMNS_MAX = 10_000  # with the columns within columns: a type can be used by its name in many places
_INSTANT, _WALL_CLOCK = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
_PLAIN = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
# Other logical types, such as nanoseconds and times of a day, are read as numbers.
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": _INSTANT,
    "timestamp-micros": _INSTANT,
    "local-timestamp-millis": _WALL_CLOCK,
    "local-timestamp-micros": _WALL_CLOCK,
}
_WIDER = {("int", "long"): pa.int64(), ("double", "float"): pa.float64()}


def columns_of(avro: AvroType) -> pa.Schema:
    """Return the columns of a file whose records have this type, which does not contain itself.

    Raises:
        SchemaError: there are more than `COLUMNS_MAX` columns.
    """
    types = _Types()
    fields = []
    for name, part in zip(avro.names, avro.parts, strict=True):
        fields.append((name, types.of(part)))
    return pa.schema(fields)


class _Types:
    """Derives types and counts them."""

    def __init__(self) -> None:
        self._count = 0

    def of(self, avro: AvroType) -> pa.DataType:
        self._count += 1
        if self._count > COLUMNS_MAX:
            raise SchemaError(f"the file has more than {COLUMNS_MAX:,} columns, with those within columns")
        if avro.kind == "record":
            return self._struct(avro.names, avro.parts)
        if avro.kind == "array":
            return pa.list_(self.of(avro.parts[0]))
        if avro.kind == "map":
            return pa.map_(pa.string(), self.of(avro.parts[0]))
        if avro.kind == "union":
            return self._of_union(avro.members)
        if avro.logical == "decimal":
            return pa.decimal128(avro.precision, avro.scale)
        return _LOGICAL.get(avro.logical, _PLAIN[avro.kind])

    def _of_union(self, members: Sequence[AvroType]) -> pa.DataType:
        if not members:
            return pa.null()
        if len(members) == 1:
            return self.of(members[0])
        kinds = tuple(sorted(member.kind for member in members))
        for pair, wider in _WIDER.items():
            if kinds == pair:
                return wider
        return self._struct([f"member{number}" for number in range(len(members))], members)

    def _struct(self, names: Sequence[str], parts: Sequence[AvroType]) -> pa.DataType:
        fields = []
        for name, part in zip(names, parts, strict=True):
            fields.append((name, self.of(part)))
        return pa.struct(fields)
