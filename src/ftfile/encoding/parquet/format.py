"""`fileFormat=parquet`: row groups large enough to scan fast, in types that every reader knows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from ftfile.core.errors import ConfigError
from ftfile.encoding.base.codecs import CODECS
from ftfile.encoding.base.columnar import ColumnarFormat
from ftfile.encoding.base.reading import batch_as, corrupt
from ftfile.encoding.parquet.writer import ParquetEncoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ftfile.encoding.api import ByteWriter, Encoder
    from ftfile.keys.keys import Keys

__all__ = ("ParquetFormat",)

_READ_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class ParquetFormat(ColumnarFormat):
    """Parquet.

    Attributes:
        key_id: of the key that files are encrypted with, by Parquet itself; None for files in the clear.
        keys: where keys come from.
        identity: of the file that is written or read.
    """

    name: ClassVar[str] = "parquet"
    codecs = CODECS["parquet"]

    key_id: str | None = None
    keys: Keys | None = None
    identity: str = ""

    def definition(self, schema: pa.Schema) -> dict[str, Any]:
        """See `Format.definition`."""
        key = {} if self.key_id is None else {"encryptionKeyId": self.key_id}
        return ColumnarFormat.definition(self, schema) | key

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> ParquetFormat:
        """See `Format.from_definition`."""
        found: ParquetFormat = cls.from_options(definition)
        return replace(found, key_id=definition.get("encryptionKeyId"))

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

    def encoder(self, schema: pa.Schema, target: ByteWriter) -> Encoder:
        """See `Format.encoder`."""
        if self.key_id is None:
            return ParquetEncoder(schema, target, self.compression, self.used_level)
        from ftfile.encoding.parquet.encryption import IDENTITY, encryption  # noqa: PLC0415

        assert self.keys is not None, "an encrypted directory is opened with its keys"
        assert self.identity, "an encrypted file is bound to its place"
        encrypted = encryption(self.keys, self.key_id)
        return ParquetEncoder(schema, target, self.compression, self.used_level, encrypted, {IDENTITY: self.identity})

    def decode(self, file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """See `Format.decode`; page checksums are verified."""
        try:
            parquet = self._open(file)
            present = set(parquet.schema_arrow.names)
            names = [name for name in schema.names if name in present]
            groups = range(parquet.num_row_groups)
            for batch in parquet.iter_batches(_READ_BATCH_ROWS, groups, names, use_threads=False) if groups else ():
                yield batch_as(batch, schema)
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
