"""Targets for files of other programs: the decoders of the source with drawn options, and files of `ftfile write`."""

from __future__ import annotations

import io
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from unittest import mock

import pyarrow as pa

from ftfile.core.context import SYSTEM
from ftfile.core.errors import FtfileError
from ftfile.formats.avro_container import MARKER_BYTES, block
from ftfile.formats.reading import memory_limit
from ftfile.formats.reading.time_formats import TimeFormats
from ftfile.rows.orc_messages import bytes_field, number_field
from ftfile.source.contents import fingerprints
from ftfile.source.decode import rows_of_share
from ftfile.source.decoding.avro_records import columns_of_avro_file
from ftfile.source.plan import Range, SourcePlan
from ftfile.source.settings import FileDecoding
from ftfile.tools.load.file_rows import LoadedRows, TextColumns
from ftfile.tools.load.input_files import ByteStream, FileToLoad
from tests.fuzz import file_targets
from tests.fuzz.target import Draws, OneFile, Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.storage.api import FileSystem

_COLUMNS: tuple[tuple[str, pa.DataType], ...] = (
    ("id", pa.int32()),
    ("text", pa.string()),
    ("at", pa.timestamp("us", "UTC")),
    ("local", pa.timestamp("us")),
    ("day", pa.date32()),
    ("amount", pa.decimal128(12, 3)),
    ("number", pa.float64()),
    ("flag", pa.bool_()),
    ("bytes", pa.binary()),
    ("_corrupt_record", pa.string()),
)
_NESTED: tuple[tuple[str, pa.DataType], ...] = (
    ("list", pa.list_(pa.field("element", pa.int64()))),
    ("object", pa.struct([("a", pa.string()), ("b", pa.list_(pa.field("element", pa.date32())))])),
    ("map", pa.map_(pa.string(), pa.float32())),
)
_ZONES = ("UTC", "Europe/Berlin", "+05:30")
_PATTERNS = ("dd.MM.yyyy HH:mm:ss", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "yyyyMMdd", "HH:mm dd/MM/yyyy")
_ISO = TimeFormats.from_options({})
_ENCODINGS = ("utf-8", "iso-8859-1", "windows-1252", "utf-8")
_UTF_16 = ("UTF-16", "UTF-16LE", "UTF-16BE")
_SEPARATORS = ("\n", "|", "\r\n", "ab")
_AVRO_SCHEMA = pa.schema([*_COLUMNS[:-1], ("list", pa.list_(pa.int32())), ("map", pa.map_(pa.string(), pa.binary()))])
_WHOLE_FILE = pa.schema([("path", pa.string()), ("length", pa.int64()), ("content", pa.binary())])
_JSON = (
    b'{"id":1,"text":"a \\u00e9","at":"2026-01-01T00:00:00Z","day":"2026-02-03","amount":1.250,"number":"NaN"}\n'
    b'{"flag":true,"bytes":"aGk=","list":[1,null],"object":{"a":"x","b":["2026-01-01"]},"map":{"k":1e3},"other":{}}\n'
)
_CSV = b'1,a,2026-01-01T00:00:00Z,2026-01-01 00:00:00,2026-02-03,1.25,1e9,true,aGk=\n2,"a ""b""\nc",,,,,,false,\n'


def _schema(draws: Draws, *, nested: bool) -> pa.Schema:
    """Return columns that two bytes choose, at least one."""
    columns = _COLUMNS + _NESTED if nested else _COLUMNS
    mask = draws.byte() << 8 | draws.byte()
    chosen = [column for number, column in enumerate(columns) if mask >> number & 1]
    return pa.schema(chosen or columns)


def _times(draws: Draws) -> TimeFormats:
    drawn = draws.byte()
    options = {"timeZone": _ZONES[drawn % len(_ZONES)]}
    if drawn & 64:
        options["timestampFormat"] = options["timestampNTZFormat"] = _PATTERNS[drawn % len(_PATTERNS)]
    if drawn & 128:
        options["dateFormat"] = "dd/MM/yyyy"
    return TimeFormats.from_options(options)


def _of_lines(draws: Draws, file_format: str, encoding: str) -> FileDecoding:
    """Return drawn options for lines."""
    flags = draws.byte()
    options: dict[str, Any] = {"encoding": encoding, "times": _times(draws)}
    if flags & 1:
        options["bad_records"] = "drop"
    if flags & 2 and file_format != "text":
        options["multi_line"] = True
    if flags & 4:
        options["header"] = file_format == "csv"
    if flags & 8:
        options["line_sep"] = _SEPARATORS[flags >> 6]
    if flags & 16 and file_format == "csv":
        options |= {"sep": ";", "quote": "'", "escape": "'", "comment": "#", "null_value": "NULL"}
    if flags & 32:
        options["max_partition_bytes"] = 16
    return FileDecoding(file_format, **options)


