"""An immutable view of a store at a version.

A `get` converts a user's key to the user's row as follows. The key is converted to integers and bytes, and hashed; the
hash selects the bucket (`View.get`). In each level of the bucket, new to old, at most one part can contain the key
(`find`). In this part, the hash selects a page and a slot, which contains the place of a row: the block, and the row
number in the block. If the row has the key, its values are read (`RunReader.get`), and converted to the columns of the
store (`Opened.split`). The rows up to the first one that is not a merge are folded to one row, which is returned as a
value or a named tuple.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import EncodingError, UserCodeError
from ftfile.kv.definition import MERGE
from ftfile.kv.fold import fold_values
from ftfile.kv.hashing import KeyHasher, bucket_number
from ftfile.kv.key_columns import overlap
from ftfile.kv.planning.picker import by_position, size_of
from ftfile.kv.planning.plan import is_held
from ftfile.kv.planning.runs import open_metadata, row_count, run_of, runs_by_bucket
from ftfile.kv.reading.bucket import Bucket
from ftfile.kv.reading.levels import RunPart, Sources, cached_merge_of
from ftfile.kv.user_keys import UserKeys, row_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ftfile.kv.key_columns import Key
    from ftfile.kv.planning.runs import Run
    from ftfile.kv.reading.levels import CachedMerge
    from ftfile.kv.run.pages import Cache
    from ftfile.log.format.model import Add
    from ftfile.log.state import LogState

    Values = tuple[Any, ...]


class View:
    """The runs of a version."""

    def __init__(self, version: int, sources: Sources, buckets: dict[int, Bucket], parts: dict[str, RunPart]) -> None:
        self.version = version
        self.sources = sources
        self.definition = definition = sources.definition
        self.buckets = buckets  # by number; only buckets with runs
        self.parts = parts  # runs by the id of their add
        self.keys = UserKeys(definition)
        self._to_stored = self.keys.to_stored
        self.hash_key = KeyHasher(definition.key_types).hash
        # Of the `bucket_by` columns.
        self._places = [definition.keys.index(name) for name in definition.bucket_by]
        self._hash_places = KeyHasher(definition.types_of(definition.bucket_by)).hash
        self._is_by_key, self._bucket_mask = definition.bucket_by == definition.keys, definition.buckets - 1
        # Converts values to a row for users.
        row = row_type(definition)
        self.row_of: Callable[[Values], Any] = itemgetter(0) if row is None else row._make

    def get(self, key: Any, default: Any) -> Any:  # noqa: ANN401 - values of the user
        """Return the row of a user's key in the users' form, or a default."""
        stored = self._to_stored(key)
        hashed = self.hash_key(stored)
        if self._is_by_key:
            number = hashed & self._bucket_mask
        else:
            number = self.bucket_of(stored, hashed)
        bucket = self.buckets.get(number)
        if bucket is None:
            return default
        values = find(bucket, stored, hashed)
        if values is None:
            return default
        return self.row_of(values)

    def bucket_of(self, key: Key, hashed: int) -> int:
        """Return the number of the bucket of a stored key and its hash."""
        if not self._is_by_key:
            hashed = self._hash_places(tuple([key[place] for place in self._places]))
        return hashed & self._bucket_mask

    @property
    def all_parts(self) -> list[RunPart | CachedMerge]:
        """Return the runs and the cached merges."""
        parts: list[RunPart | CachedMerge] = [*self.parts.values()]
        for bucket in self.buckets.values():
            if bucket.cached_merge is not None:
                parts.append(bucket.cached_merge)
        return parts

    @property
    def runs(self) -> list[Run]:
        """Return the runs."""
        return [part.run for part in self.parts.values()]


def view_of(version: int, adds: Iterable[Add], sources: Sources, before: View | None = None) -> View:
    """Return the view of a version; open parts of the previous view that are still live are reused."""
    same = None
    if before is not None and before.definition == sources.definition:
        same = before
    open_parts = {} if same is None else same.parts
    new: list[Add] = []
    parts: dict[str, RunPart] = {}
    for add in adds:
        if add.id in open_parts:
            parts[add.id] = open_parts[add.id]
        else:
            new.append(add)
    for add in open_metadata(sources.files.fs, new, sources.definition.key_types):
        parts[add.id] = RunPart(run_of(add), sources)
    buckets: dict[int, Bucket] = {}
    for name, runs in runs_by_bucket(part.run for part in parts.values()).items():
        number = bucket_number(name)
        members = [parts[run.id] for run in by_position(runs)]
        old = None
        if same is not None:
            old = same.buckets.get(number)
        if old is None or [*old.parts] != members:
            old = Bucket.of(members, sources, cached_merge_of(members, sources))
        buckets[number] = old
    return View(version, sources, buckets, parts)


def find(bucket: Bucket, key: Key, hashed: int) -> Values | None:
    """Return the values of a stored key and its hash; None without a row. Raises as `fold` and `Part.open`."""
    rows: list[tuple[int, Values]] = []
    all_count = bucket.definition.sequence is not None  # and not only the newest row
    try:
        for level in bucket.levels:
            part = level.parts[bisect_right(level.begins, key) - 1]
            if part.low <= key <= part.high:
                opened = part.held or part.open()
                row = opened.get(key, hashed)
                if row is not None:
                    if opened.is_plain and not rows and not all_count:
                        return row
                    op, values = opened.split(row)
                    rows.append((op, values))
                    if op != MERGE and not all_count:
                        break
            if part.purges and overlap(part.purges, key, key):
                break
        return fold_values(rows, key, bucket.definition) if rows else None
    except (EncodingError, UserCodeError):
        if bucket.cached_merge is None:
            raise
        return find(
            bucket.without_cached_merge(), key, hashed
        )  # merging the cached merge may have failed for another key


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStats:
    """Statistics of a store at a version.

    Attributes:
        version: the version that is read.
        newest_version: of the log.
        runs: number of runs.
        runs_max: number of runs of the bucket with the most runs.
        rows: of all runs; a key has a row in each run that sets, merges or deletes it.
        size_bytes: of the rows on storage.
        due_compactions: compactions that tasks of the next batch run, at the newest version.
        held_compactions: due compactions that failed too often, and are skipped for a while.
        cache_bytes: used by all readers of this process.
        cache_bytes_max: capacity of the cache.
    """

    version: int
    newest_version: int
    runs: int
    runs_max: int
    rows: int
    size_bytes: int
    due_compactions: int
    held_compactions: int
    cache_bytes: int
    cache_bytes_max: int


def stats_of(view: View, head: LogState, cache: Cache) -> StoreStats:
    """Return the statistics of a view, and of the newest version."""
    runs = view.runs
    runs_max = 0
    for bucket in view.buckets.values():
        runs_max = max(runs_max, len(bucket.parts))
    return StoreStats(
        version=view.version,
        newest_version=head.version,
        runs=len(runs),
        runs_max=runs_max,
        rows=row_count(runs),
        size_bytes=size_of(runs),
        due_compactions=len(head.jobs),
        held_compactions=sum(is_held(job, head.version) for job in head.jobs),
        cache_bytes=cache.size_bytes,
        cache_bytes_max=cache.capacity_bytes,
    )
