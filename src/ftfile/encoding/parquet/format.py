"""`fileFormat=parquet`: row groups large enough to scan fast, in types that every reader knows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from ftfile.arrays.nested import rebuild
from ftfile.arrays.spark_types import spark_schema_json
from ftfile.core.errors import ConfigError
from ftfile.encoding.api import Format
from ftfile.encoding.base.codec_options import codec_from_options
from ftfile.encoding.base.line_reader import batch_of, corrupt
from ftfile.encoding.base.segments import RowJoiner, RowSegments
from ftfile.encoding.parquet.writer import ParquetEncoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ftfile.encoding.api import ByteWriter, Encoder, Joiner, Limits, SegmentCodec
    from ftfile.keys.keys import Keys

__all__ = ("ParquetFormat",)

_READ_BATCH_ROWS = 65_536

# What Spark calls the codecs: its name for files, and the level that costs little.
_EXTENSIONS = {
    "none": "",
    "snappy": ".snappy",
    "gzip": ".gz",
    "zstd": ".zstd",
    "lz4": ".lz4raw",
    "brotli": ".br",
}
_LEVELS = {"zstd": 1, "gzip": 6, "brotli": 4}


@dataclass(frozen=True, slots=True)
class ParquetFormat(Format):
    """Parquet.

    Attributes:
        compression: a name of Spark's; `lz4` is LZ4_RAW, which is what today's readers mean by it.
        level: of the codec; None for one that costs little.
        key_id: of the key that files are encrypted with, by Parquet itself; None for files in the clear.
        keys: where keys come from.
        identity: of the file that is written or read.
    """

    name: ClassVar[str] = "parquet"
    open_files_max: ClassVar[int] = 32

    compression: str = "zstd"
    level: int | None = None
    key_id: str | None = None
    keys: Keys | None = None
    identity: str = ""

    @property
    def extension(self) -> str:
        """Return the ending that Spark gives such files, as in `.zstd.parquet`."""
        return f"{_EXTENSIONS[self.compression]}.parquet"

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> ParquetFormat:
        """See `Format.from_options`."""
        return cls(*codec_from_options(cls.name, options, _EXTENSIONS, _LEVELS))

    def definition(self, schema: pa.Schema) -> dict[str, Any]:  # noqa: ARG002 - the file has its schema
        """See `Format.definition`; a reader needs nothing, but another codec is another encoding."""
        key = {} if self.key_id is None else {"encryptionKeyId": self.key_id}
        return {"compression": self.compression, "compressionLevel": self.level, **key}

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> ParquetFormat:
        """See `Format.from_definition`."""
        return replace(cls.from_options(definition), key_id=definition.get("encryptionKeyId"))

    def encrypted(self, key_id: str, keys: Keys) -> ParquetFormat:
        """See `Format.encrypted`."""
        from ftfile.encoding.parquet.encryption import check_library  # noqa: PLC0415 - not every pyarrow has it

        check_library()
        return replace(self, key_id=key_id, keys=keys)

    def with_keys(self, keys: Keys | None) -> ParquetFormat:
        """See `Format.with_keys`."""
        return replace(self, keys=keys)

    def for_file(self, identity: str) -> ParquetFormat:
        """See `Format.for_file`."""
        return replace(self, identity=identity)

    def check_schema(self, schema: pa.Schema) -> None:
        """See `Format.check_schema`; Parquet holds every type that Spark sends."""
        spark_schema_json(schema)

    def encoder(self, schema: pa.Schema, target: ByteWriter) -> Encoder:
        """See `Format.encoder`."""
        level = self.level or _LEVELS.get(self.compression)
        if self.key_id is None:
            return ParquetEncoder(schema, target, self.compression, level)
        from ftfile.encoding.parquet.encryption import IDENTITY, encryption  # noqa: PLC0415

        assert self.keys is not None, "an encrypted directory is opened with its keys"
        assert self.identity, "an encrypted file is bound to its place"
        encrypted = encryption(self.keys, self.key_id)
        return ParquetEncoder(schema, target, self.compression, level, encrypted, {IDENTITY: self.identity})

    def segments(self, schema: pa.Schema) -> SegmentCodec:
        """See `Format.segments`."""
        return RowSegments(schema)

    def joiner(self, schema: pa.Schema, target: ByteWriter, limits: Limits) -> Joiner:
        """See `Format.joiner`."""
        return RowJoiner(self.encoder(schema, target), RowSegments(schema), limits)

    def decode(self, file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """See `Format.decode`; page checksums are verified."""
        try:
            parquet = self._open(file)
            present = set(parquet.schema_arrow.names)
            names = [name for name in schema.names if name in present]
            groups = range(parquet.num_row_groups)
            for batch in parquet.iter_batches(_READ_BATCH_ROWS, groups, names, use_threads=False) if groups else ():
                columns = [
                    rebuild(batch.column(column.name), column.type, pa.Array.cast)
                    if column.name in present
                    else pa.nulls(batch.num_rows, column.type)
                    for column in schema
                ]
                yield batch_of(columns, schema, batch.num_rows)
        except (pa.ArrowException, OSError) as error:  # pyarrow's errors about bytes are OSErrors
            raise corrupt(file, "a Parquet file", error) from error

    def _open(self, file: BinaryIO) -> pq.ParquetFile:
        if self.key_id is None:
            return pq.ParquetFile(file, page_checksum_verification=True)
        from ftfile.encoding.parquet.encryption import IDENTITY, MAGIC, Decryption, check_algorithm  # noqa: PLC0415

        assert self.keys is not None, "an encrypted directory is opened with its keys"
        decryption, start = Decryption(self.keys), file.read(len(MAGIC))
        check_algorithm(file)
        try:
            parquet = pq.ParquetFile(file, page_checksum_verification=True, decryption_properties=decryption.properties)
        except ConfigError as error:
            raise ConfigError(f"{getattr(file, 'name', '')!r} cannot be read: {error}") from error
        found = (parquet.metadata.metadata or {}).get(IDENTITY.encode(), b"").decode("utf-8", "replace")
        if start != MAGIC or not decryption.has_key:
            raise corrupt(file, f"the encrypted Parquet file {self.identity!r}", "one in the clear")
        if found != self.identity:
            raise corrupt(file, f"the encrypted Parquet file {self.identity!r}", f"that of {found!r}")
        return parquet
