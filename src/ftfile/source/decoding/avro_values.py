"""Columns of plain values from Avro as columns of a type, with a mask of the values that the type cannot hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ftfile.rows.buffers import bools_from, from_numpy, is_valid, string_parts, values_of

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    # The values, which are null where the mask is True.
    Read: TypeAlias = tuple[pa.Array, NDArray[np.bool_]]


DECIMAL_BYTES_MAX = 64  # more bytes than a decimal of 38 digits needs; the other bytes can only be copies of the sign
_INT = (-(1 << 31), (1 << 31) - 1)
_LONG = (-(1 << 63), (1 << 63) - 1)
_MILLIS_PER_DAY, _MICROS_PER_DAY, _MICROS_PER_MILLI, _NANOS_PER_MICRO = 86_400_000, 86_400_000_000, 1000, 1000
_DECIMAL_BYTES = 16
_WIDE_DIGITS = 76

# In days and microseconds since 1970. Files of Spark 2 store older values in the calendar of Java's `Date`. It has
# Julian days before 1582-10-15, and the local mean time of a zone before 1900.
# which Julian days come before 1582-10-15, and the clocks of a zone before 1900 by its local mean time.
_FIRST_GREGORIAN_DAY = -141_427
FIRST_MICROS = _LONG[0]
FIRST_MODERN_MICROS = -2_208_988_800_000_000
_JULIAN_DAY_OF_1970 = 2_440_588
_GREGORIAN_DAY_0000_03_01 = -719_468  # since 1970
_JULIAN_DAY_0000_03_01 = 1_721_118
_DAYS_OF_4_YEARS, _DAYS_OF_YEAR = 1461, 365


class Values(Protocol):
    """Values of a type without parts."""

    def read(self, array: pa.Array) -> Read:
        """Return plain values as values of the type."""


class Unchanged(NamedTuple):
    """Values that need no conversion."""

    target: pa.DataType

    def read(self, array: pa.Array) -> Read:
        """Return plain values as values of the type."""
        return array.cast(self.target), np.zeros(len(array), np.bool_)


class Integers(NamedTuple):
    """Integers as narrower or wider integers, or as `DOUBLE`."""

    target: pa.DataType
    of_int: bool

    def read(self, array: pa.Array) -> Read:
        """Return plain values as values of the type."""
        target = self.target
        low, high = _INT if self.of_int else _LONG
        if pa.types.is_integer(target):
            low, high = max(low, -(1 << target.bit_width - 1)), min(high, (1 << target.bit_width - 1) - 1)
        values, bad = _find_outside(array, low, high)
        return from_numpy(values.astype(target.to_pandas_dtype()), target, is_valid(array) & ~bad), bad


class Symbols(NamedTuple):
    """The numbers of the symbols of an enum."""

    texts: pa.StringArray

    def read(self, array: pa.Array) -> Read:
        """Return plain values as values of the type."""
        values, bad = _find_outside(array, 0, len(self.texts) - 1)
        return self.texts.take(from_numpy(values, pa.int64(), is_valid(array) & ~bad)), bad


class Utf8Text(NamedTuple):
    """Bytes that are text in UTF-8."""

    def read(self, array: pa.Array) -> Read:
        """Return plain values as values of the type."""
        bad = np.zeros(len(array), np.bool_)
        try:
            return array.cast(pa.string()), bad
        except pa.ArrowInvalid:
            for place, value in enumerate(array.to_pylist()):
                bad[place] = value is not None and not _is_text(value)
        return _drop_bad(array, bad).cast(pa.string()), bad


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


class Dates(NamedTuple):
    """Days since 1970. If `julian`, they are in the calendar of Spark 2."""

    julian: bool

    def read(self, array: pa.Array) -> Read:
        """Return plain values as values of the type."""
        days, bad = _days(array, julian=self.julian)
        return from_numpy(days.astype(np.int32), pa.date32(), is_valid(array) & ~bad), bad


class DatesOfMillis(NamedTuple):
    """Milliseconds since 1970 as dates. As in Spark, they are rounded toward 1970 to whole days."""

    def read(self, array: pa.Array) -> Read:
        """Return plain values as values of the type."""
        millis = values_of(array, np.int64)
        days = np.sign(millis) * (np.abs(millis) // _MILLIS_PER_DAY)
        bad = is_valid(array) & ((days < _INT[0]) | (days > _INT[1]))
        return from_numpy(days.astype(np.int32), pa.date32(), is_valid(array) & ~bad), bad


class Midnights(NamedTuple):
    """Days since 1970 as timestamps without a zone. If `julian`, they are in the calendar of Spark 2."""

    julian: bool

    def read(self, array: pa.Array) -> Read:
        """Return plain values as values of the type."""
        days, bad = _days(array, julian=self.julian)
        bad |= is_valid(array) & (np.abs(days) > _LONG[1] // _MICROS_PER_DAY)
        micros = np.where(bad, 0, days) * _MICROS_PER_DAY
        return from_numpy(micros, pa.timestamp("us"), is_valid(array) & ~bad), bad


def _days(array: pa.Array, *, julian: bool) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    days, bad = _find_outside(array, *_INT)
    if julian:
        return (_from_julian(days), bad)
    return (days, bad)


def _from_julian(days: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return days since 1970, with days of the Julian calendar replaced by Gregorian days of the same date.

    As in Spark, February 29 becomes March 1 in a year without it.
    """
    since = days + (_JULIAN_DAY_OF_1970 - _JULIAN_DAY_0000_03_01)
    four_years, rest = np.divmod(since, _DAYS_OF_4_YEARS)
    of_four = np.minimum(rest // _DAYS_OF_YEAR, 3)
    year = 4 * four_years + of_four  # begins on March 1
    day_of_year = rest - _DAYS_OF_YEAR * of_four
    # February 29 is the last day of this year. If the Gregorian year has no February 29, it becomes the next March 1.
    gregorian = _DAYS_OF_YEAR * year + year // 4 - year // 100 + year // 400 + day_of_year + _GREGORIAN_DAY_0000_03_01
    return np.where(days < _FIRST_GREGORIAN_DAY, gregorian, days)


class Timestamps(NamedTuple):
    """Times since 1970 in a unit. Times before `first_micros` are refused."""

    target: pa.DataType
    unit: str
    first_micros: int

    def read(self, array: pa.Array) -> Read:
        """Return plain values as values of the type."""
        if self.unit == "millis":
            times, bad = _find_outside(array, -(_LONG[1] // _MICROS_PER_MILLI), _LONG[1] // _MICROS_PER_MILLI)
            micros = times * _MICROS_PER_MILLI
        else:
            times, bad = _find_outside(array, *_LONG)
            micros = times
            if self.unit == "nanos":
                micros = times // _NANOS_PER_MICRO
        bad |= is_valid(array) & (micros < self.first_micros)
        return from_numpy(micros, self.target, is_valid(array) & ~bad), bad


class Decimals(NamedTuple):
    """Decimals in bytes. As in Spark, digits after the scale of the target are rounded."""

    precision: int
    scale: int
    target: pa.Decimal128Type

    def read(self, array: pa.Array) -> Read:
        """Return plain values as values of the type."""
        digits = self.precision - self.scale
        target_digits = min(digits + 1, self.target.precision - self.target.scale)  # rounding adds at most one digit
        little, fits = _little_endian(array)
        valid = is_valid(array)
        wide = from_numpy(little.reshape(-1).view("V16"), pa.decimal128(38, self.scale), valid & fits)
        wide = wide.cast(pa.decimal256(_WIDE_DIGITS, self.scale))
        in_file = _is_below(wide, 10**digits)
        rounded = pc.round(_keep_only(wide, in_file), ndigits=self.target.scale, round_mode="half_towards_infinity")
        in_target = _is_below(rounded, 10**target_digits)
        values = _keep_only(rounded, in_target).cast(self.target)
        return values, valid & ~is_valid(values)


def _is_below(wide: pa.Array, bound: int) -> pa.Array:
    scalar = pa.scalar(bound, pa.decimal256(_WIDE_DIGITS, 0)).cast(wide.type)
    return pc.less(pc.abs(wide), scalar)


def _keep_only(array: pa.Array, mask: pa.Array) -> pa.Array:
    return pc.if_else(mask, array, pa.scalar(None, array.type))


def _little_endian(array: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return numbers of any length as 16 bytes each, and for each number True if it fits."""
    offsets, data = string_parts(array)
    lengths = np.where(is_valid(array), np.diff(offsets), 0)
    little = np.zeros((len(array), _DECIMAL_BYTES), np.uint8)
    fits = np.zeros(len(array), np.bool_)
    for length in np.unique(lengths):
        if not 0 < length <= DECIMAL_BYTES_MAX:
            continue
        rows = np.flatnonzero(lengths == length)
        big = data[offsets[:-1][rows][:, None] + np.arange(length)]
        reversed_bytes = big[:, ::-1]
        sign = np.where(big[:, 0] & 0x80, 0xFF, 0).astype(np.uint8)
        low_bytes = reversed_bytes[:, :_DECIMAL_BYTES]
        padded = np.repeat(sign[:, None], _DECIMAL_BYTES, axis=1)
        padded[:, : low_bytes.shape[1]] = low_bytes
        little[rows] = padded
        is_same_sign = (padded[:, -1] & 0x80) == (sign & 0x80)
        fits[rows] = is_same_sign & (reversed_bytes[:, _DECIMAL_BYTES:] == sign[:, None]).all(axis=1)
    return little, fits


def _find_outside(array: pa.Array, low: int, high: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return numbers, with 0 for numbers outside the bounds, and for each number True if it is outside."""
    values = values_of(array, np.int64)
    bad = is_valid(array) & ((values < low) | (values > high))
    return np.where(bad | ~is_valid(array), 0, values), bad


def _drop_bad(array: pa.Array, bad: NDArray[np.bool_]) -> pa.Array:
    return pc.if_else(bools_from(~bad), array, pa.scalar(None, array.type))
