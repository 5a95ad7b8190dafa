"""`kv.changes(path, start)`: the changes of a store in plain Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.attempt.follow.planner import FollowSettings
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.kv.feed.planner import FeedPlanner
from ftfile.kv.feed.rows import as_requested, changed_rows, feed_schema
from ftfile.kv.files.opening import OpenFiles
from ftfile.kv.reading.open_store import open_store

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from ftfile.core.context import Context


def changes(
    path: str | os.PathLike[str],
    start: int = 0,
    end: int | None = None,
    *,
    key_provider: str | None = None,
    storage: Mapping[str, str] | None = None,
    context: Context = SYSTEM,
) -> Iterator[pa.RecordBatch]:
    """Yield a row for each key whose row a version changes, version by version; the same rows at every call.

    Columns are those of the key, `old` and `new` (structs of the value columns, null where the key has no row),
    `_change_type` (`insert`, `update`, `delete`), `_commit_version` and `_commit_timestamp` (of the writer's clock).
    They are those of the newest version. Merges give the value after the version; a key that is written with the values
    that it has is no change.

    It begins with version `start`, and ends with version `end`, by default the newest one. For the other arguments see
    `ftfile.kv.open`.

    Raises:
        ConfigError: there is no store, or no such version; raised by the call itself.
        StaleFiles: vacuum has deleted what these versions changed.
        CorruptData, EncodingError, UserCodeError, StorageError: see `Reader`.
    """
    reader = open_store(path, key_provider=key_provider, storage=storage, context=context)
    last = reader.version if end is None else end
    # The version behind the newest one is where a caller goes on who has read all.
    if not (0 <= start <= reader.version + 1 and last <= reader.version):
        raise ConfigError(f"changes from version {start} to {last}: the newest version is {reader.version}")
    planner = FeedPlanner(reader.log, FollowSettings(), reader.definition.schema)
    files, schema = OpenFiles(reader.log.fs), feed_schema(reader.definition)

    def rows() -> Iterator[pa.RecordBatch]:
        for version in range(start, last + 1):
            for share in planner.shares_of_version(version):
                for batch in changed_rows(files, share):
                    yield as_requested(batch, schema)

    return rows()
