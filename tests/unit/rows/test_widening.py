"""`onSchemaChange=any` admits a type exactly if every format, and paths, give back all values of the old one."""

from __future__ import annotations

import datetime
import io
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ftfile.core.errors import FtfileError
from ftfile.formats.api import LineFormat, format_from_options
from ftfile.formats.partition_paths import check_partition_column, parse_partition_path, partition_names
from ftfile.formats.reading.batches import batch_as
from ftfile.rows.buffers import rebuild
from ftfile.rows.spark_types import list_respelled, reads_back
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.formats.api import Format


class Target:
    """A file in memory."""

    def __init__(self) -> None:
        self.data = bytearray()

    @property
    def position(self) -> int:
        return len(self.data)

    def write(self, data: bytes | bytearray | memoryview) -> int:
        self.data += data
        return len(data)


def struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct([*fields.items()])


def listed(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind))


# Of decoders that are asked for a type that they were never meant for.
ERRORS = (FtfileError, pa.ArrowException, ArithmeticError, AttributeError, KeyError, TypeError, ValueError)
MOMENT = datetime.datetime(2024, 2, 29, 1, 2, 3, 456789, datetime.timezone.utc)
ONE, LONG = pa.int32(), pa.int64()

DECIMALS = [(2, 0), (4, 0), (5, 0), (6, 3), (9, 0), (10, 0), (12, 2), (15, 5), (18, 0), (19, 0), (21, 2), (38, 10)]

