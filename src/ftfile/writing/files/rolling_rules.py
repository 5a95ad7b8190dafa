"""The rules that end files which stay open over batches, and their options, which the log keeps."""

from __future__ import annotations

import functools
import pkgutil
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from msgspec import Struct, field, structs

from ftfile.core.errors import ConfigError, UserCodeError
from ftfile.core.options.parsing import parse_options
from ftfile.core.options.table import OPTIONS, ROLLED_BYTES, ROLLED_INACTIVITY_S
from ftfile.core.options.typed import SinkOptions
from ftfile.log.format.model import Count
from ftfile.rows.buffers import from_numpy, values_of
from ftfile.rows.value_text import UTC
from ftfile.rows.zone_clocks import clocks_of, instants_of
from ftfile.writing.files.rolling_groups import AT_ONCE, Deadline, GroupTotals, earliest_of

if TYPE_CHECKING:
    from collections.abc import Callable


# These options have no effect if no file stays open.
_OF_OPEN_FILES = ("strictFileSize", "maxSegmentsPerPart", "maxOpenSegments")

DAY_US = 86_400_000_000
_INACTIVITY = "inactivity"
_Answer = TypeVar("_Answer", str, int)


class RollingSettings(Struct, frozen=True, rename="camel"):
    """The rules that make a group of open segments due. A rule with None is not used."""

    max_bytes: Count | None = field(name="maxBytesPerFile")  # a part ends after the record that reaches the limit
    max_rows: Count | None = field(name="maxRecordsPerFile")  # in a part
    max_batches: Count | None = field(name="maxBatchesPerFile")  # with rows in the part
    age_ms: Count | None = field(name="rolloverIntervalMs")  # since the commit of the first rows
    inactivity_ms: Count | None = field(name="inactivityIntervalMs")  # since the commit of the last rows
    # period in local time of `clock_zone`, counted from midnight
    clock_ms: Count | None = field(name="rolloverScheduleMs")
    clock_zone: str = field(name="timeZone")
    event_column: str | None = field(name="eventTimeColumn")  # of timestamps; all rows of a part are in one window
    event_us: Count | None = field(name="eventTimeIntervalUs")  # the length of a window
    finalize_column: str | None  # of booleans; a part ends after a row with the value true
    policy: str | None = field(name="rollingPolicy")  # the user's class, as `module:Class`
    strict: bool = field(name="strictFileSize")  # a part ends before the record that would exceed `max_bytes`
    max_segments: Count = field(name="maxSegmentsPerPart")
    # in the directory; above this number, the oldest groups are due
    max_open_segments: Count = field(name="maxOpenSegments")

    @property
    def needs_spool(self) -> bool:
        """Return True if a rule must check each row, or acts before a row is written.

        Parts of tasks only end after a row.
        """
        return self.finalize_column is not None or self.event_column is not None or self.strict


def rolling_settings(parsed: SinkOptions, time_zone: str) -> RollingSettings | None:
    """Return the rules that the options set, or None if all parts end with their batch.

    Days of `rolloverSchedule` start at midnight of this zone.
    """
    set_options = []
    for option in OPTIONS:
        if option.name in ACROSS_BATCHES and option.name in parsed.given:
            set_options.append(option.name)
    mode = parsed.rolling if parsed.is_given("rolling") else None
    if mode == "batch" and set_options:
        raise ConfigError(
            f"rolling=batch ends every file with its batch, so {', '.join(set_options)} would never end a file: leave "
            "out one"
        )
    if mode != "policy" and not set_options:
        idle = [name for name in _OF_OPEN_FILES if name in parsed.given]
        if idle:
            raise ConfigError(f"{', '.join(idle)}: only for files that stay open over batches; set rolling=policy")
        return None
    return _settings_of(parsed, time_zone)


