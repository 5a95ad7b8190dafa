"""Targets for the files of a log: records, compacted logs, checkpoints, hints, windows of operators, plans, seals."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from isal import isal_zlib

from ftfile.core.checksum import checksum, crc32
from ftfile.core.context import SYSTEM
from ftfile.core.errors import FtfileError
from ftfile.filters.chain import Chain
from ftfile.filters.keys import IssuedKey, Keys
from ftfile.kv.operator.wal import read_wal
from ftfile.log import apply
from ftfile.log.checkpoints import decode_checkpoint, encode_checkpoint
from ftfile.log.format import layout
from ftfile.log.format.column_coding import COMPRESSION_LEVEL
from ftfile.log.format.compacted import decode_compacted
from ftfile.log.format.record import compact_json, decode_record, from_checked_text, nonce_of, to_checked_text
from ftfile.log.records import read_published
from ftfile.log.sealed import Seal, SealedFileSystem
from ftfile.log.state import LogState
from ftfile.log.wal import WalFiles, opening_of, recorded_window
from ftfile.source.known_files import KnownFiles
from ftfile.source.plan import SourcePlan, position_of
from ftfile.source.plan_log import plan_of
from ftfile.storage.api import RangeFile
from tests.fuzz.target import Draws, OneFile, Target

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ftfile.filters.keys import KeyProvider
    from ftfile.log.format.model import Record
    from ftfile.storage.api import FileSystem

PATH = "_ftfile/log/_00000000000000000001.record"
_BASES = ("json", "parquet", "store", "stream")
_WRITER, _WAL_ID = "w", "5" * 32
_CHECKSUM_BYTES = len(checksum(b""))
_CRC_AT = 41  # in a columns file
_COLUMNS_HEAD_BYTES = 45


def _record(data: bytes) -> Record:
    """Decode a record with its checksum, and apply it to an empty log, whose checkpoint is decoded."""
    content = to_checked_text(data.split(b"\n"))
    record = decode_record(content, PATH, lambda _: b"")
    nonce_of(content, PATH)
    state = _state_after(record)
    decode_checkpoint(encode_checkpoint(state), PATH)
    return record


def _state_after(record: Record) -> LogState:
    return apply.state_after(LogState(version=record.version - 1, nonce=record.previous_nonce or ""), record)


def _companion(data: bytes) -> Record:
    """Decode the changes of a large record, whose header names them with their checksum."""
    companion = {"path": "_ftfile/log/_x.changes", "lengthBytes": len(data), "checksum": checksum(data)}
    header = compact_json({**_header(), "companion": companion})
    return decode_record(to_checked_text([header]), PATH, lambda _: data)


def _checkpoint(data: bytes) -> None:
    state = decode_checkpoint(to_checked_text(data.split(b"\n")), PATH)
    opening_of(state, _WRITER)
    recorded_window(state, _WRITER)
    decode_checkpoint(encode_checkpoint(state), PATH)


def _opening(data: bytes) -> None:
    """Decode the entry of an operator in the tables of a record, and decide who owns its windows."""
    entry, _, names = data.partition(b"\n")
    tables = b'{"operators":{"set":{"' + _WRITER.encode() + b'":' + entry + b"}}}"
    header = compact_json(_header())[:-1] + b',"tables":' + tables + b"}"
    record = decode_record(to_checked_text([header, b"{}"]), PATH, lambda _: b"")
    opening = opening_of(_state_after(record), _WRITER)
    directory = layout.wal_directory(_WRITER)
    parsed = [layout.parse_wal_name(f"{directory}/{name}") for name in names.decode(errors="replace").split("\n")]
    opening.lost_epoch([name for name in parsed if name is not None])


def _names(data: bytes) -> None:
    """Parse the names of the files of a log."""
    path = data.decode(errors="replace")
    layout.parse_log_name(path)
    layout.parse_checkpoint_name(path)
    layout.parse_columns_name(path)
    layout.parse_compacted_name(path)
    layout.parse_wal_name(path)
    layout.restored_version(path)
    layout.original_id(path)
    layout.dead_letter_filters(path)
    layout.dead_letter_task(path)
    layout.noted_path(path, data)


def _hint(data: bytes) -> None:
    """Decode the hint of published versions, with its checksum, and the line of a sealed directory."""
    read_published(_fs(OneFile(to_checked_text([data]))))
    Seal.of(data)


def _compacted(data: bytes) -> None:
    """Decode a compacted log: a header, and in lines the texts of its streams, which are compressed and checksummed.

    The first byte is the number of live adds and of removed adds. A line of a document is an object of columns.
    """
    draws = Draws(data)
    counts = draws.byte()
    header, live, removes, ended, *bounds = draws.rest().split(b"\n")[:20] + [b""] * 4
    live_adds, ended_adds = counts & 15, counts >> 4
    live_streams, ended_streams = _columns_of(live), _columns_of(ended)
    statistics = {f"c{number}": _packed(text) for number, text in enumerate(bounds) if text}
    packed_removes = _packed(removes)
    placed = {
        "removes": _stream(packed_removes),
        "live": [_placed(live_adds, live_streams) | {"statistics": _streams(statistics)}][:live_adds],
        "ended": [_placed(ended_adds, ended_streams)][:ended_adds],
    }
    head = to_checked_text([b"{" + compact_json(placed)[1:-1] + b"," + header.removeprefix(b"{")])
    parts = [*live_streams.values()] if live_adds else []
    parts.append(packed_removes)
    if ended_adds:
        parts += ended_streams.values()
    if live_adds:
        parts += statistics.values()
    file = RangeFile.of_content(PATH, head + b"".join(parts))
    content = decode_compacted(file, PATH, ended=True, statistics=True)
    for document in content.kept:
        document.read_bounds(file, statistics)
    for document in (*content.kept, *(content.ended or ())):
        ids = document.versions().ids
        document.all_columns()
        for _ in document.adds(ids):
            pass


def _columns_of(line: bytes) -> dict[str, bytes]:
    """Return the streams of the columns in an object; a line that is not an object is the stream of ids."""
    try:
        columns = json.loads(line)
    except (ValueError, RecursionError):
        columns = None
    if not isinstance(columns, dict):
        return {"id": _packed(line)}
    return {name: _packed(json.dumps(value).encode()) for name, value in columns.items()}


def _placed(count: int, streams: dict[str, bytes]) -> dict[str, Any]:
    return {"adds": count, "columns": _streams(streams)}


def _streams(streams: dict[str, bytes]) -> dict[str, tuple[int, str]]:
    return {name: _stream(content) for name, content in streams.items()}


def _stream(content: bytes) -> tuple[int, str]:
    return len(content), checksum(content)


def _packed(text: bytes) -> bytes:
    return isal_zlib.compress(text, COMPRESSION_LEVEL)


class _OneWindowFile(WalFiles):
    def names(self) -> list[layout.WalName]:
        return [layout.WalName(1, 0)]


def _windows(data: bytes) -> None:
    """Decode a file of windows, with its checksum: a line of JSON, and a stream of Arrow."""
    content = data + checksum(data).encode()
    read_wal(_OneWindowFile(_fs(OneFile(content)), _WRITER, Chain(), _WAL_ID), 1, -1)


def _plan(data: bytes) -> None:
    """Decode a plan in a record, divide it into shares, and apply it to the known files."""
    header = compact_json(_header())
    record = decode_record(to_checked_text([header, b'{"payload":' + data + b"}"]), PATH, lambda _: b"")
    plan = plan_of(record)
    if sum(planned.end - planned.start for planned in plan.ranges) < 1 << 20:
        plan.shares(1 << 10)
    known = KnownFiles().apply(plan)
    KnownFiles.from_bytes(known.to_bytes())
    SourcePlan.from_json(plan.to_json())


def _columns(data: bytes) -> None:
    """Decode the columns of known files, with their checksum."""
    content = data[_COLUMNS_HEAD_BYTES:]
    known = KnownFiles.from_bytes(data[:_CRC_AT] + crc32(content).to_bytes(4, "little") + content)
    known.get(bytes(16))
    known.parked_keys()
    known.apply(SourcePlan())


def _offset(data: bytes) -> None:
    """Read the offset of a stream of files from Spark's checkpoint."""
    position_of(json.loads(data))