def _read(content: bytes, schema: pa.Schema, decoding: FileDecoding, **planned: Any) -> None:
    """Read a file as the tasks of a stream do."""
    end = len(content)
    prints = fingerprints(lambda offset, length: content[offset : offset + length], end)
    assert prints is not None
    planned = {"whole": decoding.file_format not in {"text", "json", "csv"} or decoding.multi_line, **planned}
    read = Range("a=1/file", 0, end, *prints, end, 0, None, **planned)
    fs = cast("FileSystem", OneFile(content))
    # Memory is bounded as in a worker of Spark, which decodes these files.
    with mock.patch.object(memory_limit, "is_worker", return_value=True):
        for share in SourcePlan((read,)).shares(max(decoding.max_partition_bytes, 1 + end // 16)):
            for batch in rows_of_share(fs, share, schema, decoding):
                batch.validate(full=True)


def _text(data: bytes) -> None:
    draws = Draws(data)
    decoding = _of_lines(draws, "text", draws.choice(_ENCODINGS))
    _read(draws.rest(), pa.schema([("value", pa.string())]), decoding)


def _json(data: bytes) -> None:
    draws = Draws(data)
    decoding = _of_lines(draws, "json", draws.choice(_ENCODINGS))
    schema = _schema(draws, nested=True)
    _read(draws.rest(), schema, decoding)


def _csv(data: bytes) -> None:
    draws = Draws(data)
    decoding = _of_lines(draws, "csv", draws.choice(_ENCODINGS))
    schema = _schema(draws, nested=False)
    _read(draws.rest(), schema, decoding)


def _utf_16(data: bytes) -> None:
    """Decode lines in UTF-16, which are read as a whole."""
    draws = Draws(data)
    file_format = draws.choice(("text", "json", "csv"))
    decoding = _of_lines(draws, file_format, draws.choice(_UTF_16))
    schema = _schema(draws, nested=file_format == "json")
    if file_format == "text":
        schema = pa.schema([("value", pa.string())])
    _read(draws.rest(), schema, decoding, whole=True)


def _binary(data: bytes) -> None:
    draws = Draws(data)
    settings: dict[str, Any] = draws.choice(
        ({}, {"delimiter": b"\n"}, {"length_prefix": "varint"}, {"length_prefix": "int32"})
    )
    schema = pa.schema([("value", pa.binary())]) if settings else _WHOLE_FILE
    _read(draws.rest(), schema, FileDecoding("binary", **settings))


def _avro(data: bytes) -> None:
    """Read an Avro file of another program, as it is."""
    draws = Draws(data)
    decoding = FileDecoding("avro", times=_times(draws), bad_records=draws.choice(("fail", "drop")))
    _read(draws.rest(), _AVRO_SCHEMA, decoding)


def _avro_rows(data: bytes) -> None:
    """Derive the columns of any schema, and read rows with it: a line with the schema, then the bytes of a block."""
    draws = Draws(data)
    rows, schema, content = draws.byte(), draws.line(), draws.rest()
    marker = bytes(MARKER_BYTES)
    head = b"Obj\1" + b"\4" + b"\x16avro.schema" + _avro_long(len(schema)) + schema
    head += b"\x14avro.codec" + b"\x08null" + b"\0" + marker
    content = head + block(rows, content, marker)
    with suppress(FtfileError):
        columns_of_avro_file(io.BytesIO(content), "file")
    _read(content, _AVRO_SCHEMA, FileDecoding("avro"))


def _avro_long(number: int) -> bytes:
    encoded, number = b"", number << 1
    while number > 0x7F:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


def _orc(data: bytes) -> None:
    """Read an ORC file with any footer: two bytes of its length, the footer, and the stripes."""
    draws = Draws(data)
    footer_bytes = draws.byte() << 8 | draws.byte()
    content = draws.rest()
    footer, stripes = content[:footer_bytes], content[footer_bytes:]
    postscript = number_field(1, len(footer)) + number_field(2, 0) + number_field(3, 1 << 16)
    postscript += number_field(5, 0) + bytes_field(8000, b"ORC")
    file = stripes + footer + postscript + bytes([len(postscript)])
    _read(file, file_targets._SCHEMA, FileDecoding("orc"))  # noqa: SLF001 - of the same tests


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content(FileToLoad):
    """A file in memory."""

    content: bytes

    @contextmanager
    def stream(self) -> Iterator[ByteStream]:
        yield ByteStream(io.BytesIO(self.content))


def _load(data: bytes, file_format: str) -> None:
    draws = Draws(data)
    types: dict[str, pa.DataType] = {}
    if draws.byte() % 2:
        types = {field.name: field.type for field in _schema(draws, nested=file_format == "json")}
    columns, content = TextColumns(types, _times(draws)), draws.rest()
    file = _Content(path="file", file_format=file_format, size_bytes=len(content), is_regular=True, content=content)
    for batch in LoadedRows([file], columns, context=SYSTEM):
        batch.validate(full=True)


# ------------------------------------------------------------------------------------------------------- seeds


def _of_text(content: bytes) -> Iterator[bytes]:
    for flags in (0, 1, 2, 8, 32):
        yield bytes([0, flags, 0]) + content


def _of_columns(content: bytes, head: bytes) -> Iterator[bytes]:
    for flags in (1, 3):
        yield bytes([0, flags, 0, 0xFF, 0xFF]) + content
    yield bytes([0, 5, 0, 0, 3]) + head + content
    for number in range(10):
        yield bytes([0, 1, number, *(1 << number).to_bytes(2, "big")]) + content


def _utf_16_seeds() -> Iterator[bytes]:
    for number, content in enumerate((b"one\ntwo\n", _JSON, _CSV)):
        for place, encoding in enumerate(_UTF_16):
            yield bytes([number, place, 1, 0, 0xFF, 0xFF]) + content.decode().encode(encoding)


def _avro_seeds() -> Iterator[bytes]:
    for content in file_targets._avro_files():  # noqa: SLF001 - of the same tests
        yield b"\0\0" + content


def _avro_row_seeds() -> Iterator[bytes]:
    for kind, value in (
        ('"int"', b"\2"),
        ('["null","string"]', b"\2\2a"),
        ('{"type":"array","items":"long"}', b"\2\2\0"),
        ('{"type":"map","values":"bytes"}', b"\2\2k\2v\0"),
        ('{"type":"enum","name":"e","symbols":["A"]}', b"\0"),
        ('{"type":"fixed","name":"f","size":2,"logicalType":"decimal","precision":3,"scale":1}', b"\0\1"),
        ('{"type":"long","logicalType":"timestamp-micros"}', b"\2"),
    ):
        for name in ("id", "text", "at", "amount", "list", "map"):
            field = f'{{"name":"{name}","type":{kind}}}'
            yield b"\1" + f'{{"type":"record","name":"r","fields":[{field}]}}\n'.encode() + value


def _orc_seeds() -> Iterator[bytes]:
    content = file_targets._encoded("orc", file_targets._ROWS, compression="none")  # noqa: SLF001 - of the same tests
    postscript_bytes = content[-1]
    (tail,) = file_targets._orc_tails()  # noqa: SLF001 - of the same tests
    footer_bytes = int.from_bytes(tail[1:3], "big")
    stripes = content[: -1 - postscript_bytes - footer_bytes]
    yield tail[1:3] + content[-1 - postscript_bytes - footer_bytes : -1 - postscript_bytes] + stripes


def _loaded(content: bytes) -> Iterator[bytes]:
    yield b"\0\0" + content
    yield b"\1\1\xff\0" + content


TARGETS = {
    "text_files": Target(_text, lambda: _of_text(b"one\ntwo|three\r\nab\xe9")),
    "json_files": Target(_json, lambda: _of_columns(_JSON, b"")),
    "csv_files": Target(_csv, lambda: _of_columns(_CSV, b"id,text\n")),
    "utf_16_files": Target(_utf_16, _utf_16_seeds),
    "binary_files": Target(_binary, lambda: [b"\0abc", b"\1a\nb\n", b"\2\1a\2bc", b"\3\0\0\0\1a"]),
    "avro_files": Target(_avro, _avro_seeds),
    "avro_rows": Target(_avro_rows, _avro_row_seeds),
    "orc_files": Target(_orc, _orc_seeds),
    "loaded_json": Target(lambda data: _load(data, "json"), lambda: _loaded(b'{"id":1,"text":"a"}\n{"id":2}\n')),
    "loaded_csv": Target(lambda data: _load(data, "csv"), lambda: _loaded(b"id,text\n1,a\n2,\n")),
}
