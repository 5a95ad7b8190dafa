"""The columns that a follower reads, and versions that have others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftfile.arrays.spark_types import arrow_schema
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    import pyarrow as pa

    from ftfile.commit.format.model import Record
    from ftfile.commit.log.state import LogState

__all__ = ("FollowedColumns",)

_log = get_logger(__name__)


class FollowedColumns:
    """Tells versions whose columns are not those that are read.

    Columns that are those of the head when reading begins are followed: a later version with others is told. Columns
    of the user's own choice are found by name in every version.

    Args:
        head: when reading begins.
        requested: the columns that are read.
    """

    def __init__(self, head: LogState, requested: pa.Schema) -> None:
        self._requested = requested
        self._since = head.version
        self._key: str | None = None
        if head.schema is not None:
            recorded = head.definitions[head.schema]
            if self._is_requested(recorded):
                self._key = head.schema
            elif left_out := [name for name in arrow_schema(recorded).names if not self._has(name)]:
                _log.warning("columns of the directory that the stream does not read: %s", ", ".join(left_out))

    def change_of(self, record: Record) -> str | None:
        """Return how the columns of a record differ, and what to do; None where that does not matter."""
        if self._key is None or record.version <= self._since or record.schema in (None, self._key):
            return None
        recorded = record.definitions.get(record.schema or "")
        if recorded is not None and self._is_requested(recorded):
            return None
        now = f": {', '.join(_columns(recorded))}" if recorded is not None else ""
        return (
            f"from version {record.version} on the directory has other columns than this query reads{now}. All rows "
            "before it were read: load the directory again and restart the query, which then goes on with the new "
            "columns; or name columns of your own with .schema(…), which are found by name"
        )

    def _is_requested(self, recorded: Any) -> bool:  # noqa: ANN401 - Spark's JSON
        return _types(arrow_schema(recorded)) == _types(self._requested)

    def _has(self, name: str) -> bool:
        return name.lower() in {requested.lower() for requested in self._requested.names}


def _types(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    return [(field.name, field.type) for field in schema]


def _columns(recorded: Any) -> list[str]:  # noqa: ANN401 - Spark's JSON
    return [f"{field.name} {field.type}" for field in arrow_schema(recorded)]
