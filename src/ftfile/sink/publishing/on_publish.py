"""`onPublish`: a function of the user's hears of every part that became visible, at least once.

A batch that dies before its function was called is run again by Spark, finds itself in the log, and calls it then. A
flush is not run again: its record notes that its parts are untold, and a later flush, or the next batch, tells of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftfile.commit.format.layout import bucket_directory
from ftfile.commit.format.model import Add, Body, MaintenanceAuthor
from ftfile.commit.protocol import commit
from ftfile.commit.read.snapshot import added_by
from ftfile.core.errors import ConfigError, UserCodeError
from ftfile.core.extensions import load

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState

__all__ = ("PublishedPart", "call_on_publish", "check_hook", "note_untold", "tell_untold", "untold_queries")

# A table of the log: by version of a flush's record, the query whose function is to hear of it.
UNTOLD = "unreportedFlushes"

_OPTION = "onPublish"


@dataclass(frozen=True, slots=True)
class PublishedPart:
    """One finished file."""

    url: str
    path: str  # relative to the directory of the sink
    bucket: str  # its sub-directory; empty for the directory itself
    rows: int
    size_bytes: int
    query_id: str  # the streaming query that wrote it, or the id of a batch write
    batch_id: int  # the last micro-batch whose records are in it; 0 for a batch write
    version: int  # of the commit


def check_hook(name: str) -> None:
    """Raise a ConfigError unless there is such a function."""
    if not callable(load(_OPTION, name)):
        raise ConfigError(f"{_OPTION}={name!r} is no function")


def call_on_publish(name: str, url: str, version: int, adds: Iterable[Add]) -> None:
    """Call the function with the parts of a published record, if it has any; `url` is that of the sink's directory."""
    parts = tuple(
        PublishedPart(
            url=f"{url}/{add.final_path}",
            path=add.final_path,
            bucket=bucket_directory(add.bucket),
            rows=add.rows,
            size_bytes=add.length,
            query_id=add.origin.query_id,
            batch_id=add.origin.last_batch,
            version=version,
        )
        for add in adds
        if add.final_path is not None
    )
    if not parts:
        return
    try:
        load(_OPTION, name)(parts)
    except Exception as error:
        raise UserCodeError(
            f"{_OPTION}={name!r} raised {error!r}. Its batch is committed, in version {version}; a streaming "
            "query calls it again with the same files when it is started again"
        ) from error


def note_untold(version: int, query_id: str) -> dict[str, Any]:
    """Return the changes of a flush's record to the log's tables."""
    return {UNTOLD: {"set": {str(version): query_id}}}


def untold_queries(head: LogState) -> set[str]:
    """Return the queries whose functions have not heard of all that was flushed."""
    return {query_id for _, query_id in head.tables.get(UNTOLD, {}).values()}


def tell_untold(log: CommitLog, name: str, url: str, query_id: str) -> None:
    """Call the function with the parts of flushes that it has not heard of, and record that it has.

    Parts that are not published yet wait for the next time; the function hears again of what was not recorded.
    """
    head = log.read_on()
    owners = {int(version): owner for version, (_, owner) in head.tables.get(UNTOLD, {}).items()}
    waiting = sorted(at for at, owner in owners.items() if owner == query_id and at not in head.unpublished)
    for version in waiting:
        call_on_publish(name, url, version, added_by(log, version))
    if waiting:
        told = {UNTOLD: {"drop": [str(version) for version in waiting]}}
        commit(log, MaintenanceAuthor(_OPTION, log.ids.unique()), lambda *_: Body(tables=told))
