"""Schemas and rows that Spark could send, and files in memory."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import strategies as st

from ftfile.formats.api import format_from_definition, format_from_options
from ftfile.rows.buffers import rebuild

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.formats.api import Format

TIMESTAMP, TIMESTAMP_NTZ, DATE, TIME = pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.date32(), pa.time64("us")
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
DAY_US = 86_400_000_000


class Target:
    """A ByteWriter that keeps the written bytes."""

    def __init__(self) -> None:
        self.data = bytearray()

    @property
    def position(self) -> int:
        return len(self.data)

    def write(self, data: bytes | bytearray | memoryview) -> int:
        self.data += data
        return len(data)


def encode(file_format: Format, *batches: pa.RecordBatch) -> bytes:
    target = Target()
    encoder = file_format.encoder(batches[0].schema, target)
    for batch in batches:
        assert encoder.write(batch) == batch.num_rows
    encoder.finish()
    return bytes(target.data)


def encode_files(file_format: Format, batches: list[pa.RecordBatch], limit_bytes: int) -> list[bytes]:
    """Apply a limit the same way as a sink."""
    files = []
    target = Target()
    encoder = file_format.encoder(batches[0].schema, target)
    for batch in batches:
        offset = 0
        while offset < batch.num_rows:
            taken = encoder.write(batch.slice(offset), limit_bytes)
            assert taken > 0
            offset += taken
            if encoder.size_bytes >= limit_bytes:
                encoder.finish()
                files.append(bytes(target.data))
                target = Target()
                encoder = file_format.encoder(batches[0].schema, target)
            else:
                assert offset == batch.num_rows
    encoder.finish()
    return [*files, bytes(target.data)]


def decode(file_format: Format, data: bytes, schema: pa.Schema) -> list[dict[str, Any]]:
    table = pa.Table.from_batches(file_format.decode(io.BytesIO(data), schema), schema)
    table.validate(full=True)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def for_reading(file_format: Format, schema: pa.Schema) -> Format:
    """Return the format as a reader gets it from the log."""
    return format_from_definition({"name": file_format.name, **file_format.definition(schema)})


def write_and_read(name: str, options: Mapping[str, Any], batch: pa.RecordBatch) -> bytes:
    """Check that a file gives back its rows, bit for bit; return the file."""
    file_format = format_from_options(name, options)
    file_format.check_schema(batch.schema)
    data = encode(file_format, batch)
    # repr distinguishes NaN from NaN, and -0.0 from 0.0; `==` does not.
    assert repr(decode(for_reading(file_format, batch.schema), data, batch.schema)) == repr(batch.to_pylist())
    return data


def one_column(arrow: pa.DataType, *values: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, arrow)], names=["v"])


def _decimals(arrow: pa.Decimal128Type) -> st.SearchStrategy[Decimal]:
    bound = 10**arrow.precision - 1
    return st.integers(-bound, bound).map(lambda unscaled: Decimal(f"{unscaled}E-{arrow.scale}"))


def _integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


# What ORC's timestamps are read back as are nanoseconds in 64 bits.
ORC_LAST_US = 2**63 // 1000
# A local time zone moves values by less than a day: keep them within the years 0001 to 9999.
_INSTANTS = st.integers(FIRST_US + DAY_US, LAST_US - DAY_US)
_SPECIAL_TEXT = st.sampled_from(
    ["", " ", '"', "\\", ",", '\\"', '",', "\n", "\r\n", "\t", "null", "NaN", "\\N", "\ufeff", "a\u2028b", "😀", "\0"]
)
TEXT = st.one_of(_SPECIAL_TEXT, st.text(max_size=20), st.tuples(_SPECIAL_TEXT, st.text(max_size=5)).map("".join))
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): _integers(8),
    pa.int16(): _integers(16),
    pa.int32(): _integers(32),
    pa.int64(): _integers(64),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.string(): TEXT,
    pa.binary(): st.binary(max_size=20),
    DATE: st.integers(-719_162, 2_932_896),
    TIMESTAMP: _INSTANTS,
    TIMESTAMP_NTZ: st.integers(FIRST_US, LAST_US),
    TIME: st.integers(0, DAY_US - 1),
}
DECIMALS = st.integers(1, 38).flatmap(
    lambda precision: st.integers(0, precision).map(lambda scale: pa.decimal128(precision, scale))
)
LEAF_TYPES = st.one_of(st.sampled_from(sorted(VALUES, key=str)), DECIMALS)
TEXTUAL_TYPES = LEAF_TYPES.filter(lambda arrow: not pa.types.is_binary(arrow))


def _structs(children: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.lists(children, min_size=1, max_size=3).map(
        lambda types: pa.struct([(f"f{index}", arrow) for index, arrow in enumerate(types)])
    )


def nested_types(keys: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.recursive(
        LEAF_TYPES,
        lambda children: st.one_of(
            _structs(children),
            children.map(lambda element: pa.list_(pa.field("element", element))),
            st.tuples(keys, children).map(lambda types: pa.map_(types[0], pa.field("value", types[1]))),
        ),
        max_leaves=4,
    )


def values_of(arrow: pa.DataType) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), _present(arrow))


def only_of_orc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with the timestamps that ORC holds."""

    def leaf(array: pa.Array, target: pa.DataType) -> pa.Array:
        if target != TIMESTAMP:
            return array
        times = array.cast(pa.int64()).to_pylist()
        within = [
            value and (value % ORC_LAST_US if value > 0 else -(value % 9_000_000_000) * 1_000_000) for value in times
        ]
        return pa.array(within, pa.int64()).cast(target)

    columns = [rebuild(column, column.type, leaf) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _present(arrow: pa.DataType) -> st.SearchStrategy[Any]:
    if isinstance(arrow, pa.Decimal128Type):
        return _decimals(arrow)
    if isinstance(arrow, pa.StructType):
        return st.fixed_dictionaries({field.name: values_of(field.type) for field in arrow})
    if isinstance(arrow, pa.ListType):
        return st.lists(values_of(arrow.value_type), max_size=3)
    if isinstance(arrow, pa.MapType):
        entries = st.tuples(_present(arrow.key_type), values_of(arrow.item_type))
        return st.lists(entries, max_size=3, unique_by=lambda entry: repr(entry[0]))
    return VALUES[arrow]


@st.composite
def batches(
    draw: st.DrawFn, types: st.SearchStrategy[pa.DataType], columns_min: int = 1, rows_max: int = 6
) -> pa.RecordBatch:
    """Draw a batch; it is the end of a longer one, as slices of a batch are."""
    drawn = draw(st.lists(types, min_size=columns_min, max_size=4))
    rows = draw(st.integers(0, rows_max))
    hidden = draw(st.integers(0, 2))
    arrays = [
        pa.array(draw(st.lists(values_of(arrow), min_size=rows + hidden, max_size=rows + hidden)), arrow)
        for arrow in drawn
    ]
    names = [f"c{index}" for index in range(len(drawn))]
    return pa.RecordBatch.from_arrays(arrays, names=names).slice(hidden)
