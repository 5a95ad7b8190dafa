"""Targets for texts of users and of the machine: conditions, times, options, paths, names, tokens, configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pyarrow as pa

from ftfile.core.errors import FtfileError
from ftfile.core.options.parsing import parse_options
from ftfile.core.options.table import OPTIONS
from ftfile.core.options.typed import (
    DirectoryFollowOptions,
    FilesOptions,
    ReadOptions,
    SinkOptions,
    StoreFollowOptions,
    StoreReadOptions,
    StoreSinkOptions,
)
from ftfile.core.units import bytes_text, duration_text, parse_duration_s, parse_size_bytes, parse_time
from ftfile.formats.api import format_from_options
from ftfile.formats.partition_paths import (
    columns_of_directory,
    parse_partition_path,
    rescaled_columns,
    values_of_path,
    without_escaped_bytes,
)
from ftfile.formats.reading.time_formats import TimeFormats
from ftfile.rows.conditions import predicate
from ftfile.rows.moments import with_clock_values
from ftfile.rows.value_text import TimePattern
from ftfile.source.globs import alternatives, glob_pattern
from ftfile.source.settings import SourceSettings
from ftfile.storage.hdfs.configuration import find_service, read_configuration
from ftfile.storage.hdfs.credentials.token_file import DelegationToken, read_tokens, token_file
from ftfile.storage.paths import parse
from ftfile.writing.files.naming import Template, first_part, name_fault, path_fault
from tests.fuzz.target import Draws, Target, scratch

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.string()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("n", pa.timestamp("us")),
        ("x", pa.float64()),
        ("m", pa.decimal128(10, 2)),
        ("f", pa.bool_()),
        ("y", pa.binary()),
    ]
)
_ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "+05:30")
_NOW_MS = 1_790_000_000_000
_USES = (
    SinkOptions,
    FilesOptions,
    ReadOptions,
    DirectoryFollowOptions,
    StoreSinkOptions,
    StoreReadOptions,
    StoreFollowOptions,
)
_FORMATS = ("json", "csv", "text", "parquet", "orc", "avro", "arrow", "binary")
# Options whose values name code or keys of the user.
_LOADS = {"encoder", "keyProvider", "encryption", "encryptionKeyId"}


def _condition(data: bytes) -> None:
    predicate(data.decode(errors="replace"), _SCHEMA, time_zone="Europe/Berlin")


def _moment(data: bytes) -> None:
    """Replace functions of the current time, and parse the condition."""
    draws = Draws(data)
    zone, text = draws.choice(_ZONES), draws.rest().decode(errors="replace")
    predicate(with_clock_values(text, _NOW_MS, zone), _SCHEMA, time_zone=zone)


def _unit(data: bytes) -> None:
    draws = Draws(data)
    kind, text = draws.byte() % 3, draws.rest().decode(errors="replace")
    if kind == 0:
        bytes_text(parse_size_bytes(text))
    elif kind == 1:
        duration_text(parse_duration_s(text))
    else:
        parse_time(text)


def _options(data: bytes) -> None:
    """Parse options: in each line a byte that chooses the name, or the name before `=`, and the value."""
    draws = Draws(data)
    kind = draws.choice(_USES)
    texts: dict[str, str] = {}
    while draws.rest():
        line = draws.line()
        name, sign, value = line.partition(b"=")
        if not sign and line:
            texts[OPTIONS[line[0] % len(OPTIONS)].name] = line[1:].decode(errors="replace")
        else:
            texts[name.decode(errors="replace")] = value.decode(errors="replace")
    parsed = parse_options(texts, kind)
    if isinstance(parsed, FilesOptions):
        SourceSettings.from_options(parsed)
    elif isinstance(parsed, SinkOptions) and parsed.file_format in _FORMATS and _LOADS.isdisjoint(parsed.given):
        format_from_options(parsed.file_format, parsed.for_format(parsed.file_format))
    TimeFormats.from_options(parsed.given)


def _partition_path(data: bytes) -> None:
    draws = Draws(data)
    foreign, zone, path = draws.byte() % 2, draws.choice(_ZONES), draws.rest().decode(errors="surrogateescape")
    columns_of_directory(path)
    rescaled_columns(path, _SCHEMA)
    schema = pa.schema([field for field in _SCHEMA if field.name in columns_of_directory(path)])
    if foreign:
        values_of_path(path, schema, zone)
    else:
        parse_partition_path(path, schema, zone)


def _escaped_path(data: bytes) -> None:
    without_escaped_bytes(data.decode(errors="replace"))


def _template(data: bytes) -> None:
    """Parse a template of names, and fill it."""
    draws = Draws(data)
    zone, text = draws.choice(_ZONES), draws.rest().decode(errors="replace")
    name = Template.parse(text, zone).fill(first_part("part", "a=1/b=2", ".json"))
    name_fault(name)
    path_fault(name)


def _time_pattern(data: bytes) -> None:
    """Parse a pattern of times, and read and write times with it."""
    draws = Draws(data)
    kind, zone = draws.choice((pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32())), draws.choice(_ZONES)
    pattern, text = draws.line().decode(errors="replace"), draws.rest().decode(errors="replace")
    parsed = TimePattern.parse("timestampFormat", pattern, kind)
    parsed.format(pa.array([0, None], kind), zone)
    parsed.read(pa.array([text, None]), kind, zone)


def _glob(data: bytes) -> None:
    for pattern in alternatives(data.decode(errors="replace")):
        glob_pattern(pattern).match("a name")


def _url(data: bytes) -> None:
    parse(data.decode(errors="replace"))


def _tokens(data: bytes) -> None:
    """Read a file of Hadoop's tokens; two forms begin with the same bytes."""
    for token in read_tokens(b"HDTS" + data):
        token.dates_ms()
        token.text()


