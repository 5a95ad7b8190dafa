"""The reading of foreign files, each once and completely."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from ftfile.core.codecs import filters_of_name
from ftfile.core.errors import ConfigError, CorruptData, FtfileError, SchemaError, StorageError
from ftfile.core.remedies import Advice, Argument, Wording
from ftfile.filters.chain import Chain
from ftfile.filters.decoded import decoded_file, plain_pieces
from ftfile.formats.api import LineFormat, format_from_definition
from ftfile.formats.avro_container import read_header
from ftfile.formats.avro_files import arrow_type
from ftfile.log.format.record import FILE_BYTES_MAX
from ftfile.log.places import PIECE_BYTES, checksum_of
from ftfile.read.foreign.contents import codec_as_written
from ftfile.rows.buffers import leaf_types, map_leaf_types
from ftfile.rows.spark_types import (
    JSON_NAMES,
    arrow_schema,
    as_nullable,
    is_wider,
    quoted_name,
    spark_schema_json,
    sql_types,
)
from ftfile.storage.api import FileInfo, RangeFile, as_file
from ftfile.tools.migrate.migrated_statistics import collector_of
from ftfile.tools.migrate.old_times import SPARK_ROWS, may_be_julian, refuse_old_times, refuse_times_beyond_a_day
from ftfile.tools.migrate.same_rows import COMPARED, SparkRows
from ftfile.writing.workers import Work

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ftfile.log.format.model import Entries
    from ftfile.storage.api import FileSystem, InputFile
    from ftfile.writing.messages import TaskIdentity


SELF_DESCRIBING = frozenset({"parquet", "orc", "avro", "arrow"})

_UTC = pa.timestamp("us", tz="UTC")
_EACH_KIND = (
    "Rewrite the files of one kind, or move them to a separate directory and migrate each directory. If a schema was "
    "given, give one that fits. Nothing was changed"
)
# A SQL name, in backticks if it contains more than letters, and a type; then the next column, or the end.
_COLUMN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s`,]+))\s+([^`,(]+(?:\([^()]*\))?)\s*(?:,|$)")
_SIMPLE = re.compile(r"([a-z_]+)\s*(\([\d\s,]*\))?", re.IGNORECASE)
_WIDENED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}


def given_schema(schema: object) -> str:
    """Return the JSON of a schema in one of the forms that `migrate` accepts; `SchemaError` if it cannot be stored."""
    if isinstance(schema, Mapping):
        text = _struct([_field(name, kind) for name, kind in schema.items()])
    elif isinstance(schema, pa.Schema):
        text = spark_schema_json(_as_spark(schema, frozenset()))
    elif isinstance(schema, str):
        if schema.lstrip().startswith("{"):
            text = schema
        else:
            text = _parsed(schema)
    elif hasattr(schema, "json"):
        text = str(schema.json())  # a StructType
    else:
        raise SchemaError(
            Advice(
                Argument("schema", schema),
                ": it must be ",
                Wording("a StructType, a pyarrow.Schema, or a text such as 'id long'", "a text such as 'id long'"),
            )
        )
    arrow_schema(text)
    return as_nullable(text)


def _parsed(text: str) -> str:
    """Return the JSON of a schema such as `id long, `a name` string`; a backtick in a name is doubled."""
    fields: list[dict[str, Any]] = []
    position = 0
    while position < len(text) or not fields or text.rstrip().endswith(","):
        match = _COLUMN.match(text, position)
        if match is None:
            raise _not_simple(text[position:].strip())
        quoted, plain, kind = match.groups()
        fields.append(_field(plain if quoted is None else quoted.replace("``", "`"), kind))
        position = match.end()
    return _struct(fields)


def _field(name: str, kind: str) -> dict[str, Any]:
    """Return a column of a simple SQL type as JSON."""
    match = _SIMPLE.fullmatch(kind.strip())
    if match is None:
        raise _not_simple(f"{quoted_name(name)} {kind}")
    type_name = match[1].lower()
    spelled = JSON_NAMES.get(type_name, type_name) + re.sub(r"\s", "", match[2] or "")
    return {"name": name, "type": spelled, "nullable": True, "metadata": {}}


def _struct(fields: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps({"type": "struct", "fields": fields})


def _not_simple(text: str) -> SchemaError:
    return SchemaError(
        f"schema: {text!r} is not a column name with a simple type, as in 'id long'. Quote a name with spaces, commas "
        "or backticks in backticks, and double the backticks in it. For nested types, give a StructType, on the "
        "command line its JSON"
    )


def schema_of_file(name: str, file: BinaryIO) -> str:
    """Return the JSON of the columns of a file of a `SELF_DESCRIBING` format, as Spark reads them.

    Raises:
        SchemaError: a column has no Spark type, or readers disagree about its values.
        CorruptData: the file does not have this format.
    """
    try:
        return as_nullable(_READERS[name](file))
    except (pa.ArrowException, OSError) as error:
        raise CorruptData(str(getattr(file, "name", "")), f"a file of format {name}", str(error)) from error
    except (ValueError, KeyError, TypeError) as error:
        raise SchemaError(f"the description of its columns is not the one that Spark writes ({error!r})") from error


def _of_parquet(file: BinaryIO) -> str:
    parquet = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
    text = (parquet.metadata.metadata or {}).get(SPARK_ROWS)
    if text is not None and arrow_schema(text.decode()).names == parquet.schema_arrow.names:
        return str(text.decode())
    instants = set()
    for number in range(len(parquet.schema)):
        column = parquet.schema.column(number)
        if column.physical_type == "INT96":
            instants.add(column.path.partition(".")[0])
    return spark_schema_json(_as_spark(parquet.schema_arrow, frozenset(instants)))


def _of_orc(file: BinaryIO) -> str:
    schema = orc.ORCFile(file).schema
    for field in schema:
        for leaf in leaf_types(field.type):
            if pa.types.is_timestamp(leaf) and leaf.tz is None:
                raise SchemaError(
                    f"column {quoted_name(field.name)}: the meaning of a timestamp without a time zone in ORC depends "
                    "on the time zone of the writer: rewrite these files with ftfile"
                )
    return spark_schema_json(_as_spark(schema, frozenset()))


def _of_avro(file: BinaryIO) -> str:
    described, _, _ = read_header(file)
    return spark_schema_json(pa.schema(list(arrow_type(described))))


def _of_arrow(file: BinaryIO) -> str:
    return spark_schema_json(_as_spark(pa.ipc.open_file(file).schema, frozenset()))


_READERS: dict[str, Any] = {
    "parquet": _of_parquet,
    "orc": _of_orc,
    "avro": _of_avro,
    "arrow": _of_arrow,
}


def _as_spark(schema: pa.Schema, instants: Iterable[str]) -> pa.Schema:
    """Return columns in Spark's types; local times of the columns `instants` are in UTC."""
    fields = []
    for field in schema:
        if field.name in instants:
            spark_type = map_leaf_types(field.type, _instant)
        else:
            spark_type = map_leaf_types(field.type, _leaf)
        fields.append(pa.field(field.name, spark_type))
    return pa.schema(fields)


