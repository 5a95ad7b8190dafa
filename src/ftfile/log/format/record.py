"""Records as bytes: pure, bytes in and values out. The tables here are the only spelling of a record's fields.

A record is text: a line of JSON, a line with its adds, removes, dead letters and jobs (of a large record, the companion
file holds that line), and a line with the checksum of all before it; see docs/internals/format.md.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ftfile.core.checksum import Decoding, checksum
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.log.format import layout, model
from ftfile.log.format.model import FLAG, LIST, NUMBER, OBJECT, OR_NULL, TEXT, Field, Fields, many, one
from ftfile.log.format.tables import definitions_from_json, tables_from_json, texts_from_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.storage.api import FileSystem

RECORD_FORMAT = 1
COMPANION_FROM_BYTES = 1 << 20
# Of a record, a companion, a log checkpoint or a range; and of what a stream of a range is unpacked to.
FILE_BYTES_MAX = 512 << 20
# Of the format file, the mark of a directory, a hint or a note of a name.
SMALL_BYTES_MAX = 1 << 20
# Of JSON: Python has some 70 bytes for each.
VALUES_MAX = 32_000_000
DEPTH_MAX = 100
IS_SEALED = (
    "this directory is encrypted, and no keys are known: write to it with encryption and keyProvider as others do, and "
    "read it with keyProvider"
)
_SMALLER = "nobody could read it. Write, replace or remove fewer files at once, in several batches or calls"
_IS_UNDONE = (
    "the migration of this directory was undone, and its log is being deleted: ftfile.undo_migration(path) finishes it"
)
# `json.dumps` makes one for each call.
_COMPACT = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_ASCII = json.JSONEncoder(separators=(",", ":"))
_ESCAPED, _STRING = re.compile(rb"\\.", re.DOTALL), re.compile(rb'"[^"]*"')
_PAIRS = bytes.maketrans(b"{}", b"[]")
_OTHERS = bytes({*range(256)} - {*b'[]{}"'})
_ADVICE = "The log is damaged, not merely cut short: restore the file from a copy of the directory"


def _int_to_json(value: object) -> object:
    if type(value) is not int or abs(value) > model.NUMBER_MAX:
        raise ConfigError(f"the version of a transaction is {value!r}, and is to be an int: nobody could read the log")
    return value


def _author_to_json(author: model.Author) -> dict[str, Any]:
    kind, fields = next(item for item in AUTHORS.items() if item[1].make is type(author))
    return {"kind": kind} | fields.to_json(author)


def _author_from_json(text: dict[str, Any]) -> model.Author:
    author: model.Author = AUTHORS[text["kind"]].from_json(text)
    return author


ORIGIN = Fields(
    model.Origin,
    Field("queryId", "query_id", TEXT),
    Field("firstBatch", "first_batch", NUMBER),
    Field("lastBatch", "last_batch", NUMBER),
)
SEGMENT_RANGE = Fields(
    model.SourceRange,
    Field("segmentId", "add_id", TEXT),
    Field("unit", "unit", TEXT, words=("bytes", "rows")),
    Field("start", "start", NUMBER),
    Field("end", "end", NUMBER),
)
# In the order of the constructor of `Add`, which documents of adds rely on.
ADD = Fields(
    model.Add,
    Field("id", "id", TEXT),
    Field("kind", "kind", TEXT, words=("part", "segment")),
    Field("path", "path", TEXT),
    Field("finalPath", "final_path", TEXT + OR_NULL),
    Field("lengthBytes", "length", NUMBER),
    Field("logicalLengthBytes", "logical_length", NUMBER),
    Field("checksum", "checksum", TEXT),
    Field("rows", "rows", NUMBER),
    Field("directory", "directory_key", TEXT),
    Field("encoding", "encoding", TEXT),
    # A record has few origins and many adds.
    Field("origin", "origin", OBJECT, functools.lru_cache(maxsize=1_024)(ORIGIN.to_json), ORIGIN.from_json),
    Field("offsetBytes", "offset", NUMBER),
    Field("filters", "filters", LIST, list, texts_from_json),
    many("segmentRanges", "ranges", SEGMENT_RANGE, is_rare=True),
    Field("skipRows", "skip_rows", NUMBER, is_rare=True),
    Field("rollingStats", "rolling_stats", OBJECT, is_rare=True),
)
REMOVE = Fields(
    model.Remove,
    Field("id", "id", TEXT),
    Field("kind", "kind", TEXT, words=("part", "segment")),
    Field("finalPath", "final_path", TEXT),
    Field("lengthBytes", "length", NUMBER),
    Field("checksum", "checksum", TEXT),
)
ASSEMBLY_TASK = Fields(
    model.AssemblyTask,
    Field("id", "id", TEXT),
    many("inputs", "inputs", ADD),
    Field("reason", "reason", TEXT),
    Field("attempts", "attempts", NUMBER),
    Field("plan", "payload"),
)
FINGERPRINT = Fields(
    model.Fingerprint,
    Field("kind", "kind", TEXT),
    Field("digest", "digest", TEXT),
    Field("coversContent", "covers_content", FLAG),
)
TRANSACTION = Fields(
    model.Transaction,
    Field("appId", "app_id", TEXT),
    Field("version", "version", NUMBER, _int_to_json, int, least=-model.NUMBER_MAX),
)
# By `kind`.
AUTHORS: dict[str, Fields[Any]] = {
    "stream": Fields(
        model.StreamAuthor,
        Field("queryId", "query_id", TEXT),
        Field("runId", "run_id", TEXT),
        Field("batchId", "batch_id", NUMBER),
        Field("offsetsHash", "offsets_hash", TEXT),
        Field("offsets", "offsets"),
    ),
    "batchWrite": Fields(
        model.JobAuthor, Field("jobId", "job_id", TEXT), one("transaction", "transaction", TRANSACTION)
    ),
    "maintenance": Fields(
        model.MaintenanceAuthor, Field("operation", "operation", TEXT), Field("jobId", "job_id", TEXT)
    ),
}
HEADER = Fields(
    model.Record,
    Field("version", "version", NUMBER),
    Field("nonce", "nonce", TEXT),
    Field("timeMs", "time_ms", NUMBER),
    Field("storeTimeMs", "store_ms", NUMBER),
    Field("author", "author", OBJECT, _author_to_json, _author_from_json),
    Field("previousNonce", "previous_nonce", TEXT),
    Field("writer", "writer", TEXT),
    Field("taskCount", "tasks", NUMBER),
    Field("overwrite", "overwrite", FLAG),
    Field("replaces", "replaces", TEXT),
    Field("restoredVersion", "restored", NUMBER),
    Field("rowsRemoved", "rows_removed", NUMBER),
    Field("lineageStartBatch", "lineage_start", NUMBER),
    Field("vacuumHorizonMs", "horizon_ms", NUMBER),
    Field("logStartVersion", "log_start", NUMBER),
    Field("schema", "schema", TEXT),
    Field("encoding", "encoding", TEXT),
    Field("assemblySettings", "settings", TEXT),
    Field("definitions", "definitions", OBJECT, None, definitions_from_json),
    one("fingerprint", "fingerprint", FINGERPRINT),
    Field("userMetadata", "user_metadata", TEXT),
    Field("metrics", "metrics", OBJECT),
    Field("tables", "tables", OBJECT, None, tables_from_json),
)
CHANGES = Fields(
    model.Record,
    many("adds", "adds", ADD),
    many("removes", "removes", REMOVE),
    many("deadLetters", "dead_letters", ADD),
    many("assemblyTasks", "assembly_tasks", ASSEMBLY_TASK),
    Field("payload", "payload"),
)


class EncodedRecord(NamedTuple):
    """A record's bytes, and those of the companion file with the changes of a large one."""

    content: bytes
    companion: bytes | None


