"""Runs, the live segments of a store with their metadata in the log.

In an encrypted store, the keys in metadata are sealed, because the log is readable without keys. Planner, tasks and
readers use opened metadata, from `open_state` or `open_metadata`; `seal_metadata` seals new adds before they are
recorded. Without encryption, the adds are unchanged. Opened keys have the types of the key columns.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct, structs

from ftfile.core.checksum import Decoding
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.core.per_process import PerProcess
from ftfile.filters.aes_gcm import AesGcm
from ftfile.filters.decoded import stream_errors
from ftfile.kv.definition import StoreDefinition, join_definitions
from ftfile.kv.key_columns import (
    Key,
    KeyRange,
    check_key,
    check_ranges,
    decode_key,
    decode_ranges,
    encode_key,
    encode_ranges,
    overlap,
)
from ftfile.log.directory import store_of
from ftfile.log.format import layout
from ftfile.log.format.adds import total_rows
from ftfile.log.format.model import Count, Level, convert
from ftfile.log.sealed import SealedFileSystem, keys_of
from ftfile.log.state import SharedMap

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ftfile.filters.keys import Keys
    from ftfile.log.format.model import Add
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem


# A position is the version of a record and, in the low bits, the index of the run in it.
_INDEX_BITS = 20
_HIDDEN = ("keys", "purges")
_SEALED = "sealed"
# Prefix of the associated data of sealed metadata. It is part of the format, and must not change.
_SEAL_LABEL = "marks"
# Maximum number of live runs whose check is cached; each commit opens all live runs.
_KEPT = 1 << 16
# Metadata that `open_metadata` has checked, by run id: the JSON, and the types of the key columns.
_checked: PerProcess[dict[str, tuple[dict[str, Any], tuple[pa.DataType, ...]]]] = PerProcess(dict)


class MetadataNumbers(Struct, frozen=True, rename="camel"):
    """The numbers in the metadata of a run, which are readable even if its keys are sealed."""

    at: tuple[Count, Count]
    ops: Count
    committed_ms: Count
    level: Level
    deletes: Count
    plain_bytes: Count


def numbers_of(text: Mapping[str, Any]) -> MetadataNumbers:
    """Return the numbers in the metadata of a run, from JSON; raise CorruptData if they are malformed."""
    with Decoding(layout.LOG, "the metadata of a run"):
        numbers: MetadataNumbers = convert(text, MetadataNumbers, "a run")
        return numbers


@dataclass(frozen=True, slots=True)
class RunMetadata:
    """The metadata of a run in its record."""

    at: tuple[int, int]  # first and last position of its rows; each is `version << 20 | index`
    keys: tuple[Key, Key] | None  # of the first and of the last row; None without rows
    purges: tuple[KeyRange, ...] = ()  # key ranges whose rows in all entirely older runs are deleted
    ops: int = 1  # the operations of its rows, a bit set
    committed_ms: int = 0  # commit time of its oldest row, by the driver's clock
    level: int = 0  # 0 for runs of batches; 1 for older rows
    deletes: int = 0  # number of deletes
    plain_bytes: int = 0  # of its rows, uncompressed

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON for `Add.rolling_stats`."""
        ends = None
        if self.keys is not None:
            first, last = self.keys
            ends = [encode_key(first), encode_key(last)]
        return {
            "at": list(self.at),
            "keys": ends,
            "purges": encode_ranges(self.purges),
            "ops": self.ops,
            "committedMs": self.committed_ms,
            "level": self.level,
            "deletes": self.deletes,
            "plainBytes": self.plain_bytes,
        }

    @classmethod
    def from_json(cls, text: dict[str, Any]) -> RunMetadata:
        """Build from `to_json()`; raise CorruptData for malformed JSON."""
        with Decoding(layout.LOG, "the metadata of a run"):
            numbers, keys = numbers_of(text), text["keys"]
            if keys is None:
                ends = None
            else:
                ends = (decode_key(keys[0]), decode_key(keys[1]))
            counts = numbers.ops, numbers.committed_ms, numbers.level, numbers.deletes, numbers.plain_bytes
            return cls(numbers.at, ends, decode_ranges(text["purges"]), *counts)

    def check_keys(self, kinds: Sequence[pa.DataType]) -> None:
        """Raise a CorruptData for keys that columns of these types cannot have."""
        with Decoding(layout.LOG, f"the metadata of a run whose key columns are {', '.join(map(str, kinds))}"):
            for key in self.keys or ():
                check_key(key, kinds)
            check_ranges(self.purges, kinds)


