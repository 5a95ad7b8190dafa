"""The conversions from types of Avro to columns, decided once per file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ftfile.core.errors import SchemaError
from ftfile.rows.buffers import from_numpy, is_valid, list_lengths, list_parts, numbers_from, values_of
from ftfile.rows.spark_types import spark_schema_json, sql_types
from ftfile.source.decoding import avro_values
from ftfile.source.decoding.stored_times import LEGACY_TIMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ftfile.source.decoding.avro_types import AvroType
    from ftfile.source.decoding.avro_values import Values


_NUMBER = pa.int64()
_PLAIN = {
    "boolean": pa.bool_(),
    "int": _NUMBER,
    "long": _NUMBER,
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.binary(),
    "enum": _NUMBER,
}
_INSTANT, _WALL_CLOCK = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
_SHOWN_CHARS = 60


@dataclass
class Misfits:
    """The rows with a value that its column cannot hold, by number, with the reason of the first such value."""

    reasons: dict[int, str] = field(default_factory=dict)

    def add(self, rows: NDArray[np.int64], array: pa.Array, bad: NDArray[np.bool_], where: str) -> None:
        """Add the rows of the values that are bad; `rows` has the row of each value."""
        for place in np.flatnonzero(bad):
            value = array[int(place)].as_py()
            if isinstance(value, bytes):
                shown = value.hex()
            else:
                shown = str(value)
            self.reasons.setdefault(int(rows[place]), f"{where} cannot hold {shown[:_SHOWN_CHARS]}")


class Conversion(Protocol):
    """The conversion of plain values, which are of Arrow type `plain`."""

    @property
    def plain(self) -> pa.DataType:
        """Return the type of the values that `read` accepts."""

    def read(self, array: pa.Array, rows: NDArray[np.int64], misfits: Misfits) -> pa.Array:
        """Return the values as a column; `rows` has the row of each value. Misfits are null."""


class _Nulls(NamedTuple):
    target: pa.DataType
    plain: pa.DataType = pa.null()

    def read(self, array: pa.Array, rows: NDArray[np.int64], misfits: Misfits) -> pa.Array:
        del rows, misfits
        return pa.nulls(len(array), self.target)


class _Leaf(NamedTuple):
    plain: pa.DataType
    where: str
    values: Values

    def read(self, array: pa.Array, rows: NDArray[np.int64], misfits: Misfits) -> pa.Array:
        values, bad = self.values.read(array)
        if bad.any():
            misfits.add(rows, array, bad, self.where)
        return values


class _Struct(NamedTuple):
    """The conversion of records and of unions of several types.

    `places` contains the part for each field of the target, or None.
    """

    plain: pa.DataType
    target: pa.StructType
    places: tuple[int | None, ...]
    parts: tuple[Conversion, ...]

    def read(self, array: pa.Array, rows: NDArray[np.int64], misfits: Misfits) -> pa.Array:
        children = array.flatten()
        columns = []
        for column, place in zip(self.target, self.places, strict=True):
            if place is None:
                columns.append(pa.nulls(len(array), column.type))
            else:
                columns.append(self.parts[place].read(children[place], rows, misfits))
        return pa.StructArray.from_arrays(columns, fields=list(self.target), mask=array.is_null())


class _Widened(NamedTuple):
    """The conversion of a union of two numeric types to the wider type."""

    plain: pa.DataType
    parts: tuple[Conversion, ...]

    def read(self, array: pa.Array, rows: NDArray[np.int64], misfits: Misfits) -> pa.Array:
        columns = []
        for part, child in zip(self.parts, array.flatten(), strict=True):
            columns.append(part.read(child, rows, misfits))
        return pc.coalesce(*columns)


class _List(NamedTuple):
    plain: pa.DataType
    target: pa.ListType
    items: Conversion

    def read(self, array: pa.Array, rows: NDArray[np.int64], misfits: Misfits) -> pa.Array:
        offsets, values = list_parts(array)
        read = self.items.read(values, np.repeat(rows, list_lengths(array)), misfits)
        return pa.ListArray.from_arrays(offsets, read, type=self.target)


class _Map(NamedTuple):
    plain: pa.DataType
    target: pa.MapType
    keys: Conversion
    items: Conversion

    def read(self, array: pa.Array, rows: NDArray[np.int64], misfits: Misfits) -> pa.Array:
        lists = _with_last_values(array)
        offsets, entries = list_parts(lists)
        rows_of_entries = np.repeat(rows, list_lengths(lists))
        keys, items = entries.flatten()
        read_keys = self.keys.read(keys, rows_of_entries, misfits).fill_null("")  # Arrow has no null keys
        read_items = self.items.read(items, rows_of_entries, misfits)
        return pa.MapArray.from_arrays(offsets, read_keys, read_items, type=self.target)


def _with_last_values(lists: pa.ListArray) -> pa.ListArray:
    """Return the entries of maps without repeated keys: Avro readers use the last value of a key."""
    lengths = list_lengths(lists)
    entries = lists.flatten()
    numbers = entries.field("key").dictionary_encode().indices
    keys = values_of(numbers, np.int32).astype(np.int64)
    of_map = np.repeat(np.arange(len(lists)), lengths)
    both = of_map * (len(entries) + 1) + keys
    _, from_end = np.unique(both[::-1], return_index=True)
    if len(from_end) == len(both):
        return lists
    last = np.sort(len(both) - 1 - from_end)
    ends = np.cumsum(np.bincount(of_map[last], minlength=len(lists)))
    offsets = from_numpy(np.append(0, ends).astype(np.int32), pa.int32(), np.append(is_valid(lists), True))
    return pa.ListArray.from_arrays(offsets, entries.take(numbers_from(last)), type=lists.type)


@dataclass(frozen=True)
class Conversions:
    """The table of conversions, for one file.

    Attributes:
        path: of the file, for errors.
        is_julian: the file has dates before 1582-10-15 and times before 1900 in the calendar of Spark 2.
    """

    path: str
    is_julian: bool

    def of(self, avro: AvroType, target: pa.DataType, where: str) -> Conversion:
        """Return the conversion of a type to another type.

        `where` is the path of the value for errors, such as `a.element.b`.

        Raises:
            SchemaError: Spark cannot read the type as a column of the target type.
        """
        if avro.kind == "union":
            return self._of_union(avro, target, where)
        if avro.kind == "null":
            return _Nulls(target)
        if avro.kind == "record" and pa.types.is_struct(target):
            return self._of_record(avro, target, where)
        if avro.kind == "array" and pa.types.is_list(target):
            items = self.of(avro.parts[0], target.value_type, f"{where}.element")
            return _List(pa.list_(items.plain), target, items)
        if avro.kind == "map" and pa.types.is_map(target) and pa.types.is_string(target.key_type):
            keys = _Leaf(pa.binary(), _describe_conversion(f"{where}.key", pa.string()), avro_values.Utf8Text())
            items = self.of(avro.parts[0], target.item_type, f"{where}.value")
            plain = pa.list_(pa.struct([("key", keys.plain), ("value", items.plain)]))
            return _Map(plain, target, keys, items)
        leaf = self._leaf(avro, target)
        if leaf is None:
            raise self._misfit(avro, target, where)
        return _Leaf(_PLAIN[avro.kind], self._limits(_describe_conversion(where, target), avro, target), leaf)

    def _of_record(self, avro: AvroType, target: pa.StructType, where: str) -> Conversion:
        fields = []
        for column in target:
            fields.append(place_of(column.name, avro, f"{where}.", self.path))
        places: list[int | None] = []
        parts: list[Conversion] = []
        names = []
        for column, place in zip(target, fields, strict=True):
            if place is None:
                places.append(None)
                continue
            places.append(len(parts))
            parts.append(self.of(avro.parts[place], column.type, f"{where}.{column.name}"))
            names.append(f"f{place}")
        plain = pa.struct([(name, part.plain) for name, part in zip(names, parts, strict=True)])
        return _Struct(plain, target, tuple(places), tuple(parts))

    def _of_union(self, avro: AvroType, target: pa.DataType, where: str) -> Conversion:
        members = avro.members
        if not members:
            return _Nulls(target)
        if len(members) == 1:
            return self.of(members[0], target, where)
        kinds = sorted(member.kind for member in members)
        is_wide = (kinds == ["int", "long"] and pa.types.is_int64(target)) or (
            kinds == ["double", "float"] and pa.types.is_float64(target)
        )
        if is_wide:
            parts = tuple(self.of(member, target, where) for member in members)
            return _Widened(_plain_members(parts), parts)
        if pa.types.is_struct(target) and target.num_fields == len(members):
            fields = []
            for member, column in zip(members, target, strict=True):
                fields.append(self.of(member, column.type, f"{where}.{column.name}"))
            return _Struct(_plain_members(fields), target, tuple(range(len(members))), tuple(fields))
        raise self._misfit(avro, target, where)

    def _leaf(self, avro: AvroType, target: pa.DataType) -> Values | None:
        """Return the reader of a type without parts; None if the table does not contain the pair of types."""
        if avro.kind == "int":
            return self._of_int(avro, target)
        if avro.kind == "long":
            return self._convert_long(avro, target)
        if avro.kind in {"bytes", "fixed"}:
            return _of_bytes(avro, target)
        if pa.types.is_string(target):
            if avro.kind == "string":
                return avro_values.Utf8Text()
            return avro_values.Symbols(pa.array(avro.symbols, pa.string())) if avro.kind == "enum" else None
        same = {"boolean": (pa.bool_(),), "float": (pa.float32(), pa.float64()), "double": (pa.float64(),)}
        return avro_values.Unchanged(target) if target in same.get(avro.kind, ()) else None

    def _of_int(self, avro: AvroType, target: pa.DataType) -> Values | None:
        is_exact = pa.types.is_int32(target) or pa.types.is_int64(target) or pa.types.is_float64(target)
        if is_exact or _is_narrower(avro, target):
            return avro_values.Integers(target, of_int=True)
        if pa.types.is_date32(target) and avro.logical in {"", "date"}:
            return avro_values.Dates(julian=self.is_julian)
        if target == _WALL_CLOCK and avro.logical == "date":
            return avro_values.Midnights(julian=self.is_julian)
        return None

    def _convert_long(self, avro: AvroType, target: pa.DataType) -> Values | None:
        if pa.types.is_int64(target) or _is_narrower(avro, target):
            return avro_values.Integers(target, of_int=False)
        if pa.types.is_date32(target) and not avro.logical:
            return avro_values.DatesOfMillis()
        prefix = {_INSTANT: "timestamp-", _WALL_CLOCK: "local-timestamp-"}.get(target)
        if prefix is None:
            return None
        if not avro.logical:
            return avro_values.Timestamps(target, "millis", self._first_micros(target))
        if not avro.logical.startswith(prefix):
            return None
        return avro_values.Timestamps(target, avro.logical.removeprefix(prefix), self._first_micros(target))

    def _first_micros(self, target: pa.DataType) -> int:
        is_refused = self.is_julian and target == _INSTANT
        if is_refused:
            return avro_values.FIRST_MODERN_MICROS
        return avro_values.FIRST_MICROS

    def _limits(self, described: str, avro: AvroType, target: pa.DataType) -> str:
        if avro.kind == "long" and self.is_julian and target == _INSTANT:
            return (
                f"{described} of a file with {LEGACY_TIMES.decode()!r}, or of Spark 2, whose times before 1900 depend "
                "on a time zone,"
            )
        return described

    def _misfit(self, avro: AvroType, target: pa.DataType, where: str) -> SchemaError:
        return SchemaError(
            f"{self.path!r}: `{where}` is {avro} in the file, and cannot be read as {_sql(target)}. Spark's Avro "
            f"source cannot read it as this type either: give the column the type {_suggest(avro)}, and convert it "
            "in a query"
        )


def _is_narrower(avro: AvroType, target: pa.DataType) -> bool:
    """Return True for plain numbers as integers of fewer bits. Unlike in Spark, all values that fit are read."""
    return not avro.logical and pa.types.is_signed_integer(target)


def _of_bytes(avro: AvroType, target: pa.DataType) -> Values | None:
    if pa.types.is_binary(target):
        return avro_values.Unchanged(target)
    if avro.logical != "decimal" or not pa.types.is_decimal(target):
        return None
    # As in Spark, digits after the point are rounded, and digits before it are kept.
    fits = avro.precision - avro.scale <= target.precision - target.scale
    if fits:
        return avro_values.Decimals(avro.precision, avro.scale, target)
    return None


def _plain_members(parts: Sequence[Conversion]) -> pa.DataType:
    return pa.struct([(f"m{number}", part.plain) for number, part in enumerate(parts)])


def place_of(name: str, record: AvroType, prefix: str, path: str) -> int | None:
    """Return the place of a field of a record, found by name ignoring case; None if the field is missing.

    Raises:
        SchemaError: several fields have this name.
    """
    places = []
    for place, field_name in enumerate(record.names):
        if field_name.lower() == name.lower():
            places.append(place)
    if len(places) > 1:
        spellings = ", ".join(record.names[place] for place in places)
        raise SchemaError(
            f"{path!r}: column `{prefix}{name}` is one of several fields of the file whose names differ only in case: "
            f"{spellings}. Omit the column, or have the writer rename the fields"
        )
    if places:
        return places[0]
    return None


def _describe_conversion(where: str, target: pa.DataType) -> str:
    return f"`{where}` {_sql(target)}"


def _sql(target: pa.DataType) -> str:
    return sql_types(spark_schema_json(pa.schema([("c", target)])))["c"].upper()


_SQL = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BINARY",
    "fixed": "BINARY",
    "string": "STRING",
    "enum": "STRING",
    "date": "DATE",
    "record": "STRUCT<…>",
    "array": "ARRAY<…>",
    "map": "MAP<STRING, …>",
}


def _suggest(avro: AvroType) -> str:
    """Return the SQL type as which values of a type are read unchanged."""
    if avro.kind == "union":
        fields = []
        for number, member in enumerate(avro.members):
            fields.append(f"member{number}: {_suggest(member)}")
        return f"STRUCT<{', '.join(fields)}>"
    if avro.logical == "decimal":
        return str(avro).upper()
    if avro.logical.startswith("local-timestamp"):
        return "TIMESTAMP_NTZ"
    if avro.logical.startswith("timestamp"):
        return "TIMESTAMP"
    return _SQL[avro.logical if avro.logical == "date" else avro.kind]