def encode_record(record: model.Record) -> EncodedRecord:
    """Return the bytes of a record; changes of `COMPANION_FROM_BYTES` or more go to the companion."""
    header = {"ftfileRecord": RECORD_FORMAT} | HEADER.to_json(record)
    changes = within_limits(compact_json(CHANGES.to_json(record)))
    if len(changes) < COMPANION_FROM_BYTES:
        return EncodedRecord(to_checked_text([within_limits(compact_json(header)), changes]), None)
    content = changes + b"\n"
    path = layout.companion_path(record.version, record.nonce)
    header["companion"] = {"path": path, "lengthBytes": len(content), "checksum": checksum(content)}
    return EncodedRecord(to_checked_text([within_limits(compact_json(header))]), content)


def decode_record(content: bytes, path: str, read_companion: Callable[[str], bytes]) -> model.Record:
    """Return the record; `read_companion` is called at most once, with the companion's path."""
    lines = from_checked_text(content, path)
    with Decoding(path, "a record of the log", _ADVICE):
        header = json_value(lines[0])
        if header.get("ftfileRecord") == "undone":
            raise ConfigError(_IS_UNDONE)
        check_format(header, "ftfileRecord", RECORD_FORMAT, path)
        companion = header.get("companion")
        changes = json_value(lines[1] if companion is None else _checked(companion, read_companion(companion["path"])))
        return model.Record(**HEADER.attributes(header), **CHANGES.attributes(changes))


