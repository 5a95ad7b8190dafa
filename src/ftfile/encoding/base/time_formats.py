"""The options that say how dates and timestamps are written as text."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.arrays.time_text import TimePattern
from ftfile.arrays.time_zones import is_zone
from ftfile.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("TimeFormats",)

_OPTIONS = {
    "timestamp": "timestampFormat",
    "timestamp_ntz": "timestampNTZFormat",
    "date": "dateFormat",
    "zone": "timeZone",
}
_INSTANT, _WALL_CLOCK, _DATE = pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.date32()
_UTC_NAMES = ("UTC", "Z", "GMT", "Etc/UTC")


@dataclass(frozen=True, slots=True)
class TimeFormats:
    """Patterns and time zone; the defaults are ISO 8601 with microseconds.

    Attributes:
        zone: whose clocks TIMESTAMP columns show; they are instants, so nothing but their look depends on it.
    """

    timestamp: str = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
    timestamp_ntz: str = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
    date: str = "yyyy-MM-dd"
    zone: str = "UTC"

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> TimeFormats:
        """Take the options that are given, under their names in the option table.

        Raises:
            ConfigError: a pattern or a time zone is not known.
        """
        given = {name: options[option] for name, option in _OPTIONS.items() if option in options}
        if given.get("zone") in _UTC_NAMES:
            given["zone"] = "UTC"
        formats = cls(**given)
        for kind in (_INSTANT, _WALL_CLOCK, _DATE):
            formats.pattern(kind)
        if not is_zone(formats.zone):
            advice = "write it as in `Europe/Berlin`, `+01:00` or `UTC`"
            raise ConfigError(f"option timeZone={formats.zone!r} is not understood; {advice}")
        return formats

    def definition(self) -> dict[str, Any]:
        """Return the options that differ from the defaults."""
        return {
            _OPTIONS[field.name]: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name) != field.default
        }

    def pattern(self, kind: pa.DataType) -> TimePattern:
        """Return how values of a date or timestamp type are written."""
        name = self._name(kind)
        return TimePattern.parse(_OPTIONS[name], getattr(self, name), kind)

    def is_iso(self, kind: pa.DataType) -> bool:
        """Return True if values of this type are written in the default pattern, which every parser reads."""
        name = self._name(kind)
        return bool(getattr(self, name) == getattr(_DEFAULT, name))

    def is_default(self, kind: pa.DataType) -> bool:
        """Return True if values of this type are written in the default pattern, instants in UTC."""
        return self.is_iso(kind) and (self.zone == "UTC" or self._name(kind) != "timestamp")

    def _name(self, kind: pa.DataType) -> str:
        if pa.types.is_date(kind):
            return "date"
        return "timestamp" if kind.tz else "timestamp_ntz"


_DEFAULT = TimeFormats()
