"""The statistics of files in the manifests of an Iceberg table.

Values are encoded by https://iceberg.apache.org/spec/#binary-single-value-serialization.
"""

from __future__ import annotations

import base64
import binascii
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ftfile.operate.export.entries import entry_of, type_at
from ftfile.rows.spark_types import arrow_schema
from ftfile.rows.statistics.columns import key_of, leaves

if TYPE_CHECKING:
    from ftfile.operate.export.tables import ExportedFile
    from ftfile.rows.statistics.columns import Path


# The encodings of bounds that are numbers, by Iceberg's type.
_NUMBERS = {
    "boolean": struct.Struct("?"),
    "int": struct.Struct("<i"),
    "long": struct.Struct("<q"),
    "float": struct.Struct("<f"),
    "double": struct.Struct("<d"),
    "date": struct.Struct("<i"),
    "timestamp": struct.Struct("<q"),
    "timestamptz": struct.Struct("<q"),
}

Json = dict[str, Any]


class _ManifestField(NamedTuple):
    """A column, or a field of structs, that can have bounds."""

    id: int
    path: Path
    key: str
    kind: pa.DataType
    iceberg: str  # its type


class IcebergStatistics:
    """Describes the statistics of the files of a table, given its columns as Spark's JSON and as Iceberg's fields."""

    def __init__(self, columns: str, fields: list[Json]) -> None:
        self._leaves: list[_ManifestField] = []
        for path, field in leaves(arrow_schema(columns)):
            iceberg = _field_at(fields, path)
            self._leaves.append(_ManifestField(iceberg["id"], path, key_of(path), field.type, iceberg["type"]))
        self._described: dict[
            int, list[_ManifestField]
        ] = {}  # the leaves with bounds, by the id of the columns of files
        self._counts: dict[tuple[int, int], Json] = {}  # shared by files, because most counts are equal

    def fields(self, file: ExportedFile) -> Json:
        """Return the fields of an entry of a manifest that contain the statistics of a file."""
        values: list[Json] = []
        nulls: list[Json] = []
        nans: list[Json] = []
        least: list[Json] = []
        greatest: list[Json] = []
        for leaf in self._leaves_in(file):
            entry = entry_of(file.statistics, leaf.key, leaf.kind)
            low, high = _encode_bound(entry.low, leaf), _encode_bound(entry.high, leaf)
            if leaf.iceberg in ("float", "double"):
                has_both = low is not None and high is not None  # otherwise there may be a NaN
                if has_both:
                    nans.append(self._count(leaf.id, 0))
                # pyiceberg 0.12 compares bounds with the literal as a double, but rows with the literal as a float.
                if not has_both or leaf.iceberg == "float":
                    low = high = None
            if entry.nulls is not None:
                nulls.append(self._count(leaf.id, entry.nulls))
            if low is not None:
                least.append({"key": leaf.id, "value": low})
            if high is not None:
                greatest.append({"key": leaf.id, "value": high})
            if (entry.nulls, low, high) != (None, None, None):
                values.append(self._count(leaf.id, file.rows))
        return {
            "value_counts": values or None,
            "null_value_counts": nulls or None,
            "nan_value_counts": nans or None,
            "lower_bounds": least or None,
            "upper_bounds": greatest or None,
        }

    def _leaves_in(self, file: ExportedFile) -> list[_ManifestField]:
        """Return the columns that a file contains in the type of the table."""
        number = id(file.columns)
        if number not in self._described:
            self._described[number] = []
            for leaf in self._leaves:
                # Not all readers accept a bound of a narrower type.
                if type_at(file.columns, leaf.path) == leaf.kind and leaf.path[0] not in file.values:
                    self._described[number].append(leaf)
        return self._described[number]

    def _count(self, number: int, count: int) -> Json:
        return self._counts.setdefault((number, count), {"key": number, "value": count})


def _field_at(fields: list[Json], path: Path) -> Json:
    for field in fields:
        if field["name"] == path[0]:
            if len(path) == 1:
                return field
            return _field_at(field["type"]["fields"], path[1:])
    raise AssertionError(f"Iceberg's schema lacks the column {path}")


def _encode_bound(bound: Any, leaf: _ManifestField) -> bytes | None:  # noqa: ANN401 - JSON
    """Return the bytes of a bound of the log; None if it is unknown or not a value of the type."""
    if bound is None:
        return None
    try:
        if leaf.iceberg in _NUMBERS:
            return _NUMBERS[leaf.iceberg].pack(bound)
        if pa.types.is_decimal(leaf.kind):
            return _encode_unscaled(bound, leaf.kind.scale)
        if pa.types.is_binary(leaf.kind):
            return base64.b64decode(bound, validate=True)
        data: bytes = bound.encode()
    except (struct.error, OverflowError, ValueError, binascii.Error):
        return None
    return data


def _encode_unscaled(text: str, scale: int) -> bytes:
    """Return the shortest bytes of a decimal without its point; ValueError if it has more digits after the point."""
    whole, _, fraction = text.partition(".")
    if len(fraction) > scale:
        raise ValueError(text)
    number = int(whole + fraction.ljust(scale, "0"))
    bits = number.bit_length()
    if number < 0:
        bits = (~number).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)
