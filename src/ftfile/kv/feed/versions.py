"""Changes: which runs of a store a version adds and removes, and of which keys it may change the rows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ftfile.commit.format.model import MaintenanceAuthor
from ftfile.kv.hashing import bucket_number
from ftfile.kv.planning.runs import version_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ftfile.commit.format.model import Add, Record

# Maintenance that writes all rows anew, and changes none.
_REBUCKET = "rebucket"


@dataclass(frozen=True, slots=True)
class Change:
    """The change that one version makes."""

    version: int
    time_ms: int  # when it was committed, by the clock of its writer
    adds: tuple[Add, ...]  # runs that it adds, as they are recorded
    removes: tuple[str, ...]  # ids of those that it removes
    # `none` if all rows stay, `new` if those of keys in new runs may change, `all` if any may.
    scope: Literal["none", "new", "all"]
    buckets: tuple[int, int]  # the first bucket of which changes are read, and the one behind the last

    @property
    def new_runs(self) -> tuple[Add, ...]:
        """Return the runs whose rows no earlier version has: those that no job made of others."""
        if self.scope == "none":
            return ()
        return tuple(add for add in self.adds if _is_new(add, self.version))


@dataclass(frozen=True, slots=True)
class Share:
    """The changes that one task reads, of some buckets."""

    live: tuple[Add, ...]  # runs of the version before the first change
    changes: tuple[Change, ...]  # in the order of their versions
    definition: dict[str, Any]  # of the store, as the log has it


def change_of(record: Record, buckets: tuple[int, int]) -> Change:
    """Return the change that a record makes, to be read in some buckets."""
    author = record.author
    removes = tuple(remove.id for remove in record.removes)
    scope: Literal["none", "new", "all"] = "new"
    if isinstance(author, MaintenanceAuthor) and author.operation == _REBUCKET:
        scope = "none"
    elif record.overwrite and removes:
        scope = "all"
    elif not any(_is_new(add, record.version) for add in record.adds):
        scope = "none"
    return Change(record.version, record.time_ms, record.adds, removes, scope, buckets)


def applied(live: Mapping[str, Add], change: Change) -> dict[str, Add]:
    """Return the live runs by id after a change."""
    after = dict(live)
    for removed in change.removes:
        after.pop(removed, None)
    after.update((add.id, add) for add in change.adds)
    return after


def by_bucket(adds: Iterable[Add]) -> dict[int, list[Add]]:
    """Return runs by the number of their bucket, in its order."""
    found: defaultdict[int, list[Add]] = defaultdict(list)
    for add in adds:
        found[bucket_number(add.bucket)].append(add)
    return dict(sorted(found.items()))


def _is_new(add: Add, version: int) -> bool:
    first, last = add.rolling_stats["at"]
    return bool(first == last and version_of(first) == version)
