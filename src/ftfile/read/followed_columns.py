"""The columns that a follower of a log reads, compared with those of later versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftfile.core.logs import get_logger
from ftfile.rows.spark_types import recorded_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from ftfile.log.format.model import Record
    from ftfile.log.state import LogState


_log = get_logger(__name__)


class FollowedColumns:
    """Detects versions whose columns differ from the columns that are read.

    If the requested columns equal those of the head at the start, later versions with other columns are reported.
    Columns that the user selected are matched by name in each version.
    """

    def __init__(self, head: LogState, requested: pa.Schema) -> None:
        self._requested = requested
        self._since = head.version
        self._key: str | None = None
        if head.schema is not None:
            recorded = head.definitions[head.schema]
            if self._is_requested(recorded):
                self._key = head.schema
                return
            requested_names = {name.lower() for name in requested.names}
            unread = []
            for name in recorded_schema(recorded).names:
                if name.lower() not in requested_names:
                    unread.append(name)
            if unread:
                _log.warning("columns of the directory that the stream does not read: %s", ", ".join(unread))

    def change_of(self, record: Record) -> str | None:
        """Return how the columns of a record differ and the remedy; None if the query is not affected."""
        if self._key is None or record.version <= self._since or record.schema in (None, self._key):
            return None
        recorded = record.definitions.get(record.schema or "")
        if recorded is not None and self._is_requested(recorded):
            return None
        if recorded is None:
            columns = []
        else:
            columns = [f"{field.name} {field.type}" for field in recorded_schema(recorded)]
        now = ""
        if columns:
            now = f": {', '.join(columns)}"
        return (
            f"from version {record.version} on, the directory has other columns than this query reads{now}. All rows "
            "before it were read: load the directory again and restart the query, which continues with the new "
            "columns. Or give the columns with .schema(…), which are matched by name"
        )

    def _is_requested(self, recorded: Any) -> bool:  # noqa: ANN401 - Spark's JSON
        schema = recorded_schema(recorded)
        return (schema.names, schema.types) == (self._requested.names, self._requested.types)
