"""`fileFormat=parquet`: Parquet files, also with modular encryption.

Keys are wrapped like parquet-hadoop wraps them locally (`KeyToolkit.encryptKeyLocally`): base64 of a random nonce of 12
bytes, and of the key encrypted by AES-GCM with the master key, whose id is associated data.
"""

from __future__ import annotations

import base64
import binascii
import os
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

from ftfile.core.context import random_bytes
from ftfile.core.errors import ConfigError, EncodingError
from ftfile.core.tasks import pack_things
from ftfile.formats.columnar import (
    BufferedTarget,
    CollectingEncoder,
    ColumnarFormat,
    FormatCodec,
    PyarrowOutput,
    encoding_errors,
)
from ftfile.formats.reading.batches import batch_as
from ftfile.formats.reading.lent_file import LentFile
from ftfile.formats.reading.read_errors import corrupt, reading_errors
from ftfile.rows import kernels as pc
from ftfile.rows.buffers import leaf_types, map_entries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ftfile.filters.api import ByteWriter
    from ftfile.filters.keys import Keys
    from ftfile.formats.api import Encoder, RowFilter, Wanted


IDENTITY = "ftfile.identity"  # key of the file's identity in the encrypted footer
MAGIC = b"PARE"  # at both ends of files with an encrypted footer
_TAIL_BYTES = 8  # the length of the footer, and `MAGIC`
_AES_GCM_V1 = b"\x1c\x1c"  # the start of `FileCryptoMetaData`: field 1, a union, with its field 1, `AesGcmV1`
_NONCE_BYTES = 12
_KEY_BITS = 256
_NO_SERVICE = "DEFAULT"


def check_library() -> None:
    """Raise `ConfigError` if this pyarrow cannot encrypt a whole file, as before apache/arrow#38914."""
    if not hasattr(pe.EncryptionConfiguration, "uniform_encryption"):
        raise ConfigError("encryption=parquet needs a newer pyarrow than the installed version, " + pa.__version__)


def encryption(keys: Keys, key_id: str) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Return pyarrow's properties to encrypt a whole file with a random key."""
    settings = pe.EncryptionConfiguration(
        footer_key=key_id, uniform_encryption=True, data_key_length_bits=_KEY_BITS, double_wrapping=False
    )
    return pe.CryptoFactory(lambda _: _Client(keys)).file_encryption_properties(pe.KmsConnectionConfig(), settings)


def check_algorithm(file: BinaryIO) -> None:
    """Raise `CorruptData` for a file of another algorithm, such as AES_GCM_CTR_V1, whose pages are not authenticated.

    The name of the algorithm is not authenticated. The position of the file changes.
    """
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - _TAIL_BYTES))
    tail = file.read(_TAIL_BYTES)
    start = end - _TAIL_BYTES - int.from_bytes(tail[:4], "little")
    if len(tail) < _TAIL_BYTES or tail[4:] != MAGIC or start < 0:
        raise corrupt(file, "a Parquet file with an encrypted footer", "an unencrypted or incomplete file")
    file.seek(start)
    algorithm = file.read(len(_AES_GCM_V1))
    if algorithm != _AES_GCM_V1:
        raise corrupt(
            file, "a Parquet file encrypted by AES_GCM_V1", f"a file whose footer begins with {algorithm.hex()}"
        )


class Decryption:
    """The decryption of one file by pyarrow's `properties`; pyarrow also reads unencrypted files with them."""

    def __init__(self, keys: Keys) -> None:
        self._client = _Client(keys)
        self._factory = pe.CryptoFactory(self._connect)
        self.properties = self._factory.file_decryption_properties(
            pe.KmsConnectionConfig(), pe.DecryptionConfiguration()
        )

    @property
    def has_key(self) -> bool:
        """Return True once the file had a key: only then its footer was authenticated."""
        return self._client.has_unwrapped

    def _connect(self, connection: Any) -> _Client:  # noqa: ANN401 - pyarrow has no types
        service = connection.kms_instance_id
        if service != _NO_SERVICE:
            raise ConfigError(
                f"the key of a Parquet file is from the service {service!r}, and ftfile does not support key services"
            )
        return self._client


