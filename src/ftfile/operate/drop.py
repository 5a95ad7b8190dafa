"""Dropping directories: one record removes all rows in them; and which directories an operation is for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.formats.partition_paths import chosen_places, partition_schema
from ftfile.log.directory import check_is_files
from ftfile.log.format.layout import directory_of
from ftfile.log.opening import maintaining
from ftfile.operate.rewriting import Choice, rewrite
from ftfile.rows.moments import with_clock_values
from ftfile.rows.spark_types import recorded_schema
from ftfile.rows.value_text import UTC
from ftfile.write.files.directory_settings import DirectoryPattern
from ftfile.write.workers import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow.compute as pc

    from ftfile.core.context import Clock, Context
    from ftfile.core.progress import OnProgress
    from ftfile.log.format.model import Add
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.log.state import LogState
    from ftfile.operate.rewriting import Live, RewriteReport


DIRECTORY_TIME = pa.field("directoryTime", pa.timestamp("us"))


def settled_for(
    head: LogState, where: Mapping[str, object] | str | pc.Expression, clock: Clock
) -> Mapping[str, object] | str | pc.Expression:
    """Return a condition with times by this clock as literals, by the time zone of the newest writer."""
    time_zone = UTC if head.encoding is None else head.definitions[head.encoding]["timeZone"]
    return with_clock_values(where, clock.now_ms(), time_zone)


def select(
    head: LogState,
    snapshot: Snapshot,
    where: Mapping[str, object] | str | pc.Expression,
    directory_pattern: str | None = None,
) -> list[Add]:
    """Return the adds of the directories that match a condition on partition columns, as readers see them.

    See `rows.conditions`. With `directory_pattern`, as in the option `directoryPattern`, the condition may name
    `BUCKET_TIME`, too: the begin of the time of a directory, without time zone; null for directories of no such time.
    The snapshot knows how all adds are encoded, the state only how the last ones are.

    Raises:
        ConfigError: it is no condition, a column is no partition column, or a value none of its type.
    """
    newest: dict[str, Any] = {"partitionBy": [], "timeZone": UTC}
    if head.encoding is not None:
        newest = head.definitions[head.encoding]
    schema = recorded_schema(head.definitions[head.schema]) if head.schema is not None else pa.schema([])
    adds = list(snapshot.adds.values())
    places = [(add.directory_key, snapshot.definitions[add.encoding]["timeZone"]) for add in adds]
    columns = newest["partitionBy"]
    derived = None if directory_pattern is None else (DIRECTORY_TIME, _times(directory_pattern, len(columns)))
    chosen = chosen_places(where, partition_schema(schema, columns), places, derived)
    return [add for add, place in zip(adds, places, strict=True) if place in chosen]


def _times(directory_pattern: str, above: int) -> Callable[[Sequence[str]], pa.Array]:
    """Return the function that reads the times of directories, below `above` directories of columns."""
    pattern = DirectoryPattern.of_directories(directory_pattern)
    end = above + pattern.depth

    def times(keys: Sequence[str]) -> pa.Array:
        return pattern.begins(["/".join(directory_of(key).split("/")[above:end]) for key in keys])

    return times


ALL = "all"


def drop(  # noqa: PLR0913 - all by name
    path: str | os.PathLike[str],
    where: Mapping[str, object] | str | pc.Expression,
    *,
    dry_run: bool = False,
    directory_pattern: str | None = None,
    progress: OnProgress | None = None,
    key_provider: str | None = None,
    storage: Mapping[str, str] | None = None,
    at_least_version: int | None = None,
    context: Context = SYSTEM,
) -> RewriteReport:
    """Remove all rows of some directories, finished or open, in one record, and return how many.

    A second drop with nothing there creates no record. Safe beside running queries: what they commit later stays.
    `where` is a condition on partition columns: values, such as `{"month": 7}` or `{"month": [7, 8]}`; a text, such as
    `"month BETWEEN 1 AND 6 AND city IS NOT NULL"`; or an expression of pyarrow, such as `pc.field("month") < 7`. Or it
    is the word "all" for every row in the directory. Older versions can be read until a vacuum. A text may count from
    now, as in `"day < current_date() - interval 30 days"`, by the clock of this machine and the `timeZone` of the
    newest writer; the record has the date. With `directory_pattern`, as the option `directoryPattern`, a condition may
    name `directoryTime`, too: when the time of a directory begins, by its own clocks; others stay. With `dry_run`, it
    writes nothing, and returns how many it would remove now. `progress` is called in this thread after each file that
    is hidden; what it raises leaves the rest to the next commit. For the other arguments see `ftfile.open`.

    Raises:
        ConfigError: the path is no ftfile directory, `where` is no condition, names a column that is no partition
            column, or compares it with no value of its type.
        CommitError: as for a batch write; `NotPublished` means that the rows are dropped, and their files hidden later.
    """
    everything = _is_everything(where)
    with maintaining("drop", path, key_provider, storage, context, at_least_version) as (log, author):
        check_is_files(log.refresh(), os.fspath(path), "delete its rows with ftfile.kv.purge")
        where = settled_for(log.refresh(), where, log.clock)
        text = where if isinstance(where, str) and not everything else None
        choice = Directories(None if everything else where, directory_pattern)
        workers = Threads.of(author.job_id, 1, context)
        return rewrite(log, author, workers, choice, where=text, dry_run=dry_run, progress=progress)


@dataclass(frozen=True, slots=True)
class Directories(Choice):
    """The choice of a drop: whole directories."""

    where: Mapping[str, object] | str | pc.Expression | None  # None for all
    directory_pattern: str | None

    def removed(self, head: LogState, live: Live) -> Sequence[Add]:
        """Return the adds of the directories at a head: also those that came since the drop began."""
        snapshot = live()
        if self.where is None:
            return [*snapshot.adds.values()]
        return select(head, snapshot, self.where, self.directory_pattern)


def _is_everything(where: object) -> bool:
    """Return True for every row; ConfigError for what is neither that nor a condition."""
    if where is None or (isinstance(where, Mapping) and not where):
        raise ConfigError(
            f"where={where!r} does not say what to drop: it takes a condition on partition columns, such as "
            f'{{"month": 7}} or "month < 7", or "{ALL}" for every row in the directory'
        )
    return isinstance(where, str) and where == ALL