def _settings_of(parsed: SinkOptions, time_zone: str) -> RollingSettings:
    event = parsed.event_time_interval
    clock_s = parsed.rollover_schedule
    inactivity_s = parsed.inactivity_interval
    if inactivity_s is None:
        inactivity_s = ROLLED_INACTIVITY_S
    return RollingSettings(
        max_bytes=parsed.max_bytes_per_file or ROLLED_BYTES,
        max_rows=parsed.max_records_per_file,
        max_batches=parsed.max_batches_per_file,
        age_ms=_ms(parsed.rollover_interval),
        inactivity_ms=_ms(inactivity_s),
        clock_ms=_ms(clock_s),
        clock_zone=time_zone,
        event_column=event[0] if event else None,
        event_us=round(event[1] * 1e6) if event else None,
        finalize_column=parsed.finalize_column,
        policy=parsed.rolling_policy,
        strict=parsed.strict_file_size,
        max_segments=parsed.max_segments_per_part,
        max_open_segments=parsed.max_open_segments,
    )


def _ms(duration_s: float | None) -> int | None:
    if duration_s is None:
        return None
    return round(duration_s * 1000)


class RollingPolicy(Protocol):
    """Interface of a user's class that ends files.

    The driver creates it without arguments, and calls it in each commit.
    """

    def reason_to_end(self, group: GroupTotals, now_ms: int) -> str | None:
        """Return a short code if the file must end now, else None. `now_ms` is the driver's clock in ms since 1970 UTC.

        It is called when the group has changed or was due.
        """

    def deadline_ms(self, group: GroupTotals) -> int | None:
        """Return the time of the next call for an unchanged file; None if it is not called until the file changes."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of the table of rules."""

    reason: str  # its code in the log and in metrics, described in docs/rolling.md
    about: str  # completes "the file …" in reports
    options: tuple[str, ...] = ()  # options that set the rule
    is_across_batches: bool = False  # never ends a file with its first batch, so its options imply rolling=policy
    is_limit: bool = False  # a tail below the limit stays open, because it is not needed yet
    # Whether a group is due; None if the planner checks the rule.
    is_due: Callable[[RollingSettings, GroupTotals, int], bool] | None = None
    # When an unchanged group becomes due; None for a rule that depends only on the totals.
    deadline: Callable[[RollingSettings, GroupTotals], Deadline] | None = None
    # The fields of the settings and of the totals with the limit and the amount; None for rules that do not count.
    counts: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRule:
    """A rule that may end an open file, and its progress. A rule without time and limit ends the file after a row."""

    reason: str  # its code, such as `age`
    option: str  # the option that set it, such as `rolloverInterval`
    deadline_ms: int | None = None  # when it ends an unchanged file, in ms since 1970 UTC
    limit: int | None = None  # number of bytes, rows, batches or segments that ends the file
    amount: int | None = None  # current number in the file


def _count_rule(
    reason: str, about: str, option: str, counts: tuple[str, str], *, is_across_batches: bool = False
) -> Rule:
    """Return a rule that ends a file at a limit; see `Rule.counts`."""

    def is_due(settings: RollingSettings, totals: GroupTotals, _: int) -> bool:
        limit, amount = _limit_and_amount(counts, settings, totals)
        return limit is not None and amount >= limit

    return Rule(
        reason,
        about,
        (option,),
        is_across_batches=is_across_batches,
        is_limit=not is_across_batches,
        is_due=is_due,
        counts=counts,
    )


def _limit_and_amount(
    counts: tuple[str, str], settings: RollingSettings, totals: GroupTotals
) -> tuple[int | None, int]:
    return getattr(settings, counts[0]), getattr(totals, counts[1])


def _has_passed(interval_ms: int | None, since_ms: int, now_ms: int) -> bool:
    # A time that is an interval ahead shows that the clock was set back. Without this check, the file would stay open
    # long.
    return interval_ms is not None and abs(now_ms - since_ms) >= interval_ms


def _time_after(since_ms: int, interval_ms: int | None) -> int | None:
    if interval_ms is None:
        return None
    return since_ms + interval_ms


def _is_final(_settings: RollingSettings, totals: GroupTotals, _now_ms: int) -> bool:
    return totals.is_final


def _is_old(settings: RollingSettings, totals: GroupTotals, now_ms: int) -> bool:
    return _has_passed(settings.age_ms, totals.first_ms, now_ms)


def _end_of_age(settings: RollingSettings, totals: GroupTotals) -> Deadline:
    return _time_after(totals.first_ms, settings.age_ms)


