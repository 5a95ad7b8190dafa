"""When parts that stay open over batches end: the options, as data that the log keeps for flushes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ftfile.commit.format.fields import FLAG, NUMBER, OR_NULL, TEXT, Field, Fields
from ftfile.core.errors import ConfigError
from ftfile.core.options import parse_options
from ftfile.core.options.rolling import ROLLED_BYTES, ROLLED_INACTIVITY_S

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.core.options import ParsedOptions

__all__ = ("ALL_END", "FIELDS", "RollingSettings", "rolling_settings")

# What can only fire across batches; any of them asks for rolling=policy.
_ACROSS_BATCHES = (
    "maxBatchesPerFile",
    "rolloverInterval",
    "inactivityInterval",
    "rolloverSchedule",
    "eventTimeInterval",
    "finalizeColumn",
    "rollingPolicy",
)
# What says how open files are kept, and nothing where there are none.
_OF_OPEN_FILES = ("strictFileSize", "maxSegmentsPerPart", "maxOpenSegments")


@dataclass(frozen=True, slots=True)
class RollingSettings:
    """The rules under which a group of open segments is due; None where a rule does not apply.

    Attributes:
        max_bytes: a part closes after the record that reaches it; with `strict`, before the one that would pass it.
        max_rows: records in a part.
        max_batches: batches that contributed rows.
        age_ms: since the first rows were committed.
        inactivity_ms: since the last rows were committed.
        clock_ms: period by the clocks of `clock_zone`, counted from midnight.
        event_column: a timestamp column; a part has rows of one window of `event_us` microseconds of it, and ends once
            the bucket has rows of a later one.
        finalize_column: a boolean column; a true value ends the part after its row.
        policy: the user's class, as `module:Class`.
        max_segments: of which a part is made at most.
        max_open_segments: in the directory; beyond it the oldest groups are due.
    """

    max_bytes: int | None
    max_rows: int | None
    max_batches: int | None
    age_ms: int | None
    inactivity_ms: int | None
    clock_ms: int | None
    clock_zone: str
    event_column: str | None
    event_us: int | None
    finalize_column: str | None
    policy: str | None
    strict: bool
    max_segments: int
    max_open_segments: int

    @property
    def needs_spool(self) -> bool:
        """Return True if rules look at every row, or before one is written: parts that tasks write end after a row."""
        return self.finalize_column is not None or self.event_column is not None or self.strict

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON for the log."""
        return FIELDS.to_json(self)

    @classmethod
    def from_json(cls, text: Mapping[str, Any]) -> RollingSettings:
        """Build from `to_json()`."""
        return FIELDS.from_json(text)


FIELDS = Fields(
    RollingSettings,
    Field("maxBytesPerFile", "max_bytes", NUMBER + OR_NULL),
    Field("maxRecordsPerFile", "max_rows", NUMBER + OR_NULL),
    Field("maxBatchesPerFile", "max_batches", NUMBER + OR_NULL),
    Field("rolloverIntervalMs", "age_ms", NUMBER + OR_NULL),
    Field("inactivityIntervalMs", "inactivity_ms", NUMBER + OR_NULL),
    Field("rolloverScheduleMs", "clock_ms", NUMBER + OR_NULL),
    Field("timeZone", "clock_zone", TEXT),
    Field("eventTimeColumn", "event_column", TEXT + OR_NULL),
    Field("eventTimeIntervalUs", "event_us", NUMBER + OR_NULL),
    Field("finalizeColumn", "finalize_column", TEXT + OR_NULL),
    Field("rollingPolicy", "policy", TEXT + OR_NULL),
    Field("strictFileSize", "strict", FLAG),
    Field("maxSegmentsPerPart", "max_segments", NUMBER),
    Field("maxOpenSegments", "max_open_segments", NUMBER),
)


def rolling_settings(parsed: ParsedOptions) -> RollingSettings | None:
    """Return the rules that the options ask for, or None if every part ends with its batch.

    Raises:
        ConfigError: `rolling=batch` with a rule that can only fire across batches, or with what is for open files.
    """
    given = [name for name in _ACROSS_BATCHES if name in parsed.given]
    mode = parsed.given.get("rolling")
    if mode == "batch" and given:
        raise ConfigError(
            f"rolling=batch ends every file with its batch, and {', '.join(given)} can only fire later: leave out one"
        )
    if mode != "policy" and not given:
        idle = [name for name in _OF_OPEN_FILES if name in parsed.given]
        if idle:
            raise ConfigError(f"{', '.join(idle)}: this is for files that stay open over batches; set rolling=policy")
        return None
    return _settings_of(parsed)


def _settings_of(parsed: ParsedOptions) -> RollingSettings:
    event = parsed["eventTimeInterval"]
    clock_s = parsed["rolloverSchedule"]
    return RollingSettings(
        max_bytes=parsed["maxBytesPerFile"] or ROLLED_BYTES,
        max_rows=parsed["maxRecordsPerFile"],
        max_batches=parsed["maxBatchesPerFile"],
        age_ms=_ms(parsed["rolloverInterval"]),
        inactivity_ms=_ms(parsed.given.get("inactivityInterval", ROLLED_INACTIVITY_S)),
        clock_ms=_ms(clock_s),
        clock_zone=parsed["timeZone"],
        event_column=event[0] if event else None,
        event_us=round(event[1] * 1e6) if event else None,
        finalize_column=parsed["finalizeColumn"],
        policy=parsed["rollingPolicy"],
        strict=parsed["strictFileSize"],
        max_segments=parsed["maxSegmentsPerPart"],
        max_open_segments=parsed["maxOpenSegments"],
    )


def _ms(duration_s: float | None) -> int | None:
    return None if duration_s is None else round(duration_s * 1000)


# Of a query that keeps nothing open any more: what it left open before ends.
ALL_END = replace(_settings_of(parse_options({}, "write")), max_batches=1, inactivity_ms=None, max_open_segments=0)
