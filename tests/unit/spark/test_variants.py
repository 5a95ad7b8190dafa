"""Columns of VARIANT: as Spark sends them, to files and back, and where the type is refused."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

import ftfile
from ftfile.core.errors import ConfigError, EncodingError, SchemaError
from ftfile.rows.spark_types import arrow_schema, spark_schema_json
from ftfile.spark import settings
from ftfile.spark.datasource import FtFileDataSource
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch, StoreBatch, spark_schema

ONE = {"value": b"\x0c\x01", "metadata": b"\x01\x00\x00"}
ARRAY = {"type": "array", "elementType": "variant", "containsNull": True}
STRUCT = {
    "type": "struct",
    "fields": [{"name": name, "type": "binary", "nullable": True, "metadata": {}} for name in ("value", "metadata")],
}
V = {"v": "variant"}
COLUMNS = {"v": "variant", "a": ARRAY}
ROWS: list[dict[str, Any]] = [{"v": ONE, "a": [ONE, None]}, {"v": None, "a": None}]
JSON_NULL = {"value": b"\x00", "metadata": b"\x01\x00\x00"}
JSON_ROWS: list[dict[str, Any]] = [{"v": ONE, "a": [ONE, JSON_NULL]}, {"v": JSON_NULL, "a": []}, {"v": None, "a": None}]
SENT = pa.struct([pa.field("value", pa.binary(), nullable=False), pa.field("metadata", pa.binary(), nullable=False)])


def test_a_struct_of_the_same_fields_is_another_type() -> None:
    text = spark_schema({"v": "variant", "s": STRUCT})
    kinds = [field.type for field in arrow_schema(text)]
    assert spark_schema_json(pa.schema([("v", kinds[0])])) == spark_schema_json(arrow_schema(spark_schema(V)))
    assert '"type":"variant"' in spark_schema_json(arrow_schema(text))
    assert '"type":"struct"' in spark_schema_json(pa.schema([("s", kinds[1])]))


@pytest.mark.slow
@pytest.mark.parametrize(("file_format", "rows"), [("parquet", ROWS), ("arrow", ROWS), ("json", JSON_ROWS)])
def test_every_reader_has_the_values_that_were_written(
    tmp_path: Any, file_format: str, rows: list[dict[str, Any]]
) -> None:
    out = str(tmp_path / "out")
    MicroBatch(out, COLUMNS, {"fileFormat": file_format}).run(0, [rows])
    assert ftfile.open(out).to_arrow().to_pylist() == rows
    source = FtFileDataSource({"path": out})
    assert source.schema().simpleString() == "struct<v:variant,a:array<variant>>"
    reader: Any = source.reader(source.schema())
    (found,) = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    assert found.schema.types == [SENT, pa.list_(pa.field("element", SENT))]
    assert found.to_pylist() == rows


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [("variant", STRUCT), (STRUCT, "variant")])
@pytest.mark.parametrize("policy", ["fail", "widen", "any"])
def test_it_does_not_become_a_struct(tmp_path: Any, before: Any, after: Any, policy: str) -> None:
    out = str(tmp_path / "out")
    MicroBatch(out, {"v": before}).run(0, [[{"v": ONE}]])
    with pytest.raises(SchemaError, match=r"v was (variant and is struct|struct.* and is variant)"):
        MicroBatch(out, {"v": after}, {"onSchemaChange": policy}).run(1, [[{"v": ONE}]])


@pytest.mark.slow
@pytest.mark.parametrize(("stored", "asked"), [("variant", STRUCT), (STRUCT, "variant")])
def test_it_is_not_read_as_a_struct(tmp_path: Any, stored: Any, asked: Any) -> None:
    MicroBatch(str(tmp_path / "out"), {"v": stored}).run(0, [[{"v": ONE}]])
    reader: Any = FtFileDataSource({"path": str(tmp_path / "out")}).reader(
        settings.struct_type(spark_schema({"v": asked}))
    )
    (partition,) = reader.partitions()
    with pytest.raises(SchemaError, match=r"does not fit the columns to read: v was .*variant"):
        list(reader.read(partition))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"partitionBy": "p"}, {"maxRecordsPerFile": "4"}, {"maxBatchesPerFile": "2"}])
def test_json_has_the_values_in_all_ways_of_writing(tmp_path: Any, options: dict[str, str]) -> None:
    columns = {"p": "long", **COLUMNS}
    out = str(tmp_path / "out")
    query = MicroBatch(out, columns, {"fileFormat": "json", **options})
    rows = [{"p": number % 2, **row} for number, row in enumerate(JSON_ROWS * 2)]
    query.run(0, [rows, rows])
    query.run(1, [rows])
    found = ftfile.open(out).to_arrow().to_pylist()
    assert sorted(map(repr, found)) == sorted(repr({name: row[name] for name in found[0]}) for row in rows * 3)


@pytest.mark.slow
def test_a_compaction_of_json_changes_no_value(tmp_path: Any) -> None:
    out = str(tmp_path / "out")
    zeros = [b"\x1c" + struct.pack("<d", 100.0), b"\x1c" + struct.pack("<d", -0.0), b"\x20\x02\x96\x00\x00\x00"]
    rows = [{"v": {"value": value, "metadata": b"\x01\x00\x00"}} for value in zeros]
    query = MicroBatch(out, V, {"fileFormat": "json"})
    query.run(0, [rows])
    query.run(1, [rows])
    before = ftfile.open(out).to_arrow().to_pylist()
    assert [row["v"]["value"].hex() for row in before[:3]] == ["2001e8030000", "200100000000", "200296000000"]
    assert ftfile.compact(out).files_written == 1
    assert ftfile.open(out).to_arrow().to_pylist() == before
    check_directory(open_filesystem(out))


@pytest.mark.slow
def test_values_without_a_json_text_are_bad_records(tmp_path: Any) -> None:
    out = str(tmp_path / "out")
    bad: list[dict[str, Any]] = [
        {"v": {"value": b"\x44", "metadata": b"\x01\x00\x00"}, "a": None},
        {"v": None, "a": [None]},
    ]
    with pytest.raises(EncodingError, match=r"column `v` cannot be encoded: a VARIANT .* type 17"):
        MicroBatch(out, COLUMNS, {"fileFormat": "json"}).run(0, [bad[:1]])
    with pytest.raises(EncodingError, match="column `a` cannot be encoded: NULL in an array or map of VARIANT"):
        MicroBatch(out, COLUMNS, {"fileFormat": "json"}).run(0, [bad[1:]])
    MicroBatch(out, COLUMNS, {"fileFormat": "json", "badRecords": "deadLetter"}).run(0, [[*JSON_ROWS, *bad]])
    assert ftfile.open(out).to_arrow().to_pylist() == JSON_ROWS
    letters = [letter.reason for letter in ftfile.open(out).dead_letters()]
    assert len(letters) == len(bad)


@pytest.mark.parametrize("file_format", ["csv", "avro", "orc"])
def test_formats_without_it_refuse_it(tmp_path: Any, file_format: str) -> None:
    query = MicroBatch(str(tmp_path / "out"), {"id": "long", **V}, {"fileFormat": file_format})
    with pytest.raises(
        SchemaError, match=rf"`v`: VARIANT, which {file_format} does not support; use to_json\(column\)"
    ):
        query.run(0, [[]])


def test_stores_do_not_hold_it(tmp_path: Any) -> None:
    store = StoreBatch(str(tmp_path / "store"), {"id": "long", "a": ARRAY}, {"keyColumns": "id"})
    with pytest.raises(ConfigError, match=r"column 'a': a store does not support VARIANT: use to_json\(column\)"):
        store.run(0, [[]])


def test_files_of_other_programs_are_not_read_with_it(tmp_path: Any) -> None:
    source = FtFileDataSource({"path": str(tmp_path), "fileFormat": "parquet", "stateLocation": str(tmp_path / "s")})
    with pytest.raises(ConfigError, match=r"column `v`: VARIANT, which is only read from ftfile directories"):
        source.streamReader(settings.struct_type(spark_schema({"id": "long", **V})))


def test_files_that_are_migrated_do_not_have_it(tmp_path: Any) -> None:
    out = tmp_path / "in"
    MicroBatch(str(tmp_path / "out"), V).run(0, [[{"v": ONE}]])
    out.mkdir()
    (part,) = (tmp_path / "out").glob("*.parquet")
    part.rename(out / "a.parquet")
    with pytest.raises(SchemaError, match="column `v` is VARIANT: Spark may have stored parts"):
        ftfile.migrate(str(out), file_format="parquet", schema="v variant")