class Run(NamedTuple):
    """A live segment of a store, with its metadata."""

    add: Add
    metadata: RunMetadata

    @property
    def id(self) -> str:
        """Return the id of its add."""
        return self.add.id

    @property
    def size(self) -> int:
        """Return the bytes of its rows; 0 for a run without rows."""
        if self.add.rows:
            return self.add.length
        return 0

    @property
    def begins(self) -> Key:
        """Return the least key of its rows and purges."""
        starts = []
        for start, _ in self.metadata.purges:
            starts.append(start)
        if self.metadata.keys:
            starts.append(self.metadata.keys[0])
        return min(starts, default=())

    @property
    def ends(self) -> Key | None:
        """Return a key after which it has neither rows nor purges; None if it is unbounded."""
        last: Key = ()
        for _, end in self.metadata.purges:
            if end is None:
                return None
            last = max(last, end)
        if self.metadata.keys:
            last = max(last, self.metadata.keys[1])
        return last

    def has_rows_in(self, ranges: Iterable[KeyRange]) -> bool:
        """Return True if it may have rows in key ranges."""
        return self.metadata.keys is not None and overlap(ranges, *self.metadata.keys)

    def with_metadata(self, metadata: RunMetadata, **changes: Any) -> Add:  # noqa: ANN401 - attributes of an add
        """Return its add with other metadata, and other attributes."""
        return structs.replace(self.add, rolling_stats=metadata.to_json(), **changes)


def is_run(add: Add) -> bool:
    """Return True for a run of a store, False for a segment of a file, or another add."""
    return "ops" in add.rolling_stats


def run_of(add: Add) -> Run:
    """Return the run of a segment."""
    return Run(add, RunMetadata.from_json(add.rolling_stats))


def definition_of_runs(adds: Iterable[Add], definitions: Mapping[str, Any]) -> StoreDefinition | None:
    """Return the definition of the newest run, with all columns of the other runs; None without runs.

    The newest run may be one that a compaction has not rewritten, with fewer columns than its neighbours.
    """
    newest_first = sorted(adds, key=lambda add: numbers_of(add.rolling_stats).at[1], reverse=True)
    texts: dict[str, Any] = {}
    with Decoding(layout.LOG, "definitions of runs"):
        for add in newest_first:
            if add.encoding not in texts:
                texts[add.encoding] = definitions[add.encoding]["store"]
    if texts:
        return join_definitions([*map(StoreDefinition.from_json, texts.values())])
    return None


def last_position(runs: Iterable[Run]) -> int:
    """Return the position of the newest row of runs, at least one."""
    return max(run.metadata.at[1] for run in runs)


def least_key(runs: Iterable[Run]) -> Key:
    """Return the least key of the rows and purges of runs, at least one."""
    return min(run.begins for run in runs)


def greatest_end(runs: Iterable[Run]) -> Key | None:
    """Return the greatest end of runs, after which they have neither rows nor purges; None if they are unbounded."""
    last: Key = ()
    for run in runs:
        if run.ends is None:
            return None
        last = max(last, run.ends)
    return last


def run_ids(runs: Iterable[Run]) -> set[str]:
    """Return the ids of runs."""
    return {run.id for run in runs}


def row_count(runs: Iterable[Run]) -> int:
    """Return the number of rows of runs."""
    return total_rows(adds_of(runs))


def purges_of(runs: Iterable[Run]) -> Iterator[KeyRange]:
    """Yield the purges of runs, in order."""
    for run in runs:
        yield from run.metadata.purges


def adds_of(runs: Iterable[Run]) -> Iterator[Add]:
    """Yield the adds of runs, in order."""
    for run in runs:
        yield run.add


def segments_of(adds: Iterable[Add]) -> list[Add]:
    """Return the segments among adds."""
    return [add for add in adds if add.kind == "segment"]


def by_id(adds: Iterable[Add]) -> dict[str, Add]:
    """Return adds by their ids."""
    return {add.id: add for add in adds}


