"""Sizes, durations, times and numbers as text."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


_SIZE = re.compile(r"(\d+)\s*([kmgt]?)(i?)b?", re.IGNORECASE | re.ASCII)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE | re.ASCII)
LONGEST_S = 1e12  # 31,700 years; in microseconds it fits into 64 bits, added to the time of any clock
_FRACTION = re.compile(r"(?<=:\d\d)[.,](\d{1,9})")
_SECONDS = (
    {"ms": 0.001}
    | dict.fromkeys(("s", "sec", "second"), 1)
    | dict.fromkeys(("m", "min", "minute"), 60)
    | dict.fromkeys(("h", "hour"), 3600)
    | dict.fromkeys(("d", "day"), 86_400)
)


def parse_size_bytes(text: str) -> int:
    """Return the bytes of `1048576`, `128m`, `128MB` or `128MiB`; units are powers of 1024, as in Spark."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError(text)
    return int(match[1]) * (1 << 10 * _POWERS[match[2].lower()])


def parse_duration_s(text: str) -> float:
    """Return the seconds of a duration such as `90s`, `5 min`, `1.5h`, `7d`, `250ms`; at most `LONGEST_S`."""
    match = _DURATION.fullmatch(text.strip())
    unit = match[2].lower() if match else ""
    seconds = _SECONDS.get(unit) or _SECONDS.get(unit.removesuffix("s"))
    if not match or seconds is None:
        raise ValueError(text)
    return min(float(match[1]) * seconds, LONGEST_S)


def _six_digits(fraction: re.Match[str]) -> str:
    return f".{fraction[1][:6]:0<6}"


def parse_time(text: str) -> datetime:
    """Return a time in ISO 8601, such as `2024-07-01T12:00:00.5+02:00`; without a zone it is in UTC."""
    # Python 3.10 accepts neither a Z nor fractions of other lengths.
    text = re.sub("[zZ]$", "+00:00", text.strip())
    text = _FRACTION.sub(_six_digits, text)
    time = datetime.fromisoformat(text)
    if time.tzinfo is not None:
        return time
    return time.replace(tzinfo=timezone.utc)


_KIB = 1024
_THREE_DIGITS = 999.5
_TWO_DIGITS = 99.95
_SMALLEST_WHOLE_S = 9.95
_SHOWN_MAX = 3
# The first second of year 1, and the last one of 9999, since 1970.
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799
# A duration is shown in the largest unit of which it has at least two.
_UNITS = ((2 * 86_400, 86_400, "d"), (2 * 3600, 3600, "h"), (2 * 60, 60, "min"))


def bytes_text(size_bytes: int) -> str:
    """Return a size with at most three digits before the point, and one after it for small sizes."""
    if size_bytes < _KIB:
        return f"{size_bytes} B"
    size, unit = size_bytes / _KIB, "KiB"
    for larger in ("MiB", "GiB", "TiB", "PiB"):
        if size < _THREE_DIGITS:
            break
        size, unit = size / _KIB, larger
    if size < _TWO_DIGITS:
        return f"{size:.1f} {unit}"
    return f"{size:.0f} {unit}"


def count_text(count: int, one: str = "", many: str = "") -> str:
    """Return a number with commas, and with a noun: `1 file`, `1,234 files`."""
    noun = one if count == 1 else many or f"{one}s"
    if one:
        return f"{count:,} {noun}"
    return f"{count:,}"


def names_text(names: Sequence[str]) -> str:
    """Return the first names, quoted, and the number of the others: `'a', 'b', 'c' and 2 more`."""
    return first_text([repr(name) for name in names])


def first_text(texts: Sequence[str]) -> str:
    """Return the first texts, and the number of the others: `a, b, c and 2 more`."""
    shown, more = ", ".join(texts[:_SHOWN_MAX]), len(texts) - _SHOWN_MAX
    if more > 0:
        return f"{shown} and {more:,} more"
    return shown


def time_text(time_ms: int | None) -> str:
    """Return a time in UTC to the second; empty for None."""
    if time_ms is None:
        return ""
    return f"{_time(time_ms):%Y-%m-%d %H:%M:%S}"


def exact_time(time_ms: int | None) -> str:
    """Return a time as in ISO 8601, to the millisecond; empty for None."""
    if time_ms is None:
        return ""
    return f"{_time(time_ms):%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"


def duration_text(seconds: float) -> str:
    """Return a duration in seconds, minutes, hours or days."""
    for least, unit_s, unit in _UNITS:
        if seconds >= least:
            return f"{seconds / unit_s:.0f} {unit}"
    if seconds < _SMALLEST_WHOLE_S:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s"


def ago(time_ms: int, now_ms: int) -> str:
    """Return a time relative to now: `3 s ago`, `in 5 min`."""
    seconds = (now_ms - time_ms) / 1000
    if seconds >= 0:
        return f"{duration_text(seconds)} ago"
    return f"in {duration_text(-seconds)}"


def _time(time_ms: int) -> datetime:
    """Return a time, limited to the years 1 to 9999, since a damaged record can have any number."""
    return datetime.fromtimestamp(min(max(time_ms // 1000, _FIRST_S), _LAST_S), timezone.utc)
