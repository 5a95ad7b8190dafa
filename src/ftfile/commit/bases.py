"""Bases: a committer's whole state in one immutable file, so that a restart reads few records.

Any base is right for its version; several may be written for one; only the newest is ever used.
"""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any

from ftfile.commit import layout
from ftfile.commit.columns import adds_from_json, adds_to_json
from ftfile.commit.record_format import (
    UNREADABLE,
    add_from_json,
    add_to_json,
    due_from_json,
    due_to_json,
    fingerprint_from_json,
    fingerprint_to_json,
    from_checked_text,
    remove_from_json,
    remove_to_json,
    to_checked_text,
)
from ftfile.commit.remaking import create_file
from ftfile.commit.state import RECENT_RECORDS, LogState, QueryState, Unpublished
from ftfile.core.errors import CorruptData, NotFound, StorageError
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from ftfile.core.ids import IdSource
    from ftfile.fs.api import FileSystem

__all__ = (
    "BASES_KEPT",
    "RECORD_COST_BYTES",
    "decode_base",
    "encode_base",
    "keep_base",
    "list_bases",
    "newest_base",
    "read_base",
    "write_base",
)

BASE_FORMAT = 1
_ADVICE = "Restore it from a copy; while every record from version 0 on is there, it may simply be deleted"
BASES_KEPT = 2
# A base is due when reading what came after it costs more than this, and than half of reading the base.
BASE_MIN_BYTES = 1 << 20
# What opening a record costs, as bytes read: a restart must not open thousands of small ones.
RECORD_COST_BYTES = 4 << 10

_log = get_logger(__name__)


def newest_base(fs: FileSystem) -> layout.BaseName | None:
    """Return the newest base by listing their names, or None."""
    return max(list_bases(fs), default=None)


def read_base(fs: FileSystem, name: layout.BaseName) -> LogState:
    """Read a base.

    Raises:
        NotFound: a newer one has replaced it: list again.
        CorruptData: it is damaged.
    """
    path = layout.base_path(name)
    content = fs.read(path)
    state = decode_base(content, path)
    state.base_bytes = len(content)
    return state


def keep_base(fs: FileSystem, ids: IdSource, state: LogState) -> None:
    """Write a base when one is due; failing is harmless and only logged, the batch is committed."""
    if state.delta_bytes <= max(BASE_MIN_BYTES, state.base_bytes // 2):
        return
    state.delta_bytes = 0
    try:
        write_base(fs, ids, state)
    except StorageError as error:
        _log.warning("could not write a base of version %d, a restart will read more records: %s", state.version, error)


def write_base(fs: FileSystem, ids: IdSource, state: LogState) -> None:
    """Write a base of the state, then drop those that newer ones make useless."""
    name = layout.BaseName(state.version, ids.unique()[:16])
    content = encode_base(state)
    create_file(fs, layout.base_path(name), content)
    state.base_bytes, state.delta_bytes = len(content), 0
    for old in sorted(list_bases(fs))[:-BASES_KEPT]:
        try:
            fs.delete(layout.base_path(old))
        except NotFound:
            _log.debug("base %s is gone already", old)


def encode_base(state: LogState) -> bytes:
    """Return the bytes of a base."""
    text = {
        "ftfileBase": BASE_FORMAT,
        "version": state.version,
        "nonce": state.nonce,
        "queries": {query_id: _query_to_json(query) for query_id, query in state.queries.items()},
        "transactions": state.transactions,
        "horizonMs": state.horizon_ms,
        "logStart": state.log_start,
        "schema": state.schema,
        "encoding": state.encoding,
        "definitions": state.definitions,
        "segments": adds_to_json(state.segments.values()),
        "due": [due_to_json(job) for job in state.due],
        "removed": state.removed,
        "removedSince": state.removed_since,
        "reserved": state.reserved,
        "memory": state.memory,
        "recent": list(state.recent),
        "unpublished": [_unpublished_to_json(entry) for entry in state.unpublished.values()],
    }
    return to_checked_text([json.dumps(text, separators=(",", ":"), ensure_ascii=False).encode()])


def decode_base(content: bytes, path: str) -> LogState:
    """Return the state that `encode_base` wrote.

    Raises:
        CorruptData: the checksum does not match, or the format is not known.
    """
    lines = from_checked_text(content, path, _ADVICE)
    try:
        return _state_from_json(json.loads(lines[0]), path)
    except UNREADABLE as error:
        raise CorruptData(path, "a base of the log", f"unreadable fields ({error!r})", _ADVICE) from error


def list_bases(fs: FileSystem) -> list[layout.BaseName]:
    """Return the bases there are, in any order."""
    try:
        found = fs.list(layout.STATE)
    except NotFound:
        return []
    return [name for info in found if (name := layout.parse_base_name(info.path)) is not None]


def _state_from_json(text: dict[str, Any], path: str) -> LogState:
    if text.get("ftfileBase") != BASE_FORMAT:
        raise CorruptData(path, f"base format {BASE_FORMAT}", repr(text.get("ftfileBase")), "Use a newer ftfile")
    return LogState(
        version=text["version"],
        nonce=text["nonce"],
        queries={query_id: _query_from_json(query) for query_id, query in text["queries"].items()},
        transactions=text["transactions"],
        horizon_ms=text["horizonMs"],
        log_start=text["logStart"],
        schema=text["schema"],
        encoding=text["encoding"],
        definitions=text["definitions"],
        segments={add.id: add for add in adds_from_json(text["segments"])},
        due=tuple(due_from_json(job) for job in text["due"]),
        removed=text["removed"],
        removed_since=text["removedSince"],
        reserved=text["reserved"],
        memory=text["memory"],
        recent=deque(((version, nonce) for version, nonce in text["recent"]), maxlen=RECENT_RECORDS),
        unpublished={entry["version"]: _unpublished_from_json(entry) for entry in text["unpublished"]},
    )


def _query_to_json(query: QueryState) -> list[Any]:
    fields = (query.last_batch, query.version, query.run_id, query.offsets_hash)
    return [*fields, fingerprint_to_json(query.fingerprint), query.lineage_start, query.settings]


def _query_from_json(text: list[Any]) -> QueryState:
    last_batch, version, run_id, offsets_hash, fingerprint, lineage_start, settings = text
    found = fingerprint_from_json(fingerprint)
    return QueryState(last_batch, version, run_id, offsets_hash, found, lineage_start, settings)


def _unpublished_to_json(entry: Unpublished) -> dict[str, Any]:
    return {
        "version": entry.version,
        "queryId": entry.query_id,
        "adds": [add_to_json(add) for add in entry.adds],
        "removes": [remove_to_json(remove) for remove in entry.removes],
    }


def _unpublished_from_json(text: dict[str, Any]) -> Unpublished:
    return Unpublished(
        text["version"],
        text["queryId"],
        tuple(add_from_json(add) for add in text["adds"]),
        tuple(remove_from_json(remove) for remove in text["removes"]),
    )
