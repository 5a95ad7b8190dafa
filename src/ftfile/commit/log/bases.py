"""Bases: a committer's whole state in one immutable file, so that a restart reads few records.

Any base is right for its version; several may be written for one; only the newest is ever used.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ftfile.commit.files import create_file
from ftfile.commit.format import layout
from ftfile.commit.format.columns import adds_from_json, adds_to_json
from ftfile.commit.format.record import (
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
from ftfile.commit.log.shared_map import SharedMap
from ftfile.commit.log.state import LogState, QueryState, TransactionState, Unpublished
from ftfile.core.errors import CorruptData, NotFound
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ftfile.commit.format.model import Record
    from ftfile.core.ids import IdSource
    from ftfile.fs.api import FileSystem

__all__ = (
    "BASES_KEPT",
    "RECORD_COST_BYTES",
    "OwnBases",
    "decode_base",
    "encode_base",
    "list_bases",
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


class OwnBases:
    """The bases of a log: those that can be read, and whose record is there.

    Vacuum keeps the records of the last bases, so that a base without its record was written by another history of the
    directory, or the log was restored from an older copy.

    Args:
        fs: of the directory.
        read_record: the log's.

    Attributes:
        useless: the names of those that were found to be damaged, or not of this log.
    """

    def __init__(self, fs: FileSystem, read_record: Callable[[int], Record | None]) -> None:
        self._fs = fs
        self._read_record = read_record
        self.useless: set[layout.BaseName] = set()

    def names(self) -> list[layout.BaseName]:
        """Return what is listed and not known to be useless, in the order of versions."""
        return sorted(name for name in list_bases(self._fs) if name not in self.useless)

    def newest(self) -> layout.BaseName | None:
        """Return the newest base by listing their names, or None."""
        return max(self.names(), default=None)

    def judge_again(self) -> None:
        """Forget which ones are useless: the directory was replaced."""
        self.useless.clear()

    def read_newest(self) -> tuple[LogState, int] | None:
        """Return the newest base that can be read, with its length in bytes; None when there is none."""
        while (name := self.newest()) is not None:
            if (found := self.read(name)) is not None:
                return found
        return None

    def read(self, name: layout.BaseName) -> tuple[LogState, int] | None:
        """Return a base with its length in bytes; None when it is gone, damaged, or not of this log."""
        path = layout.base_path(name)
        try:
            content = self._fs.read(path)
        except NotFound:
            return None  # replaced by a newer one since the listing
        try:
            state = decode_base(content, path)
            record = self._read_record(name.version)
            if state.version == name.version and record is not None and record.nonce == state.nonce:
                return state, len(content)
            problem = f"{path} is passed over: the log has no such version, or another one"
        except CorruptData as error:
            problem = f"a base is passed over: {error}"
        _log.warning("%s", problem)
        self.useless.add(name)
        return None


def write_base(fs: FileSystem, ids: IdSource, state: LogState, useless: Collection[layout.BaseName] = ()) -> int:
    """Write a base of the state, then drop those that newer ones make useless; later ones may be another committer's.

    Args:
        fs: of the directory.
        ids: for its name.
        state: what it says.
        useless: bases that replace nothing.

    Returns:
        Its length in bytes.
    """
    name = layout.BaseName(state.version, ids.unique()[:16])
    content = encode_base(state)
    create_file(fs, layout.base_path(name), content)
    older = {name for name in list_bases(fs) if name.version <= state.version}
    for old in older - set(sorted(older - set(useless))[-BASES_KEPT:]):
        try:
            fs.delete(layout.base_path(old))
        except NotFound:
            _log.debug("base %s is gone already", old)
    return len(content)


def encode_base(state: LogState) -> bytes:
    """Return the bytes of a base."""
    text = {
        "ftfileBase": BASE_FORMAT,
        "version": state.version,
        "nonce": state.nonce,
        "queries": {query_id: _query_to_json(query) for query_id, query in state.queries.items()},
        "transactions": {app: _transaction_to_json(found) for app, found in state.transactions.items()},
        "horizonMs": state.horizon_ms,
        "logStart": state.log_start,
        "schema": state.schema,
        "encoding": state.encoding,
        "definitions": state.definitions,
        "segments": adds_to_json(state.segments.values()),
        "due": [due_to_json(job) for job in state.due],
        "removed": state.removed.to_dict(),
        "removedSince": state.removed_since,
        "reserved": state.reserved.to_dict(),
        "memory": {name: table.to_dict() for name, table in state.memory.items()},
        "recent": state.recent,
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
    state = LogState(
        version=text["version"],
        nonce=text["nonce"],
        queries=SharedMap({query_id: _query_from_json(query) for query_id, query in text["queries"].items()}),
        transactions=SharedMap({app: _transaction_from_json(found) for app, found in text["transactions"].items()}),
        horizon_ms=text["horizonMs"],
        log_start=text["logStart"],
        schema=text["schema"],
        encoding=text["encoding"],
        definitions=text["definitions"],
        segments=SharedMap({add.id: add for add in adds_from_json(text["segments"])}),
        due=tuple(due_from_json(job) for job in text["due"]),
        removed=SharedMap({**text["removed"]}),
        removed_since=text["removedSince"],
        reserved=SharedMap({**text["reserved"]}),
        memory={name: SharedMap({**table}) for name, table in text["memory"].items()},
        recent=tuple((version, nonce) for version, nonce in text["recent"]),
        unpublished={entry["version"]: _unpublished_from_json(entry) for entry in text["unpublished"]},
    )
    _check_types(state)
    return state


def _check_types(state: LogState) -> None:
    """Raise a ValueError for what would make no sense later: a right checksum does not make it a base."""
    queries, transactions = state.queries.values(), state.transactions.values()
    numbers = [state.version, state.horizon_ms, state.log_start, state.removed_since, *state.unpublished]
    numbers += [number for query in queries for number in (query.last_batch, query.version, query.lineage_start)]
    numbers += [number for found in transactions for number in (found.last, found.version)]
    numbers += [*state.removed.values(), *state.reserved.values(), *(version for version, _ in state.recent)]
    texts = [state.nonce, *(nonce for _, nonce in state.recent)]
    texts += [key for key in (state.schema, state.encoding, *(query.settings for query in queries)) if key is not None]
    if not (all(type(number) is int for number in numbers) and all(type(text) is str for text in texts)):
        raise ValueError("a number or a text of another type")
    if not isinstance(state.definitions, dict):
        raise ValueError("definitions of another type")  # noqa: TRY004 - one kind of error for the caller
    for table in state.memory.values():
        for set_ms, _ in table.values():
            if type(set_ms) is not int:
                raise ValueError("an entry that was set at no time")


def _query_to_json(query: QueryState) -> list[Any]:
    fields = (query.last_batch, query.version, query.run_id, query.offsets_hash)
    return [*fields, fingerprint_to_json(query.fingerprint), query.lineage_start, query.settings]


def _query_from_json(text: list[Any]) -> QueryState:
    last_batch, version, run_id, offsets_hash, fingerprint, lineage_start, settings = text
    found = fingerprint_from_json(fingerprint)
    return QueryState(last_batch, version, run_id, offsets_hash, found, lineage_start, settings)


def _transaction_to_json(found: TransactionState) -> list[Any]:
    return [found.last, found.version, fingerprint_to_json(found.fingerprint)]


def _transaction_from_json(text: list[Any]) -> TransactionState:
    last, version, fingerprint = text
    return TransactionState(last, version, fingerprint_from_json(fingerprint))


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
