"""When parts that stay open over batches end: the options, as data that the log keeps for flushes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ftfile.commit.format.fields import FLAG, NUMBER, OR_NULL, TEXT, Field, Fields
from ftfile.core.errors import ConfigError
from ftfile.core.options import ParsedOptions, parse_options
from ftfile.core.options.table import ROLLED_BYTES, ROLLED_INACTIVITY_S

# These fire only across batches; any of them asks for rolling=policy.
_ACROSS_BATCHES = (
    "maxBatchesPerFile",
    "rolloverInterval",
    "inactivityInterval",
    "rolloverSchedule",
    "eventTimeInterval",
    "finalizeColumn",
    "rollingPolicy",
)
# These mean nothing where no file stays open.
_OF_OPEN_FILES = ("strictFileSize", "maxSegmentsPerPart", "maxOpenSegments")


@dataclass(frozen=True, slots=True)
class RollingSettings:
    """The rules under which a group of open segments is due; None where a rule does not apply."""

    max_bytes: int | None  # a part closes after the record that reaches it
    max_rows: int | None  # in a part
    max_batches: int | None  # with rows in the part
    age_ms: int | None  # since the first rows were committed
    inactivity_ms: int | None  # since the last rows were committed
    clock_ms: int | None  # period by the clocks of `clock_zone`, counted from midnight
    clock_zone: str
    event_column: str | None  # of timestamps; a part has rows of one window and ends when there are rows of a later one
    event_us: int | None  # the length of a window
    finalize_column: str | None  # of booleans; a part ends after a row in which it is true
    policy: str | None  # the user's, as `module:Class`
    strict: bool  # a part closes before the record with which it would pass `max_bytes`
    max_segments: int  # in a part
    max_open_segments: int  # in the directory; beyond it the oldest groups are due

    @property
    def needs_spool(self) -> bool:
        """Return True if rules see every row, or act before one is written: parts that tasks write end after a row."""
        return self.finalize_column is not None or self.event_column is not None or self.strict


ROLLING = Fields(
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
    """Return the rules that the options ask for, or None if every part ends with its batch."""
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


# Of a query that keeps nothing open: the files that it left open before end.
ALL_END = replace(_settings_of(parse_options({}, "write")), max_batches=1, inactivity_ms=None, max_open_segments=0)