def _instant(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return _UTC
    return _leaf(kind)


def _leaf(kind: pa.DataType) -> pa.DataType:
    """Return the Spark type that contains all values of another type; the same type if it is missing."""
    if pa.types.is_dictionary(kind):
        return _leaf(kind.value_type)
    if pa.types.is_timestamp(kind):
        if kind.tz is None:
            return pa.timestamp("us")
        return _UTC
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    return _WIDENED.get(kind, kind)


def merged_schema(files: Mapping[str, str], user_schema: str | None = None) -> str:
    """Return the columns of all files: the columns of `user_schema`, or else all columns, numbers in the wider type.

    `files` has the path of one file for each schema.

    Raises:
        SchemaError: types are not compatible, names differ only by case, or `user_schema` lacks a column of a file.
    """
    merged: dict[str, pa.DataType] = {}
    columns: dict[str, tuple[str, str, str]] = {}  # by the name in lower case: name, type, and the origin of both
    if user_schema is not None:
        user_texts = sql_types(user_schema)
        for field in arrow_schema(user_schema):
            merged[field.name] = field.type
            columns[field.name.lower()] = field.name, user_texts[field.name], "the schema"
    for schema, path in files.items():
        texts = sql_types(schema)
        for field in arrow_schema(schema):
            name, kind = field.name, field.type
            if user_schema is not None and name.lower() not in columns:
                raise SchemaError(f"{path!r} has a column {quoted_name(name)} that the schema lacks: give all columns")
            spelled, text, where = columns.setdefault(name.lower(), (name, texts[name], repr(path)))
            if spelled != name:
                raise SchemaError(
                    f"column {quoted_name(name)} of {path!r} is {quoted_name(spelled)} in {where}. {_EACH_KIND}"
                )
            merged_type = merged.setdefault(name, kind)
            if merged_type.equals(kind) or is_wider(kind, merged_type):
                continue
            if user_schema is not None or not is_wider(merged_type, kind):
                raise SchemaError(
                    f"column {quoted_name(name)} is {texts[name]} in {path!r}, and {text} in {where}: the second type "
                    f"cannot represent all values of the first. {_EACH_KIND}"
                )
            merged[name] = kind
            columns[name.lower()] = name, texts[name], repr(path)
    if user_schema is not None:
        text = user_schema
    else:
        text = spark_schema_json(pa.schema(list(merged.items())))
    return as_nullable(text)


def without_columns(schema: str, names: Iterable[str]) -> str:
    """Return a schema without the columns in paths; names are compared without case."""
    lower_names = {name.lower() for name in names}
    fields = []
    for field in arrow_schema(schema):
        if field.name.lower() not in lower_names:
            fields.append(field)
    return spark_schema_json(pa.schema(fields))


def joined(in_files: str, in_paths: str | None) -> str:
    """Return all columns: first the columns in files, then the columns in paths."""
    if in_paths is None:
        return in_files
    return spark_schema_json(pa.schema([*arrow_schema(in_files), *arrow_schema(in_paths)]))


@dataclass(frozen=True, slots=True)
class FileFacts:
    """The properties of a file that reading it returns."""

    checksum: str
    plain_bytes: int  # after decompression of the whole file
    filters: tuple[str, ...]
    schema: str  # of the columns in the file, as Spark's JSON
    rows: int
    statistics: Entries


@dataclass(frozen=True, slots=True)
class Reading(Work[FileInfo, FileFacts]):
    """Reads files of a format in the same way as ftfile's readers."""

    definition: Mapping[str, Any]  # of the format, as in the log
    schema: str | None  # of files that do not contain their columns

    def size_of(self, piece: FileInfo) -> int:
        """Return the length of a file."""
        return piece.size_bytes

    def do(self, fs: FileSystem, _: TaskIdentity, pieces: Sequence[FileInfo]) -> Iterator[FileFacts]:
        """Yield the facts of each file.

        Raises:
            ConfigError: ftfile cannot read a file, or a file was changed since the listing.
            StorageError: the store failed.
        """
        for info in pieces:
            try:
                with fs.open(info.path) as file:
                    yield self._facts(file, info)
            except StorageError:
                raise
            except FtfileError as error:
                raise ConfigError(f"{info.path!r} cannot be migrated: {error}. Nothing was changed") from error

    def _facts(self, file: InputFile, info: FileInfo) -> FileFacts:
        length, checksum = checksum_of(file)
        if length != info.size_bytes:
            raise ConfigError(
                f"it had {info.size_bytes} bytes when it was listed, and has {length} now: stop its writer"
            )
        chain = Chain.for_reading(_filters(file))
        plain_bytes = sum(map(len, _plain_pieces(file, chain))) if chain.filters else length
        file_format = format_from_definition(self.definition)
        if chain.filters and not isinstance(file_format, LineFormat) and plain_bytes > FILE_BYTES_MAX:
            raise ConfigError(
                f"it has {plain_bytes} bytes when decompressed in memory, and at most {FILE_BYTES_MAX} are allowed: "
                "decompress the file, or rewrite it with ftfile"
            )

        def plain() -> BinaryIO:
            # Closing this object must not close the file, which is read several times.
            stored = as_file(RangeFile(info.path, length, file.read_at))
            if not chain.filters and not isinstance(file_format, LineFormat):
                return stored
            decoded = decoded_file(stored, chain, identity="", plain_bytes=plain_bytes, checksum=checksum)
            return decoded if isinstance(file_format, LineFormat) else _in_memory(decoded, info.path)

        name = self.definition["name"]
        schema = schema_of_file(name, plain()) if name in SELF_DESCRIBING else self.schema
        assert schema is not None, "files that do not tell their columns come with a schema"
        columns, rows = arrow_schema(schema), 0
        collector = collector_of(name, plain(), columns)
        is_julian = name in SELF_DESCRIBING and may_be_julian(name, columns, plain())
        spark_rows = SparkRows() if name in COMPARED else None
        for batch in file_format.decode(plain(), columns):
            rows += batch.num_rows
            if is_julian:
                refuse_old_times(batch)
            refuse_times_beyond_a_day(batch)
            collector.update(batch)
            if spark_rows is not None:
                spark_rows.add(batch)
        if spark_rows is not None:
            spark_rows.require_same(file, info, chain.names, columns, self.definition)
        return FileFacts(
            checksum=checksum,
            plain_bytes=plain_bytes,
            filters=chain.names,
            schema=schema,
            rows=rows,
            statistics=collector.entries(),
        )


def _filters(file: InputFile) -> tuple[str, ...]:
    codecs = filters_of_name(file.path)
    if "aes-gcm" in codecs:
        raise ConfigError("it is encrypted, and the log of an unencrypted directory contains no keys")
    return tuple(codec_as_written(codec, file.read_at) for codec in codecs)


def _plain_pieces(file: InputFile, chain: Chain) -> Iterator[bytes]:
    stored = (file.read_at(start, PIECE_BYTES) for start in range(0, file.size_bytes, PIECE_BYTES))
    return plain_pieces(stored, chain.decoder(""), file.path)


def _in_memory(decoded: BinaryIO, path: str) -> BinaryIO:
    with decoded:
        plain = io.BytesIO(decoded.read())
    plain.name = path  # the name in error messages
    return plain