class _Ring:
    """A provider of one key."""

    def new_key(self, key_id: str) -> IssuedKey:
        del key_id
        return IssuedKey(bytes(32))

    def find_key(self, key_id: str, wrapped: bytes) -> bytes:
        del key_id, wrapped
        return bytes(32)

    def known_ids(self) -> tuple[str, ...]:
        return ("key",)


@dataclass(frozen=True, slots=True)
class OneKey(Keys):
    """The keys of a provider of one key."""

    def provider(self) -> KeyProvider:
        return _Ring()


KEYS = OneKey("file:/no/ring")


class _SealedFiles:
    """A format file with a seal, and a record."""

    context = SYSTEM

    def __init__(self, seal: bytes, record: bytes) -> None:
        self._contents = {layout.FORMAT_FILE: to_checked_text([b"{}", seal]), PATH: record}

    def read(self, path: str, bytes_max: int | None = None) -> bytes:
        del bytes_max
        return self._contents[path]

    def create_exclusive(self, path: str, content: bytes) -> None:
        self._contents[path] = content


def _sealed(data: bytes) -> None:
    """Read a record of an encrypted directory: its MAC is that of the input, or a right one."""
    draws = Draws(data)
    has_right_mac, seal, record = draws.byte() % 2, draws.line(), draws.rest()
    files = _SealedFiles(seal, record)
    sealed = SealedFileSystem(_fs(files), KEYS, "key")
    if has_right_mac:
        sealed.create_exclusive(PATH, to_checked_text(record.split(b"\n")))
    decode_record(sealed.read(PATH), PATH, lambda _: b"")


