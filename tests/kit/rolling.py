"""The moments at which open files end, derived only from the options and independent of the product's planning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.writing.files.rolling_rules import ACROSS_BATCHES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ftfile.log.format.model import Add

__all__ = ("AT_ONCE", "DRAWN", "EVENT_RULES", "FINAL_RULES", "RULES", "RowFacts", "Rules", "due_segments", "rules_of")

_MINUTE_MS = 60_000

# By reason, the options that end a file of one or two records with its batch, or an hour later.
AT_ONCE: dict[str, dict[str, str]] = {
    "size": {"maxBytesPerFile": "1"},
    "rows": {"maxRecordsPerFile": "1"},
    "batches": {"maxBatchesPerFile": "1"},
    "age": {"rolloverInterval": "1h"},
    "inactivity": {"inactivityInterval": "1h"},
    "schedule": {"rolloverSchedule": "1h", "inactivityInterval": "9h"},
    "segments": {"maxSegmentsPerPart": "1"},
    "openSegments": {"maxOpenSegments": "1"},
}

# The rules that histories draw: for all rows, for rows with a time, and for rows that can be the last of a file.
RULES: tuple[dict[str, str], ...] = (
    {},
    {"maxBatchesPerFile": "2"},
    {"maxBatchesPerFile": "5"},
    {"rolling": "policy", "maxRecordsPerFile": "1"},
    {"rolling": "policy", "maxRecordsPerFile": "3"},
    {"rolling": "policy", "maxBytesPerFile": "40"},
    {"rolling": "policy", "maxBytesPerFile": "60", "strictFileSize": "true"},
    {"rolloverInterval": "10min"},
    {"inactivityInterval": "5min"},
    {"rolloverSchedule": "1h"},
    {"rolling": "policy", "maxSegmentsPerPart": "3"},
    {"rolling": "policy", "maxOpenSegments": "10"},
    {"maxBatchesPerFile": "3", "maxSegmentsPerPart": "4"},
)
EVENT_RULES: tuple[dict[str, str], ...] = (
    {"eventTimeInterval": "t:10min"},
    {"eventTimeInterval": "t:20min", "inactivityInterval": "5min"},
    {"eventTimeInterval": "t:10min", "maxBatchesPerFile": "3"},
    {"eventTimeInterval": "t:10min", "maxRecordsPerFile": "3"},
)
FINAL_RULES: tuple[dict[str, str], ...] = (
    {"finalizeColumn": "last"},
    {"finalizeColumn": "last", "maxSegmentsPerPart": "2"},
    {"finalizeColumn": "last", "maxBatchesPerFile": "3"},
)
DRAWN = (*RULES, *EVENT_RULES, *FINAL_RULES)


@dataclass(frozen=True, slots=True)
class RowFacts:
    """The facts about one row of an open file, as its writer has them."""

    batch: int
    committed_ms: int  # when its batch was committed
    is_final: bool = False  # its value in the column of `finalizeColumn`


@dataclass(frozen=True, slots=True)
class Rules:
    """When files end by the options of the query. An unset option is None. Times are in ms of the UTC clock."""

    max_bytes: int | None = None
    max_rows: int | None = None
    max_batches: int | None = None
    age_ms: int | None = None
    inactivity_ms: int | None = 3_600_000
    clock_ms: int | None = None
    finalize: bool = False
    max_segments: int = 1_000


def rules_of(options: dict[str, str]) -> Rules | None:
    """Return when files end by these options, or None if they end with their batch."""
    if not ACROSS_BATCHES & options.keys() and options.get("rolling") != "policy":
        return None
    return Rules(
        max_bytes=int(options["maxBytesPerFile"]) if "maxBytesPerFile" in options else None,
        max_rows=int(options["maxRecordsPerFile"]) if "maxRecordsPerFile" in options else None,
        max_batches=int(options["maxBatchesPerFile"]) if "maxBatchesPerFile" in options else None,
        age_ms=10 * _MINUTE_MS if "rolloverInterval" in options else None,
        inactivity_ms=(5 if "inactivityInterval" in options else 60) * _MINUTE_MS,
        clock_ms=60 * _MINUTE_MS if "rolloverSchedule" in options else None,
        finalize="finalizeColumn" in options,
        max_segments=int(options.get("maxSegmentsPerPart", 1_000)),
    )


def due_segments(
    rules: Rules, group: Sequence[tuple[Add, Sequence[RowFacts]]], now_ms: int
) -> Iterable[tuple[Add, str]]:
    """Yield the segments that must be assembled now, for any order of the segments within a batch."""
    facts = [fact for _, rows in group for fact in rows]
    if not facts:
        return
    why = _whole_group_due(rules, group, facts, now_ms)
    for segment, rows in group:
        last = max((fact.batch for fact in rows), default=0)
        reason = why or _segment_due(rules, rows, [fact for fact in facts if fact.batch > last])
        if reason is None and rules.max_bytes is not None:
            later = sum(other.length for other, those in group if min((f.batch for f in those), default=0) > last)
            reason = "size" if later >= rules.max_bytes else None
        if reason is not None:
            yield segment, reason


def _whole_group_due(
    rules: Rules, group: Sequence[tuple[Add, Sequence[RowFacts]]], facts: Sequence[RowFacts], now_ms: int
) -> str | None:
    times = sorted({fact.committed_ms for fact in facts})
    pauses = [later - earlier for earlier, later in zip(times, [*times[1:], now_ms], strict=True)]
    if rules.max_batches is not None and len({fact.batch for fact in facts}) >= rules.max_batches:
        return "batches"
    if rules.age_ms is not None and now_ms - times[0] >= rules.age_ms:
        return "age"
    if rules.inactivity_ms is not None and pauses[-1] >= rules.inactivity_ms:
        return "inactivity"
    if rules.clock_ms is not None and times[0] // rules.clock_ms < now_ms // rules.clock_ms:
        return "schedule"
    return "segments" if len(group) >= rules.max_segments else None


def _segment_due(rules: Rules, rows: Sequence[RowFacts], later: Sequence[RowFacts]) -> str | None:
    """Return the reason why a segment is due, judged by the rows after it."""
    if rules.finalize and any(fact.is_final for fact in (*rows, *later)):
        return "finalize"
    if rules.max_rows is not None and len(later) >= rules.max_rows:
        return "rows"
    times = [fact.committed_ms for fact in later]
    if rules.inactivity_ms is not None and times and rows:
        pause = min(times) - max(fact.committed_ms for fact in rows)
        if pause >= rules.inactivity_ms:
            return "a pause"
    return None
