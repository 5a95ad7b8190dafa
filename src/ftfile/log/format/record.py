"""Encoding of records by the fields of `log.format.model`.

A record is text: a line of JSON, a line with its adds, removes, dead letters and tasks (for a large record, the
companion file contains that line), and a line with the checksum of the other lines; see docs/internals/format.md.
Definitions and the entries of tables are checked when they are read.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Struct, field

from ftfile.core.checksum import Decoding, checksum
from ftfile.core.errors import ConfigError, CorruptData, KeysRequired
from ftfile.core.remedies import Advice, Remedy
from ftfile.log.format import layout
from ftfile.log.format.model import (
    APPLICATIONS,
    NUMBER_MAX,
    UNREPORTED_BATCHES,
    UNREPORTED_FLUSHES,
    Application,
    BatchWriteAuthor,
    Count,
    Record,
    Value,
    convert,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ftfile.storage.api import FileSystem

_Value = TypeVar("_Value")
_Kind = TypeVar("_Kind", bound=Struct)

RECORD_FORMAT = 1
COMPANION_FROM_BYTES = 1 << 20
# The limit of a record, companion, checkpoint or compacted log, and of an unpacked stream of a compacted log.
FILE_BYTES_MAX = 512 << 20
# The limit of the format file, the marker of a directory, a hint or a note.
SMALL_BYTES_MAX = 1 << 20
# The limit of values in JSON: Python uses about 70 bytes for each.
VALUES_MAX = 32_000_000
DEPTH_MAX = 100
IS_SEALED = (
    "this directory is encrypted, and no keys were given: write to it with the same encryption and keyProvider as its "
    "other writers, and read it with keyProvider"
)
_SMALLER = "readers could not read it. Write, replace or remove fewer files at once, in several batches or calls"
_IS_UNDONE = Advice(
    "the migration of this directory was undone, and its log is being deleted: ",
    Remedy("undo_migration"),
    " finishes it",
)
_ASCII = json.JSONEncoder(separators=(",", ":"))
_ESCAPED, _STRING = re.compile(rb"\\.", re.DOTALL), re.compile(rb'"[^"]*"')
_PAIRS = bytes.maketrans(b"{}", b"[]")
_OTHERS = bytes({*range(256)} - {*b'[]{}"'})
_ADVICE = "The log is damaged, not only truncated: restore the file from a copy of the directory"
_HEADER_FIELDS = (
    "version",
    "nonce",
    "time_ms",
    "author",
    "storage_ms",
    "previous_nonce",
    "published",
    "writer",
    "tasks",
    "overwrite",
    "replaces",
    "restored",
    "rows_removed",
    "lineage_start",
    "horizon_ms",
    "log_start",
    "vacuumed_to",
    "schema",
    "encoding",
    "settings",
    "definitions",
    "fingerprint",
    "user_metadata",
    "metrics",
    "tables",
)
_CHANGES_FIELDS = ("adds", "removes", "dead_letters", "jobs", "payload")

_BY_VERSION = ("columns", UNREPORTED_FLUSHES, UNREPORTED_BATCHES)
_VERSION = re.compile(r"[0-9]{1,19}", re.ASCII)


class _Formats(Struct, rename="camel"):
    """The format version of a file, which is its first field."""

    ftfile_record: Any = None
    ftfile_checkpoint: Any = None
    ftfile_compacted: Any = None


class Companion(Value, frozen=True):
    """The file with the changes of a large record."""

    path: str
    length_bytes: Count
    checksum: str


class _Large(Struct, frozen=True):
    """The field of a header that is not an attribute of a record."""

    companion: Companion | None = None


class _FormatOptions(Struct):
    name: str


class _Encoding(Struct, rename="camel"):
    """The fields of all encodings; formats, filters and stores read the other fields."""

    format: _FormatOptions = field(default_factory=lambda: _FormatOptions(""))
    filters: list[Any] = []
    partition_by: list[str] = []
    statistics: list[str] = []
    schema: str = ""
    store: dict[str, Any] = {}


class _TableEntries(Struct, rename="camel"):
    """The changes of a table."""

    set: dict[str, Any] = {}
    drop: list[str] = []
    ttl_ms: Count = 0


def _line(attributes: Sequence[str], **tag: Any) -> type[Struct]:  # noqa: ANN401 - as msgspec has it
    """Return the class of a line with these attributes of a record, in this order."""
    by_name = {info.name: info for info in msgspec.structs.fields(Record)}
    fields = []
    for info in map(by_name.__getitem__, attributes):
        default: Any = {"default": info.default, "default_factory": info.default_factory}
        fields.append((info.name, info.type, field(name=info.encode_name, **default)))
    return msgspec.defstruct("Line", fields, bases=(Value,), frozen=True, **tag)


def compact_json(value: object) -> bytes:
    """Return the value as one line of JSON in UTF-8."""
    try:
        return msgspec.json.encode(value, enc_hook=_to_plain)
    except UnicodeEncodeError:  # a file name that is not UTF-8, for which `os.fsdecode` uses unpaired surrogates
        return _ASCII.encode(msgspec.to_builtins(value, enc_hook=_to_plain)).encode()


def _to_plain(value: object) -> object:
    """Return a text or number of another class, such as NumPy's, as a plain one: code of users can return it."""
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"{value!r:.80} is not JSON")


