"""The types that `ftfile write` derives for ORC and Avro files, and files that it refuses."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from pyarrow import orc

import ftfile
from ftfile.core.arguments import Access
from ftfile.core.errors import ConfigError, FtfileError, SchemaError, SourceError
from ftfile.operate.writers.arrow_rows import BATCH_ROWS
from ftfile.source.decoding.avro_columns import COLUMNS_MAX
from ftfile.tools.load.write_files import FilesToLoad, WriteSettings, write_files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

UTC = dt.timezone.utc
LTZ, NTZ = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
AT = dt.datetime(2026, 3, 4, 5, 6, 7, 891000, tzinfo=UTC)
CLOCK = AT.replace(tzinfo=None)
# Of each Avro type, a value, and the type and value that Spark reads.
AVRO: Mapping[str, tuple[Any, Any, pa.DataType, Any]] = {
    "int": ("int", 7, pa.int32(), 7),
    "long": ("long", 1 << 40, pa.int64(), 1 << 40),
    "float": ("float", 0.5, pa.float32(), 0.5),
    "double": ("double", 0.1, pa.float64(), 0.1),
    "boolean": ("boolean", True, pa.bool_(), True),
    "bytes": ("bytes", b"a", pa.binary(), b"a"),
    "string": ("string", "a", pa.string(), "a"),
    "fixed": ({"type": "fixed", "name": "fix", "size": 2}, b"ab", pa.binary(), b"ab"),
    "enum": ({"type": "enum", "name": "kind", "symbols": ["A", "B"]}, "B", pa.string(), "B"),
    "date": ({"type": "int", "logicalType": "date"}, AT.date(), pa.date32(), AT.date()),
    "millis": ({"type": "long", "logicalType": "timestamp-millis"}, AT, LTZ, AT),
    "micros": ({"type": "long", "logicalType": "timestamp-micros"}, AT, LTZ, AT),
    "local": ({"type": "long", "logicalType": "local-timestamp-micros"}, CLOCK, NTZ, CLOCK),
    "decimal": (
        {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        Decimal("1.50"),
        pa.decimal128(6, 2),
        Decimal("1.50"),
    ),
    "wider": (["null", "int", "long"], 3, pa.int64(), 3),
    "widest": (["float", "double"], 0.5, pa.float64(), 0.5),
    "either": (
        ["int", "null", "string"],
        "x",
        pa.struct([("member0", pa.int32()), ("member1", pa.string())]),
        {"member0": None, "member1": "x"},
    ),
    "array": ({"type": "array", "items": ["null", "string"]}, ["a", None], pa.list_(pa.string()), ["a", None]),
    "map": ({"type": "map", "values": "int"}, {"a": 1}, pa.map_(pa.string(), pa.int32()), [("a", 1)]),
    "record": (
        {"type": "record", "name": "in", "fields": [{"name": "x", "type": "int"}]},
        {"x": 1},
        pa.struct([("x", pa.int32())]),
        {"x": 1},
    ),
}


def written(out: Path, *files: Path, **options: Any) -> pa.Table:
    """Write files to a directory, and return its rows."""
    write_files(str(out), FilesToLoad([str(file) for file in files]), WriteSettings(options=options), access=Access())
    return ftfile.open(str(out)).to_arrow()


def avro_file(path: Path, fields: list[dict[str, Any]], records: list[dict[str, Any]]) -> Path:
    with path.open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, records)
    return path


def orc_file(path: Path, columns: Mapping[str, pa.Array]) -> Path:
    orc.write_table(pa.table(dict(columns)), path)
    return path


class TestAvro:
    def test_types_and_values_are_those_that_spark_reads(self, tmp_path: Path) -> None:
        fields = [{"name": name, "type": kind} for name, (kind, *_) in AVRO.items()]
        record = {name: value for name, (_, value, *_) in AVRO.items()}
        table = written(tmp_path / "out", avro_file(tmp_path / "a.avro", fields, [record]))
        assert {field.name: field.type for field in table.schema} == {name: row[2] for name, row in AVRO.items()}
        assert table.to_pylist() == [{name: row[3] for name, row in AVRO.items()}]

    def test_more_rows_than_a_batch_keep_their_order(self, tmp_path: Path) -> None:
        rows = [{"n": number} for number in range(BATCH_ROWS + 1)]
        path = avro_file(tmp_path / "a.avro", [{"name": "n", "type": "int"}], rows)
        assert sorted(written(tmp_path / "out", path)["n"].to_pylist()) == [*range(BATCH_ROWS + 1)]

    def test_a_type_that_contains_itself_is_refused(self, tmp_path: Path) -> None:
        node = {"type": "record", "name": "node", "fields": [{"name": "next", "type": ["null", "node"]}]}
        path = avro_file(tmp_path / "a.avro", [{"name": "list", "type": node}], [{"list": {"next": None}}])
        with pytest.raises(ConfigError, match="the type 'node', which contains itself"):
            written(tmp_path / "out", path)

    def test_types_within_types_are_counted(self, tmp_path: Path) -> None:
        """A schema of some lines can describe any number of columns: here 32,767."""
        kind: dict[str, Any] = {"type": "record", "name": "r0", "fields": [{"name": "v", "type": "int"}]}
        for number in range(14):
            both = [{"name": "a", "type": kind}, {"name": "b", "type": f"r{number}"}]
            kind = {"type": "record", "name": f"r{number + 1}", "fields": both}
        path = avro_file(tmp_path / "a.avro", [{"name": "c", "type": kind}], [])
        with pytest.raises(SchemaError, match=f"more than {COLUMNS_MAX:,} columns"):
            written(tmp_path / "out", path)

    def test_a_damaged_file_writes_nothing(self, tmp_path: Path) -> None:
        path = avro_file(tmp_path / "a.avro", [{"name": "n", "type": "int"}], [{"n": 1}] * 100)
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(ConfigError, match=r"a\.avro' cannot be read as avro: .*Nothing was written"):
            written(tmp_path / "out", path)
        with pytest.raises(FtfileError):
            ftfile.open(str(tmp_path / "out")).version()


class TestOrc:
    def test_types_and_values_are_those_that_spark_reads(self, tmp_path: Path) -> None:
        rows = pa.table(
            {
                "n": pa.array([1, None], pa.int16()),
                "price": pa.array([Decimal("1.50"), None], pa.decimal128(6, 2)),
                "at": pa.array([AT, None], pa.timestamp("ns", tz="UTC")),
                "clock": pa.array([CLOCK, None], pa.timestamp("ns")),
                "within": pa.array([[{"at": CLOCK}], None], pa.list_(pa.struct([("at", pa.timestamp("ns"))]))),
            }
        )
        orc.write_table(rows, tmp_path / "a.orc")
        table = written(tmp_path / "out", tmp_path / "a.orc")
        within = pa.list_(pa.struct([("at", LTZ)]))
        assert [*table.schema.types] == [pa.int16(), pa.decimal128(6, 2), LTZ, LTZ, within]
        assert table.to_pylist()[0] == {
            "n": 1,
            "price": Decimal("1.50"),
            "at": AT,
            "clock": AT,
            "within": [{"at": AT}],
        }

    def test_clocks_of_a_writer_in_another_zone_need_its_zone(self, tmp_path: Path) -> None:
        path = orc_file(tmp_path / "a.orc", {"at": pa.array([CLOCK], pa.timestamp("ns"))})
        with pytest.raises(SchemaError, match="Set the option timeZone to the writer's time zone"):
            written(tmp_path / "out", path, time_zone="America/New_York")

    def test_a_value_that_is_no_text_is_named(self, tmp_path: Path) -> None:
        bad = pa.array([b"a", b"\xff"]).view(pa.string())
        with pytest.raises(SourceError, match=r"row 2 has .* in the column `c`"):
            written(tmp_path / "out", orc_file(tmp_path / "a.orc", {"c": bad}))

    def test_a_damaged_file_writes_nothing(self, tmp_path: Path) -> None:
        path = orc_file(tmp_path / "a.orc", {"n": pa.array([*range(100)])})
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(ConfigError, match=r"a\.orc' cannot be read as orc: .*Nothing was written"):
            written(tmp_path / "out", path)
