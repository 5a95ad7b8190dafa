"""`fileFormat=orc`: stripes large enough to scan fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa
from pyarrow import orc

from ftfile.arrays.buffers import is_valid, values_of
from ftfile.arrays.nested import leaf_types, leaves, map_leaf_types, rebuild
from ftfile.core.errors import UnencodableRows
from ftfile.encoding.base.codecs import CODECS
from ftfile.encoding.base.columnar import CollectingEncoder, ColumnarFormat, as_sink, check_text, encoding_errors
from ftfile.encoding.base.reading import batch_as, columns_within, corrupt
from ftfile.encoding.orc.footer import amended

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ftfile.encoding.api import ByteWriter, Encoder

__all__ = ("OrcFormat",)

_READ_BATCH_ROWS = 65_536

# Arrow reads ORC's timestamps as nanoseconds in 64 bits, and no others.
_LAST_US = 2**63 // 1000
_SECOND_US = 1_000_000
_WALL_CLOCK = pa.timestamp("us")
_RANGE = "ORC takes those from 1677-09-21 00:12:44 to 2262-04-11 23:47:16.854775, and before 1970 whole seconds only"

# Of the writer's own memory: a reference to a value, its length, and whether it is null.
_GROUP_BYTES, _VALUE_BYTES = 32 << 20, 17

_DISTINCT_MAX = 0.8  # of the strings of a stripe, as Spark's own writer has it
_FOOTER_BYTES, _FOOTER_COLUMN_BYTES, _FOOTER_CHUNK_BYTES = 200, 20, 10


def _check_rows(batch: pa.RecordBatch) -> None:
    """Refuse values that would not come back.

    Raises:
        UnencodableRows: names the column.
    """
    check_text(batch)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        for leaf in leaves(column):
            if pa.types.is_timestamp(leaf.type) and leaf.type.tz and not _all_within(values_of(leaf, np.int64), leaf):
                raise UnencodableRows(f"column `{name}`: a timestamp is out of range: {_RANGE}")


def _all_within(microseconds: NDArray[np.int64], column: pa.Array) -> bool:
    # Before 1970, Arrow writes fractions of a second as negative ones, and Spark fails at them.
    within = (np.abs(microseconds) <= _LAST_US) & ((microseconds >= 0) | (microseconds % _SECOND_US == 0))
    return bool((within | ~is_valid(column)).all())


@dataclass(frozen=True, slots=True)
class OrcFormat(ColumnarFormat):
    """ORC."""

    name: ClassVar[str] = "orc"
    codecs = CODECS["orc"]

    def check_rows(self, batch: pa.RecordBatch) -> None:
        """See `ColumnarFormat.check_rows`."""
        _check_rows(batch)

    def encoder(self, schema: pa.Schema, target: ByteWriter) -> Encoder:
        """See `Format.encoder`."""
        return _OrcEncoder(schema, target, self.compression)

    def decode(self, file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """See `Format.decode`."""
        try:
            opened = orc.ORCFile(file)
            present = opened.schema.names
            wanted = [name for name in schema.names if name in present] or present[:1]
            # A name with a dot in it is taken for a field of a struct.
            names = None if any("." in name for name in present) else wanted
            for number in range(opened.nstripes):
                stripe = opened.read_stripe(number, columns=names)
                for start in range(0, stripe.num_rows, _READ_BATCH_ROWS):
                    rows = stripe.slice(start, _READ_BATCH_ROWS)
                    yield batch_as(rows, schema)
        except (pa.ArrowException, OSError) as error:  # Arrow's errors about bytes are OSErrors
            raise corrupt(file, "an ORC file", error) from error


class _OrcEncoder(CollectingEncoder):
    """A group is a stripe."""

    def __init__(self, schema: pa.Schema, target: ByteWriter, codec: str) -> None:
        super().__init__(schema, target, _check_rows)
        self._codec = codec
        self._leaf_columns = sum(1 for column in schema for _ in leaf_types(column.type))
        # The writer takes memory for a whole group of values of every column, however few rows come.
        self.group_rows_max = min(self.group_rows_max, _GROUP_BYTES // (_VALUE_BYTES * max(1, self._leaf_columns)) + 1)
        self._stored = pa.schema([(column.name, map_leaf_types(column.type, _stored_as)) for column in schema])
        self._sink = _Tail(target)
        self._writer = self._open(as_sink(self._sink))

    def _open(self, sink: Any) -> orc.ORCWriter:  # noqa: ANN401 - pyarrow has no types
        # Every batch that it is given is more than a stripe may be, and so a stripe.
        codec = self._codec.replace("none", "uncompressed")
        return orc.ORCWriter(
            sink,
            compression=codec,
            stripe_size=1,
            batch_size=self.group_rows_max,
            dictionary_key_size_threshold=_DISTINCT_MAX,
        )

    def _write_group(self, rows: pa.Table) -> None:
        with encoding_errors("ORC"):
            self._writer.write(self._laid_out(rows))

    def _sample_bytes(self, rows: pa.Table) -> int:
        sink = pa.BufferOutputStream()
        with encoding_errors("ORC"):
            writer = self._open(sink)
            writer.write(self._laid_out(rows))
            writer.close()
            size_bytes: int = sink.tell()
        return size_bytes

    def _footer_bytes(self, groups: int) -> int:
        return _FOOTER_BYTES + self._leaf_columns * (_FOOTER_COLUMN_BYTES + _FOOTER_CHUNK_BYTES * groups)

    def _end(self) -> None:
        with encoding_errors("ORC"):
            if not self._groups:
                self._writer.write(self._laid_out(pa.Table.from_batches([], self._schema)))
            self._sink.hold()
            self._writer.close()
        types = (arrow for column in self._schema for _, arrow in columns_within(pa.schema([column])))
        wall_clocks = {number for number, arrow in enumerate(types, start=1) if arrow == _WALL_CLOCK}
        self._target.write(amended(bytes(self._sink.held), wall_clocks))

    def _laid_out(self, rows: pa.Table) -> pa.Table:
        """Return rows as they are stored, nested columns laid out anew.

        Within these, the writer takes slices for what they are slices of, and a value under a null for one more.
        """
        columns = []
        for kind, column in zip(self._stored.types, rows.columns, strict=True):
            leaf = _copied if pa.types.is_nested(kind) else _viewed
            columns.append(pa.chunked_array([rebuild(chunk, kind, leaf) for chunk in column.chunks], kind))
        return pa.Table.from_arrays(columns, schema=self._stored)


class _Tail:
    """Where a file goes; keeps the end of it from where it is told to."""

    def __init__(self, target: ByteWriter) -> None:
        self._target = target
        self._is_holding = False
        self.held = bytearray()

    @property
    def position(self) -> int:
        return self._target.position + len(self.held)

    def write(self, data: bytes | bytearray | memoryview) -> int:
        if not self._is_holding:
            return self._target.write(data)
        self.held += data
        return len(data)

    def hold(self) -> None:
        """Pass nothing on any more."""
        self._is_holding = True


def _stored_as(arrow: pa.DataType) -> pa.DataType:
    """Return the type in the file: local times are numbers, as in Spark's own writer."""
    return pa.int64() if arrow == _WALL_CLOCK else arrow


def _viewed(leaf: pa.Array, target: pa.DataType) -> pa.Array:
    return leaf if leaf.type == target else leaf.view(target)


def _copied(leaf: pa.Array, target: pa.DataType) -> pa.Array:
    return pa.concat_arrays([_viewed(leaf, target)])
