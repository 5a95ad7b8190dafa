"""Rules that end a group, now or later: each with its reason code, which the log keeps."""

from __future__ import annotations

import functools
import pkgutil
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from ftfile.arrays.buffers import from_numpy, values_of
from ftfile.arrays.time_text import clocks_of, instants_of
from ftfile.core.errors import ConfigError, UserCodeError

if TYPE_CHECKING:
    from ftfile.sink.rolling.groups import GroupTotals
    from ftfile.sink.rolling.settings import RollingSettings

DAY_US = 86_400_000_000
_INACTIVITY = "inactivity"

_Answer = TypeVar("_Answer", str, int)


class RollingPolicy(Protocol):
    """When files end, by a class of your own; made without arguments on the driver, and asked there in each commit."""

    def reason_to_end(self, group: GroupTotals, now_ms: int) -> str | None:
        """Return a short code if the file must end now, by the driver's clock in ms since 1970 UTC, else None.

        Called when the group has changed, or was due.
        """

    def deadline_ms(self, group: GroupTotals) -> int | None:
        """Return when to ask again if nothing is written to the file; None for not before it changes."""


def reason_to_end(settings: RollingSettings, totals: GroupTotals, now_ms: int) -> str | None:
    """Return the code of the first rule that ends a group now, or None."""
    applies = _limits(settings, totals)
    if not (applies["finalize"] or applies["batches"]):
        applies = _times(settings, totals, now_ms) | applies
    reason = next((reason for reason, is_due in applies.items() if is_due), None)
    if reason is not None:
        return reason
    return _asked(settings.policy, "reason_to_end", str, totals, now_ms) if settings.policy else None


def deadline_ms(settings: RollingSettings, totals: GroupTotals) -> int | None:
    """Return when a group is due if nothing more comes: 0 for at once, None for never."""
    if any(_limits(settings, totals).values()):
        return 0
    deadlines = [
        None if settings.age_ms is None else totals.first_ms + settings.age_ms,
        None if settings.inactivity_ms is None else totals.last_ms + settings.inactivity_ms,
        None if settings.clock_ms is None else _next_tick_ms(totals.first_ms, settings.clock_ms, settings.clock_zone),
        _asked(settings.policy, "deadline_ms", int, totals) if settings.policy else None,
    ]
    return min((each for each in deadlines if each is not None), default=None)


def over_reason(settings: RollingSettings, totals: GroupTotals, next_ms: int) -> str | None:
    """Return why a group was over before rows came at another time, where no later look shows it; None if it was not.

    Raises:
        UserCodeError: the user's policy raised, or returned something else.
    """
    if settings.inactivity_ms is not None and abs(next_ms - totals.last_ms) >= settings.inactivity_ms:
        return _INACTIVITY
    return _asked(settings.policy, "reason_to_end", str, totals, next_ms) if settings.policy else None


@functools.lru_cache(maxsize=16)
def load_policy(name: str) -> RollingPolicy:
    """Return an instance of the user's class; a ConfigError if it cannot be made."""
    try:
        found: RollingPolicy = pkgutil.resolve_name(name)()
    except Exception as error:  # anything may happen in it
        raise ConfigError(f"rollingPolicy={name!r} cannot be loaded as `module:Class`: {error!r}") from error
    for method in ("reason_to_end", "deadline_ms"):
        if not callable(getattr(found, method, None)):
            raise ConfigError(f"rollingPolicy={name!r} has no method {method}(): see docs/rolling.md")
    return found


def _asked(name: str, method: str, kind: type[_Answer], *args: object) -> _Answer | None:
    try:
        answer = getattr(load_policy(name), method)(*args)
    except Exception as error:
        raise UserCodeError(f"rollingPolicy={name!r}: {method}() raised {error!r}") from error
    if answer is not None and not isinstance(answer, kind):
        raise UserCodeError(f"rollingPolicy={name!r}: {method}() returned {answer!r}, not {kind.__name__} or None")
    return answer


def _limits(settings: RollingSettings, totals: GroupTotals) -> dict[str, bool]:
    """Return for each reason True if it ends the group at any time."""
    reached = {
        "batches": (settings.max_batches, totals.batches),
        "size": (settings.max_bytes, totals.size_bytes),
        "rows": (settings.max_rows, totals.rows),
        "segments": (settings.max_segments, totals.segments),
    }
    over = {reason: limit is not None and found >= limit for reason, (limit, found) in reached.items()}
    return {"finalize": totals.is_final} | over


def _times(settings: RollingSettings, totals: GroupTotals, now_ms: int) -> dict[str, bool]:
    # The clock was set back if a time is an interval ahead of it: the time would not be reached for long.
    age_ms, idle_ms, period_ms = settings.age_ms, settings.inactivity_ms, settings.clock_ms
    return {
        "age": age_ms is not None and abs(now_ms - totals.first_ms) >= age_ms,
        "schedule": period_ms is not None
        and (
            totals.first_ms - now_ms >= period_ms
            or now_ms >= _next_tick_ms(totals.first_ms, period_ms, settings.clock_zone)
        ),
        _INACTIVITY: idle_ms is not None and abs(now_ms - totals.last_ms) >= idle_ms,
    }


def _next_tick_ms(after_ms: int, period_ms: int, zone: str) -> int:
    """Return the first moment after another at which the clocks of a zone show a multiple of a period."""
    clock_us, period_us = _clock_us(after_ms * 1000, zone), period_ms * 1000
    wait_us = period_us - clock_us % DAY_US % period_us
    # Also when clocks are set back meanwhile, and show it sooner, or show it in both of two equal hours.
    then_us = after_ms * 1000 + wait_us
    if _clock_us(then_us, zone) % DAY_US % period_us:
        next_clock = from_numpy(np.array([clock_us + wait_us]), pa.timestamp("us"))
        then_us = int(values_of(instants_of(next_clock, zone), np.int64)[0])
    return max(then_us // 1000, after_ms + 1)


def _clock_us(instant_us: int, zone: str) -> int:
    instant = from_numpy(np.array([instant_us]), pa.timestamp("us", "UTC"))
    return int(values_of(clocks_of(instant, zone), np.int64)[0])
