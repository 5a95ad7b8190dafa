"""Foreign files read once, whole, for the facts that the log keeps, and as ftfile's readers will read them.

Some writers store days and times of long ago by the Julian calendar, and ftfile's readers do not convert them.
"""

from __future__ import annotations

import datetime
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import orc

from ftfile.core.codecs import filters_of_name
from ftfile.core.errors import ConfigError, FtfileError, SchemaError, StorageError
from ftfile.filters.chain import Chain
from ftfile.filters.decoded import decoded_file, plain_pieces
from ftfile.formats.api import LineFormat, format_from_definition
from ftfile.formats.avro_container import read_metadata
from ftfile.log.format.record import FILE_BYTES_MAX, json_value
from ftfile.log.places import PIECE_BYTES, checksum_of
from ftfile.read.foreign.known import codec_as_written
from ftfile.rows.buffers import leaf_types, leaves
from ftfile.rows.spark_types import arrow_schema
from ftfile.storage.api import FileInfo, RangeFile, as_file
from ftfile.tools.migrate.schemas import SELF_DESCRIBING, SPARK_ROWS, schema_of_file
from ftfile.write.workers import Work

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ftfile.storage.api import FileSystem, InputFile
    from ftfile.write.messages import TaskIdentity


_SPARK_VERSION = b"org.apache.spark.version"
_SPARK_LEGACY = frozenset({b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"})
_FIRST_WITHOUT_LEGACY = b"3.1.0"  # 3.0 still writes INT96 by the Julian calendar
_SPARK_RECORD = "topLevelRecord"  # root of its Avro files; so is ours, which have no version either
_HIVE_SCHEMA = " hive_schema "  # root of its Parquet files
_HIVE_TIME_ZONE = b"writer.time.zone"
_HIVE_PROLEPTIC = (b"writer.date.proleptic", b"writer.proleptic")  # of Parquet and of Avro
_FIRST_DAY = pa.scalar(datetime.date(1582, 10, 15))
# Spark's converted times differ until then: offsets of time zones are others in Java's older classes.
_FIRST_TIME = pa.scalar(datetime.datetime(1900, 1, 1, tzinfo=datetime.timezone.utc), pa.timestamp("us", "UTC"))


@dataclass(frozen=True, slots=True)
class FileFacts:
    """The facts that reading a file shows."""

    checksum: str
    plain_bytes: int  # without its compression as a whole
    filters: tuple[str, ...]
    schema: str  # of the columns in it, as Spark's JSON
    rows: int


@dataclass(frozen=True, slots=True)
class Reading(Work[FileInfo, FileFacts]):
    """Reads files of a format as ftfile's readers will."""

    definition: Mapping[str, Any]  # of the format, as in the log
    schema: str | None  # of files that do not tell their columns

    def size_of(self, piece: FileInfo) -> int:
        """Return the length of a file."""
        return piece.size_bytes

    def do(self, fs: FileSystem, _: TaskIdentity, pieces: Sequence[FileInfo]) -> Iterator[FileFacts]:
        """Yield what is in each file.

        Raises:
            ConfigError: one cannot be read by ftfile, or was changed since it was listed.
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
            raise ConfigError(f"it had {info.size_bytes} bytes when it was listed and has {length}: stop its writer")
        chain = Chain.for_reading(_filters(file))
        plain_bytes = sum(map(len, _plain_pieces(file, chain))) if chain.filters else length
        file_format = format_from_definition(self.definition)
        if chain.filters and not isinstance(file_format, LineFormat) and plain_bytes > FILE_BYTES_MAX:
            raise ConfigError(
                f"it has {plain_bytes} bytes, decompressed, and is read in memory, in which it may have "
                f"{FILE_BYTES_MAX}: decompress it, or write it anew with ftfile"
            )

        def plain() -> BinaryIO:
            # Closing it leaves the file open, which is read again.
            stored = as_file(RangeFile(info.path, length, file.read_at))
            if not chain.filters and not isinstance(file_format, LineFormat):
                return stored
            decoded = decoded_file(stored, chain, "", plain_bytes, checksum)
            return decoded if isinstance(file_format, LineFormat) else _in_memory(decoded, info.path)

        name = self.definition["name"]
        schema = schema_of_file(name, plain()) if name in SELF_DESCRIBING else self.schema
        assert schema is not None, "files that do not tell their columns come with a schema"
        columns, rows = arrow_schema(schema), 0
        is_julian = name in SELF_DESCRIBING and _may_be_julian(name, columns, plain())
        for batch in file_format.decode(plain(), columns):
            rows += batch.num_rows
            if is_julian:
                _refuse_old_times(batch)
        return FileFacts(checksum, plain_bytes, chain.names, schema, rows)


def _filters(file: InputFile) -> tuple[str, ...]:
    found = filters_of_name(file.path)
    if "aes-gcm" in found:
        raise ConfigError("it is encrypted, and the log of a directory that is not encrypted has no keys")
    return tuple(codec_as_written(codec, file.read_at) for codec in found)


def _plain_pieces(file: InputFile, chain: Chain) -> Iterator[bytes]:
    stored = (file.read_at(start, PIECE_BYTES) for start in range(0, file.size_bytes, PIECE_BYTES))
    return plain_pieces(stored, chain.decoder(""), file.path)


def _in_memory(decoded: BinaryIO, path: str) -> BinaryIO:
    with decoded:
        plain = io.BytesIO(decoded.read())
    plain.name = path  # what errors call it
    return plain


def _may_be_julian(name: str, schema: pa.Schema, file: BinaryIO) -> bool:
    """Return True if old dates or times in a file of this format may be stored by the Julian calendar."""
    if all(_first(leaf) is None for field in schema for leaf in leaf_types(field.type)):
        return False
    if name == "parquet":
        footer = pq.read_metadata(file)
        metadata = footer.metadata or {}
        # The schema's only name in Arrow is in its text, in front of the columns.
        is_hive = _HIVE_SCHEMA in str(footer.schema).partition("{")[0]
        return _of_spark(metadata, is_spark=SPARK_ROWS in metadata) or _of_hive(metadata, is_hive=is_hive)
    if name == "avro":
        metadata = read_metadata(file)
        root = json_value(metadata[b"avro.schema"]).get("name")
        return _of_spark(metadata, is_spark=root == _SPARK_RECORD) or _of_hive(metadata, is_hive=False)
    # Spark and Hive store them so; only the library in C++ never does.
    return name == "orc" and orc.ORCFile(file).writer != "ORC_CPP"


def _of_spark(metadata: Mapping[bytes, bytes], *, is_spark: bool) -> bool:
    # Spark 2 wrote no version.
    version = metadata.get(_SPARK_VERSION, b"" if is_spark else _FIRST_WITHOUT_LEGACY)
    return version < _FIRST_WITHOUT_LEGACY or not _SPARK_LEGACY.isdisjoint(metadata)


def _of_hive(metadata: Mapping[bytes, bytes], *, is_hive: bool) -> bool:
    # Only some of its versions say by which calendar they write; Avro of one that does not may be anybody's.
    is_hive = is_hive or _HIVE_TIME_ZONE in metadata or any(key in metadata for key in _HIVE_PROLEPTIC)
    return is_hive and all(metadata.get(key) != b"true" for key in _HIVE_PROLEPTIC)


def _refuse_old_times(batch: pa.RecordBatch) -> None:
    """Raise a SchemaError if a date or time is so old that it depends on the calendar."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        for leaf in leaves(column):
            first = _first(leaf.type)
            if first is not None and pc.less(pc.min(leaf), first).as_py():
                raise SchemaError(
                    f"column `{field.name}` has values before {first.as_py():%Y-%m-%d}, which the file may have by "
                    "the Julian calendar: read it by Spark, if it is of Hive or Spark 2 with its options "
                    "datetimeRebaseMode=LEGACY and int96RebaseMode=LEGACY, and write it anew with ftfile"
                )


def _first(kind: pa.DataType) -> pa.Scalar | None:
    """Return the first value that is the same in all calendars; None for types that no writer converts."""
    if pa.types.is_date32(kind):
        return _FIRST_DAY
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return _FIRST_TIME.cast(kind)
    return None