def read_within(fs: FileSystem, path: str, bytes_max: int, advice: str = _ADVICE) -> bytes:
    """Return the content of a file; CorruptData for a longer one, of which no more is read."""
    content = fs.read(path, bytes_max)
    if len(content) > bytes_max:
        raise CorruptData(path, f"at most {bytes_max} bytes", "more", advice)
    return content


def json_value(content: bytes) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Return the value of JSON in UTF-8; a ValueError for damage, and for more than `DEPTH_MAX` and `VALUES_MAX`."""
    check_json(content)
    return json.loads(content.decode())


def check_json(content: bytes) -> None:
    """Raise a ValueError for JSON that takes too much memory, or is nested too deeply to be handled."""
    openings = content.count(b"[") + content.count(b"{")
    if len(content) > VALUES_MAX and openings + content.count(b",") > VALUES_MAX:
        raise ValueError(f"JSON of more than {VALUES_MAX} values")
    if openings > DEPTH_MAX and _is_deep(content):
        raise ValueError(f"JSON of values within values, {DEPTH_MAX} deep")


def within_limits(content: bytes) -> bytes:
    """Return JSON of one line that is to be written; ConfigError for one that readers would refuse."""
    try:
        check_json(content)
    except ValueError as error:
        raise ConfigError(f"the log cannot have {error}: {_SMALLER}") from error
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError(f"the log cannot have {len(content)} bytes in one file, of {FILE_BYTES_MAX}: {_SMALLER}")
    return content


def _is_deep(content: bytes) -> bool:
    """Return True if brackets outside of texts are nested deeper than `DEPTH_MAX`."""
    if b"\\" in content:
        content = _ESCAPED.sub(b"", content)
    # Two quotes side by side are those of a text, or between two texts: one text without them holds the same brackets.
    brackets = _STRING.sub(b"", content.translate(_PAIRS, _OTHERS).replace(b'""', b""))
    for _ in range(DEPTH_MAX):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def _checked(companion: dict[str, Any], content: bytes) -> bytes:
    expected = f"{companion['lengthBytes']} bytes with {companion['checksum']}"
    actual = f"{len(content)} bytes with {checksum(content)}"
    if actual != expected:
        raise CorruptData(companion["path"], expected, actual, _ADVICE)
    return content


def check_format(header: dict[str, Any], name: str, supported: int, path: str) -> None:
    """Refuse a header whose field `name` is not the `known` number: a newer ftfile wrote the file."""
    if header.get(name) != supported:
        actual = f"{name} {header.get(name)!r}"
        raise CorruptData(path, f"{name} {supported}", actual, "A newer ftfile wrote it: read it with that one")


def compact_json(value: object) -> bytes:
    """Return the value as one line of JSON in UTF-8."""
    text = _COMPACT.encode(value)
    try:
        return text.encode()
    except UnicodeEncodeError:  # a file name that is not UTF-8: `os.fsdecode` has put half characters into it
        return _ASCII.encode(value).encode()


def to_checked_text(lines: list[bytes]) -> bytes:
    """Join lines and end them with the line of their checksum."""
    body = b"".join(line + b"\n" for line in lines)
    return body + checksum(body).encode() + b"\n"


# It takes the version after a migration that is undone, so that nobody commits while the log is deleted.
UNDONE_RECORD = to_checked_text([compact_json({"ftfileRecord": "undone"})])


def from_checked_text(content: bytes, path: str, advice: str = _ADVICE) -> list[bytes]:
    """Return the lines before the last one, which is their checksum; CorruptData or, for a MAC, ConfigError if not."""
    body, _, last = content.removesuffix(b"\n").rpartition(b"\n")
    body += b"\n"
    actual = checksum(body)
    if last.startswith(b"hmac-"):
        raise ConfigError(IS_SEALED)
    if not content.endswith(b"\n") or last.decode("ascii", "replace") != actual:
        raise CorruptData(path, f"a text that ends in its checksum {actual}", repr(last[-40:]), advice)
    return body.split(b"\n")[:-1]


def definition_key(definition: object) -> str:
    """Return the key of a definition in the log: the same for the same content."""
    text = definition if isinstance(definition, str) else json.dumps(definition, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