def _is_inactive(settings: RollingSettings, totals: GroupTotals, now_ms: int) -> bool:
    return _has_passed(settings.inactivity_ms, totals.last_ms, now_ms)


def _end_of_inactivity(settings: RollingSettings, totals: GroupTotals) -> Deadline:
    return _time_after(totals.last_ms, settings.inactivity_ms)


def _has_ticked(settings: RollingSettings, totals: GroupTotals, now_ms: int) -> bool:
    tick_ms, period_ms = _tick_ms(settings, totals), settings.clock_ms
    if tick_ms is None or period_ms is None:
        return False
    return totals.first_ms - now_ms >= period_ms or now_ms >= tick_ms


def _tick_ms(settings: RollingSettings, totals: GroupTotals) -> int | None:
    period_ms = settings.clock_ms
    if period_ms is None:
        return None
    return _next_tick_ms(totals.first_ms, period_ms, settings.clock_zone)


def _next_tick(settings: RollingSettings, totals: GroupTotals) -> Deadline:
    return _tick_ms(settings, totals)


# For a query without open files: files that it left open with earlier options end.
ALL_END = structs.replace(
    _settings_of(parse_options({}, SinkOptions), UTC), max_batches=1, inactivity_ms=None, max_open_segments=0
)

# The first rule that is due ends the file. Each rule needs a field of `RollingSettings`.
RULES = (
    Rule(
        "finalize",
        "a record ended it",
        ("finalizeColumn",),
        is_across_batches=True,
        is_due=_is_final,
    ),
    _count_rule(
        "batches",
        "had records of the greatest number of batches",
        "maxBatchesPerFile",
        ("max_batches", "batches"),
        is_across_batches=True,
    ),
    Rule(
        "age",
        "its first records reached the greatest age",
        ("rolloverInterval",),
        is_across_batches=True,
        is_due=_is_old,
        deadline=_end_of_age,
    ),
    Rule(
        "schedule",
        "its scheduled time was reached",
        ("rolloverSchedule",),
        is_across_batches=True,
        is_due=_has_ticked,
        deadline=_next_tick,
    ),
    Rule(
        _INACTIVITY,
        "received no records for the greatest pause",
        ("inactivityInterval",),
        is_across_batches=True,
        is_due=_is_inactive,
        deadline=_end_of_inactivity,
    ),
    _count_rule("size", "reached the greatest size", "maxBytesPerFile", ("max_bytes", "size_bytes")),
    _count_rule("rows", "reached the greatest number of records", "maxRecordsPerFile", ("max_rows", "rows")),
    _count_rule("segments", "had too many segments", "maxSegmentsPerPart", ("max_segments", "segments")),
    Rule("openSegments", "all open files together had too many segments", ("maxOpenSegments",)),
    Rule("large", "one task of one batch filled it"),
    Rule("retriedAlone", "a segment that could not be read with the others"),
    Rule("flush", "a flush, or the end of the stream"),
    Rule("encoding", "format, schema or partitioning had changed"),
)
# A user's policy returns arbitrary codes. This code stands for all of them.
POLICY = Rule("policy", "your rolling policy ended it", ("rollingPolicy",), is_across_batches=True)

REASONS = {rule.reason: rule.about for rule in RULES}
# `eventTimeInterval` ends no file. It sets which rows share a file, and the rules end the file of each window
# separately.
ACROSS_BATCHES = frozenset(
    [
        "eventTimeInterval",
        *chain.from_iterable(rule.options for rule in (*RULES, POLICY) if rule.is_across_batches),
    ]
)


def reason_to_end(settings: RollingSettings, totals: GroupTotals, now_ms: int) -> str | None:
    """Return the code of the first rule that ends a group now, or None."""
    for rule in RULES:
        if rule.is_due is not None and rule.is_due(settings, totals, now_ms):
            return rule.reason
    if settings.policy:
        return _ask_policy(settings.policy, "reason_to_end", str, totals, now_ms)
    return None


