"""Timestamps of all years in ORC files, since Arrow only reads the years 1678 to 2261.

A TIMESTAMP is stored as two columns. The first has the seconds since 2015, encoded as a BIGINT column. The second has
the nanoseconds, with the number of omitted decimal zeros. Arrow reads the seconds with a footer in which the types are
BIGINT.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import pyarrow as pa
from pyarrow import orc

from ftfile.core.errors import SchemaError
from ftfile.formats.reading.batches import batch_of
from ftfile.formats.reading.read_errors import corrupt, reading_errors
from ftfile.rows.buffers import from_numpy, is_valid, leaf_types, rebuild, values_of
from ftfile.rows.orc_messages import bytes_field, chunks, decode_message, fields, number_field
from ftfile.rows.orc_runs import read_rle_v1, read_rle_v2
from ftfile.rows.zone_clocks import clocks_of, instants_of
from ftfile.source.decoding.orc_tails import bytes_of, first_values, messages, number_of, read_at
from ftfile.source.decoding.stored_times import UTC_NAMES
from ftfile.storage.api import RangeFile, as_file

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from numpy.typing import NDArray

    from ftfile.source.decoding.orc_tails import OrcTail, Stripe


# Numbers of fields in ORC's messages, and their values.
_FOOTER_TYPES, _FOOTER_STATISTICS, _TYPE_KIND = 4, 7, 1
_VALUES_OF_COLUMN, _TIMES_OF_COLUMN, _TIME_BOUNDS = 1, 9, range(1, 5)
_POSTSCRIPT_FOOTER_LENGTH, _POSTSCRIPT_BLOCK_SIZE = 1, 3
_BIGINT, _TIMES = 4, frozenset({9, 18})
_NESTED = frozenset({10, 11, 12})  # lists, maps and structs
_FRACTIONS, _VERSION_1, _VERSION_2 = 5, 0, 2

_ARROW_LAST_MS = 2**63 // 10**6 - 2 * 86_400_000  # nanoseconds in 64 bits, less the offset of a zone
_FIRST_SECOND, _LAST_SECOND = -(2**63) // 10**6 + 1, 2**63 // 10**6 - 1  # the range of Spark
_2015, _MICROS = 1_420_070_400, 1_000_000
_LAST_NANO = 999_999_999
_POWERS = 10 ** np.array([0, 2, 3, 4, 5, 6, 7, 8], np.uint64)  # by the last three bits
_CLOCK, _INSTANT = pa.timestamp("us"), pa.timestamp("us", tz="UTC")
_READ_BATCH_ROWS = 65_536
_EXPECTED = "an ORC file"


def schema_with_far_times(tail: OrcTail, schema: pa.Schema, columns: Collection[str]) -> pa.Schema | None:
    """Return the types with which `far_rows` reads a file; None if Arrow can read all times of the columns.

    `columns` are the names of the requested columns, in lower case.

    Raises:
        SchemaError: a column has times that Arrow cannot read, and ftfile does not support the codec of the file.
    """
    kinds = tail.kinds()
    statistics = dict(enumerate(messages(tail.footer, _FOOTER_STATISTICS)))
    are_read = False
    for place, name in enumerate(schema.names):
        if name.lower() not in columns:
            continue
        for number in tail.columns_of(place):
            if kinds[number] not in _TIMES or not _may_have_far_times(statistics.get(number, b"")):
                continue
            if not tail.is_decompressed():
                _check_bounds(name, statistics.get(number, b""))
            are_read = tail.is_decompressed()
    if are_read:
        return pa.schema([field.with_type(_in_micros(field.type)) for field in schema])
    return None


def _may_have_far_times(statistics: bytes) -> bool:
    message = first_values(statistics)
    if message.get(_VALUES_OF_COLUMN) == 0:
        return False
    bounds = _bounds(message)
    return not bounds or any(bound not in range(-_ARROW_LAST_MS, _ARROW_LAST_MS) for bound in bounds)


def _check_bounds(column: str, statistics: bytes) -> None:
    if _bounds(first_values(statistics)):
        raise SchemaError(
            f"column `{column}` has times before 1677-09-21 or after 2262-04-11, which ftfile cannot read from ORC "
            "files with the codecs LZ4 and LZO. Omit the column from the schema, or rewrite the file with the codec "
            "zstd"
        )


def _bounds(message: dict[int, int | bytes]) -> list[int]:
    """Return the first and last time of statistics, in milliseconds since 1970."""
    bounds = []
    for number, value, _ in fields(bytes_of(message.get(_TIMES_OF_COLUMN))):
        if number in _TIME_BOUNDS and isinstance(value, int):
            bounds.append((value >> 1) ^ -(value & 1))
    return bounds


def _in_micros(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_micros(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_micros(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_in_micros(kind.key_type), _in_micros(kind.item_type))
    return kind


def far_rows(file: BinaryIO, tail: OrcTail, schema: pa.Schema, zone: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file. `schema` contains the requested columns, with times in microseconds.

    Clocks are in the writer's zone. If a stripe does not name the zone, they are in `zone`.
    """
    try:
        with reading_errors(file, _EXPECTED):
            opened = orc.ORCFile(_as_numbers(file, tail))
            in_file = opened.schema.names
            # pyarrow reads a name with a dot as the field of a struct.
            names = schema.names
            if any("." in name for name in in_file):
                names = None
            leaves = [_leaf_columns(tail, in_file.index(name)) for name in schema.names]
            for number, stripe in enumerate(tail.stripes(file)):
                rows = opened.read_stripe(number, columns=names)
                decoder = _StripeDecoder(file, tail.codec, stripe, _zone_name(stripe.zone or zone))
                arrays = []
                for field, numbers in zip(schema, leaves, strict=True):
                    stored = rows.column(rows.schema.names.index(field.name))
                    arrays.append(decoder.column(stored, numbers, field.type))
                batch = batch_of(arrays, schema, rows.num_rows)
                for start in range(0, rows.num_rows, _READ_BATCH_ROWS):
                    yield batch.slice(start, _READ_BATCH_ROWS)
    except (ValueError, IndexError) as error:
        raise corrupt(file, _EXPECTED, error) from error


