"""The requests that batches send to an object store, by step, and their cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ftfile.log.format.adds import parts_of
from ftfile.log.format.model import MaintenanceAuthor
from ftfile.log.publish import HINT_EVERY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Record
    from ftfile.log.state import LogState


# The number of newest versions that are read.
VERSIONS_READ = 100


class RequestPrices(NamedTuple):
    """Prices of 1,000 requests, by default in US dollars of S3 Standard. A DELETE is free."""

    put: float = 0.005  # PUT and COPY
    get: float = 0.0004


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRequests:
    """The mean numbers of requests of one step of a batch."""

    step: str  # plan, tasks, commit or publish
    get: float
    put: float
    copy: float
    delete: float
    cost: float  # the price of these requests for 1,000 batches


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageRequests:
    """The requests of recent batches, computed from their records.

    The numbers hold for batches without failures, while one process commits at least every 50 minutes. Files that are
    sent in several parts, and tasks that write due files, need more requests.
    """

    batches: int  # the number of batches that were read
    steps: tuple[StepRequests, ...]  # of one batch
    batches_a_day: float | None  # at the rate of these batches; None for a single batch
    cost_a_day: float | None  # the price of the requests of a day; None if the rate is unknown


def storage_requests(log: CommitLog, head: LogState, prices: RequestPrices) -> StorageRequests | None:
    """Return the requests of the recent batches of a directory; None without a batch, or on storage without requests.

    Raises:
        CorruptData: a record is damaged.
    """
    if not log.fs.capabilities.implied_directories:
        return None
    records: list[Record] = []
    for version in range(max(head.log_start, head.version - VERSIONS_READ + 1), head.version + 1):
        record = log.read_record(version)
        if record is not None and not isinstance(record.author, MaintenanceAuthor):
            records.append(record)
    if not records:
        return None
    return requests_of(records, prices)


def requests_of(records: Sequence[Record], prices: RequestPrices) -> StorageRequests:
    """Return the requests of batches, in the order of their versions; at least one batch."""
    count = len(records)
    files = notes = moves = 0
    for record in records:
        adds = (*record.adds, *record.dead_letters)
        parts = parts_of(adds)
        direct = sum(part.path == part.final_path for part in parts)
        files += len({add.path for add in adds})
        notes += direct
        moves += len(parts) - direct + sum(remove.kind == "part" for remove in record.removes)
    moved = moves / count
    steps = (
        _step("plan", prices, get=1),
        _step("tasks", prices, put=(files + notes) / count),
        _step("commit", prices, get=1, put=1 + 1 / HINT_EVERY),
        _step("publish", prices, copy=moved, delete=moved),
    )
    batches_a_day = cost_a_day = None
    passed_s = (records[-1].created_ms - records[0].created_ms) / 1000
    if passed_s > 0:
        batches_a_day = 86_400 * (count - 1) / passed_s
        cost_a_day = batches_a_day * sum(step.cost for step in steps) / 1000
    return StorageRequests(batches=count, steps=steps, batches_a_day=batches_a_day, cost_a_day=cost_a_day)


def _step(
    step: str, prices: RequestPrices, *, get: float = 0, put: float = 0, copy: float = 0, delete: float = 0
) -> StepRequests:
    cost = (put + copy) * prices.put + get * prices.get
    return StepRequests(step=step, get=get, put=put, copy=copy, delete=delete, cost=cost)