def deadline_of(settings: RollingSettings, totals: GroupTotals) -> Deadline:
    """Return when an unchanged group becomes due."""
    deadline: Deadline = None
    for rule in RULES:
        if rule.deadline is not None:
            deadline = earliest_of(deadline, rule.deadline(settings, totals))
        elif rule.is_due is not None and rule.is_due(settings, totals, 0):
            return AT_ONCE  # the rule depends only on the totals, so the group is due at any now_ms
    if settings.policy:
        deadline = earliest_of(deadline, _ask_policy(settings.policy, "deadline_ms", int, totals))
    return deadline


def pending_rules(settings: RollingSettings, totals: GroupTotals) -> tuple[PendingRule, ...]:
    """Return the rules that may end a group: by time (soonest first), by amount (fullest first), then by a row.

    The user's policy is not called.
    """
    by_time, by_amount = list[tuple[int, PendingRule]](), list[tuple[float, PendingRule]]()
    for rule in RULES:
        if rule.deadline is not None and (at := rule.deadline(settings, totals)) is not None:
            by_time.append((at, PendingRule(reason=rule.reason, option=rule.options[0], deadline_ms=at)))
        if rule.counts is not None:
            limit, amount = _limit_and_amount(rule.counts, settings, totals)
            if limit is not None:
                pending = PendingRule(reason=rule.reason, option=rule.options[0], limit=limit, amount=amount)
                by_amount.append((-amount / max(limit, 1), pending))
    in_order = (*sorted(by_time, key=itemgetter(0)), *sorted(by_amount, key=itemgetter(0)))
    by_row = () if settings.finalize_column is None else (PendingRule(reason="finalize", option="finalizeColumn"),)
    return (*(pending for _, pending in in_order), *by_row)


def reason_before_next_rows(settings: RollingSettings, totals: GroupTotals, next_ms: int) -> str | None:
    """Return why a group had ended before later rows arrived, if a later check cannot detect it; None if it had not.

    Raises:
        UserCodeError: the user's policy raised an error, or returned a value of a wrong type.
    """
    if settings.inactivity_ms is not None and abs(next_ms - totals.last_ms) >= settings.inactivity_ms:
        return _INACTIVITY
    if settings.policy:
        return _ask_policy(settings.policy, "reason_to_end", str, totals, next_ms)
    return None


@functools.lru_cache(maxsize=16)
def load_policy(name: str) -> RollingPolicy:
    """Return an instance of the user's class. If it cannot be created, a ConfigError is raised."""
    try:
        policy: RollingPolicy = pkgutil.resolve_name(name)()
    except Exception as error:  # user code may raise any exception
        raise ConfigError(f"rollingPolicy={name!r} cannot be loaded as `module:Class`: {error!r}") from error
    for method in ("reason_to_end", "deadline_ms"):
        if not callable(getattr(policy, method, None)):
            raise ConfigError(f"rollingPolicy={name!r} has no method {method}(): see docs/rolling.md")
    return policy


def _ask_policy(name: str, method: str, kind: type[_Answer], *args: object) -> _Answer | None:
    try:
        answer = getattr(load_policy(name), method)(*args)
    except Exception as error:
        raise UserCodeError(f"rollingPolicy={name!r}: {method}() raised {error!r}") from error
    if answer is not None and not isinstance(answer, kind):
        raise UserCodeError(f"rollingPolicy={name!r}: {method}() returned {answer!r}, not {kind.__name__} or None")
    return answer


def _next_tick_ms(after_ms: int, period_ms: int, zone: str) -> int:
    """Return the first time after `after_ms` at which local time is a multiple of the period."""
    clock_us, period_us = _clock_us(after_ms * 1000, zone), period_ms * 1000
    wait_us = period_us - clock_us % DAY_US % period_us
    # The result is also correct if clocks are set back in between, or show an hour twice.
    then_us = after_ms * 1000 + wait_us
    if _clock_us(then_us, zone) % DAY_US % period_us:
        next_clock = from_numpy(np.array([clock_us + wait_us]), pa.timestamp("us"))
        then_us = int(values_of(instants_of(next_clock, zone), np.int64)[0])
    return max(then_us // 1000, after_ms + 1)


def _clock_us(instant_us: int, zone: str) -> int:
    instant = from_numpy(np.array([instant_us]), pa.timestamp("us", "UTC"))
    return int(values_of(clocks_of(instant, zone), np.int64)[0])