# The extreme values of each type, others of decimals, and null.
VALUES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    pa.int8(): [-128, 127],
    pa.int16(): [-(2**15), 2**15 - 1],
    ONE: [-(2**31), 2**31 - 1],
    LONG: [-(2**63), 2**63 - 1],
    pa.float32(): [1.5, 0.1, 3.4028234663852886e38, 1e-45],
    pa.float64(): [1.5, 0.1, 1e308],
    **{
        pa.decimal128(digits, scale): [
            Decimal(f"{sign}{number}").scaleb(-scale)
            for number in (10**digits - 1, *(10**digits * part // 29 for part in range(1, 29)))
            for sign in ("", "-")
        ]
        for digits, scale in DECIMALS
    },
    pa.string(): ["a b", "1", "é"],
    pa.binary(): [b"\xff\x01"],
    pa.date32(): [datetime.date(2024, 2, 29), datetime.date(1900, 1, 1)],
    pa.timestamp("us", "UTC"): [MOMENT],
    pa.timestamp("us"): [MOMENT.replace(tzinfo=None)],
    listed(ONE): [[1, None], []],
    listed(LONG): [[2**40]],
    listed(pa.string()): [["x"]],
    pa.map_(pa.string(), ONE): [[("k", 1)]],
    pa.map_(pa.string(), LONG): [[("k", 2**40)]],
    pa.map_(ONE, ONE): [[(1, 1)]],
    pa.map_(LONG, ONE): [[(2**40, 1)]],
    struct(a=ONE): [{"a": 1}],
    struct(a=LONG): [{"a": 2**40}],
    struct(a=pa.string()): [{"a": "x"}],
    struct(b=pa.string(), a=ONE): [{"b": "x", "a": 1}],
    struct(b=pa.string()): [{"b": "x"}],
    struct(a=struct(c=ONE)): [{"a": {"c": 1}}],
    struct(a=struct(c=LONG, d=ONE)): [{"a": {"c": 2**40, "d": 1}}],
    listed(struct(a=ONE)): [[{"a": 1}]],
    listed(struct(a=LONG, b=ONE)): [[{"a": 2**40, "b": 1}]],
}
OPTIONS = {
    "parquet": {},
    "orc": {},
    "arrow": {},
    "avro": {},
    "json": {},
    "csv": {"nullValue": "-"},
    "text": {},
    "binary": {},
    "json with patterns": {"dateFormat": "dd.MM.yyyy", "timestampNTZFormat": "dd.MM.yyyy HH:mm:ss.SSSSSS"},
}


def format_of(case: str) -> Format:
    return format_from_options(case.partition(" ")[0], {"timeZone": "UTC", **OPTIONS[case]})


def holds(file_format: Format, kind: pa.DataType) -> bool:
    try:
        file_format.check_schema(pa.schema([("v", kind)]))
    except FtfileError:
        return False
    return True


@cache
def written(case: str, kind: pa.DataType) -> tuple[pa.Array, bytes]:
    """The values of a type, and a file of them."""
    nulls = [] if case in {"text", "binary"} else [None]
    values, target, schema = pa.array(VALUES[kind] + nulls, kind), Target(), pa.schema([("v", kind)])
    encoder = format_of(case).encoder(schema, target)
    encoder.write(pa.RecordBatch.from_arrays([values], schema=schema))
    encoder.finish()
    return values, bytes(target.data)


def is_same(found: pa.Array, values: pa.Array) -> bool:
    """Return True if no value was lost: cast back, each is what it was."""
    kind, exact = values.type, not pa.types.is_floating(found.type)
    if pa.types.is_nested(found.type) or pa.types.is_nested(kind):
        return bool(found.type.id == kind.id and found.equals(rebuild(values, found.type, pa.Array.cast)))
    if pa.types.is_decimal(kind):  # Arrow casts integers to decimals that have digits for all of them
        found = found.cast(pa.decimal128(38, kind.scale), safe=exact)
    return bool(found.cast(kind, safe=exact).equals(values))


def in_files(case: str, old: pa.DataType, new: pa.DataType) -> bool:
    values, data = written(case, old)
    batches = format_of(case).decode(io.BytesIO(data), pa.schema([("v", new)]))
    return is_same(pa.Table.from_batches(batches)["v"].combine_chunks(), values)


def in_paths(old: pa.DataType, new: pa.DataType) -> bool:
    values, schema = pa.array(VALUES[old], old), pa.schema([("v", new)])
    found = [parse_partition_path(name, schema)["v"].as_py() for name in partition_names("v", values)]
    return is_same(pa.array(found, new), values)


def may_be_in_paths(*kinds: pa.DataType) -> bool:
    try:
        for kind in kinds:
            check_partition_column(pa.field("v", kind))
    except FtfileError:
        return False
    return True


def outcomes(old: pa.DataType, new: pa.DataType) -> Iterator[tuple[str, bool]]:
    """Yield each format that holds one of the types, and if it gives the old values back as the new type."""
    for case in OPTIONS:
        held = holds(format_of(case), old), holds(format_of(case), new)
        try:
            if any(held):
                yield case, all(held) and in_files(case, old, new)
        except ERRORS:
            yield case, False
    if may_be_in_paths(old, new):
        try:
            yield "paths", in_paths(old, new)
        except ERRORS:
            yield "paths", False


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize("old", VALUES, ids=str)
def test_a_type_is_admitted_if_every_format_reads_it_back(old: pa.DataType) -> None:
    wrong = {}
    for new in VALUES:
        if new.equals(old):
            continue
        found = dict(outcomes(old, new))
        is_right = all(found.values())
        if reads_back(old, new) != is_right:
            wrong[str(new)] = found
    assert not wrong


@parametrize("old", VALUES, ids=str, quick=8, packages=True)
def test_numbers_are_the_nearest_ones_from_every_format(old: pa.DataType) -> None:
    """As `read_add` reads them: the text of a FLOAT is a FLOAT, and no DOUBLE."""
    for new in filter(pa.types.is_floating, VALUES):
        for case in OPTIONS:
            file_format, schema = format_of(case), pa.schema([("v", new)])
            if new.equals(old) or not reads_back(old, new) or not holds(file_format, old):
                continue
            values, data = written(case, old)
            decoded = pa.schema([("v", old)]) if isinstance(file_format, LineFormat) else schema
            [batch] = [batch_as(batch, schema) for batch in file_format.decode(io.BytesIO(data), decoded)]
            nearest = [None if value is None else float(value) for value in values.to_pylist()]
            assert batch["v"].equals(pa.array(nearest, pa.float64()).cast(new)), (case, new)


def test_names_of_fields_differ_by_more_than_case() -> None:
    assert not reads_back(struct(a=ONE), struct(A=ONE))
    assert not reads_back(listed(struct(a=ONE)), listed(struct(A=ONE, b=ONE)))
    old, new = ([pa.field(name, kind) for name, kind in fields] for fields in ([("V", ONE)], [("v", LONG)]))
    assert [*list_respelled(old, new)] == ["v is recorded as V"]
    assert not [*list_respelled(old, old)]