def _fs(files: object) -> FileSystem:
    """Return an object with the methods that a reader calls, as a file system."""
    return cast("FileSystem", files)


# ------------------------------------------------------------------------------------------------------- seeds


@cache
def _base(name: str) -> dict[str, bytes]:
    """Return the files of a directory that ftfile wrote, by path."""
    from tests.hostile import bases  # slow to import

    with tempfile.TemporaryDirectory() as home:
        place = Path(home).resolve() / "place"
        bases.make(name, place)
        return {str(path.relative_to(place)): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


def _written(suffix: str, *names: str) -> Iterator[bytes]:
    for name in names or _BASES:
        for path, content in _base(name).items():
            if path.endswith(suffix):
                yield content


def _texts(suffix: str) -> Iterator[bytes]:
    for content in _written(suffix):
        yield b"\n".join(from_checked_text(content, suffix))


@cache
def _header() -> dict[str, Any]:
    """Return the header of a small record."""
    author = {"kind": "maintenance", "operation": "compact", "operationId": "1" * 32}
    return {"ftfileRecord": 1, "version": 1, "nonce": "2" * 32, "timeMs": 5, "author": author}


def _companions() -> Iterator[bytes]:
    for text in _texts(".record"):
        yield text.partition(b"\n")[2]


def _hints() -> Iterator[bytes]:
    yield b'{"version":7,"nonce":"' + b"2" * 32 + b'"}'
    yield b'{"sealed":1,"directoryId":"' + b"3" * 32 + b'","keyProvider":"file:/ring"}'


def _seals() -> Iterator[bytes]:
    _, seal = _hints()
    record = next(_texts(".record"))
    yield b"\1" + seal + b"\n" + record
    mac = b"hmac-sha256 key - " + b"0" * 64
    yield b"\0" + seal + b"\n" + record + b"\n" + mac + b"\n"


def _compacted_seeds() -> Iterator[bytes]:
    for content in _written(".compacted"):
        end = content.index(b"\n", content.index(b"\n") + 1) + 1
        header = json.loads(from_checked_text(content[:end], PATH)[0])
        rest = content[end:]
        lines: list[bytes] = []
        for group in ("live", "removes", "ended"):
            if group == "removes":
                length = header[group][0]
                lines.append(isal_zlib.decompress(rest[:length]))
                rest = rest[length:]
                continue
            columns: list[bytes] = []
            for number, document in enumerate(header[group]):
                for name, (length, _) in document["columns"].items():
                    if number == 0:
                        columns.append(compact_json(name) + b":" + isal_zlib.decompress(rest[:length]))
                    rest = rest[length:]
            lines.append(b"{" + b",".join(columns) + b"}")
        counts = [sum(document["adds"] for document in header[group][:1]) for group in ("live", "ended")]
        fields = {name: value for name, value in header.items() if name not in _COMPUTED}
        bounds = [b'[["constant",1],["constant",9],["constant",0]]']
        yield b"\n".join([bytes([counts[0] | counts[1] << 4]) + compact_json(fields), *lines, *bounds])


_COMPUTED = ("removes", "live", "ended")


def _window_seeds() -> Iterator[bytes]:
    for content in _written(".wal"):
        line, _, message = content[:-_CHECKSUM_BYTES].partition(b"\n")
        yield compact_json(json.loads(line) | {"id": _WAL_ID, "after": -1}) + b"\n" + message


def _plans() -> Iterator[bytes]:
    for changes in _companions():
        if payload := json.loads(changes).get("payload"):
            yield compact_json(payload)


def _offsets() -> Iterator[bytes]:
    yield b'{"kind":"plans","id":"' + b"1" * 32 + b'","plan":3,"nonce":"x"}'


def _openings() -> Iterable[bytes]:
    yield b'[2,1,"' + _WAL_ID.encode() + b'"]\n_0000000003-0000000001.wal'


def _log_names() -> Iterable[bytes]:
    for name in _BASES:
        yield from (path.partition("/")[2].encode() for path in _base(name) if "_ftfile" in path)


TARGETS = {
    "records": Target(_record, lambda: _texts(".record")),
    "companions": Target(_companion, _companions),
    "checkpoints": Target(_checkpoint, lambda: _texts(".checkpoint")),
    "compacted_logs": Target(_compacted, _compacted_seeds),
    "hints": Target(_hint, _hints),
    "windows": Target(_windows, _window_seeds),
    "openings": Target(_opening, _openings),
    "log_names": Target(_names, _log_names),
    "plans": Target(_plan, _plans),
    "known_files": Target(_columns, lambda: _written(".columns")),
    "offsets": Target(_offset, _offsets, (FtfileError, ValueError, RecursionError)),
    "sealed_records": Target(_sealed, _seals),
}