def runs_by_bucket(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Return the runs of each bucket, in the given order, sorted by bucket name."""
    groups: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.add.directory_key].append(run)
    return dict(sorted(groups.items()))


def meet(one: Run, other: Run) -> bool:
    """Return True if two runs may have rows with the same key, or one has purges that cover rows of the other."""
    ours, theirs = one.metadata.keys, other.metadata.keys
    if ours and theirs and ours[0] <= theirs[1] and theirs[0] <= ours[1]:
        return True
    return bool(ours and overlap(other.metadata.purges, *ours)) or bool(
        theirs and overlap(one.metadata.purges, *theirs)
    )


def are_apart(one: Run, other: Run) -> bool:
    """Return True if two runs are ordered for each key: their positions are disjoint, or they do not meet."""
    return (
        one.metadata.at[1] < other.metadata.at[0] or other.metadata.at[1] < one.metadata.at[0] or not meet(one, other)
    )


def place_adds(adds: Sequence[Add], version: int, now_ms: int) -> list[Add]:
    """Return new runs with their positions in the record of a version, in order; ConfigError for too many runs."""
    if len(adds) > 1 << _INDEX_BITS:
        raise ConfigError(
            f"{len(adds)} runs are too many for one record, which can contain {1 << _INDEX_BITS}: use fewer tasks or "
            "buckets, or partition rows by bucket"
        )
    placed_adds = []
    for index, add in enumerate(adds):
        position = position_of(version, index)
        run = run_of(add)
        placed_adds.append(run.with_metadata(replace(run.metadata, at=(position, position), committed_ms=now_ms)))
    return placed_adds


def position_of(version: int, index: int = 0) -> int:
    """Return the position of a new run in the record of a version."""
    return version << _INDEX_BITS | index


def version_of(position: int) -> int:
    """Return the version of a position."""
    return position >> _INDEX_BITS


def seal_metadata(fs: FileSystem, adds: Iterable[Add]) -> tuple[Add, ...]:
    """Return adds for a record, with sealed metadata; adds from `open_metadata` become as they were recorded."""
    if not isinstance(fs, SealedFileSystem):
        return tuple(adds)
    envelope = AesGcm(fs.key_id, fs.keys)
    return tuple(_seal_add(add, envelope) for add in adds)


def open_metadata(fs: FileSystem, adds: Iterable[Add], kinds: Sequence[pa.DataType]) -> list[Add]:
    """Return recorded adds with readable metadata, for a store whose key columns have these types.

    Raises:
        CorruptData: the metadata does not match its encryption key, its add, or the key columns.
        ConfigError: its encryption key is unknown.
    """
    keys = keys_of(fs)
    if keys is None:
        opened = [*adds]
    else:
        opened = []
        for add in adds:
            opened.append(_unseal_add(add, keys))
    types = (*kinds,)
    for add in opened:
        metadata, checked_types = _checked.here.get(add.id, (None, ()))
        # Each commit opens all live runs, and their adds stay the same objects: check them only once.
        if metadata is not add.rolling_stats or checked_types != types:
            if add.skip_rows:
                raise CorruptData(add.path, "a run without skipped rows", f"{add.skip_rows} skipped rows")
            RunMetadata.from_json(add.rolling_stats).check_keys(types)
            if len(_checked.here) >= _KEPT:
                _checked.here.clear()
            _checked.here[add.id] = add.rolling_stats, types
    return opened


def recorded_key_types(head: LogState) -> Sequence[pa.DataType]:
    """Return the types of the key columns of a store; empty before its first rows."""
    text = store_of(head)
    if text is None:
        return []
    return StoreDefinition.from_json(text).key_types


def open_state(fs: FileSystem, head: LogState, kinds: Sequence[pa.DataType]) -> LogState:
    """Return the state of a log with readable metadata of live runs; raises the same errors as `open_metadata`."""
    opened = open_metadata(fs, head.segments.values(), kinds)
    if keys_of(fs) is None:
        return head
    return replace(head, segments=SharedMap(by_id(opened)))


def _seal_add(add: Add, envelope: AesGcm) -> Add:
    stats = dict(add.rolling_stats)
    hidden = {}
    for name in _HIDDEN:
        if name in stats:
            hidden[name] = stats.pop(name)
    if _SEALED not in stats:
        stream = envelope.encoder(_identity(add))
        stats[_SEALED] = base64.b64encode(stream.feed(json.dumps(hidden).encode()) + stream.finish()).decode()
    return structs.replace(add, rolling_stats=stats)


def _unseal_add(add: Add, keys: Keys) -> Add:
    sealed = add.rolling_stats.get(_SEALED)
    if sealed is None:
        return add
    with stream_errors(add.path):
        return structs.replace(add, rolling_stats=add.rolling_stats | _open(keys, sealed, _identity(add)))


@lru_cache(_KEPT)
def _open(keys: Keys, sealed: str, identity: str) -> Any:  # noqa: ANN401 - JSON
    stream = AesGcm(keys=keys).decoder(identity)
    return json.loads(stream.feed(base64.b64decode(sealed)) + stream.finish())


def _identity(add: Add) -> str:
    return f"{_SEAL_LABEL} {add.id}"
