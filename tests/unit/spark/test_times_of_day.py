"""Columns of TIME: from Spark's nanoseconds to files and back, and where the type is refused."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

import ftfile
from ftfile.core.errors import ConfigError, EncodingError, SchemaError
from ftfile.rows.clock_text import time_of_day
from ftfile.spark import settings
from ftfile.spark.datasource import FtFileDataSource
from ftfile.testing.micro_batch import MicroBatch, StoreBatch, spark_schema

TIME = "time(6)"
LAST = dt.time(23, 59, 59, 999999)
TIMES = [dt.time(0), dt.time(1, 2, 3, 500000), None, LAST]
ARRAY = {"type": "array", "elementType": TIME, "containsNull": True}
NS = pa.time64("ns")


def written(path: str, columns: dict[str, Any], **options: str) -> str:
    rows = [{"id": number, "t": time} for number, time in enumerate(TIMES)]
    MicroBatch(path, columns, options).run(0, [rows])
    return path


def batches_for_spark(reader: Any, partitions: Any) -> pa.Table:
    return pa.Table.from_batches(batch for partition in partitions for batch in reader.read(partition))


@pytest.mark.slow
@pytest.mark.parametrize("file_format", ["parquet", "arrow", "avro", "json", "csv"])
def test_every_reader_has_the_times_that_were_written(tmp_path: Any, file_format: str) -> None:
    out = written(str(tmp_path / "out"), {"id": "long", "t": TIME}, fileFormat=file_format)
    table = ftfile.open(out).to_arrow()
    assert table.schema.field("t").type == pa.time64("us")
    assert table["t"].to_pylist() == TIMES
    source = FtFileDataSource({"path": out})
    assert source.schema().simpleString() == "struct<id:bigint,t:time(6)>"
    reader = source.reader(source.schema())
    found = batches_for_spark(reader, reader.partitions())
    assert (found["t"].type, found["t"].to_pylist()) == (NS, TIMES)
    stream: Any = source.streamReader(source.schema())
    start = stream.initialOffset()
    followed = batches_for_spark(stream, stream.partitions(start, stream.latestOffset(start)))
    assert (followed["t"].type, followed["t"].to_pylist()) == (NS, TIMES)


@pytest.mark.slow
def test_times_within_arrays_are_sent_in_nanoseconds(tmp_path: Any) -> None:
    out = str(tmp_path / "out")
    MicroBatch(out, {"t": ARRAY}, {"fileFormat": "json"}).run(0, [[{"t": [LAST, None]}, {"t": None}]])
    source = FtFileDataSource({"path": out})
    reader = source.reader(source.schema())
    found = batches_for_spark(reader, reader.partitions())["t"]
    assert (found.type.value_type, found.to_pylist()) == (NS, [[LAST, None], None])


@pytest.mark.slow
def test_conditions_take_times_and_their_texts(tmp_path: Any) -> None:
    out = written(str(tmp_path / "out"), {"id": "long", "t": TIME})
    assert ftfile.open(out).to_arrow(where="t = '01:02:03.5'")["id"].to_pylist() == [1]
    assert ftfile.open(out).to_arrow(where={"t": LAST})["id"].to_pylist() == [3]
    with pytest.raises(ConfigError, match="not a time of day such as 23:59:59"):
        ftfile.open(out).to_arrow(where="t > '1:02'")
    ftfile.delete(out, "t < '12:00:00'")
    assert ftfile.open(out).to_arrow()["id"].to_pylist() == [2, 3]


@pytest.mark.parametrize(
    "text", ["24:00:00", "1:02:03", "01:02", "01:02:03.", "01:02:03.1234567", "\u0661\u0662:00:00", ""]
)
def test_other_texts_are_no_times(text: str) -> None:
    with pytest.raises(ValueError, match=r"time|timestamp|parse"):
        time_of_day(text)


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ({"t": "time(3)"}, {}, r"column `t`: type time\(3\) cannot be stored; only TIME\(6\) is supported"),
        ({"id": "long", "t": ARRAY}, {"fileFormat": "orc"}, r"column `t.element`: TIME, which ORC does not support"),
        ({"t": TIME}, {"fileFormat": "text"}, r"cast\(`t` AS STRING\)"),
        ({"id": "long", "t": TIME}, {"partitionBy": "t"}, "column 't' of type time64"),
    ],
)
def test_where_it_cannot_be_stored(tmp_path: Any, columns: dict[str, Any], options: dict[str, str], said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        MicroBatch(str(tmp_path / "out"), columns, options).run(0, [[]])


def test_stores_do_not_hold_it(tmp_path: Any) -> None:
    store = StoreBatch(str(tmp_path / "store"), {"id": "long", "t": ARRAY}, {"keyColumns": "id"})
    with pytest.raises(ConfigError, match=r"column 't': a store does not support TIME: use cast\(column AS STRING\)"):
        store.run(0, [[]])


def test_files_of_other_programs_are_not_read_with_it(tmp_path: Any) -> None:
    source = FtFileDataSource({"path": str(tmp_path), "fileFormat": "parquet", "stateLocation": str(tmp_path / "s")})
    schema = settings.struct_type(spark_schema({"id": "long", "t": ARRAY}))
    with pytest.raises(ConfigError, match=r"column `t.element`: TIME, which is only read from ftfile directories"):
        source.streamReader(schema)


def test_nanoseconds_are_never_cut_off(tmp_path: Any) -> None:
    query = MicroBatch(str(tmp_path / "out"), {"t": TIME})
    with pytest.raises((EncodingError, pa.ArrowInvalid), match="would lose data"):
        query.run(0, [[{"t": pa.scalar(1, NS)}]])


@pytest.mark.slow
def test_a_dead_letter_has_its_text(tmp_path: Any) -> None:
    options = {"badRecords": "deadLetter", "maxRecordBytes": "9"}
    out = written(str(tmp_path / "out"), {"id": "long", "t": TIME}, **options)
    rows = [letter.row for letter in ftfile.open(out).dead_letters()]
    assert rows[1] == {"id": 1, "t": "01:02:03.500000"}


def test_older_spark_has_no_such_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(settings.ATOMIC, TIME)
    with pytest.raises(ConfigError, match=r"Read it with Spark 4\.1 or later"):
        settings.struct_type(spark_schema({"t": TIME}))
