"""Calendars and clocks of stored dates and times, and the conversion to Spark's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from ftfile.rows import kernels as pc
from ftfile.rows.buffers import from_numpy, is_valid, values_of
from ftfile.rows.zone_clocks import instants_shown_once

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    # The hybrid calendar is the Julian calendar until 1582-10-04. If the calendar is unknown, old times are not read.
    Calendar: TypeAlias = Literal["gregorian", "hybrid", "unknown"]


UTC_NAMES = frozenset({"UTC", "GMT", "Z", "Zulu", "UCT", "Etc/UTC", "Etc/GMT", "Etc/UCT", "Etc/Zulu"})

FIRST_DAY = -141_427  # 1582-10-15
FIRST_SECOND = -2_208_988_800  # 1900-01-01: before, Java's older classes have other zone offsets
FIRST_GREGORIAN_SECOND = FIRST_DAY * 86_400
_EPOCH_SECOND = 86_400  # 1970-01-02: at 1970-01-01 in UTC, the day is 1970-01-01 in all zones
_EPOCH_JULIAN_DAY = 2_440_588
_DAY_SECONDS = 86_400
_NO_CALENDAR = "before 1582-10-15 in a file that does not state its calendar, Julian or Gregorian"
_CLOCK = pa.timestamp("us")
SPARK_VERSION, LEGACY_TIMES = b"org.apache.spark.version", b"org.apache.spark.legacyDateTime"  # of metadata
FIRST_GREGORIAN_SPARK = b"3.0.0"  # versions of Spark, which Spark compares as texts
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTimes:
    """The calendars of the dates and times of a column, and the clocks of times without a zone."""

    dates: Calendar = "gregorian"
    times: Calendar = "gregorian"
    first_second: int = FIRST_SECOND  # the first times that are equal in all calendars
    writer_zone: str = "UTC"  # zone of the clocks of ORC's TIMESTAMP; empty if unknown
    zone: str = "UTC"  # zone in which clocks without a zone are read

    def problem(self, stored: pa.DataType, target: pa.DataType) -> str | None:
        """Return the reason why times of a type cannot be read as another type; None if they can be read."""
        if not pa.types.is_timestamp(stored) or stored.tz is not None or self.writer_zone == self.zone:
            return None
        if target == pa.timestamp("us"):
            return None
        writer_zone = self.writer_zone or "of several time zones, or in a codec that ftfile cannot decompress"
        return (
            f"has local times of a writer whose time zone is {writer_zone}, and the reader's timeZone is {self.zone}. "
            "Set the option timeZone to the writer's time zone, or read the column as TIMESTAMP_NTZ"
        )

    def convert(self, array: pa.Array, target: pa.DataType) -> pa.Array:
        """Return dates or times in Spark's calendar and clocks; `ValueError` if a value cannot be converted."""
        if pa.types.is_date32(array.type):
            return _dates(array, self.dates)
        if not pa.types.is_timestamp(array.type):
            return array
        if array.type.tz is None and self.writer_zone != "UTC":
            _check_clocks(array)
        if array.type.tz is not None and self.zone != "UTC":
            _check_instants(array)
        if self.times != "gregorian":
            array = _times(array, self, target)
        if array.type.tz is None and target != pa.timestamp("us") and self.zone != "UTC":
            clocks = pc.floor_temporal(array, unit="microsecond").cast(_CLOCK)  # Spark also rounds down
            return instants_shown_once(clocks, self.zone).cast(pa.timestamp(array.type.unit, "UTC"))
        return array


def _dates(array: pa.Array, calendar: Calendar) -> pa.Array:
    days = values_of(array, np.int32).astype(np.int64)
    is_old = is_valid(array) & (days < FIRST_DAY)
    if calendar == "gregorian" or not is_old.any():
        return array
    if calendar == "unknown":
        raise ValueError(f"a date {_NO_CALENDAR}")
    return _with_values(array, np.where(is_old, _from_hybrid(days), days).astype(np.int32))


def _times(array: pa.Array, stored: StoredTimes, target: pa.DataType) -> pa.Array:
    per_second = PER_SECOND[array.type.unit]
    instants = values_of(array, np.int64)
    # The first second of the Gregorian calendar needs more than 64 bits in nanoseconds.
    is_old = is_valid(array) & (instants < max(stored.first_second * per_second, -(2**63)))
    if not is_old.any():
        return array
    if stored.first_second == FIRST_GREGORIAN_SECOND:
        if stored.times == "unknown":
            raise ValueError(f"a time {_NO_CALENDAR}")
    elif stored.times == "unknown" or target == pa.timestamp("us"):
        raise ValueError(
            "a time before 1900-01-01, which Spark stored in its legacy mode with another calendar or time zone"
        )
    days, rest = np.divmod(instants, _DAY_SECONDS * per_second)
    rebased = np.where(days < FIRST_DAY, _from_hybrid(days), days)
    return _with_values(array, np.where(is_old, rebased * (_DAY_SECONDS * per_second) + rest, instants))


def _check_clocks(array: pa.Array) -> None:
    """Raise `ValueError` for times that Arrow reads differently from Spark if the writer's zone is not UTC."""
    per_second = PER_SECOND[array.type.unit]
    instants = values_of(array, np.int64)
    is_fraction = (instants < _EPOCH_SECOND * per_second) & (instants % per_second != 0)
    if (is_valid(array) & (is_fraction | (instants < FIRST_SECOND * per_second))).any():
        raise ValueError("a time before 1900, or before 1970 with a fraction of a second, in another time zone")


def _check_instants(array: pa.Array) -> None:
    """Raise `ValueError` for instants that Spark converts with the zone offsets of Java's older classes."""
    if (is_valid(array) & (values_of(array, np.int64) < FIRST_SECOND * PER_SECOND[array.type.unit])).any():
        raise ValueError("an instant before 1900 with a timeZone other than UTC")


def _from_hybrid(days: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the days with the dates in the Gregorian calendar that `days` have in the Julian calendar."""
    shifted = days + _EPOCH_JULIAN_DAY + 32_082
    years = (4 * shifted + 3) // 1461
    day_of_year = shifted - 1461 * years // 4  # from the first of March on
    months = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * months + 2) // 5
    # Years begin with March in both calendars here, so that months have the same lengths.
    years -= 4800
    return 365 * years + years // 4 - years // 100 + years // 400 + (153 * months + 2) // 5 + day - 719_468


def _with_values(array: pa.Array, values: NDArray[np.integer]) -> pa.Array:
    return from_numpy(values, array.type, is_valid(array))
