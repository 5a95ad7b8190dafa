"""A store at a version: its buckets, each with the levels that it is read from, and its numbers. It never changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftfile.kv.hashing import bucket_number, key_hasher
from ftfile.kv.planning.holds import is_held
from ftfile.kv.planning.runs import open_marks, run_of, runs_by_bucket
from ftfile.kv.reading.bucket import Bucket
from ftfile.kv.reading.levels import Level, Sources, levels_of
from ftfile.kv.user_keys import UserKeys, row_maker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.key_columns import Key
    from ftfile.kv.planning.runs import Run
    from ftfile.kv.run.pages import Cache
    from ftfile.log.format.model import Add
    from ftfile.log.state import LogState


class View:
    """The runs of a version."""

    def __init__(self, version: int, sources: Sources, buckets: dict[int, Bucket], runs: dict[str, Run]) -> None:
        self.version = version
        self.sources = sources
        self.definition = definition = sources.definition
        self.buckets = buckets  # by number, those with runs
        self.runs = runs  # by the id of their add
        self.keys = UserKeys(definition)  # turns keys of users into stored ones
        self.hash_key = key_hasher(definition.key_types)  # returns the hash of a stored key
        self.bucket_of = _bucket_finder(definition)  # returns the number of the bucket of a key, given its hash, too
        self.to_row = row_maker(definition)  # turns values into what users get
        self.get = self._getter()  # returns the row of a key, given both as users have them, or the default

    def _getter(self) -> Callable[[Any, Any], Any]:
        """Return the function for single keys, which need not look attributes up."""
        to_stored, hash_key, bucket_of, to_row = self.keys.to_stored, self.hash_key, self.bucket_of, self.to_row
        buckets = self.buckets

        def get(key: Any, default: Any) -> Any:  # noqa: ANN401 - values of the user
            stored = to_stored(key)
            hashed = hash_key(stored)
            bucket = buckets.get(bucket_of(stored, hashed))
            if bucket is None:
                return default
            values = bucket.get(stored, hashed)
            return default if values is None else to_row(values)

        return get


def view_of(version: int, adds: Iterable[Add], sources: Sources, before: View | None = None) -> View:
    """Return the view of a version; what is open in the view before, and still live, is taken from there."""
    if before is not None and before.definition != sources.definition:
        before = None
    open_runs = {} if before is None else before.runs
    adds = [*adds]
    runs = {add.id: open_runs[add.id] for add in adds if add.id in open_runs}
    new = [add for add in adds if add.id not in open_runs]
    runs |= {add.id: run_of(add) for add in open_marks(sources.files.fs, new, sources.definition.key_types)}
    buckets: dict[int, Bucket] = {}
    for name, members in runs_by_bucket(runs.values()).items():
        members.sort(key=lambda run: run.marks.at)
        number = bucket_number(name)
        old = before.buckets.get(number) if before is not None else None
        buckets[number] = Bucket(_levels(members, sources, old), sources.definition)
    return View(version, sources, buckets, runs)


def _levels(runs: Sequence[Run], sources: Sources, old: Bucket | None) -> tuple[Level, ...]:
    """Return levels, those of the bucket before where they have the same runs."""
    old_levels = {} if old is None else {_ids(level): level for level in old.levels}
    return tuple(old_levels.get(_ids(level)) or _continued(level, old_levels) for level in levels_of(runs, sources))


def _continued(level: Level, old_levels: Mapping[tuple[str, ...], Level]) -> Level:
    ids = _ids(level)
    olds = (old for old_ids, old in old_levels.items() if level.is_overlay and ids[: len(old_ids)] == old_ids)
    older = next(olds, None)
    return level if older is None else level.continuing(older)


def _ids(level: Level) -> tuple[str, ...]:
    return tuple(run.add.id for run in level.runs)


def _bucket_finder(definition: StoreDefinition) -> Callable[[Key, int], int]:
    mask = definition.buckets - 1
    if definition.bucket_by == definition.keys:
        return lambda _, hashed: hashed & mask
    places = [definition.keys.index(name) for name in definition.bucket_by]
    hash_part = key_hasher([definition.schema.field(name).type for name in definition.bucket_by])
    return lambda key, _: hash_part(tuple([key[place] for place in places])) & mask


@dataclass(frozen=True, slots=True)
class StoreStats:
    """The numbers of a store at a version.

    Attributes:
        version: that is read.
        newest_version: of the log.
        runs: number of runs.
        runs_max: of the bucket with the most.
        rows: of all runs; a key has one in each run that says something about it.
        size_bytes: of the rows on storage.
        due_jobs: merges that tasks of the next batch do, at the newest version.
        held_jobs: those of them that failed too often, and are left out for a while.
        cache_bytes: taken by all readers of this process.
        cache_bytes_max: that they may take.
    """

    version: int
    newest_version: int
    runs: int
    runs_max: int
    rows: int
    size_bytes: int
    due_jobs: int
    held_jobs: int
    cache_bytes: int
    cache_bytes_max: int


def stats_of(view: View, head: LogState, cache: Cache) -> StoreStats:
    """Return the numbers of a view, and of the newest version."""
    runs = view.runs.values()
    return StoreStats(
        version=view.version,
        newest_version=head.version,
        runs=len(runs),
        runs_max=max((sum(len(level.runs) for level in bucket.levels) for bucket in view.buckets.values()), default=0),
        rows=sum(run.add.rows for run in runs),
        size_bytes=sum(run.size for run in runs),
        due_jobs=len(head.assembly_tasks),
        held_jobs=sum(is_held(job, head.version) for job in head.assembly_tasks),
        cache_bytes=cache.size_bytes,
        cache_bytes_max=cache.capacity_bytes,
    )
