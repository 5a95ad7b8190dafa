"""Which buckets an operation is for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.arrays.moments import settled
from ftfile.arrays.spark_types import arrow_schema
from ftfile.arrays.value_text import UTC
from ftfile.commit.format.layout import bucket_directory
from ftfile.encoding.partitions.choosing import chosen_places
from ftfile.encoding.partitions.paths import partition_schema
from ftfile.sink.buckets.pattern import BucketPattern

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow.compute as pc

    from ftfile.commit.format.model import Add
    from ftfile.commit.log.state import LogState
    from ftfile.commit.read.snapshot import Snapshot
    from ftfile.core.clock import Clock

BUCKET_TIME = pa.field("bucketTime", pa.timestamp("us"))


def settled_for(
    head: LogState, where: Mapping[str, object] | str | pc.Expression, clock: Clock
) -> Mapping[str, object] | str | pc.Expression:
    """Return a condition with times by this clock as literals, by the time zone of the newest writer."""
    time_zone = UTC if head.encoding is None else head.definitions[head.encoding]["timeZone"]
    return settled(where, clock.now_ms(), time_zone)


def select(
    head: LogState,
    snapshot: Snapshot,
    where: Mapping[str, object] | str | pc.Expression,
    bucket_pattern: str | None = None,
) -> list[Add]:
    """Return the adds of the buckets that match a condition on partition columns, as readers see them.

    See `arrays.predicates`. With `bucket_pattern`, as in the option `bucketPattern`, the condition may name
    `BUCKET_TIME`, too: the begin of the time of a directory, without time zone; null for directories of no such time.
    The snapshot knows how all adds are encoded, the state only how the last ones are.

    Raises:
        ConfigError: it is no condition, a column is no partition column, or a value none of its type.
    """
    newest: dict[str, Any] = {"partitionBy": [], "timeZone": UTC}
    if head.encoding is not None:
        newest = head.definitions[head.encoding]
    schema = arrow_schema(head.definitions[head.schema]) if head.schema is not None else pa.schema([])
    adds = list(snapshot.adds.values())
    places = [(add.bucket, snapshot.definitions[add.encoding]["timeZone"]) for add in adds]
    columns = newest["partitionBy"]
    derived = None if bucket_pattern is None else (BUCKET_TIME, _times(bucket_pattern, len(columns)))
    chosen = chosen_places(where, partition_schema(schema, columns), places, derived)
    return [add for add, place in zip(adds, places, strict=True) if place in chosen]


def _times(bucket_pattern: str, above: int) -> Callable[[Sequence[str]], pa.Array]:
    """Return the function that reads the times of buckets, below `above` directories of columns."""
    pattern = BucketPattern.of_directories(bucket_pattern)
    end = above + pattern.depth

    def times(buckets: Sequence[str]) -> pa.Array:
        return pattern.begins(["/".join(bucket_directory(bucket).split("/")[above:end]) for bucket in buckets])

    return times
