"""Jobs: which parts are to be made of a group's segments, and by how many tasks side by side."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ftfile.commit.format.model import Add, AssemblyJob
from ftfile.encoding.api import Limits
from ftfile.sink.rolling.groups import order_of, size_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ftfile.core.ids import IdSource
    from ftfile.sink.rolling.settings import RollingSettings

# Segments that a record may name in jobs that have not failed, 300 bytes each; one job may have more.
DUE_SEGMENTS_MAX = 10_000
# Parts, and bytes, that one job makes in order, at most; more become several jobs.
IN_ORDER_PARTS, IN_ORDER_BYTES = 100, 1 << 30
# Reasons after which a tail below the limit stays open: nothing says that it must be seen now.
LIMITS = frozenset({"size", "rows", "segments"})
_SEGMENTS, _FINAL, _ALONE = "segments", "finalize", "retriedAlone"


def limits_of(job: AssemblyJob) -> Limits:
    """Return the limits of each part of a job."""
    return Limits(job.payload["maxBytesPerFile"], job.payload["maxRecordsPerFile"], job.payload["strictFileSize"])


def alone(segment: Add, settings: RollingSettings, ids: IdSource) -> AssemblyJob:
    """Return the job of a segment that kept others from becoming a part."""
    return replace(_job([segment], _ALONE, settings, ids, keep_tail=False), attempts=1)


def jobs_of(
    segments: Iterable[Add], reason: str, settings: RollingSettings, ids: IdSource, tasks: int = 1
) -> Iterator[AssemblyJob]:
    """Yield the jobs that make parts of a due group's segments; after a reason in `LIMITS` the others stay open.

    Rows are in order within a job. If one reason makes several jobs, each makes full parts, and its remaining rows come
    after those of the next. `tasks` is the number of tasks that will do the jobs.
    """
    in_order = sorted(segments, key=order_of)
    last_final = max((place for place, each in enumerate(in_order) if _is_final(each)), default=-1)
    for inputs in _final_runs(in_order[: last_final + 1]):
        # One job after the other makes these parts: rows before a final one never get behind it.
        for start in range(0, len(inputs), settings.max_segments):
            chunk = inputs[start : start + settings.max_segments]
            yield _job(chunk, _FINAL if _is_final(chunk[-1]) else _SEGMENTS, settings, ids, keep_tail=False)
    if reason == _FINAL:
        return
    chunks, tail = _chunks(in_order[last_final + 1 :], settings, tasks)
    ends_all = reason not in LIMITS
    if chunks and len(chunks[-1][0]) + len(tail) <= settings.max_segments:
        last, is_full = chunks.pop()
        chunks, tail = (chunks, last + tail) if ends_all else ([*chunks, (last + tail, is_full)], [])
    for chunk, is_full in chunks:
        code = reason if ends_all or is_full else _SEGMENTS
        yield _job(chunk, code, settings, ids, keep_tail=is_full and settings.finalize_column is None)
    if tail and ends_all:
        yield _job(tail, reason, settings, ids, keep_tail=False)


def _chunks(
    segments: list[Add], settings: RollingSettings, tasks: int
) -> tuple[list[tuple[list[Add], bool]], list[Add]]:
    """Return chunks of segments, each with True if it fills a part, and the segments at the end that fill none."""

    def full_parts(size_bytes: int, rows: int) -> int:
        of_bytes = size_bytes // settings.max_bytes if settings.max_bytes else 0
        return max(of_bytes, rows // settings.max_rows if settings.max_rows else 0)

    all_bytes = sum(map(size_of, segments))
    parts = full_parts(all_bytes, sum(segment.rows for segment in segments))
    in_order = min(IN_ORDER_PARTS, IN_ORDER_BYTES * parts // max(all_bytes, 1))
    parts_each = max(1, in_order, math.ceil(parts / max(tasks, 1)))
    chunks: list[tuple[list[Add], bool]] = []
    chunk: list[Add] = []
    size_bytes = rows = 0
    for place, segment in enumerate(segments, start=1):
        chunk.append(segment)
        size_bytes += size_of(segment)
        rows += segment.rows
        found = full_parts(size_bytes, rows)
        if found >= parts_each or len(chunk) >= settings.max_segments or (found and place == len(segments)):
            chunks.append((chunk, found > 0))
            chunk, size_bytes, rows = [], 0, 0
    return chunks, chunk


def _final_runs(segments: list[Add]) -> Iterator[list[Add]]:
    """Yield the segments up to each final one, itself included."""
    run: list[Add] = []
    for segment in segments:
        run.append(segment)
        if _is_final(segment):
            yield run
            run = []


def _is_final(segment: Add) -> bool:
    return bool(segment.rolling_stats.get("endsPart"))


def _job(chunk: list[Add], reason: str, settings: RollingSettings, ids: IdSource, *, keep_tail: bool) -> AssemblyJob:
    payload = {
        "maxBytesPerFile": settings.max_bytes,
        "maxRecordsPerFile": settings.max_rows,
        "strictFileSize": settings.strict,
        "keepTail": keep_tail,
    }
    return AssemblyJob(ids.unique(), tuple(chunk), reason, payload=payload)
