"""The patterns and the time zone of dates and timestamps in text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.core.errors import ConfigError
from ftfile.core.options.table import DEFAULTS
from ftfile.rows.value_text import TimePattern
from ftfile.rows.zone_clocks import is_zone

if TYPE_CHECKING:
    from collections.abc import Mapping


_OPTIONS = {
    "timestamp": "timestampFormat",
    "timestamp_ntz": "timestampNTZFormat",
    "date": "dateFormat",
    "zone": "timeZone",
}
_INSTANT, _WALL_CLOCK, _DATE = pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.date32()
_UTC_NAMES = ("UTC", "Z", "GMT", "Etc/UTC")

_parsed = lru_cache(maxsize=64)(TimePattern.parse)  # all plans and tasks of a query need the same formats


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeFormats:
    """Patterns, by default ISO 8601 with microseconds, and the time zone of TIMESTAMP columns."""

    timestamp: str
    timestamp_ntz: str
    date: str
    zone: str

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> TimeFormats:
        """Return the formats of options; `ConfigError` if a pattern or a time zone is unknown."""
        formats = cls(**{name: options.get(option, DEFAULTS[option]) for name, option in _OPTIONS.items()})
        if formats.zone in _UTC_NAMES:
            formats = replace(formats, zone="UTC")
        for kind in (_INSTANT, _WALL_CLOCK, _DATE):
            formats.pattern(kind)
        if not is_zone(formats.zone):
            advice = "write it as in `Europe/Berlin`, `+01:00` or `UTC`"
            raise ConfigError(f"option timeZone={formats.zone!r} is not understood; {advice}")
        return formats

    def definition(self) -> dict[str, Any]:
        """Return the options that differ from the defaults."""
        options = {option: getattr(self, name) for name, option in _OPTIONS.items()}
        return {option: value for option, value in options.items() if value != DEFAULTS[option]}

    def pattern(self, kind: pa.DataType) -> TimePattern:
        """Return the pattern of a date or timestamp type."""
        name = self._name(kind)
        return _parsed(_OPTIONS[name], getattr(self, name), kind)

    def is_iso(self, kind: pa.DataType) -> bool:
        """Return True for the default pattern, which every parser reads."""
        name = self._name(kind)
        return bool(getattr(self, name) == DEFAULTS[_OPTIONS[name]])

    def keeps(self, kind: pa.DataType) -> bool:
        """Return True if values of a type, also of a type without a pattern, are read back as they were written."""
        return not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)) or self.is_iso(kind)

    def is_default(self, kind: pa.DataType) -> bool:
        """Return True for the default pattern, and for timestamps in UTC."""
        return self.is_iso(kind) and (self.zone == "UTC" or self._name(kind) != "timestamp")

    def _name(self, kind: pa.DataType) -> str:
        if pa.types.is_date(kind):
            return "date"
        if kind.tz:
            return "timestamp"
        return "timestamp_ntz"
