"""Marks in records of an encrypted store: the keys in them are sealed, as everybody can read the log.

Planner, jobs and readers see them open: they take live runs and due jobs from `open_state`, or `open_marks`, and what
is recorded passes `seal_marks`. Without encryption, both return what they are given.
"""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ftfile.commit.log.shared_map import SharedMap
from ftfile.commit.sealed.filesystem import SealedFileSystem, keys_of
from ftfile.filters.aes_gcm import AesGcm
from ftfile.filters.decoded import stream_errors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ftfile.commit.format.model import Add, AssemblyJob
    from ftfile.commit.log.state import LogState
    from ftfile.fs.api import FileSystem
    from ftfile.keys.keys import Keys

_HIDDEN = ("keys", "purges")
_SEALED = "sealed"
# Of live runs that a commit opens for every head.
_KEPT = 1 << 16


def seal_marks(fs: FileSystem, adds: Iterable[Add]) -> tuple[Add, ...]:
    """Return adds as a record has them; those that `open_marks` returned are as they were recorded."""
    if not isinstance(fs, SealedFileSystem):
        return tuple(adds)
    envelope = AesGcm(fs.key_id, fs.keys)
    return tuple(_sealed(add, envelope) for add in adds)


def seal_jobs(fs: FileSystem, jobs: Iterable[AssemblyJob]) -> tuple[AssemblyJob, ...]:
    """Return due jobs as a record has them."""
    if not isinstance(fs, SealedFileSystem):
        return tuple(jobs)
    return tuple(replace(job, inputs=seal_marks(fs, job.inputs)) for job in jobs)


def open_marks(fs: FileSystem, adds: Iterable[Add]) -> list[Add]:
    """Return recorded adds with readable marks.

    Raises:
        CorruptData: marks do not fit their key, or their add.
        ConfigError: their key is not known.
    """
    keys = keys_of(fs)
    return [*adds] if keys is None else [_opened(add, keys) for add in adds]


def open_state(fs: FileSystem, head: LogState) -> LogState:
    """Return the state of a log with readable marks of live runs and of due jobs; raises as `open_marks`."""
    if keys_of(fs) is None:
        return head
    segments = SharedMap({add.id: add for add in open_marks(fs, head.segments.values())})
    jobs = tuple(replace(job, inputs=tuple(open_marks(fs, job.inputs))) for job in head.assembly_jobs)
    return replace(head, segments=segments, assembly_jobs=jobs)


def _sealed(add: Add, envelope: AesGcm) -> Add:
    stats = dict(add.rolling_stats)
    hidden = {name: stats.pop(name) for name in _HIDDEN if name in stats}
    if _SEALED not in stats:
        stream = envelope.encoder(_identity(add))
        content = stream.feed(json.dumps(hidden).encode()) + stream.finish()
        stats[_SEALED] = base64.b64encode(content).decode()
    return replace(add, rolling_stats=stats)


def _opened(add: Add, keys: Keys) -> Add:
    sealed = add.rolling_stats.get(_SEALED)
    if sealed is None:
        return add
    with stream_errors(add.path):
        return replace(add, rolling_stats=add.rolling_stats | _open(keys, sealed, _identity(add)))


@lru_cache(_KEPT)
def _open(keys: Keys, sealed: str, identity: str) -> dict[str, Any]:
    stream = AesGcm(keys=keys).decoder(identity)
    content = stream.feed(base64.b64decode(sealed)) + stream.finish()
    found: dict[str, Any] = json.loads(content)
    return found


def _identity(add: Add) -> str:
    return f"marks {add.id}"
