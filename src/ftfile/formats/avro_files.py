"""`fileFormat=avro`: object container files with the schema that Spark's Avro source expects."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa

from ftfile.core.context import random_bytes
from ftfile.core.errors import ConfigError, UnencodableRows
from ftfile.core.options.table import DEFAULTS
from ftfile.formats.avro_bounds import cost_of
from ftfile.formats.avro_container import (
    BLOCK_BYTES_MAX,
    block,
    blocks,
    compress_block,
    decimal_bytes,
    encode_rows,
    header,
    import_fastavro,
    read_header,
)
from ftfile.formats.columnar import CollectingEncoder, ColumnarFormat, FormatCodec, check_text, encoding_errors
from ftfile.formats.reading.batches import batch_as
from ftfile.formats.reading.read_errors import corrupt
from ftfile.formats.reading.schema_checks import check_problems, check_variants, list_columns_within
from ftfile.rows.buffers import from_numpy, is_valid, rebuild, string_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from ftfile.filters.api import ByteWriter
    from ftfile.formats.api import Encoder


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_TYPE_NAMES = frozenset(
    {
        *("null", "boolean", "int", "long", "float", "double", "bytes", "string"),
        *("record", "enum", "array", "map", "union", "fixed", "error"),
    }
)

_LEAVES: dict[pa.DataType, Any] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.timestamp("us", tz="UTC"): {"type": "long", "logicalType": "timestamp-micros"},
    pa.timestamp("us"): {"type": "long", "logicalType": "local-timestamp-micros"},
    pa.time64("us"): {"type": "long", "logicalType": "time-micros"},
}
_ARROW = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-micros": pa.timestamp("us"),
    "time-micros": pa.time64("us"),
}


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def check_record_name(full_name: str) -> None:
    """Raise `ConfigError` for an invalid name of a record, such as Row, which a namespace with dots can precede."""
    if not all(map(_is_name, full_name.split("."))):
        raise ConfigError(
            f"option recordName={full_name!r}: names in Avro consist of letters, digits and _; "
            "dots separate a namespace, as in `com.example.Row`"
        )
    if full_name.rpartition(".")[2] in _TYPE_NAMES:
        raise ConfigError(f"option recordName={full_name!r} is the name of an Avro type, which a record cannot have")


def schema_problems(schema: pa.Schema) -> Iterator[str]:
    """Yield a sentence for each column, also a nested one, that Avro cannot store."""
    for column in schema:
        for name in {column.name, *_field_names(column.type)}:
            if not _is_name(name):
                where = f"column `{column.name}`" + (f", field `{name}`" if name != column.name else "")
                yield f"{where}: names in Avro consist of letters, digits and _; rename it, or use parquet"
    for path, arrow in list_columns_within(schema):
        if pa.types.is_map(arrow) and not pa.types.is_string(arrow.key_type):
            yield f"column `{path}`: {arrow}; keys in Avro must be strings: cast the keys to STRING, or use parquet"


def _field_names(arrow: pa.DataType) -> Iterator[str]:
    if pa.types.is_struct(arrow):
        yield from (field.name for field in arrow)
    if pa.types.is_nested(arrow):
        for index in range(arrow.num_fields):
            yield from _field_names(arrow.field(index).type)


def avro_schema(fields: Iterable[pa.Field], name: str, namespace: str) -> dict[str, Any]:
    """Return the record type of rows or structs; every value is nullable, and null by default."""
    below = name
    schema: dict[str, Any] = {"type": "record", "name": name}
    if namespace:
        below = f"{namespace}.{name}"
        schema["namespace"] = namespace
    schema["fields"] = []
    for field in fields:
        kind = ["null", _type(field.type, field.name, below)]
        schema["fields"].append({"name": field.name, "type": kind, "default": None})
    return schema


def _type(arrow: pa.DataType, name: str, namespace: str) -> Any:  # noqa: ANN401 - JSON
    if pa.types.is_struct(arrow):
        # `string` becomes `string_`, so `string_` must become `string__`.
        return avro_schema(arrow, f"{name}_" if name.rstrip("_") in _TYPE_NAMES else name, namespace)
    if pa.types.is_list(arrow):
        return {"type": "array", "items": ["null", _type(arrow.value_type, name, namespace)]}
    if pa.types.is_map(arrow):
        return {"type": "map", "values": ["null", _type(arrow.item_type, name, namespace)]}
    if pa.types.is_decimal(arrow):
        return {"type": "bytes", "logicalType": "decimal", "precision": arrow.precision, "scale": arrow.scale}
    return _LEAVES[arrow]


def arrow_type(avro: Any) -> pa.DataType:  # noqa: ANN401 - JSON
    """Return the Arrow type of a schema of `avro_schema`; other schemas raise ValueError, KeyError or TypeError."""
    if isinstance(avro, list):
        _, avro = avro
    described: dict[str, Any] = {"type": avro} if isinstance(avro, str) else avro
    kind = described.get("logicalType", described["type"])
    if kind == "record":
        return pa.struct([(field["name"], arrow_type(field["type"])) for field in described["fields"]])
    if kind == "array":
        return pa.list_(pa.field("element", arrow_type(described["items"])))
    if kind == "map":
        return pa.map_(pa.string(), arrow_type(described["values"]))
    if kind == "decimal":
        return pa.decimal128(described["precision"], described["scale"])
    return _ARROW[kind]


def raw_schema(avro: Any, path: str = "") -> tuple[Any, pa.DataType]:  # noqa: ANN401 - JSON
    """Return an equivalent schema that is read faster, and its Arrow type; `path` names records.

    Strings are bytes, times are numbers, and maps are arrays of entries.
    """
    if isinstance(avro, list):
        raw, arrow = raw_schema(avro[1], path)
        return ["null", raw], arrow
    if isinstance(avro, str):
        return ("bytes", pa.binary()) if avro == "string" else (avro, _ARROW[avro])
    kind = avro["type"]
    if kind == "record":
        fields = avro["fields"]
    elif kind == "array":
        raw, arrow = raw_schema(avro["items"], f"{path}_e")
        return {"type": "array", "items": raw}, pa.list_(pa.field("element", arrow))
    elif kind == "map":
        fields = [{"name": "key", "type": "bytes"}, {"name": "value", "type": avro["values"]}]
    else:
        return kind, _ARROW[kind]
    inner = [raw_schema(field["type"], f"{path}_{place}") for place, field in enumerate(fields)]
    names = [field["name"] for field in fields]
    described = [{"name": name, "type": raw} for name, (raw, _) in zip(names, inner, strict=True)]
    record = {"type": "record", "name": f"r{path}", "fields": described}
    struct = pa.struct([(name, arrow) for name, (_, arrow) in zip(names, inner, strict=True)])
    if kind == "record":
        return record, struct
    return {"type": "array", "items": record}, pa.list_(pa.field("element", struct))


@dataclass(frozen=True, slots=True)
class AvroFormat(ColumnarFormat):
    """Avro."""

    name: ClassVar[str] = "avro"
    extension = ".avro"  # for every codec: readers use this ending
    codecs: ClassVar[Mapping[str, FormatCodec]] = {
        "none": FormatCodec("null"),
        "deflate": FormatCodec("deflate", 1),
        "snappy": FormatCodec("snappy"),
        "zstd": FormatCodec("zstandard", 1),
    }
    open_files_max: ClassVar[int] = 200

    compression: str = "deflate"  # the one codec that every reader supports
    record_name: str = DEFAULTS["recordName"]

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> AvroFormat:
        compression, level = cls.codec_from_options(options)
        name = options.get("recordName", DEFAULTS["recordName"])
        check_record_name(name)
        return cls(compression, level, name)

    def definition(self, schema: pa.Schema) -> dict[str, Any]:
        return ColumnarFormat.definition(self, schema) | {"recordName": self.record_name}

    def check_rows(self, batch: pa.RecordBatch) -> None:
        check_text(batch)
        _check_row_bytes(batch)

    def check_schema(self, schema: pa.Schema) -> None:
        ColumnarFormat.check_schema(self, schema)
        check_variants(self.name, schema)
        check_problems(self.name, schema_problems(schema))

    def encoder(self, schema: pa.Schema, target: ByteWriter) -> Encoder:
        return _AvroEncoder(schema, target, self)

    def decode(self, file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        avro, codec, marker = read_header(file)
        try:
            in_file = arrow_type(avro)
            reader = _AvroRowReader(avro)
            row = cost_of(avro)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise corrupt(file, "an Avro file of rows", f"another schema: {error!r}") from error
        for rows, data in blocks(file, codec, marker, row):
            try:
                column_values = rebuild(reader.rows(rows, data), in_file, _from_raw)
                batch = batch_as(pa.RecordBatch.from_struct_array(column_values), schema)
            except Exception as error:  # fastavro raises these for invalid bytes
                raise corrupt(file, f"{rows} rows in a block of an Avro file", repr(error)) from error
            yield batch


class _AvroEncoder(CollectingEncoder):
    """Writes a group as a block: as large as a reader can be expected to hold, and large enough to compress."""

    group_rows_max = 65_536
    group_bytes_max = 1 << 20

    def __init__(self, schema: pa.Schema, target: ByteWriter, options: AvroFormat) -> None:
        super().__init__(schema, target, options.check_rows)
        self._codec = options.codecs[options.compression].label
        self._level = options.used_level
        self._marker = random_bytes(16)
        namespace, _, name = options.record_name.rpartition(".")
        described = avro_schema(schema, name, namespace)
        target.write(header(described, self._codec, self._marker))

    def _write_group(self, rows: pa.Table) -> None:
        for encoded in self._blocks(rows):
            self._target.write(encoded)

    def _sample_bytes(self, rows: pa.Table) -> int:
        return sum(map(len, self._blocks(rows)))

    def _blocks(self, rows: pa.Table) -> Iterator[bytes]:
        """Yield the rows as one block, or as several if readers would refuse one."""
        with encoding_errors("Avro"):
            offsets, data = string_parts(encode_rows(rows.combine_chunks().to_batches()[0]))
            for start, end in _divide_offsets(offsets):
                plain = data[offsets[start] : offsets[end]].data
                yield block(end - start, compress_block(plain, self._codec, self._level), self._marker)


@lru_cache(16)
def expansion(schema: pa.Schema) -> int:
    """Return the maximum number of encoded bytes of a byte in memory.

    A boolean is a bit in memory and two bytes in Avro. Each struct around it adds a byte.
    """
    return 8 * (2 + max(map(_levels, schema.types), default=0))


def _levels(arrow: pa.DataType) -> int:
    if not pa.types.is_nested(arrow):
        return 0
    inner = [_levels(arrow.field(index).type) for index in range(arrow.num_fields)]
    return 1 + max(inner, default=0)


def _check_row_bytes(batch: pa.RecordBatch) -> None:
    """Raise `UnencodableRows` for a row that is longer than a block; only long rows are encoded for the check."""
    if batch.nbytes * expansion(batch.schema) <= BLOCK_BYTES_MAX:
        return
    if batch.num_rows > 1:
        half = batch.num_rows // 2
        _check_row_bytes(batch.slice(0, half))
        _check_row_bytes(batch.slice(half))
        return
    with encoding_errors("Avro"):
        offsets, _ = string_parts(encode_rows(batch))
    size_bytes = int(offsets[-1] - offsets[0])
    if size_bytes > BLOCK_BYTES_MAX:
        raise UnencodableRows(
            f"column `{_largest_column(batch)}` is too long: the row has {size_bytes:,} bytes, and Avro's rows have at "
            f"most {BLOCK_BYTES_MAX:,}. Use parquet"
        )


def _largest_column(batch: pa.RecordBatch) -> str:
    sizes = [column.nbytes for column in batch.columns]
    name: str = batch.schema.names[int(np.argmax(sizes))]
    return name


def _divide_offsets(offsets: NDArray[np.integer]) -> Iterator[tuple[int, int]]:
    """Yield the first row and the end of each block of encoded rows, as few as possible."""
    start, rows = 0, len(offsets) - 1
    while start < rows:
        fitting = int(np.searchsorted(offsets, int(offsets[start]) + BLOCK_BYTES_MAX, side="right")) - 1
        end = max(start + 1, fitting)
        yield start, end
        start = end


class _AvroRowReader:
    """Reads the rows of blocks in the types of `raw_schema`."""

    def __init__(self, avro: Any) -> None:  # noqa: ANN401 - JSON
        self._fastavro = import_fastavro()
        raw, self._type = raw_schema(avro)
        self._start = header(raw, "null", bytes(16))

    def rows(self, count: int, data: bytes) -> pa.Array:
        file = io.BytesIO(self._start + block(count, data, bytes(16)))
        return pa.array(list(self._fastavro.reader(file)), self._type)


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
