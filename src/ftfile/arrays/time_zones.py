"""Clocks of time zones: by name, as in `Europe/Berlin`, or by offset, as in `+01:00`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.arrays import kernels as pc

if TYPE_CHECKING:
    from typing import Literal

_INSTANT, _CLOCK = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
_OFFSET = re.compile(r"([+-])(0\d|1[0-8]):([0-5]\d)")


def is_zone(name: str) -> bool:
    """Return True if there is such a zone."""
    if not name or name == "UTC":
        return bool(name)
    try:
        clocks_of(pa.array([0], _INSTANT), name)
    except pa.ArrowInvalid:
        return False
    return True


def clocks_of(instants: pa.TimestampArray, zone: str) -> pa.TimestampArray:
    """Return the local times of a zone, as timestamps without one."""
    # Without the time zone database, which a small container may lack: UTC, and offsets, which older pyarrow refuses.
    if zone == "UTC":
        return instants.cast(_INSTANT).cast(_CLOCK)
    if offset := _offset(zone):
        return pc.add(instants.cast(_INSTANT).cast(_CLOCK), offset)
    return pc.local_timestamp(instants.cast(pa.timestamp("us", tz=zone)))


def instants_of(
    clocks: pa.TimestampArray, zone: str, twice: Literal["earliest", "latest"] = "earliest"
) -> pa.TimestampArray:
    """Return the inverse of `clocks_of`; `twice` chooses the moment where clocks show an hour twice."""
    if zone == "UTC":
        return clocks.cast(_INSTANT)
    if offset := _offset(zone):
        return pc.subtract(clocks, offset).cast(_INSTANT)
    return pc.assume_timezone(clocks, zone, ambiguous=twice, nonexistent="earliest").cast(_INSTANT)


def _offset(zone: str) -> pa.DurationScalar | None:
    match = _OFFSET.fullmatch(zone)
    if match is None:
        return None
    minutes = int(match[2]) * 60 + int(match[3])
    return pa.scalar((minutes if match[1] == "+" else -minutes) * 60_000_000, pa.duration("us"))