class _Client(pe.KmsClient):  # type: ignore[misc] # pyarrow has no types
    """Wraps with keys of a key ring, so that other tools need only these master keys."""

    def __init__(self, keys: Keys) -> None:
        pe.KmsClient.__init__(self)
        self._keys = keys
        self.has_unwrapped = False

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce, master = random_bytes(_NONCE_BYTES), self._keys.key_to_use(master_key_identifier).key
        sealed = AESGCM(master).encrypt(nonce, key_bytes, master_key_identifier.encode())
        return base64.b64encode(nonce + sealed)

    def unwrap_key(self, wrapped_key: bytes | str, master_key_identifier: str) -> bytes:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        master = self._keys.find(master_key_identifier, b"").key
        try:
            sealed = base64.b64decode(wrapped_key, validate=True)
            nonce, sealed = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
            key = AESGCM(master).decrypt(nonce, sealed, master_key_identifier.encode())
        except (binascii.Error, ValueError, InvalidTag):
            raise ConfigError(
                f"a data key in a Parquet file was not wrapped with the key {master_key_identifier!r}: the data key "
                "was changed, or another key has this name"
            ) from None
        self.has_unwrapped = True
        return key


_READ_BATCH_ROWS = 65_536
_READ_BATCH_BYTES = 128 << 20  # bytes of plain values
_SAMPLE_ROWS = 10_000
_SPAN_BYTES = 32 << 20  # bytes of plain values in row groups that are read together
_DISTINCT_MAX = 0.2  # distinct values in a sample: with more, a dictionary costs time and saves nothing

# Migrated files of other programs have times of 96 bits, which can exceed the range of nanoseconds.
_SETTINGS: dict[str, Any] = {"page_checksum_verification": True, "coerce_int96_timestamp_unit": "us"}

# A footer has an entry for each column, and one for each column of each row group.
_FOOTER_BYTES, _FOOTER_COLUMN_BYTES, _FOOTER_CHUNK_BYTES = 100, 40, 130


