"""Which buckets an operation is for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.arrays.spark_types import arrow_schema
from ftfile.arrays.value_text import UTC
from ftfile.encoding.partitions.choosing import chosen_places, partition_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow.compute as pc

    from ftfile.commit.format.model import Add
    from ftfile.commit.log.state import LogState
    from ftfile.commit.read.snapshot import Snapshot

__all__ = ("select",)


def select(head: LogState, snapshot: Snapshot, where: Mapping[str, object] | str | pc.Expression) -> list[Add]:
    """Return the adds of the buckets that match a condition on partition columns, as readers see them.

    See `arrays.predicates`. The snapshot knows how all adds are encoded, the state only how the last ones are.

    Raises:
        ConfigError: it is no condition, a column is no partition column, or a value none of its type.
    """
    newest: dict[str, Any] = {"partitionBy": [], "timeZone": UTC}
    if head.encoding is not None:
        newest = head.definitions[head.encoding]
    schema = arrow_schema(head.definitions[head.schema]) if head.schema is not None else pa.schema([])
    adds = list(snapshot.adds.values())
    places = [(add.bucket, snapshot.definitions[add.encoding]["timeZone"]) for add in adds]
    chosen = chosen_places(where, partition_schema(schema, newest["partitionBy"]), places)
    return [add for add, place in zip(adds, places, strict=True) if place in chosen]
