"""Values of Avro files of other programs: Spark's value, an error, or a bad record."""

from __future__ import annotations

import datetime
import io
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest

from ftfile.core.errors import ConfigError, SchemaError, SourceError
from ftfile.formats.avro_container import block, header
from ftfile.rows.buffers import varint
from ftfile.source.settings import FileDecoding

if TYPE_CHECKING:
    from tests.unit.source.planned import Files

INSTANT, CLOCK = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
TEXT = pa.string()
ENUM = {"type": "enum", "name": "e", "symbols": ["A", "B"]}
FIXED = {"type": "fixed", "name": "f", "size": 2}
RECORD = {"type": "record", "name": "p", "fields": [{"name": "X", "type": "int"}, {"name": "y", "type": "string"}]}
YEAR_10000 = 253_402_300_800  # in seconds since 1970
SPARK_2 = {"org.apache.spark.version": "2.4.8"}
LEGACY = {"org.apache.spark.version": "3.5.1", "org.apache.spark.legacyDateTime": ""}


def logical(kind: str, name: str, **attributes: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **attributes}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return logical("bytes", "decimal", precision=precision, scale=scale)


DECIMAL, DIGITS = decimal(38, 2), pa.decimal128(38, 2)


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def mapped(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


def row(**kinds: Any) -> dict[str, Any]:
    return {"type": "record", "name": "row", "fields": [{"name": name, "type": kind} for name, kind in kinds.items()]}


def avro_file(schema: Any, records: list[dict[str, Any]], metadata: dict[str, str] | None = None) -> bytes:
    """Return a file with unconverted values, such as numbers for times, as fastavro writes them."""
    sink = io.BytesIO()
    fastavro.writer(sink, schema, records, metadata=metadata)
    return sink.getvalue()


def forged(schema: Any, rows: int, data: bytes) -> bytes:
    """Return a file of one block with the given bytes, which may be invalid."""
    marker = bytes(16)
    return header(schema, "null", marker) + block(rows, data, marker)


def numbered(column: pa.Array) -> list[Any]:
    """Return values, with times as numbers: Python has no years after 9999 or before 1."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def read(
    files: Files, kind: Any, target: pa.DataType, *values: Any, metadata: dict[str, str] | None = None, **options: Any
) -> list[Any]:
    """Return the column that is read from a file with these values of an Avro type."""
    files.write("data", avro_file(row(c=kind), [{"c": value} for value in values], metadata))
    batches = files.batches([files.whole("data")], pa.schema([("c", target)]), FileDecoding("avro", **options))
    return [value for batch in batches for value in numbered(batch.column(0))]


@pytest.mark.parametrize(
    ("kind", "target", "values"),
    [
        ("boolean", pa.bool_(), [True]),
        ("int", pa.int32(), [-(1 << 31), (1 << 31) - 1]),
        ("int", pa.int64(), [-(1 << 31)]),
        ("int", pa.float64(), [3.0]),
        ("int", pa.date32(), [-1]),
        ("int", pa.int8(), [-128, 127]),
        ("long", pa.int64(), [-(1 << 63), (1 << 63) - 1]),
        ("long", pa.int16(), [-(1 << 15), (1 << 15) - 1]),
        ("float", pa.float64(), [1.5]),
        ("double", pa.float64(), [-0.9]),
        ("bytes", pa.binary(), [b"\xff"]),
        (FIXED, pa.binary(), [b"\0\xff"]),
        ("string", TEXT, ["ä"]),
        (ENUM, TEXT, ["B", "A"]),
        (logical("string", "uuid"), TEXT, ["not one"]),
        (logical("int", "time-millis"), pa.int32(), [1]),
        (logical("long", "time-micros"), pa.int64(), [1]),
        (logical("int", "date"), pa.int32(), [-1]),
        (logical("long", "timestamp-millis"), pa.int64(), [-1]),
        (["int"], pa.int32(), [1]),
        (["null", "int"], pa.int32(), [None, 1]),
        (["string", "null"], TEXT, [None, "x"]),
        (["null"], TEXT, [None]),
        ("null", TEXT, [None]),
        (["int", "long"], pa.int64(), [1, 1 << 40]),
        (["null", "long", "int"], pa.int64(), [1, None]),
        (["float", "double", "null"], pa.float64(), [1.5, None]),
    ],
)
def test_values_that_spark_reads_are_equal(files: Files, kind: Any, target: pa.DataType, values: list[Any]) -> None:
    assert read(files, kind, target, *values) == values


@pytest.mark.parametrize(
    ("kind", "value", "target"),
    [
        ("double", 1.5, pa.int32()),
        ("double", -0.9, pa.int64()),
        ("double", 0.1, pa.float32()),
        ("double", 1.5, TEXT),
        ("float", 1.5, pa.int8()),
        ("float", 1.5, pa.decimal128(4, 2)),
        ("int", 1, pa.float32()),
        ("int", 1, TEXT),
        ("int", 1, pa.bool_()),
        ("int", 1, pa.decimal128(10, 0)),
        ("int", 1, INSTANT),
        ("long", 1, pa.float64()),
        ("boolean", True, TEXT),
        ("boolean", True, pa.int32()),
        ("bytes", b"abc", TEXT),
        (FIXED, b"ab", TEXT),
        ("string", "abc", pa.binary()),
        ("string", "1", pa.int32()),
        (ENUM, "A", pa.int32()),
        (decimal(6, 2), b"\x7d", pa.int32()),
        (decimal(6, 2), b"\x7d", TEXT),
        (decimal(6, 2), b"\x7d", pa.decimal128(4, 2)),
        (decimal(39, 2), b"\x7d", pa.decimal128(38, 2)),
        ({"type": "map", "values": "int"}, {"a": 1}, TEXT),
        (mapped("int"), {"a": 1}, pa.struct([("a", pa.int32())])),
        (RECORD, {"X": 1, "y": ""}, TEXT),
        (array("int"), [1], TEXT),
        (array("double"), [1.5], pa.list_(pa.int32())),
        (mapped("double"), {"a": 1.5}, pa.map_(TEXT, pa.int32())),
        (RECORD, {"X": 1, "y": ""}, pa.struct([("y", pa.int32())])),
        (logical("int", "date"), 1, pa.int8()),
        (logical("int", "time-millis"), 1, pa.date32()),
        (logical("long", "timestamp-millis"), 1, CLOCK),
        (logical("long", "timestamp-millis"), 1, pa.date32()),
        (logical("long", "timestamp-millis"), 1, pa.int32()),
        (logical("long", "local-timestamp-micros"), 1, INSTANT),
        (logical("long", "time-micros"), 1, INSTANT),
        (["int", "long"], 1, pa.int32()),
        (["int", "string"], 1, TEXT),
        (["int", "string"], 1, pa.struct([("member0", pa.int32())])),
        (["int", "string"], 1, pa.struct([("member0", pa.int32()), ("member1", pa.int32())])),
    ],
)
def test_types_that_spark_does_not_read_are_refused(files: Files, kind: Any, value: Any, target: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=r"'data': `c.*` is .* in the file, and cannot be read as .*give the column"):
        read(files, kind, target, value, bad_records="drop")


def test_a_refusal_names_the_field_within_and_the_type_to_read(files: Files) -> None:
    kind, target = array(["null", RECORD]), pa.list_(pa.struct([("y", pa.binary())]))
    with pytest.raises(SchemaError, match=r"`c.element.y` is string .* as BINARY.* give the column the type STRING"):
        read(files, kind, target)
    with pytest.raises(SchemaError, match=r"`c` is \[null, int, string\] .*STRUCT<member0: INT, member1: STRING>"):
        read(files, ["null", "int", "string"], TEXT)


@pytest.mark.parametrize(
    ("kind", "target", "good", "bad"),
    [
        ("int", pa.int8(), 127, 128),
        ("long", pa.int32(), -(1 << 31), -(1 << 31) - 1),
        ("long", pa.date32(), 0, 1 << 62),
        (logical("long", "timestamp-millis"), INSTANT, -9_223_372_036_854_775, -9_223_372_036_854_776),
        (logical("long", "local-timestamp-millis"), CLOCK, 9_223_372_036_854_775, 9_223_372_036_854_776),
        (logical("int", "date"), CLOCK, 106_751_991, 106_751_992),
        (decimal(4, 2), pa.decimal128(4, 2), b"\x27\x0f", b"\x27\x10"),
        (decimal(4, 2), pa.decimal128(4, 2), b"\xd8\xf1", b"\xd8\xf0"),
        pytest.param(DECIMAL, DIGITS, b"\0" * 48 + b"\1" * 15, b"\1" + b"\0" * 16, id="more than 16 bytes"),
        pytest.param(DECIMAL, DIGITS, b"\xff" * 64, b"\xff" * 65, id="more than 64 bytes"),
        pytest.param(DECIMAL, DIGITS, b"\x7f", b"\x7f" + b"\xff" * 15, id="more than 38 digits"),
        (decimal(4, 2), pa.decimal128(2, 0), b"\x26\xdd", b"\x26\xde"),
        (decimal(4, 2), pa.decimal128(4, 2), b"\0", b""),
    ],
)
def test_a_value_beyond_its_type_is_a_bad_record(
    files: Files, kind: Any, target: pa.DataType, good: Any, bad: Any
) -> None:
    values = [good, bad, good]
    with pytest.raises(SourceError, match=r"'data' .*: record 2: `c` .* cannot hold .*badRecords=drop"):
        read(files, kind, target, *values)
    kept = read(files, kind, target, *values, bad_records="drop")
    assert kept == read(files, kind, target, good, good)
    assert None not in kept


def test_bad_values_within_arrays_maps_and_records_are_bad_records(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = row(
        a=["null", array(["null", "int"])],
        m=mapped("int"),
        r={"type": "record", "name": "p", "fields": [{"name": "x", "type": ["null", "int"]}]},
        u=["null", "int", "string"],
    )
    good = {"a": [1, None], "m": {"k": 2}, "r": {"x": 3}, "u": 4}
    bad = [good | {"a": [1, None, 300]}, good | {"m": {"k": 300}}, good | {"r": {"x": 300}}, good | {"u": 300}]
    others = [good | {"a": None}, good | {"a": []}, good | {"m": {}}, good | {"r": {"x": None}}, good | {"u": None}]
    files.write("data", avro_file(numbers, [*others, *bad, good]))
    small = pa.int8()
    schema = pa.schema(
        [
            ("a", pa.list_(small)),
            ("m", pa.map_(TEXT, small)),
            ("r", pa.struct([("x", small)])),
            ("u", pa.struct([("member0", small), ("member1", TEXT)])),
        ]
    )
    [batch] = files.batches([files.whole("data")], schema, FileDecoding("avro", bad_records="drop"))
    members = {"member0": 4, "member1": None}
    assert batch.column("a").to_pylist() == [None, [], *[[1, None]] * 4]
    assert batch.column("m").to_pylist() == [[("k", 2)], [("k", 2)], [], *[[("k", 2)]] * 3]
    assert batch.column("r").to_pylist() == [*[{"x": 3}] * 3, {"x": None}, *[{"x": 3}] * 2]
    assert batch.column("u").to_pylist() == [*[members] * 4, None, members]
    assert "dropped 4 records of data, the first: record 6: `a.element` TINYINT cannot hold 300" in caplog.text


def test_text_that_is_not_utf_8_is_a_bad_record(files: Files) -> None:
    content = avro_file(row(c="string", m=mapped("int")), [{"c": "good", "m": {}}, {"c": "bad?", "m": {"key?": 1}}])
    schema = pa.schema([("c", TEXT), ("m", pa.map_(TEXT, pa.int32()))])
    for old, new, where in ((b"bad?", b"bad\xff", "`c` STRING"), (b"key?", b"key\xff", "`m.key` STRING")):
        files.write("data", content.replace(old, new))
        with pytest.raises(SourceError, match=f"record 2: {where} cannot hold {new.hex()}"):
            files.rows(files.whole("data"), schema, FileDecoding("avro"))
        assert files.rows(files.whole("data"), schema, FileDecoding("avro", bad_records="drop")) == [("good", [])]


def test_bad_records_are_kept_as_json(files: Files) -> None:
    kinds = row(
        id="int",
        at=logical("long", "timestamp-millis"),
        name="string",
        kind=ENUM,
        raw="bytes",
        tags=mapped(array("int")),
        either=["null", "int", "string"],
    )
    record = {"id": 1, "at": 0, "name": "ä", "kind": "B", "raw": b"\xff", "tags": {"a": [1]}, "either": "x"}
    records = [record, record | {"at": 1 << 60}, record | {"at": 1 << 60, "either": None, "name": "x"}]
    files.write("data", avro_file(kinds, records))
    schema = pa.schema([("id", pa.int32()), ("_corrupt_record", TEXT), ("at", INSTANT)])
    [batch] = files.batches([files.whole("data")], schema, FileDecoding("avro"))
    texts = batch.column("_corrupt_record").to_pylist()
    assert batch.column("id").to_pylist() == [1, None, None]
    assert numbered(batch.column("at")) == [0, None, None]
    start, end = (
        '{"id": 1, "at": 1152921504606846976, "name": ',
        '"kind": "B", "raw": "ff", "tags": {"a": [1]}, "either": ',
    )
    assert texts == [None, f'{start}"ä", {end}"x"}}', f'{start}"x", {end}null}}']


def test_a_field_with_the_name_of_the_corrupt_column_is_read(files: Files) -> None:
    files.write("data", avro_file(row(c="int", _corrupt_record="string"), [{"c": 300, "_corrupt_record": "x"}]))
    whole, schema = files.whole("data"), pa.schema([("_corrupt_record", TEXT)])
    assert files.rows(whole, schema, FileDecoding("avro")) == [("x",)]
    with pytest.raises(SourceError, match="record 1"):
        files.rows(whole, pa.schema([("_corrupt_record", TEXT), ("c", pa.int8())]), FileDecoding("avro"))
    with pytest.raises(ConfigError, match=r"_corrupt_record.*make it a string"):
        files.rows(whole, pa.schema([("_corrupt_record", pa.int32())]), FileDecoding("avro"))


def test_records_are_counted_over_batches(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ftfile.source.decoding.avro_records._BATCH_ROWS", 1)
    sink = io.BytesIO()
    fastavro.writer(sink, row(c="int"), [{"c": 1}, {"c": 2}, {"c": 300}], sync_interval=1)
    files.write("data", sink.getvalue())
    with pytest.raises(SourceError, match="record 3: "):
        files.rows(files.whole("data"), pa.schema([("c", pa.int8())]), FileDecoding("avro"))


def test_columns_that_are_not_read_are_not_decoded(files: Files) -> None:
    far = logical("long", "timestamp-micros")
    kinds = row(id="int", at=far, day=logical("int", "date"), price=decimal(4, 2), name="string")
    record = {"id": 7, "at": YEAR_10000 * 1_000_000, "day": 1 << 30, "price": b"\x7f" * 9, "name": "bad?"}
    files.write("data", avro_file(kinds, [record]).replace(b"bad?", b"bad\xff"))
    assert files.rows(files.whole("data"), pa.schema([("ID", pa.int32())]), FileDecoding("avro")) == [(7,)]


class TestTimes:
    @pytest.mark.parametrize(("prefix", "target"), [("", INSTANT), ("local-", CLOCK)])
    def test_every_unit_is_microseconds(self, files: Files, prefix: str, target: pa.DataType) -> None:
        times = [-1, 0, 1500, -1500, -2000, -62_135_596_800_001, YEAR_10000 * 1000]
        kinds = {unit: logical("long", f"{prefix}timestamp-{unit}") for unit in ("millis", "micros", "nanos")}
        assert read(files, kinds["micros"], target, *times) == times
        assert read(files, kinds["millis"], target, *times) == [1000 * time for time in times]
        assert read(files, kinds["nanos"], target, *times[:5]) == [-1, 0, 1, -2, -2]
        assert read(files, "long", target, *times) == [1000 * time for time in times]
        assert read(files, kinds["micros"], target, -(1 << 63), (1 << 63) - 1) == [-(1 << 63), (1 << 63) - 1]

    def test_days(self, files: Files) -> None:
        days = [-1_000_000, -1, 0, 2_932_897, (1 << 31) - 1]
        assert read(files, logical("int", "date"), pa.date32(), *days) == days
        assert read(files, logical("int", "date"), CLOCK, -1, 2_932_897) == [-86_400_000_000, 253_402_300_800_000_000]
        millis = [-86_400_000, -86_399_999, -1, 86_399_999, 86_400_000]
        assert read(files, "long", pa.date32(), *millis) == [-1, 0, 0, 0, 1]

    @pytest.mark.parametrize("metadata", [SPARK_2, LEGACY])
    def test_dates_of_the_julian_calendar_are_rebased(self, files: Files, metadata: dict[str, str]) -> None:
        # 1582-10-15, 1582-10-04, 1500-03-01, 1500-02-29 (which becomes March 1), 1500-02-28, 0001-01-01, 0000-02-29
        stored = [-141_427, -141_428, -171_595, -171_596, -171_597, -719_164, -719_471]
        read_back = [-141_427, -141_438, -171_605, -171_605, -171_606, -719_162, -719_469]
        day = logical("int", "date")
        assert read(files, day, pa.date32(), *stored, metadata=metadata) == read_back
        within = read(files, array(day), pa.list_(pa.date32()), stored[:4], metadata=metadata)
        assert within == [[datetime.date(1970, 1, 1) + datetime.timedelta(days) for days in read_back[:4]]]
        assert read(files, day, CLOCK, stored[1], metadata=metadata) == [read_back[1] * 86_400_000_000]

    # As in Spark, the key is used only if the file also has a version.
    @pytest.mark.parametrize(
        "metadata", [None, {"org.apache.spark.version": "3.5.1"}, {"org.apache.spark.legacyDateTime": ""}]
    )
    def test_dates_of_other_files_are_not_rebased(self, files: Files, metadata: dict[str, str] | None) -> None:
        assert read(files, logical("int", "date"), pa.date32(), -141_428, metadata=metadata) == [-141_428]
        assert read(files, "long", INSTANT, -(10**15), metadata=metadata) == [-(10**18)]

    def test_instants_before_1900_of_spark_2_are_bad_records(self, files: Files) -> None:
        first = -2_208_988_800_000_000
        micros = logical("long", "timestamp-micros")
        with pytest.raises(SourceError, match=r"record 2: `c` TIMESTAMP .*legacyDateTime.* 1900 .*cannot hold"):
            read(files, micros, INSTANT, first, first - 1, metadata=LEGACY)
        assert read(files, micros, INSTANT, first, first - 1, metadata=LEGACY, bad_records="drop") == [first]
        local = logical("long", "local-timestamp-micros")
        assert read(files, local, CLOCK, first - 1, metadata=LEGACY) == [first - 1]


class TestDecimals:
    def test_digits_behind_the_scale_are_rounded_as_by_spark(self, files: Files) -> None:
        stored = [int.to_bytes(number, 2, "big", signed=True) for number in (125, 149, 150, -150, -149, 9949)]
        decimals = [str(value) for value in read(files, decimal(4, 2), pa.decimal128(4, 0), *stored)]
        assert decimals == ["1", "1", "2", "-2", "-1", "99"]
        wider = [str(value) for value in read(files, decimal(4, 2), pa.decimal128(10, 3), *stored[:1])]
        assert wider == ["1.250"]

    def test_all_digits_are_exact(self, files: Files) -> None:
        numbers = [10**38 - 1, -(10**38) + 1, 0, -1, 255, -256, 10**18, -(10**18)]
        stored = [number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True) for number in numbers]
        for scale in (0, 2, 38):
            read_back = read(files, decimal(38, scale), pa.decimal128(38, scale), *stored)
            assert pa.array(read_back, pa.decimal128(38, scale)).view(pa.binary(16)).to_pylist() == [
                number.to_bytes(16, "little", signed=True) for number in numbers
            ]

    def test_fixed_and_plain_bytes(self, files: Files) -> None:
        fixed = {"type": "fixed", "name": "d", "size": 3, "logicalType": "decimal", "precision": 6, "scale": 2}
        assert [str(value) for value in read(files, fixed, pa.decimal128(6, 2), b"\xff\xff\x83")] == ["-1.25"]
        assert read(files, fixed, pa.binary(), b"\0\0\x7d") == [b"\0\0\x7d"]


class TestNested:
    def test_fields_are_found_case_aside(self, files: Files) -> None:
        target = pa.struct([("Y", TEXT), ("x", pa.int64()), ("z", pa.int8())])
        assert read(files, RECORD, target, {"X": 1, "y": "a"}) == [{"Y": "a", "x": 1, "z": None}]
        assert read(files, RECORD, pa.struct([("z", pa.int8())]), {"X": 1, "y": "a"}) == [{"z": None}]

    def test_fields_with_names_that_differ_in_case_are_ambiguous(self, files: Files) -> None:
        files.write("data", avro_file(row(c="int", C="int", d="int"), [{"c": 1, "C": 2, "d": 3}]))
        whole = files.whole("data")
        with pytest.raises(SchemaError, match=r"`c` is one of several fields.*: c, C"):
            files.rows(whole, pa.schema([("c", pa.int32())]), FileDecoding("avro"))
        assert files.rows(whole, pa.schema([("d", pa.int32())]), FileDecoding("avro")) == [(3,)]

    def test_unions_are_members(self, files: Files) -> None:
        kind = ["int", "null", "string", {"type": "record", "name": "p", "fields": [{"name": "x", "type": "long"}]}]
        target = pa.struct([("a", pa.int64()), ("b", TEXT), ("c", pa.struct([("x", pa.int64())]))])
        empty = {"a": None, "b": None, "c": None}
        assert read(files, kind, target, 1, "s", None, {"x": 2}) == [
            empty | {"a": 1},
            empty | {"b": "s"},
            None,
            empty | {"c": {"x": 2}},
        ]

    def test_a_type_is_used_again_by_its_name(self, files: Files) -> None:
        point = {"type": "record", "name": "p", "namespace": "n", "fields": [{"name": "e", "type": ENUM}]}
        files.write("data", avro_file(row(a=point, b="n.p", c="n.e"), [{"a": {"e": "A"}, "b": {"e": "B"}, "c": "A"}]))
        struct = pa.struct([("e", TEXT)])
        schema = pa.schema([("a", struct), ("b", struct), ("c", TEXT)])
        assert files.rows(files.whole("data"), schema, FileDecoding("avro")) == [({"e": "A"}, {"e": "B"}, "A")]

    def test_the_last_value_of_a_repeated_key_counts(self, files: Files) -> None:
        content = avro_file(row(c=["null", mapped("int")]), [{"c": {"a": 1, "b": 2}}, {"c": None}, {"c": {"a": 3}}])
        files.write("data", content.replace(b"\x02b\x04", b"\x02a\x04"))
        schema = pa.schema([("c", pa.map_(TEXT, pa.int32()))])
        rows = files.rows(files.whole("data"), schema, FileDecoding("avro"))
        assert rows == [([("a", 2)],), (None,), ([("a", 3)],)]


def test_encodings_beyond_a_type_are_bad_records(files: Files) -> None:
    keeping = FileDecoding("avro", bad_records="drop")
    for kind, target, data in ((ENUM, TEXT, b"\x04\x02\x01"), ("int", pa.int64(), varint(1 << 32) + b"\x02\x04")):
        files.write("data", forged(row(c=kind), 3, data))
        with pytest.raises(SourceError, match="record 1"):
            files.rows(files.whole("data"), pa.schema([("c", target)]), FileDecoding("avro"))
        kept = files.rows(files.whole("data"), pa.schema([("c", target)]), keeping)
        assert len(kept) == 2 - (kind is ENUM)


def test_schemas_that_other_writers_refuse(files: Files) -> None:
    files.write("data", forged(row(c=decimal(4, 5), d={"type": logical("int", "date")}), 1, b"\x02\x7d\x03"))
    schema = pa.schema([("c", pa.binary()), ("d", pa.date32())])
    [batch] = files.batches([files.whole("data")], schema, FileDecoding("avro"))
    assert batch.column("c").to_pylist() == [b"\x7d"]
    assert numbered(batch.column("d")) == [-2]
    with pytest.raises(SchemaError, match="`c` is bytes in the file"):
        files.rows(files.whole("data"), pa.schema([("c", pa.decimal128(4, 4))]), FileDecoding("avro"))


def test_maps_in_maps_up_to_the_bound_of_levels(files: Files) -> None:
    kind: Any = "int"
    target: pa.DataType = pa.int32()
    for _ in range(97):
        kind, target = mapped(kind), pa.map_(TEXT, target)
    files.write("data", forged(row(c=kind), 1, b"\x02\x02k" * 97 + b"\x0e" + b"\0" * 97))
    [(value,)] = files.rows(files.whole("data"), pa.schema([("c", target)]), FileDecoding("avro"))
    for _ in range(97):
        [(_, value)] = value
    assert value == 7
