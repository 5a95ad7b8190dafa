"""Ranges of offsets: the rows of each source that batches of a streaming query read."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Spark's text in a checkpoint for a source that has given no offset yet.
NO_OFFSET = "-"


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The rows that were read of a source, or of one of its partitions."""

    source: int  # its number in the query, as in Spark's checkpoint: `sources/0`
    partition: str | None  # such as `events/7` for a topic and partition of Kafka; None where an offset has none
    start: Any  # where the batch before had ended, as Spark writes it; None where nothing had been read before
    end: Any  # where the last of these batches ended; equal to `start` where they read nothing


def ranges_between(before: Sequence[Any], after: Sequence[Any]) -> tuple[OffsetRange, ...]:
    """Return the ranges between two lists of offsets, one for each source; the first is empty for a query's start.

    An offset that is an object of objects has partitions: topics, and the partitions of each.
    """
    return tuple(
        OffsetRange(number, partition, start, end)
        for number, (first, last) in enumerate(zip_longest(before[: len(after)], after))
        if last not in (None, NO_OFFSET)
        for partition, start, end in _by_partition(None if first == NO_OFFSET else first, last)
    )


def _by_partition(first: Any, last: Any) -> Iterator[tuple[str | None, Any, Any]]:  # noqa: ANN401 - any JSON
    """Yield each partition of a source with its offsets before and after; None and both offsets where it has none."""
    if not last or not isinstance(last, dict) or not all(isinstance(own, dict) for own in last.values()):
        yield None, first, last
        return
    for topic, ends in last.items():
        starts = first.get(topic) if isinstance(first, dict) else None
        for partition, end in ends.items():
            yield f"{topic}/{partition}", starts.get(partition) if isinstance(starts, dict) else None, end
