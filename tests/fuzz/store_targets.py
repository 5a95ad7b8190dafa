"""Targets for the run files of a keyed store: blocks, pages, index, keys and definitions."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ftfile.core.checksum import crc32
from ftfile.core.errors import FtfileError
from ftfile.kv.definition import StoreDefinition
from ftfile.kv.hashing import hash_rows
from ftfile.kv.key_columns import StoredKeys, check_ranges, decode_ranges
from ftfile.kv.run.block import RowFinder, encode_block, layout_of, open_block
from ftfile.kv.run.block_batch import COMPRESSIONS, BlockBatch, compress, decompress, decompress_all
from ftfile.kv.run.index import TRAILER, Index, decode_index, encode_index, index_bytes_of, padded_length_of
from ftfile.kv.run.pages import Cache, PageShape, build_pages, places_of
from ftfile.kv.run.reader import RunReader
from ftfile.kv.type_names import type_named
from ftfile.kv.user_keys import NO_PYTHON_VALUE
from ftfile.rows.spark_types import arrow_schema, as_nullable, recorded_schema, spark_schema_json, sql_types
from tests.fuzz.target import Draws, Target

if TYPE_CHECKING:
    from collections.abc import Iterator

PATH = "a.spool"
_TRAILER = struct.Struct("<" + "".join(TRAILER.values()))
_SLOTS, _PLACE_BITS, _ROW_BITS = 8, 12, 8
_INTEGER = pa.field("id", pa.int32(), nullable=False)
_SCHEMAS = [
    pa.schema([_INTEGER]),
    pa.schema([_INTEGER, ("text", pa.string())]),
    pa.schema([pa.field("key", pa.string(), nullable=False), ("flag", pa.bool_()), ("at", pa.timestamp("us", "UTC"))]),
    pa.schema([_INTEGER, ("list", pa.list_(pa.field("element", pa.string())))]),
    pa.schema([_INTEGER, ("map", pa.map_(pa.string(), pa.int64())), ("bytes", pa.binary())]),
    pa.schema([_INTEGER, ("struct", pa.struct([("a", pa.decimal128(20, 2)), ("b", pa.list_(pa.date32()))]))]),
]
_VALUES: dict[str, list[Any]] = {
    "id": [1, 2, 3],
    "text": ["a", None, "text"],
    "key": ["a", "b", "c"],
    "flag": [True, None, False],
    "at": [1, 2, None],
    "list": [["x", None], None, []],
    "map": [[("k", 1)], [], None],
    "bytes": [b"1", b"", None],
    "struct": [{"a": None, "b": [1]}, None, {"a": None, "b": None}],
}


def _block(data: bytes) -> None:
    """Open a block of rows, read each row, and decode all rows to Arrow."""
    draws = Draws(data)
    layout = layout_of(draws.choice(_SCHEMAS))
    rows, content = draws.byte(), draws.rest()
    block = open_block(content, rows, layout, PATH, 0)
    batch = BlockBatch([content], np.array([rows]), layout=layout, path=PATH, numbers=[0]).batch()
    find = RowFinder(layout, 1).find
    keys = StoredKeys(batch.columns[:1])
    for row in range(rows):
        find(block, row, keys[row])


def _index(data: bytes) -> None:
    """Decode an index whose lengths and checksum are made right."""
    if len(data) < _TRAILER.size:
        return
    fields = dict(zip(TRAILER, _TRAILER.unpack(data[-_TRAILER.size :]), strict=True))
    length = fields["pagesOffset"] + 4 * fields["pages"] * fields["slots"] + len(data)
    right = {"magic": b"FTFRUN", "version": 2, "indexBytes": len(data), "zero": 0, "lengthBytes": length % (1 << 64)}
    body = data[: -_TRAILER.size] + _TRAILER.pack(*(fields | right).values())[:-4]
    content = memoryview(body + crc32(body).to_bytes(4, "little"))
    index_bytes_of(content, length, PATH)
    decode_index(content, length, PATH)


def _run(data: bytes) -> None:
    """Read a run of one block, and of one page if the third byte is odd; the index is right, and so are checksums."""
    draws = Draws(data)
    schema, rows, has_page = draws.choice(_SCHEMAS), 1 + draws.byte() % 200, draws.byte() % 2
    compression = draws.choice(COMPRESSIONS)
    content = draws.rest()
    page = b""
    if has_page:
        page, content = content[: 4 * _SLOTS].ljust(4 * _SLOTS, b"\0"), content[4 * _SLOTS :]
    stored = compress(content, compression)
    keys = pa.schema([schema.field(0)])
    first_keys = pa.RecordBatch.from_pydict({keys.names[0]: _VALUES[keys.names[0]][::2]}, keys)
    padding = bytes(padded_length_of(len(stored)) - len(stored))
    index = Index(
        schema=schema,
        rows=rows,
        key_columns=1,
        compression=compression,
        row_bits=_ROW_BITS,
        block_ends=np.array([len(stored)], "<u8"),
        plain_bytes=np.array([len(content)], "<u4"),
        block_rows=np.array([rows], "<u4"),
        block_crcs=np.array([crc32(content)], "<u4"),
        blocks_crc=crc32(stored + padding),
        shape=PageShape(has_page, has_page * _SLOTS, _PLACE_BITS),
        pages_offset=padded_length_of(len(stored)),
        page_crcs=np.array([crc32(page)] * has_page, "<u4"),
        first_keys=first_keys,
    )
    run = stored + padding + page
    run += encode_index(index, len(run))
    reader = RunReader(lambda offset, length: run[offset : offset + length], len(run), PATH, Cache(1 << 20))
    hashes = hash_rows(first_keys.columns)
    found = StoredKeys(first_keys.columns)
    reader.get(found[0], int(hashes[0]))
    reader.multi_get(first_keys, hashes)
    for _ in reader.scan(found[0], found[1]):
        pass
    reader.verify()


def _stored_block(data: bytes) -> None:
    """Decompress stored blocks of a run."""
    draws = Draws(data)
    compression, size, content = draws.choice(COMPRESSIONS), draws.byte() << 8 | draws.byte(), draws.rest()
    decompress(memoryview(content), size, compression)
    decompress_all([memoryview(content)] * 2, [size] * 2, compression)


def _schema(data: bytes) -> None:
    """Parse a schema of Spark."""
    text = data.decode(errors="replace")
    schema = recorded_schema(text)
    spark_schema_json(arrow_schema(text))
    as_nullable(text)
    sql_types(text)
    layout_of(schema)


def _definition(data: bytes) -> None:
    """Parse the definition of a store and purged ranges of keys."""
    text = json.loads(data)
    definition = StoreDefinition.from_json(text)
    check_ranges(decode_ranges(text["ranges"]), definition.key_types)
    definition.to_json()


def _type_name(data: bytes) -> None:
    """Parse the name of a type."""
    type_named("column", data.decode(errors="replace"))


# ------------------------------------------------------------------------------------------------------- seeds


def _blocks() -> Iterator[tuple[int, bytes]]:
    for number, schema in enumerate(_SCHEMAS):
        yield number, encode_block(_rows(schema), layout_of(schema))


def _rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: _VALUES[name] for name in schema.names}, schema)


def _block_seeds() -> Iterator[bytes]:
    for number, block in _blocks():
        yield bytes([number, 3]) + block


def _run_seeds() -> Iterator[bytes]:
    for number, block in _blocks():
        yield bytes([number, 2, 0, number]) + block
        hashes = hash_rows([_rows(_SCHEMAS[number]).column(0)])
        (slots,) = build_pages(PageShape(1, _SLOTS, _PLACE_BITS), hashes, places_of([3], _ROW_BITS))
        yield bytes([number, 2, 1, 0]) + slots.tobytes() + block


def _index_seeds() -> Iterator[bytes]:
    for number, schema in enumerate(_SCHEMAS):
        keys = pa.schema([schema.field(0)])
        index = Index(
            schema=schema,
            rows=3,
            key_columns=1,
            compression=COMPRESSIONS[number % 3],
            row_bits=2,
            block_ends=np.array([64], "<u8"),
            plain_bytes=np.array([64], "<u4"),
            block_rows=np.array([3], "<u4"),
            block_crcs=np.array([1], "<u4"),
            blocks_crc=2,
            shape=PageShape(0, 0, 0),
            pages_offset=64,
            page_crcs=np.array([], "<u4"),
            first_keys=pa.RecordBatch.from_pydict({keys.names[0]: _VALUES[keys.names[0]][::2]}, keys),
        )
        yield encode_index(index, 64)


def _stored_seeds() -> Iterator[bytes]:
    for number, name in enumerate(COMPRESSIONS):
        yield bytes([number, 1, 0]) + compress(b"abcd" * 64, name)


def _schemas() -> Iterator[bytes]:
    for schema in _SCHEMAS:
        yield spark_schema_json(schema).encode()


def _definitions() -> Iterator[bytes]:
    definition = {
        "schema": spark_schema_json(_SCHEMAS[1]),
        "keys": ["id"],
        "bucketBy": ["id"],
        "buckets": 2,
        "merge": {"text": "max"},
        "sequenceColumn": None,
        "ranges": [[[1], [5]]],
    }
    yield json.dumps(definition).encode()


TARGETS = {
    "blocks": Target(_block, _block_seeds, (FtfileError, *NO_PYTHON_VALUE)),
    "indexes": Target(_index, _index_seeds),
    "runs": Target(_run, _run_seeds, (FtfileError, *NO_PYTHON_VALUE)),
    "stored_blocks": Target(_stored_block, _stored_seeds, (FtfileError, ValueError, OSError)),
    "schemas": Target(_schema, _schemas),
    "definitions": Target(_definition, _definitions, (FtfileError, ValueError, LookupError, TypeError, AttributeError)),
    "type_names": Target(_type_name, lambda: [b"decimal(10,2)", b"bigint", b"timestamp_ntz"]),
}
