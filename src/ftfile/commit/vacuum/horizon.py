"""The horizon of vacuum: how late it may be, and how one that lies in the future is taken back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ftfile.commit.format import layout
from ftfile.commit.format.model import Body, MaintenanceAuthor
from ftfile.commit.log.hints import store_now_ms
from ftfile.commit.log.times import created_ms, time_text
from ftfile.commit.protocol import commit
from ftfile.core.errors import CommitError
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState

LOWERING = "lowerHorizon"
# Others that lower the horizon at the same time make each other begin again.
TRIES = 100

_log = get_logger(__name__)


def newest_ms(log: CommitLog) -> int:
    """Return the store's time of the newest record, or of the directory where there is none yet."""
    version = log.read_on().version
    if version < 0:
        return log.fs.stat(layout.FORMAT_FILE).modified_ms
    return created_ms(log, version) or 0


def lower_horizon(log: CommitLog, job_id: str) -> bool:
    """Take back a horizon that lies after the store's now, since its clock was ahead; return True if there was one.

    Two records: after the first, vacuums that began before it delete nothing more that they have not listed yet. What
    is written from then on is younger than the new horizon, the store's time between both.
    """
    for _ in range(TRIES):
        horizon_ms = log.read_on(durable=True).horizon_ms
        if horizon_ms <= store_now_ms(log.fs):
            return False
        author = MaintenanceAuthor(LOWERING, job_id)
        first = commit(log, author, partial(_repeat, horizon_ms)).version
        now_ms = store_now_ms(log.fs)

        def lower(head: LogState, _: object, first: int = first, now_ms: int = now_ms) -> Body | None:
            return None if _horizons_since(log, first, head.version) else Body(horizon_ms=now_ms)

        if commit(log, author, lower).record is not None:
            _log.warning("the horizon %s lay in the future, and is %s now", time_text(horizon_ms), time_text(now_ms))
            return True
    raise CommitError("the horizon lies in the future, and others change it at the same time: try again later")


def is_horizon_taken_back(log: CommitLog, version: int) -> bool:
    """Return True if somebody has begun to lower the horizon after a version; a vacuum by an older one stops."""
    return LOWERING in _horizons_since(log, version, log.read_on(durable=True).version)


def _repeat(horizon_ms: int, head: LogState, _: object) -> Body:
    return Body(horizon_ms=max(head.horizon_ms, horizon_ms))


def _horizons_since(log: CommitLog, version: int, head: int) -> set[str]:
    """Return which operations have set a horizon after a version; a record that is gone counts as lowering one."""
    found = set()
    for later in range(version + 1, head + 1):
        record = log.read_record(later)
        if record is None:
            found.add(LOWERING)
        elif record.horizon_ms is not None and isinstance(record.author, MaintenanceAuthor):
            found.add(record.author.operation)
    return found