def _leaf_columns(tail: OrcTail, place: int) -> list[int]:
    kinds = tail.kinds()
    return [number for number in tail.columns_of(place) if kinds[number] not in _NESTED]


@dataclass(frozen=True, slots=True)
class _StripeDecoder:
    """The columns of one stripe."""

    file: BinaryIO
    codec: int
    stripe: Stripe
    zone: str

    def column(self, array: pa.Array, numbers: list[int], kind: pa.DataType) -> pa.Array:
        """Return a column whose leaves are the columns `numbers`, with their times."""
        if len(numbers) != len([*leaf_types(kind)]):
            raise ValueError(f"columns {numbers} for the type {kind}")
        remaining = iter(numbers)

        def leaf(values: pa.Array, target: pa.DataType) -> pa.Array:
            number = next(remaining)
            if pa.types.is_timestamp(target):
                return self._times(values, number, target)
            return values

        return rebuild(array, kind, leaf)

    def _times(self, seconds: pa.Array, number: int, kind: pa.DataType) -> pa.Array:
        valid = is_valid(seconds)
        stored = values_of(seconds, np.int64)
        micros = np.zeros(len(seconds), np.int64)
        nanos = self._nanos(number, int(valid.sum()))
        zone = "UTC" if kind.tz else self.zone
        micros[valid] = _micros_of(stored[valid], nanos, _first_second(zone))
        instants = from_numpy(micros, _INSTANT, valid)
        if kind.tz:
            return instants
        return clocks_of(instants, zone)

    def _nanos(self, number: int, count: int) -> NDArray[np.int64]:
        if not count:
            return np.empty(0, np.int64)
        [stream] = [part for part in self.stripe.streams if (part.kind, part.column) == (_FRACTIONS, number)]
        data = decode_message(read_at(self.file, stream.start, stream.length), self.codec)
        encoding = self.stripe.encodings[number]
        if encoding not in (_VERSION_1, _VERSION_2):
            raise ValueError(f"the encoding {encoding} of column {number}")
        read_numbers = read_rle_v2
        if encoding == _VERSION_1:
            read_numbers = read_rle_v1
        numbers = read_numbers(data, count)
        digits = numbers >> np.uint64(3)
        nanos: NDArray[np.uint64] = np.minimum(digits, _LAST_NANO + 1) * _POWERS[numbers & np.uint64(7)]
        if (nanos > _LAST_NANO).any():
            raise ValueError(f"more than {_LAST_NANO} nanoseconds in column {number}")
        return nanos.astype(np.int64)


def _micros_of(stored: NDArray[np.int64], nanos: NDArray[np.int64], first_second: int) -> NDArray[np.int64]:
    if ((stored < _FIRST_SECOND - first_second + 1) | (stored > _LAST_SECOND - first_second)).any():
        raise ValueError("a time that has more than 64 bits in microseconds")
    seconds = stored + first_second
    # Writers round seconds before 1970 toward zero if the fraction has at least one millisecond.
    seconds -= (seconds < 0) & (nanos > _MICROS - 1)
    return seconds * _MICROS + nanos // 1000


def _first_second(zone: str) -> int:
    """Return the second at which clocks of a zone showed the start of 2015."""
    start = from_numpy(np.array([_2015 * _MICROS]), _CLOCK)
    return int(values_of(instants_of(start, zone), np.int64)[0]) // _MICROS


def _zone_name(zone: str) -> str:
    if zone in UTC_NAMES:
        return "UTC"
    return zone


def _as_numbers(file: BinaryIO, tail: OrcTail) -> BinaryIO:
    """Return an ORC file whose footer has BIGINT in place of TIMESTAMP."""
    numbers = first_values(tail.postscript)
    start = file.seek(0, os.SEEK_END) - 1 - len(tail.postscript) - number_of(numbers.get(_POSTSCRIPT_FOOTER_LENGTH))
    footer = _with_numbers(tail.footer)
    if tail.codec:
        footer = chunks(footer, number_of(numbers.get(_POSTSCRIPT_BLOCK_SIZE)))
    postscript = b""
    for number, _, raw in fields(tail.postscript):
        postscript += number_field(number, len(footer)) if number == _POSTSCRIPT_FOOTER_LENGTH else raw
    end = footer + postscript + bytes([len(postscript)])

    def read_range(offset: int, length: int) -> bytes:
        data = b""
        if offset < start:
            file.seek(offset)
            data = file.read(min(length, start - offset))
        if offset + length > start:
            data += end[max(0, offset - start) : offset + length - start]
        return data

    return as_file(RangeFile("", start + len(end), read_range))


def _with_numbers(footer: bytes) -> bytes:
    parts = []
    for number, value, raw in fields(footer):
        if number == _FOOTER_TYPES and isinstance(value, bytes):
            parts.append(bytes_field(number, _with_number(value)))
        else:
            parts.append(raw)
    return b"".join(parts)


def _with_number(message: bytes) -> bytes:
    parts = []
    for number, value, raw in fields(message):
        is_time = number == _TYPE_KIND and value in _TIMES
        parts.append(number_field(_TYPE_KIND, _BIGINT) if is_time else raw)
    return b"".join(parts)
