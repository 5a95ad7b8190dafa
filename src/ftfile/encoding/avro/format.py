"""`fileFormat=avro`: object container files, with the schema that Spark's own Avro source expects."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa

from ftfile.arrays.buffers import from_numpy, is_valid, string_parts
from ftfile.arrays.nested import rebuild
from ftfile.core.ids import random_bytes
from ftfile.core.options.table import DEFAULTS
from ftfile.encoding.avro.container import block, blocks, compressed, header, import_fastavro, read_header
from ftfile.encoding.avro.rows import decimal_bytes, encode_rows
from ftfile.encoding.avro.schema import arrow_type, avro_schema, check_record_name, raw_schema, schema_problems
from ftfile.encoding.base.columnar import Codec, CollectingEncoder, ColumnarFormat, check_text, encoding_errors
from ftfile.encoding.base.reading import batch_as, corrupt, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ftfile.encoding.api import ByteWriter, Encoder


@dataclass(frozen=True, slots=True)
class AvroFormat(ColumnarFormat):
    """Avro."""

    name: ClassVar[str] = "avro"
    extension = ".avro"  # whatever the codec: readers go by it
    codecs: ClassVar[Mapping[str, Codec]] = {
        "none": Codec("null"),
        "deflate": Codec("deflate", 1),
        "snappy": Codec("snappy"),
        "zstd": Codec("zstandard", 1),
    }
    open_files_max: ClassVar[int] = 200

    compression: str = "deflate"  # the one that every reader of Avro knows
    record_name: str = DEFAULTS["recordName"]
    record_namespace: str = DEFAULTS["recordNamespace"]

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> AvroFormat:
        compression, level = cls.codec_from_options(options)
        name, namespace = (options.get(option, DEFAULTS[option]) for option in ("recordName", "recordNamespace"))
        check_record_name(name, namespace)
        return cls(compression, level, name, namespace)

    def definition(self, schema: pa.Schema) -> dict[str, Any]:
        names = {"recordName": self.record_name, "recordNamespace": self.record_namespace}
        return ColumnarFormat.definition(self, schema) | names

    def check_rows(self, batch: pa.RecordBatch) -> None:
        check_text(batch)

    def check_schema(self, schema: pa.Schema) -> None:
        ColumnarFormat.check_schema(self, schema)
        refuse(self.name, schema_problems(schema))

    def encoder(self, schema: pa.Schema, target: ByteWriter) -> Encoder:
        return _AvroEncoder(schema, target, self)

    def decode(self, file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        avro, codec, marker = read_header(file)
        try:
            in_file = arrow_type(avro)
            read = _reader(avro)
        except (ValueError, KeyError, TypeError) as error:
            raise corrupt(file, "an Avro file of rows", f"another schema: {error!r}") from error
        for rows, data in blocks(file, codec, marker):
            try:
                found = rebuild(read(rows, data), in_file, _from_raw)
                batch = batch_as(pa.RecordBatch.from_struct_array(found), schema)
            except Exception as error:  # fastavro raises what bad bytes lead to
                raise corrupt(file, f"{rows} rows in a block of an Avro file", repr(error)) from error
            yield batch


class _AvroEncoder(CollectingEncoder):
    """A group is a block: as large as a reader may well hold, and large enough to compress."""

    group_rows_max = 65_536
    group_bytes_max = 1 << 20

    def __init__(self, schema: pa.Schema, target: ByteWriter, options: AvroFormat) -> None:
        super().__init__(schema, target, options.check_rows)
        self._codec = options.codecs[options.compression].label
        self._level = options.used_level
        self._marker = random_bytes(16)
        described = avro_schema(schema, options.record_name, options.record_namespace)
        target.write(header(described, self._codec, self._marker))

    def _write_group(self, rows: pa.Table) -> None:
        self._target.write(self._block(rows))

    def _sample_bytes(self, rows: pa.Table) -> int:
        return len(self._block(rows))

    def _block(self, rows: pa.Table) -> bytes:
        with encoding_errors("Avro"):
            offsets, data = string_parts(encode_rows(rows.combine_chunks().to_batches()[0]))
            plain = data[offsets[0] : offsets[-1]].data
            return block(rows.num_rows, compressed(plain, self._codec, self._level), self._marker)


def _reader(avro: Any) -> Callable[[int, bytes], pa.Array]:  # noqa: ANN401 - JSON
    """Return a function that reads the rows of a block in the types of `raw_schema`."""
    fastavro = import_fastavro()
    raw, arrow = raw_schema(avro)
    marker = bytes(16)
    start = header(raw, "null", marker)

    def read(rows: int, data: bytes) -> pa.Array:
        file = io.BytesIO(start + block(rows, data, marker))
        return pa.array(list(fastavro.reader(file)), arrow)

    return read


def _from_raw(array: pa.Array, target: pa.DataType) -> pa.Array:
    if array.type == target:
        return array
    if pa.types.is_string(target):
        return array.cast(target)
    if pa.types.is_decimal(target):
        return _decimals(array, target)
    return array.view(target)


def _decimals(array: pa.Array, target: pa.Decimal128Type) -> pa.Array:
    size, valid = decimal_bytes(target.precision), is_valid(array)
    offsets, data = string_parts(array)
    if not (np.diff(offsets) == np.where(valid, size, 0)).all():
        raise ValueError(f"a decimal that is not {size} bytes long")
    big = data[offsets[0] : offsets[-1]].reshape(-1, size)
    little = np.zeros((len(array), 16), np.uint8)
    little[valid] = np.where(big[:, :1] & 0x80, 0xFF, 0)
    little[valid, :size] = big[:, ::-1]
    return from_numpy(little.reshape(-1).view("V16"), target, valid)