@dataclass(frozen=True, slots=True)
class ParquetFormat(ColumnarFormat):
    """Parquet."""

    name: ClassVar[str] = "parquet"
    has_groups: ClassVar[bool] = True
    # lz4 is LZ4_RAW, its meaning in current readers.
    codecs: ClassVar[Mapping[str, FormatCodec]] = {
        "none": FormatCodec(),
        "snappy": FormatCodec(".snappy"),
        "gzip": FormatCodec(".gz", 6),
        "zstd": FormatCodec(".zstd", 1),
        "lz4": FormatCodec(".lz4raw"),
        "brotli": FormatCodec(".br", 4),
    }

    key_id: str | None = None  # of Parquet's encryption; None for unencrypted files
    keys: Keys | None = None
    identity: str = ""  # of the file that is written or read

    def definition(self, schema: pa.Schema) -> dict[str, Any]:
        if self.key_id is None:
            key = {}
        else:
            key = {"encryptionKeyId": self.key_id}
        return ColumnarFormat.definition(self, schema) | key

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> ParquetFormat:
        format_: ParquetFormat = cls.from_options(definition)
        return replace(format_, key_id=definition.get("encryptionKeyId"))

    def encrypt(self, key_id: str, keys: Keys) -> ParquetFormat:
        from ftfile.formats.parquet_files import check_library  # noqa: PLC0415 - not every pyarrow has it

        check_library()
        return replace(self, key_id=key_id, keys=keys)

    def with_keys(self, keys: Keys | None) -> ParquetFormat:
        return replace(self, keys=keys)

    def for_file(self, identity: str) -> ParquetFormat:
        return replace(self, identity=identity)

    def encoder(self, schema: pa.Schema, target: ByteWriter) -> Encoder:
        codec = {"compression": self.compression, "compression_level": self.used_level}
        if self.key_id is None:
            return _ParquetEncoder(schema, target, codec)
        from ftfile.formats.parquet_files import IDENTITY, encryption  # noqa: PLC0415

        assert self.keys is not None, "an encrypted directory is opened with its keys"
        assert self.identity, "an encrypted file is bound to its place"
        encrypted = {"encryption_properties": encryption(self.keys, self.key_id)}
        return _ParquetEncoder(schema, target, codec=codec, encryption=encrypted, metadata={IDENTITY: self.identity})

    def decode(self, file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        lent = LentFile(file)
        with reading_errors(file, "a Parquet file"), lent:
            parquet = self._open(file, lent)
            yield from _rows(parquet, range(parquet.num_row_groups), schema)

    def decode_some(self, file: BinaryIO, schema: pa.Schema, wanted: Wanted) -> tuple[int, Iterator[pa.RecordBatch]]:
        row_filter, span = wanted
        lent = LentFile(file)
        with reading_errors(file, "a Parquet file"):
            if self.key_id is not None or row_filter is None:
                parquet = self._open(file, lent)
                metadata, groups = parquet.metadata, [*range(parquet.num_row_groups)]
            else:
                metadata, groups = _possible_groups(file, row_filter)
                parquet = pq.ParquetFile(lent, metadata=metadata, **_SETTINGS)
            if span is not None:
                chosen_groups = span.chosen(metadata.num_row_groups)
                groups = [group for group in groups if group in chosen_groups]
            left_out = metadata.num_rows - sum(metadata.row_group(group).num_rows for group in groups)

        def rows() -> Iterator[pa.RecordBatch]:
            with reading_errors(file, "a Parquet file"), lent:
                yield from _rows(parquet, groups, schema)

        return left_out, rows()

    def _open(self, file: BinaryIO, lent: LentFile) -> pq.ParquetFile:
        if self.key_id is None:
            return pq.ParquetFile(lent, **_SETTINGS)
        from ftfile.formats.parquet_files import IDENTITY, MAGIC, Decryption, check_algorithm  # noqa: PLC0415

        assert self.keys is not None, "an encrypted directory is opened with its keys"
        decryption, start = Decryption(self.keys), file.read(len(MAGIC))
        check_algorithm(file)
        try:
            parquet = pq.ParquetFile(lent, page_checksum_verification=True, decryption_properties=decryption.properties)
        except ConfigError as error:
            raise ConfigError(f"{getattr(file, 'name', '')!r} cannot be read: {error}") from error
        identity_there = (parquet.metadata.metadata or {}).get(IDENTITY.encode(), b"").decode("utf-8", "replace")
        if start != MAGIC or not decryption.has_key:
            raise corrupt(file, f"the encrypted Parquet file {self.identity!r}", "an unencrypted file")
        if identity_there != self.identity:
            raise corrupt(file, f"the encrypted Parquet file {self.identity!r}", f"the file {identity_there!r}")
        return parquet


def _rows(parquet: pq.ParquetFile, groups: Sequence[int], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    present = set(parquet.schema_arrow.names)
    names = [name for name in schema.names if name in present]
    for some in _spans(parquet.metadata, groups):
        rows = _rows_at_once(parquet.metadata, some)
        for batch in parquet.iter_batches(rows, some, names, use_threads=False):
            yield batch_as(batch, schema)


def _rows_at_once(metadata: pq.FileMetaData, groups: Sequence[int]) -> int:
    """Return the rows of a batch: fewer if they are long, so that decoding takes little memory."""
    some = [metadata.row_group(group) for group in groups]
    row_bytes = sum(group.total_byte_size for group in some) / max(1, sum(group.num_rows for group in some))
    return int(min(max(1, _READ_BATCH_BYTES // max(1, row_bytes)), _READ_BATCH_ROWS))


def _is_repetitive(leaf: pa.Array) -> bool:
    """Return True if a dictionary makes a column smaller."""
    return len(leaf) > 0 and pc.count_distinct(leaf).as_py() <= len(leaf) * _DISTINCT_MAX


def _spans(metadata: pq.FileMetaData, groups: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield row groups that are read together; pyarrow allocates memory for all row groups of a call."""

    def size_of(group: int) -> int:
        return int(metadata.row_group(group).total_byte_size)

    return pack_things(groups, size_of, _SPAN_BYTES)


def _possible_groups(file: BinaryIO, row_filter: RowFilter) -> tuple[pq.FileMetaData, list[int]]:
    """Return the footer, and the row groups that can contain a wanted row by their statistics."""
    import pyarrow.dataset as ds

    fragment = ds.ParquetFileFormat().make_fragment(file, partition_expression=row_filter.known)
    types = dict(zip(fragment.physical_schema.names, fragment.physical_schema.types, strict=True))
    in_file = [(field.type, types[field.name]) for field in row_filter.schema if field.name in types]
    # Statistics ignore NaN, and Arrow only compares values of the same type.
    if all(
        wanted_type == stored and not any(map(pa.types.is_floating, leaf_types(wanted_type)))
        for wanted_type, stored in in_file
    ):
        fragment = fragment.subset(row_filter.where, row_filter.schema)
        return fragment.metadata, [group.id for group in fragment.row_groups]
    return fragment.metadata, [*range(fragment.metadata.num_row_groups)]


class _ParquetEncoder(CollectingEncoder):
    """Writes a group as a row group; `metadata` is stored in the footer."""

    computes_text: ClassVar[bool] = True

    def __init__(
        self,
        schema: pa.Schema,
        target: ByteWriter,
        codec: dict[str, Any],
        encryption: dict[str, Any] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(schema, target)
        self._buffered = BufferedTarget(target)
        self._output = PyarrowOutput(self._buffered)
        self._codec = codec
        self._encryption = encryption or {}
        self._metadata = metadata
        self._leaf_columns = len(list(chain.from_iterable(map(leaf_types, schema.types))))
        self._writer: pq.ParquetWriter | None = None
        self._footers: list[pq.FileMetaData] = []  # filled when the writer is closed

    def text_extremes(self) -> Mapping[tuple[str, ...], tuple[bytes, bytes] | None]:
        (footer,) = self._footers
        extremes = {}
        for path, position in _text_columns(self._schema):
            extremes[path] = _extremes(footer, position)
        return extremes

    def _end(self) -> None:
        with self._output.encoding("Parquet"):
            writer = self._open(pa.Table.from_batches([], self._schema))
            if self._metadata is not None:
                writer.add_key_value_metadata(self._metadata)
            writer.close()
        self._buffered.flush()

    def _footer_bytes(self, groups: int) -> int:
        return _FOOTER_BYTES + self._leaf_columns * (_FOOTER_COLUMN_BYTES + _FOOTER_CHUNK_BYTES * groups)

    def _sample_bytes(self, rows: pa.Table) -> int:
        sink = pa.BufferOutputStream()
        with encoding_errors("Parquet"), pq.ParquetWriter(sink, self._schema, **self._settings(rows)) as writer:
            writer.write_table(rows)
            size_bytes: int = sink.tell()
        return size_bytes

    def _write_group(self, rows: pa.Table) -> None:
        # pyarrow writes nulls in required structs, older versions in all required columns: apache/arrow#41667.
        for column, values in zip(rows.schema, rows.columns, strict=True):
            if not column.nullable and values.null_count:
                raise EncodingError(f"column `{column.name}` is not nullable and has {values.null_count} nulls")
        with self._output.encoding("Parquet"):
            self._open(rows).write_table(rows, row_group_size=len(rows))
        self._buffered.flush()  # the position of the target shows the compression ratio of the group

    def _open(self, rows: pa.Table) -> pq.ParquetWriter:
        """Return the writer; the first rows decide which columns get dictionaries."""
        if self._writer is None:
            settings = self._settings(rows) | self._encryption | {"metadata_collector": self._footers}
            self._writer = pq.ParquetWriter(self._output.file, self._schema, **settings)
        return self._writer

    def _settings(self, rows: pa.Table) -> dict[str, Any]:
        sample = rows.slice(0, _SAMPLE_ROWS)
        repetitive = [path for path, leaf in _leaf_columns(sample) if _is_repetitive(leaf)]
        return {
            **self._codec,
            "use_dictionary": repetitive,
            "write_page_checksum": True,
            # Readers skip pages by the index, which replaces the statistics in page headers. Readers of encrypted files
            # do not detect damage of the index.
            "write_page_index": not self._encryption,
            "store_schema": False,  # the Parquet types contain all about Spark's types
        }


def _text_columns(schema: pa.Schema) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the path and the position in the file of each column of strings that is not in a list or a map."""
    position = 0
    waiting: list[tuple[tuple[str, ...], pa.Field]] = [((field.name,), field) for field in reversed(schema)]
    while waiting:
        path, field = waiting.pop()
        if pa.types.is_struct(field.type):
            waiting += [((*path, child.name), child) for child in reversed(list(field.type))]
            continue
        if pa.types.is_string(field.type):
            yield path, position
        position += len(list(leaf_types(field.type)))


def _extremes(footer: pq.FileMetaData, position: int) -> tuple[bytes, bytes] | None:
    """Return the least and the greatest value of a column. Row groups with values of 4 KiB have none."""
    lows: list[bytes] = []
    highs: list[bytes] = []
    for number in range(footer.num_row_groups):
        chunk = footer.row_group(number).column(position)
        statistics = chunk.statistics
        if statistics is None or not statistics.has_min_max:
            if statistics is not None and statistics.has_null_count and statistics.null_count == chunk.num_values:
                continue
            return None
        lows.append(statistics.min_raw)
        highs.append(statistics.max_raw)
    if not lows:
        return None
    return min(lows), max(highs)


def _leaf_columns(table: pa.Table) -> Iterator[tuple[str, pa.Array]]:
    """Yield each column of the file with its path in Parquet."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        yield from _leaves_within(name, column.combine_chunks())


def _leaves_within(path: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    kind = array.type
    if pa.types.is_struct(kind):
        for child, values in zip(kind, array.flatten(), strict=True):
            yield from _leaves_within(f"{path}.{child.name}", values)
    elif pa.types.is_list(kind):
        yield from _leaves_within(f"{path}.list.element", array.flatten())
    elif pa.types.is_map(kind):
        for part, values in zip(("key", "value"), map_entries(array).flatten(), strict=True):
            yield from _leaves_within(f"{path}.key_value.{part}", values)
    else:
        yield path, array