def to_checked_text(lines: list[bytes]) -> bytes:
    """Join lines and append the line of their checksum."""
    body = b"".join(line + b"\n" for line in lines)
    return body + checksum(body).encode() + b"\n"


# It has the version after an undone migration, so that no process commits while the log is deleted.
UNDONE_RECORD = to_checked_text([compact_json({"ftfileRecord": "undone"})])

HEADER = _line(_HEADER_FIELDS, tag_field="ftfileRecord", tag=RECORD_FORMAT)
CHANGES = _line(_CHANGES_FIELDS)

# The type of the entries by table. Other tables have any values.
TABLES: dict[str, Any] = {
    APPLICATIONS: Application,
    "checkpoints": str,
    "columns": tuple[str, Count, str],  # name, bytes and checksum of a file
    "operators": tuple[Count, Count, str],  # epoch of the process, epoch of the windows, and an id
    "partNumbers": Count,
    "restores": Count,
    "unmarkedDirectories": None,
    UNREPORTED_FLUSHES: str,
    UNREPORTED_BATCHES: str,
}


def part_of(value: Struct, kind: type[_Kind]) -> _Kind:
    """Return the value of a class whose attributes another value has as well."""
    values = map(getattr, itertools.repeat(value), kind.__struct_fields__)
    # A field is omitted if it is the default object: Python 3.10 has more than one empty tuple.
    return kind(*[() if value == () else value for value in values])


class EncodedRecord(NamedTuple):
    """The bytes of a record, and of the companion file of a large one."""

    content: bytes
    companion: bytes | None


def encode_record(record: Record) -> EncodedRecord:
    """Return the bytes of a record; changes of `COMPANION_FROM_BYTES` or more go to the companion."""
    _check_transaction(record)
    header = part_of(record, HEADER)
    changes = check_limits(compact_json(part_of(record, CHANGES)))
    if len(changes) < COMPANION_FROM_BYTES:
        return EncodedRecord(to_checked_text([check_limits(compact_json(header)), changes]), None)
    content = changes + b"\n"
    companion = Companion(layout.companion_path(record.version, record.nonce), len(content), checksum(content))
    text = msgspec.to_builtins(header, enc_hook=_to_plain) | {"companion": companion}
    return EncodedRecord(to_checked_text([check_limits(compact_json(text))]), content)


def _check_transaction(record: Record) -> None:
    transaction = None
    if isinstance(record.author, BatchWriteAuthor):
        transaction = record.author.transaction
    if transaction is not None and (type(transaction.version) is not int or abs(transaction.version) > NUMBER_MAX):
        text = (
            f"the version of a transaction is {transaction.version!r}, but must be an int of at most 64 bits: "
            "otherwise no reader could read the log"
        )
        raise ConfigError(text)


def decode_record(content: bytes, path: str, read_companion: Callable[[str], bytes]) -> Record:
    """Return the record; `read_companion` is called at most once, with the path of the companion."""
    lines = from_checked_text(content, path)
    with Decoding(path, "a record of the log", _ADVICE):
        header = _header(lines[0], path)
        check_definitions(header["definitions"])
        check_tables(header["tables"])
        companion = decode_json(lines[0], _Large).companion
        if companion is None:
            changes = lines[1]
        else:
            changes = _check_content(companion, read_companion(companion.path))
        record = Record(**header, **msgspec.structs.asdict(decode_json(changes, CHANGES)))
        if unnamed := [add.id for add in record.adds if add.final_path is None and add.kind == "part"]:
            raise ValueError(f"finalPath is missing for a part, {unnamed[0]!r:.80}")
        return record


def nonce_of(content: bytes, path: str) -> str:
    """Return the nonce of a record without decoding its adds or reading a companion."""
    line, *_ = from_checked_text(content, path)
    with Decoding(path, "a record of the log", _ADVICE):
        nonce: str = _header(line, path)["nonce"]
        return nonce


def _header(line: bytes, path: str) -> dict[str, Any]:
    """Return the attributes in the first line of a record."""
    check_format(line, "ftfileRecord", RECORD_FORMAT, path)
    return msgspec.structs.asdict(decode_json(line, HEADER))


def read_within(fs: FileSystem, path: str, bytes_max: int, advice: str = _ADVICE) -> bytes:
    """Return the content of a file; CorruptData for a longer one, whose rest is not read."""
    content = fs.read(path, bytes_max)
    if len(content) > bytes_max:
        raise CorruptData(path, f"at most {bytes_max} bytes", "more", advice)
    return content


