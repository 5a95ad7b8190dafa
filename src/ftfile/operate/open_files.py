"""The open files of a directory, and the rules that end them."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from ftfile.core.checksum import Decoding
from ftfile.core.errors import ConfigError
from ftfile.core.remedies import Advice, Remedy
from ftfile.core.units import bytes_text, count_text, time_text
from ftfile.log.format import layout
from ftfile.log.format.adds import ids_of
from ftfile.log.format.layout import directory_of
from ftfile.writing.files.rolling_groups import GroupTotals, key_of, order_of
from ftfile.writing.files.rolling_rules import ALL_END, RollingSettings, deadline_of, pending_rules, reason_to_end

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ftfile.log.format.model import Add, Job
    from ftfile.log.state import LogState
    from ftfile.writing.files.rolling_rules import PendingRule


# The nouns of amounts, in the texts of rules.
NOUNS = {"batches": ("batch", "batches"), "rows": ("row", "rows"), "segments": ("segment", "segments")}


@dataclass(frozen=True, slots=True)
class OpenFile:
    """Committed rows that are kept open, to be assembled into one or a few files."""

    query_id: str
    directory: str  # relative, as in `FinishedFile`
    segments: int
    rows: int
    size_bytes: int  # an estimate for columnar formats
    first_ms: int  # commit time of the oldest rows, since 1970 UTC
    last_ms: int  # commit time of the newest rows
    reason: str  # code of the rule that ended it, such as `size` or `age`; empty if no rule has
    deadline_ms: int | None  # time at which a rule ends it without further rows; None for never
    waiting: str  # why it is still open
    attempts: int  # failed attempts to assemble a file
    # rules that can end it: by time, the soonest first; by amount, the fullest; by a row
    rules: tuple[PendingRule, ...] = ()


def open_files_of(head: LogState, now_ms: int) -> Iterator[OpenFile]:
    """Yield the open files at a head, by query and directory."""
    groups: dict[tuple[Any, ...], list[Add]] = {}
    for segment in head.segments.values():
        groups.setdefault((segment.origin.query_id, segment.directory_key, *key_of(segment)), []).append(segment)
    jobs: dict[str, Job] = {}
    for job in head.jobs:
        jobs.update(dict.fromkeys(ids_of(job.inputs), job))
    for key in sorted(groups):
        segments = sorted(groups[key], key=order_of)
        tasks = []
        for segment in segments:
            if segment.id in jobs:
                tasks.append(jobs[segment.id])
        yield _open_file(head, segments, tasks, now_ms)


def _open_file(head: LogState, segments: Sequence[Add], jobs: Sequence[Job], now_ms: int) -> OpenFile:
    first = segments[0]
    totals, batch = GroupTotals(directory_of(first.directory_key)), None
    for segment in segments:
        totals = totals.plus(segment, is_other_batch=segment.origin.last_batch != batch)
        batch = segment.origin.last_batch
    reason, deadline, problem = "", None, ""
    if jobs:
        reason = jobs[0].reason
    rules: tuple[PendingRule, ...] = ()
    try:
        recorded = _settings_of(head, first.origin.query_id)
        settings = structs.replace(recorded, policy=None)
        deadline = deadline_of(settings, totals)
        reason = reason or reason_to_end(settings, totals, now_ms) or ""
        rules = pending_rules(settings, totals)
        if recorded.policy is not None and not reason:
            policy = f"the policy {recorded.policy}, which is not called here; its query's next batch calls it"
            problem = f"{_describe_rules(rules)}, or by {policy}"
    except ConfigError as error:
        problem = f"its rule cannot be checked here: {error}"
    attempts = max(map(attrgetter("attempts"), jobs), default=0)
    return OpenFile(
        query_id=first.origin.query_id,
        directory=directory_of(first.directory_key),
        segments=totals.segments,
        rows=totals.rows,
        size_bytes=totals.size_bytes,
        first_ms=totals.first_ms,
        last_ms=totals.last_ms,
        reason=reason,
        deadline_ms=deadline,
        waiting=problem or _describe_wait(reason, rules, attempts, is_job=bool(jobs)),
        attempts=attempts,
        rules=rules,
    )


def _describe_wait(reason: str, rules: Sequence[PendingRule], attempts: int, *, is_job: bool) -> str:
    if is_job and attempts:
        return Advice(
            f"assembling a file of it failed {attempts} times; the next batch, or ", Remedy("flush"), ", tries again"
        )
    if is_job:
        return Advice("the query's next batch, or ", Remedy("flush", due_only=True), ", assembles a file of it")
    if reason:
        return Advice("the query's next commit ends it; ", Remedy("flush", due_only=True), " does so now")
    return _describe_rules(rules)


def _describe_rules(rules: Sequence[PendingRule]) -> str:
    """Return the end of a file by the first rule of each kind: `until 2024-07-01 12:00:00 UTC by rolloverInterval`."""
    times: list[str] = []
    amounts: list[str] = []
    rows: list[str] = []
    for rule in rules:
        if rule.deadline_ms is not None:
            times.append(f"{time_text(rule.deadline_ms)} UTC by {rule.option}")
        if rule.limit is not None and rule.amount is not None:
            limit, amount = _amount_text(rule.reason, rule.limit), _amount_text(rule.reason, rule.amount)
            amounts.append(f"{limit} by {rule.option} ({amount} now)")
        if rule.deadline_ms is None and rule.limit is None:
            rows.append(f"a row that ends it by {rule.option}")
    return f"until {', or '.join([*times[:1], *amounts[:1], *rows])}"


def _amount_text(reason: str, amount: int) -> str:
    if reason == "size":
        return bytes_text(amount)
    return count_text(amount, *NOUNS[reason])


def _settings_of(head: LogState, query_id: str) -> RollingSettings:
    """Return the rules of a query, as of its last batch."""
    query = head.queries.get(query_id)
    if query is None or query.settings is None:
        return ALL_END
    with Decoding(layout.LOG, "the rules of a query"):
        return msgspec.convert(head.definitions[query.settings]["rolling"], RollingSettings)
