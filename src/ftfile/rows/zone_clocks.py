"""Conversion between instants and local times of time zones."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from ftfile.rows import kernels as pc
from ftfile.rows.buffers import from_numpy, is_valid, values_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from numpy.typing import NDArray

__all__ = ("clocks_of", "instants_of", "instants_shown_once", "is_zone")


_INSTANT, _CLOCK = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
_OFFSET = re.compile(r"([+-])(0\d|1[0-8]):([0-5]\d)")

# From 2037 on, Arrow has no daylight saving time: it reads the transitions that a zone's file lists, not its rule.
_LAST_LISTED_US = 2_114_380_800_000_000  # 2037-01-01
_QUARTER_US = 900_000_000  # without a transition
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
# Weekdays, and so the dates of transitions, repeat after 400 years. The lists of some zones end after 2037.
_CYCLE_US = 146_097 * 86_400_000_000
_FIRST_CYCLE_US = 4_102_444_800_000_000  # 2100-01-01


def is_zone(name: str) -> bool:
    """Return True if the time zone exists."""
    if not name or name == "UTC":
        return bool(name)
    try:
        clocks_of(pa.array([0], _INSTANT), name)
    except pa.ArrowInvalid:
        return False
    return True


def clocks_of(instants: pa.TimestampArray, zone: str) -> pa.TimestampArray:
    """Return the local times of a zone, as timestamps without time zone."""
    # UTC and offsets work without the time zone database, which a small container can lack and older pyarrow needs:
    # apache/arrow#36558.
    if zone == "UTC":
        return instants.cast(_INSTANT).cast(_CLOCK)
    if offset := _offset(zone):
        return pc.add(instants.cast(_INSTANT).cast(_CLOCK), offset)
    clocks = pc.local_timestamp(instants.cast(pa.timestamp("us", tz=zone)))

    def far_clocks(instants_us: NDArray[np.int64]) -> NDArray[np.int64]:
        return instants_us + _offsets_at(instants_us, zone)

    return _with_far(clocks, instants.cast(_INSTANT), far_clocks)


def instants_of(
    clocks: pa.TimestampArray, zone: str, twice: Literal["earliest", "latest"] = "earliest"
) -> pa.TimestampArray:
    """Return the inverse of `clocks_of`; `twice` selects one of two instants. Skipped times move later, as in Java."""
    if zone == "UTC":
        return clocks.cast(_INSTANT)
    if offset := _offset(zone):
        return pc.subtract(clocks, offset).cast(_INSTANT)
    clocks = clocks.cast(_CLOCK)
    instants = pc.assume_timezone(clocks, zone, ambiguous=twice, nonexistent="earliest").cast(_INSTANT)
    shown = pc.local_timestamp(instants.cast(pa.timestamp("us", tz=zone)))
    instants = pc.add(instants, pc.subtract(clocks, shown))  # zero is added, except for skipped times

    def far_instants(clocks_us: NDArray[np.int64]) -> NDArray[np.int64]:
        return clocks_us - _offsets_of_clocks(clocks_us, zone, twice)

    return _with_far(instants, clocks, far_instants)


def instants_shown_once(clocks: pa.TimestampArray, zone: str) -> pa.TimestampArray:
    """Return the inverse of `clocks_of`; `ValueError` if a local time is ambiguous or skipped."""
    instants = instants_of(clocks, zone)
    if not instants_of(clocks, zone, twice="latest").equals(instants):
        raise ValueError(f"the clocks of {zone} show a time twice")
    if not clocks_of(instants, zone).equals(clocks.cast(_CLOCK)):
        raise ValueError(f"the clocks of {zone} skip a time")
    return instants


def _with_far(
    converted: pa.TimestampArray,
    times: pa.TimestampArray,
    convert: Callable[[NDArray[np.int64]], NDArray[np.int64]],
) -> pa.TimestampArray:
    """Return converted times. Times after the last transition that Arrow knows are converted by `convert`."""
    times_us = values_of(times, np.int64)
    is_far = is_valid(times) & (times_us >= _LAST_LISTED_US)
    if not is_far.any():
        return converted
    values = values_of(converted, np.int64).copy()
    values[is_far] = convert(times_us[is_far])
    return from_numpy(values, converted.type, is_valid(times))


def _offsets_at(instants_us: NDArray[np.int64], zone: str) -> NDArray[np.int64]:
    """Return the offsets from UTC at instants, in microseconds."""
    info = ZoneInfo(zone)

    def offset(instant: dt.datetime) -> int:
        return _micros(instant.astimezone(info).utcoffset())

    return _by_quarters(instants_us, offset)


def _offsets_of_clocks(clocks_us: NDArray[np.int64], zone: str, twice: str) -> NDArray[np.int64]:
    """Return the offsets from UTC at local times, in microseconds; a skipped time has the earlier offset."""
    info = ZoneInfo(zone)

    def offset(clock: dt.datetime) -> int:
        local = clock.replace(tzinfo=info)
        before, after = _micros(local.utcoffset()), _micros(local.replace(fold=1).utcoffset())
        if twice == "earliest":
            return before
        return min(before, after)

    return _by_quarters(clocks_us, offset)


def _by_quarters(times_us: NDArray[np.int64], offset: Callable[[dt.datetime], int]) -> NDArray[np.int64]:
    cycles = np.maximum(times_us - _FIRST_CYCLE_US, 0) // _CYCLE_US
    quarters, numbers = np.unique((times_us - cycles * _CYCLE_US) // _QUARTER_US, return_inverse=True)
    offsets = [offset(_EPOCH + dt.timedelta(minutes=15 * quarter)) for quarter in quarters.tolist()]
    return np.array(offsets, np.int64)[numbers]


def _micros(offset: dt.timedelta | None) -> int:
    assert offset is not None, "a time with a zone has an offset"
    return round(offset.total_seconds()) * 1_000_000


def _offset(zone: str) -> pa.DurationScalar | None:
    match = _OFFSET.fullmatch(zone)
    if match is None:
        return None
    minutes = int(match[2]) * 60 + int(match[3])
    return pa.scalar((minutes if match[1] == "+" else -minutes) * 60_000_000, pa.duration("us"))