def decode_json(content: bytes, kind: type[_Value]) -> _Value:
    """Return the value of JSON in UTF-8; a ValueError for damage, for another type than `kind`, as `json_value`."""
    # the text can contain unpaired surrogates, as `compact_json` writes them
    if b"\\ud" in content or b"\\uD" in content:
        return msgspec.convert(json_value(content), kind)
    check_json(content)
    return msgspec.json.decode(content, type=kind)


def json_value(content: bytes) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Return the value of JSON in UTF-8; a ValueError for damage, and above `DEPTH_MAX` and `VALUES_MAX`."""
    check_json(content)
    return json.loads(content.decode())


def check_json(content: bytes) -> None:
    """Raise a ValueError for JSON that needs too much memory, or is nested too deeply."""
    openings = content.count(b"[") + content.count(b"{")
    if len(content) > VALUES_MAX and openings + content.count(b",") > VALUES_MAX:
        raise ValueError(f"JSON with more than {VALUES_MAX} values")
    if openings > DEPTH_MAX and _is_deep(content):
        raise ValueError(f"JSON with more than {DEPTH_MAX} nested levels")


def check_limits(content: bytes) -> bytes:
    """Return one line of JSON; ConfigError for a value that readers would refuse."""
    try:
        check_json(content)
    except ValueError as error:
        raise ConfigError(f"the log cannot contain {error}: {_SMALLER}") from error
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError(f"a file of the log cannot have {len(content)} bytes, at most {FILE_BYTES_MAX}: {_SMALLER}")
    return content


def _is_deep(content: bytes) -> bool:
    """Return True if brackets outside of texts are nested deeper than `DEPTH_MAX`."""
    if b"\\" in content:
        content = _ESCAPED.sub(b"", content)
    # Two adjacent quotes are an empty text, or between two texts: without them, the text has the same brackets.
    brackets = _STRING.sub(b"", content.translate(_PAIRS, _OTHERS).replace(b'""', b""))
    for _ in range(DEPTH_MAX):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def _check_content(companion: Companion, content: bytes) -> bytes:
    expected = f"{companion.length_bytes} bytes with {companion.checksum}"
    actual = f"{len(content)} bytes with {checksum(content)}"
    if actual != expected:
        raise CorruptData(companion.path, expected, actual, _ADVICE)
    return content


def check_format(header: bytes, name: str, supported: int, path: str) -> None:
    """Refuse a header whose field `name` is not the `supported` number, since a newer ftfile wrote the file."""
    number = msgspec.to_builtins(decode_json(header, _Formats))[name]
    if (name, number) == ("ftfileRecord", "undone"):
        raise ConfigError(_IS_UNDONE)
    if number != supported:
        actual = f"{name} {number!r}"
        raise CorruptData(
            path, f"{name} {supported}", actual, "A newer version of ftfile wrote it: install that version to read it"
        )


def from_checked_text(content: bytes, path: str, advice: str = _ADVICE) -> list[bytes]:
    """Return the lines before the checksum; CorruptData or, for a MAC, ConfigError if it does not match."""
    body, _, last = content.removesuffix(b"\n").rpartition(b"\n")
    body += b"\n"
    actual = checksum(body)
    if last.startswith(b"hmac-"):
        raise KeysRequired(IS_SEALED)
    if not content.endswith(b"\n") or last.decode("ascii", "replace") != actual:
        raise CorruptData(path, f"a text that ends in its checksum {actual}", repr(last[-40:]), advice)
    return body.split(b"\n")[:-1]


def definition_key(definition: object) -> str:
    """Return the key of a definition in the log, a hash of its content."""
    if isinstance(definition, str):
        text = definition
    else:
        text = json.dumps(definition, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Definition(dict[str, Any]):
    """A definition that is an object from the log; CorruptData for a missing field."""

    def __missing__(self, name: str) -> Any:  # noqa: ANN401 - JSON
        raise CorruptData(layout.LOG, f"the field {name!r} of a definition", f"{', '.join(self):.200}")


def check_definitions(definitions: dict[str, Any]) -> None:
    """Make each object a `Definition`; a ValueError for anything but a schema, an object and an encoding."""
    for key, definition in definitions.items():
        if not isinstance(convert(definition, str | _Encoding, f"definition {key!r:.40}"), str):
            definitions[key] = Definition(definition)


def check_tables(tables: dict[str, Any]) -> None:
    """Raise a ValueError for invalid changes of a table."""
    for table, change in tables.items():
        for key, value in convert(change, _TableEntries, f"the table {table!r:.40}").set.items():
            check_entry(table, key, value)


def check_entry(table: str, key: str, value: object) -> None:
    """Raise a ValueError for an entry that a table of `TABLES` cannot have; other tables have any values."""
    convert(value, TABLES.get(table, Any), f"an entry of the table {table!r:.40}")
    if table in _BY_VERSION and not _VERSION.fullmatch(key):
        raise ValueError(f"the table {table} has the key {key!r:.80}")