def _configuration(data: bytes) -> None:
    """Read Hadoop's configuration, and find the NameNodes of a service."""
    directory = Path(scratch())
    (directory / "core-site.xml").write_bytes(data)
    with mock.patch.dict(os.environ, {"HADOOP_CONF_DIR": str(directory)}):
        properties = read_configuration({})
    for authority in ("", "cluster", "cluster:8020"):
        service = find_service("hdfs", authority, properties)
        service.rpc_addresses()
        service.web_addresses(tls=True)


# ------------------------------------------------------------------------------------------------------- seeds


def _conditions() -> Iterator[bytes]:
    yield b"a = 1 AND (b IN ('x', 'y''z') OR NOT d >= DATE '2026-01-01')"
    yield b"t BETWEEN '2026-01-01 00:00:00' AND TIMESTAMP '2026-01-02T00:00:00Z' AND x <> -1.5e3"
    yield b"`m` <= 1.25 AND f IS NOT NULL AND f = TRUE AND n < '2026-01-01' AND y IS NULL"


def _moments() -> Iterator[bytes]:
    yield b"\1d >= CURRENT_DATE() - INTERVAL 7 DAYS AND t < NOW() + INTERVAL 1 HOUR 2 MINUTES"
    yield b"\2b = DATE_FORMAT(DATE_ADD(DATE '2026-01-01', 3), 'yyyyMMdd') OR d = DATE_SUB(CURRENT_DATE(), 1)"
    yield b"\0t >= CURRENT_TIMESTAMP() - INTERVAL -1 SECOND"


def _option_seeds() -> Iterator[bytes]:
    texts = {"maxFileSize": "128m", "partitionBy": "a,`b,c`", "path": "/data/*.json", "fileFormat": "json"}
    for number in range(len(_USES)):
        yield bytes([number]) + "\n".join(f"{name}={text}" for name, text in texts.items()).encode()
        yield bytes([number])
    for value in ("5", "true", "1h", "64m", "at:1h", "name", "2026-01-01", "640", "app.log:10-20", r"\x00\n"):
        for place, option in enumerate(OPTIONS):
            uses = [number for number, kind in enumerate(_USES) if kind.USE in option.used_by]
            if uses:
                yield bytes([uses[0], place]) + value.encode()


def _paths() -> Iterator[bytes]:
    path = "a=1/b=x%2Fy/d=2026-01-01/t=2026-01-01 00%3A00%3A00/x=1.5/m=1.25/f=true/n=__HIVE_DEFAULT_PARTITION__"
    for foreign in (0, 1):
        yield bytes([foreign, 1]) + path.encode()


def _templates() -> Iterator[bytes]:
    yield b"\0{name}-{batch}-{index:5}-{unique}{ext}"
    yield b"\1{directory}{{x}}-{time:yyyyMMdd-HHmm}-{number:3}{ext}"


def _patterns() -> Iterator[bytes]:
    yield b"\0\1yyyy-MM-dd HH:mm:ss.SSSXXX\n2026-01-01 00:00:00.000+01:00"
    yield b"\2\0dd/MM/yyyy\n31/12/2026"


def _token_seeds() -> Iterator[bytes]:
    yield token_file([DelegationToken(b"\0\0\4kind\0", "kind", "service")])[4:]
    token = b"\x0a\1i\x12\1p\x1a\4kind\x22\1s"
    named = b"\x0a\1a\x12" + bytes([len(token)]) + token
    message = b"\x0a" + bytes([len(named)]) + named
    yield b"\1" + bytes([len(message)]) + message


def _configurations() -> Iterator[bytes]:
    properties = {
        "fs.defaultFS": "hdfs://cluster",
        "dfs.ha.namenodes.cluster": "a,b",
        "dfs.namenode.rpc-address.cluster.a": "host:8020",
        "dfs.namenode.https-address.cluster.b": "host:9871",
    }
    text = "".join(
        f"<property><name>{name}</name><value>{text}</value></property>" for name, text in properties.items()
    )
    yield f"<configuration>{text}</configuration>".encode()
    yield b"<configuration><property><name>fs.defaultFS</name><value>hdfs://one:8020/</value></property></configuration>"


TARGETS = {
    "conditions": Target(_condition, _conditions),
    "relative_times": Target(_moment, _moments),
    "units": Target(_unit, lambda: [b"\x00128MiB", b"\x011.5 h", b"\x022024-07-01T12:00:00.5+02:00"], (ValueError,)),
    "options": Target(_options, _option_seeds),
    "partition_paths": Target(_partition_path, _paths),
    "escaped_paths": Target(_escaped_path, lambda: [b"a=%C3%A9/b"], (ValueError,)),
    "templates": Target(_template, _templates),
    "time_patterns": Target(
        _time_pattern,
        lambda: [b"\0\1yyyy-MM-dd HH:mm:ss.SSSXXX\n2026-01-01 00:00:00.000+01:00"],
        (FtfileError, ValueError),
    ),
    "globs": Target(_glob, lambda: [b"{a,b*}[0-9]?x", b"[!a-c]\\*"]),
    "urls": Target(_url, lambda: [b"hdfs://host:8020/a/b", b"/a/b", b"s3://bucket/a"]),
    "tokens": Target(_tokens, _token_seeds, (ValueError,)),
    "hadoop_configuration": Target(_configuration, _configurations),
}
