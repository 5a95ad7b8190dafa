"""Sizes, durations and times as users write them; a ValueError for text that is none."""

from __future__ import annotations

import re
from datetime import datetime, timezone

_SIZE = re.compile(r"(\d+)\s*([kmgt]?)(i?)b?", re.IGNORECASE | re.ASCII)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE | re.ASCII)
LONGEST_S = 1e12  # 31,700 years; in microseconds it has room in 64 bits, beside the time of any clock
_FRACTION = re.compile(r"(?<=:\d\d)[.,](\d{1,9})")
_SECONDS = (
    {"ms": 0.001}
    | dict.fromkeys(("s", "sec", "second"), 1)
    | dict.fromkeys(("m", "min", "minute"), 60)
    | dict.fromkeys(("h", "hour"), 3600)
    | dict.fromkeys(("d", "day"), 86_400)
)


def parse_size_bytes(text: str) -> int:
    """Return bytes: `1048576`, `128m`, `128MB`, `128MiB`; every unit is a power of 1024, as in Spark."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError(text)
    return int(match[1]) * (1 << 10 * _POWERS[match[2].lower()])


def parse_duration_s(text: str) -> float:
    """Return seconds, `LONGEST_S` at most: `90s`, `5 min`, `1.5h`, `7d`, `250ms`."""
    match = _DURATION.fullmatch(text.strip())
    unit = match[2].lower() if match else ""
    seconds = _SECONDS.get(unit) or _SECONDS.get(unit.removesuffix("s"))
    if not match or seconds is None:
        raise ValueError(text)
    return min(float(match[1]) * seconds, LONGEST_S)


def parse_time(text: str) -> datetime:
    """Return a time as in ISO 8601: `2024-07-01T12:00:00.5+02:00`, `2024-07-01 12:00Z`; without a zone it is UTC."""
    # Python 3.10 takes neither a Z nor fractions of any other length.
    text = re.sub("[zZ]$", "+00:00", text.strip())
    text = _FRACTION.sub(lambda match: f".{match[1][:6]:0<6}", text)
    time = datetime.fromisoformat(text)
    return time if time.tzinfo is not None else time.replace(tzinfo=timezone.utc)
