"""The reading of files of other programs, each once and completely."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
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
from ftfile.operate.writers.arrow_rows import stored_type
from ftfile.operate.writers.infinite_times import refuse_infinite
from ftfile.operate.writers.pandas_index import columns_without_labels
from ftfile.rows.buffers import leaf_types
from ftfile.rows.spark_types import (
    JSON_NAMES,
    arrow_schema,
    as_nullable,
    check_depth,
    is_wider,
    quoted_name,
    spark_schema_json,
    sql_types,
)
from ftfile.source.contents import codec_as_written
from ftfile.source.decoding.meanings import opened_parquet, parquet_meanings
from ftfile.source.decoding.unread_types import refuse_unread_types
from ftfile.storage.api import FileInfo, RangeFile, as_file
from ftfile.tools.migrate.migrated_statistics import collector_of
from ftfile.tools.migrate.old_times import SPARK_ROWS, may_be_julian, refuse_old_times, refuse_times_beyond_a_day
from ftfile.tools.migrate.same_rows import COMPARED, SparkRows
from ftfile.writing.workers import Work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ftfile.formats.api import Format
    from ftfile.log.format.model import Entries
    from ftfile.storage.api import FileSystem, InputFile
    from ftfile.writing.messages import TaskIdentity


SELF_DESCRIBING = frozenset({"parquet", "orc", "avro", "arrow"})

_EACH_KIND = (
    "Rewrite the files of one kind, or move them to a separate directory and migrate each directory. If a schema was "
    "given, give one that fits. Nothing was changed"
)
# A SQL name, in backticks if it contains more than letters, and a type; then the next column, or the end.
_COLUMN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s`,]+))\s+([^`,(]+(?:\([^()]*\))?)\s*(?:,|$)")
_SIMPLE = re.compile(r"([a-z_]+)\s*(\([\d\s,]*\))?", re.IGNORECASE)


def given_schema(schema: object) -> str:
    """Return the JSON of a schema in one of the forms that `migrate` accepts; `SchemaError` if it cannot be stored."""
    if isinstance(schema, Mapping):
        text = _struct([_field(name, kind) for name, kind in schema.items()])
    elif isinstance(schema, pa.Schema):
        text = spark_schema_json(_as_spark(schema))
    elif isinstance(schema, str):
        if schema.lstrip().startswith("{"):
            text = schema
        else:
            text = _parse_schema(schema)
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


def _parse_schema(text: str) -> str:
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
    except pa.ArrowNotImplementedError as error:
        raise SchemaError(
            f"Arrow does not support a type or a codec of the file ({error}): cast the column, or change the codec, "
            "and write the file again"
        ) from error
    except (pa.ArrowException, OSError) as error:
        raise CorruptData(str(getattr(file, "name", "")), f"a file of format {name}", str(error)) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SchemaError(f"the description of its columns is not the one that Spark writes ({error!r})") from error


def _of_parquet(file: BinaryIO) -> str:
    parquet = opened_parquet(file)
    text = (parquet.metadata.metadata or {}).get(SPARK_ROWS)
    if text is not None and arrow_schema(text.decode()).names == parquet.schema_arrow.names:
        return str(text.decode())
    refuse_unread_types(parquet.schema)
    schema = parquet_meanings(parquet).schema
    return spark_schema_json(_as_spark([schema.field(place) for place in columns_without_labels(schema)]))


def _of_orc(file: BinaryIO) -> str:
    schema = orc.ORCFile(file).schema
    for field in schema:
        for leaf in leaf_types(field.type):
            if pa.types.is_timestamp(leaf) and leaf.tz is None:
                raise SchemaError(
                    f"column {quoted_name(field.name)}: the meaning of a timestamp without a time zone in ORC depends "
                    "on the time zone of the writer: rewrite these files with ftfile"
                )
    return spark_schema_json(_as_spark(schema))


def _of_avro(file: BinaryIO) -> str:
    described = read_header(file).schema
    columns = pa.schema(list(arrow_type(described)))
    check_depth(columns)
    return spark_schema_json(columns)


def _of_arrow(file: BinaryIO) -> str:
    return spark_schema_json(_as_spark(pa.ipc.open_file(file).schema))


_READERS: dict[str, Any] = {
    "parquet": _of_parquet,
    "orc": _of_orc,
    "avro": _of_avro,
    "arrow": _of_arrow,
}


def _as_spark(fields: Iterable[pa.Field]) -> pa.Schema:
    """Return columns in the types of Spark in which `ftfile write` stores them."""
    fields = list(fields)
    check_depth(fields)
    return pa.schema([(field.name, stored_type(field.type, field.name)) for field in fields])


def merge_schemas(files: Mapping[str, str], user_schema: str | None = None) -> str:
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


def join_schemas(in_files: str, in_paths: str | None) -> str:
    """Return all columns: first the columns in files, then the columns in paths."""
    if in_paths is None:
        return in_files
    return spark_schema_json(pa.schema([*arrow_schema(in_files), *arrow_schema(in_paths)]))


@dataclass(frozen=True, slots=True, kw_only=True)
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
            StorageError: the storage failed.
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

        def open_plain() -> BinaryIO:
            # Closing this object must not close the file, which is read several times.
            stored = as_file(RangeFile(info.path, length, file.read_at))
            if not chain.filters and not isinstance(file_format, LineFormat):
                return stored
            decoded = decoded_file(stored, chain, identity="", plain_bytes=plain_bytes, checksum=checksum)
            return decoded if isinstance(file_format, LineFormat) else _in_memory(decoded, info.path)

        name = self.definition["name"]
        schema = schema_of_file(name, open_plain()) if name in SELF_DESCRIBING else self.schema
        assert schema is not None, "files that do not tell their columns come with a schema"
        columns, rows = arrow_schema(schema), 0
        collector = collector_of(name, open_plain(), columns)
        is_julian = name in SELF_DESCRIBING and may_be_julian(name, columns, open_plain())
        spark_rows = SparkRows() if name in COMPARED else None
        for batch in _decode_file(file_format, open_plain, columns):
            rows += batch.num_rows
            if is_julian:
                refuse_old_times(batch)
            refuse_times_beyond_a_day(batch)
            for column, values in zip(columns, batch.columns, strict=True):
                refuse_infinite(values, column.name)
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


def _decode_file(file_format: Format, plain: Callable[[], BinaryIO], columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file.

    Raises:
        CorruptData: the file is damaged.
        SchemaError: Spark's type of a column cannot represent a value, such as a time with nanoseconds.
    """
    try:
        yield from file_format.decode(plain(), columns)
    except CorruptData as error:
        if len(columns) > 1 and _is_loss(error):
            for column in columns:  # the error does not contain the name of the column
                for _ in _decode_file(file_format, plain, pa.schema([column])):
                    pass
        if not _is_loss(error):
            raise
        raise SchemaError(
            f"column {quoted_name(columns[0].name)} has a value that {columns[0].type} cannot represent "
            f"({error.__cause__}). Round or cast the column, and write the file again"
        ) from error


def _is_loss(error: CorruptData) -> bool:
    return isinstance(error.__cause__, pa.ArrowInvalid) and "would lose data" in str(error.__cause__)


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
