"""`ftfile write` of JSON and CSV: the values that Spark reads, and no value, member or digit is lost."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ftfile
from ftfile.core.errors import FtfileError
from ftfile.tools.load import json_files
from tests.unit.tools.cli.running import run

if TYPE_CHECKING:
    from pathlib import Path

UTC = dt.timezone.utc
INSTANT, CLOCK = pa.timestamp("us", "UTC"), pa.timestamp("us")
NESTED = {
    "a": lambda kind: kind,
    "l": pa.list_,
    "s": lambda kind: pa.struct([("x.y", kind)]),
    "m": lambda kind: pa.map_(pa.string(), kind),
}  # fmt: skip


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def directory(out: str, schema: pa.Schema, **options: Any) -> str:
    ftfile.write(out, schema.empty_table(), **options)
    return out


def given(path: Path, *rows: Any) -> Path:
    """Write lines: JSON values, or texts as they are."""
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def refused(out: str, path: Path, *options: str) -> str:
    """Return the error of a command that must not create a version."""
    before = version_of(out)
    text: str = run("write", out, path, *options, code=2).stderr
    assert version_of(out) == before
    return text


def version_of(out: str) -> int:
    try:
        return ftfile.open(out).version()
    except FtfileError:
        return -1


def values(out: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ftfile.open(out).to_arrow().to_pylist()
    return rows


class TestZones:
    @pytest.mark.parametrize("file_format", ["parquet", "orc", "json", "csv"])
    @pytest.mark.parametrize(("name", "rows"), [("a.json", [{"t": "{}"}]), ("a.csv", ["t", "{}"])])
    def test_times_without_a_zone_are_in_the_zone_of_the_directory(
        self, file_format: str, name: str, rows: list[Any], out: str, tmp_path: Path
    ) -> None:
        schema = pa.schema([("t", INSTANT)])
        null = {"null_value": "-"} if file_format == "csv" else {}
        directory(out, schema, time_zone="America/New_York", file_format=file_format, **null)
        for text in ("2024-07-01 12:00:00", "2024-07-01T12:00:00.000000000", "2024-07-01T18:00:00+02:00"):
            content = [
                json.dumps(row).replace("{}", text) if isinstance(row, dict) else row.format(text) for row in rows
            ]
            run("write", out, given(tmp_path / name, *content))
        assert {row["t"] for row in values(out)} == {dt.datetime(2024, 7, 1, 16, tzinfo=UTC)}

    def test_other_zones(self, out: str, tmp_path: Path) -> None:
        path = given(tmp_path / "a.json", {"t": "2024-07-01T12:00:00"})
        run("write", out, path, "--schema", "t timestamp", "-o", "timeZone=America/New_York")
        run("write", out, path)
        assert [row["t"].hour for row in values(out)] == [16, 16]
        run("write", f"{out}-utc", path, "--schema", "t timestamp")
        assert [row["t"].hour for row in values(f"{out}-utc")] == [12]
        assert "timeZone='Mars/X' is not understood" in refused(out, path, "-o", "timeZone=Mars/X")

    @pytest.mark.parametrize("name", NESTED)
    def test_local_times_with_a_zone_are_refused(self, name: str, out: str, tmp_path: Path) -> None:
        directory(out, pa.schema([(name, NESTED[name](CLOCK))]))
        for zone in ("+02:00", "Z", "+0200", "-05"):
            text = f"2024-07-01T12:00:00{zone}"
            value = {"a": text, "l": [None, text], "s": {"x.y": text}, "m": {"k": text}}[name]
            error = refused(out, given(tmp_path / "a.json", {name: None}, "", {name: value}))
            assert (
                f"'{tmp_path}/a.json', line 3, cannot be read as json: column `{name}`: '{text}' has a time zone"
                in error
            )
        assert not values(out)

    @pytest.mark.parametrize("name", NESTED)
    def test_nested_times_without_a_zone(self, name: str, out: str, tmp_path: Path) -> None:
        directory(out, pa.schema([(name, NESTED[name](INSTANT))]), time_zone="America/New_York")
        text, instant = "2024-01-01T12:00:00", dt.datetime(2024, 1, 1, 17, tzinfo=UTC)
        row = {"a": text, "l": [None, text], "s": {"x.y": text}, "m": {"k": text}}
        read = {"a": instant, "l": [None, instant], "s": {"x.y": instant}, "m": [("k", instant)]}
        run("write", out, given(tmp_path / "a.json", {name: row[name]}, {name: None}))
        assert values(out) == [{name: read[name]}, {name: None}]

    def test_csv_with_a_bad_time_names_its_row(self, out: str, tmp_path: Path) -> None:
        path = given(tmp_path / "a.csv", "t,n", *["2024-07-01 12:00:00,1"] * 5, "noon,1")
        assert "column `t`, Row #7: " in refused(out, path, "--schema", "t timestamp")


class TestLosses:
    @pytest.mark.parametrize(
        ("kind", "value", "problem"),
        [
            ("timestamp", "2024-07-01T12:00:00.123456789Z", "has nanoseconds: round it to microseconds"),
            ("timestamp", "2024-07-01T12:00:00.1234567", "has nanoseconds: round it to microseconds"),
            ("timestamp_ntz", "2024-07-01T12:00:00.1234567", "has nanoseconds: round it to microseconds"),
            ("date", "2024-07-01T12:00:00", "2024-07-01T12:00:00"),
            ("time(6)", "12:00:01.1234567", "12:00:01.1234567"),
            ("decimal(9,2)", 1.555, "1.555 has more digits after the point"),
            ("decimal(9,2)", "1.5550001", "1.5550001 has more digits after the point"),
            ("decimal(9,2)", 15e-10, "has more digits after the point"),
            ("string", "\ud800", "half of a surrogate pair"),
            ("long", 1.5, "1.5"),
            ("long", "x", "is no int64"),
        ],
    )
    def test_values_that_would_lose_a_part(
        self, kind: str, value: Any, problem: str, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In the first block and in a later block."""
        monkeypatch.setattr(json_files, "BLOCK_BYTES", 100)
        for first in (0, 20):
            path = given(tmp_path / "a.json", *[{"v": None, "other": 1}] * first, {"v": value, "other": 1})
            error = refused(out, path, "--schema", f"v {kind}")
            assert f", line {first + 1}, cannot be read as json: column `v`: " in error
            assert problem in error

    @pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "time(6)"])
    @pytest.mark.parametrize("name", ["a.csv", "a.json"])
    def test_times_with_zeros_after_the_microseconds(self, name: str, kind: str, out: str, tmp_path: Path) -> None:
        def file(*texts: str) -> Path:
            day = "" if kind == "time(6)" else "2024-07-01 "
            texts = tuple(day + text for text in texts)
            rows = [{"v": text} for text in texts] if name == "a.json" else ["v", *texts]
            return given(tmp_path / name, *rows)

        texts = ["12:00:00.123456", "12:00:00.1234560", "12:00:00.123456000", "12:00:00.123456000000"]
        run("write", out, file("12:00:00", *texts), "--schema", f"v {kind}")
        read = [row["v"] for row in values(out)]
        assert [value.microsecond for value in read] == [0, *[123456] * 4]
        for text in ("12:00:00.1234561", "12:00:00.1234560001"):
            assert f"{text}' has nanoseconds: round it to microseconds" in refused(out, file(*texts, text))

    def test_derived_times_with_zeros_after_the_microseconds(self, out: str, tmp_path: Path) -> None:
        run("write", out, given(tmp_path / "a.csv", "t", "2024-07-01 12:00:00.1234560"))
        run("write", out, given(tmp_path / "a.csv", "t", *["2024-07-01 12:00:00"] * 3, "2024-07-01 12:00:00.1234560"))
        assert [row["t"].microsecond for row in values(out)] == [123456, 0, 0, 0, 123456]

    @pytest.mark.parametrize("name", ["a.csv", "a.json"])
    def test_times_of_day(self, name: str, out: str, tmp_path: Path) -> None:
        def file(text: str) -> Path:
            return given(tmp_path / name, *([{"v": text}] if name == "a.json" else ["v", text]))

        run("write", out, file(" 12:30 "), "--schema", "v time(6)")
        assert values(out) == [{"v": dt.time(12, 30)}]
        for text in ("12", "24:00:00", "noon"):
            assert "column `v`" in refused(out, file(text))

    def test_decimals_with_zeros(self, out: str, tmp_path: Path) -> None:
        path = given(tmp_path / "a.json", '{"v":1.500}', '{"v":"1.5"}', '{"v":15e-1}', '{"v":-0.00}', '{"v":null}')
        run("write", out, path, "--schema", "v decimal(9,2)")
        assert [str(row["v"]) for row in values(out)] == ["1.50", "1.50", "1.50", "0.00", "None"]


class TestMembers:
    @pytest.mark.parametrize(
        ("line", "problem"),
        [
            ('{"id":1,"id":2}', "column `id` occurs twice"),
            ('{"id":1,"\\u0069d":2}', "column `id` occurs twice"),
            ('{"id" : 1, "id"\t: 2}', "column `id` occurs twice"),
            ('{"id":null,"id":2}', "column `id` occurs twice"),
            ('{"s":{"b":1,"b":2}}', "column `s.b` occurs twice"),
            ('{"s":{"b":1,"c":2}}', "has no field `s.c`"),
            ('{"s" : {"b" : 1, "c" : 2}}', "has no field `s.c`"),
            ('{"l":[{"b":1},{"b":2,"c":3}]}', "has no field `l.element.c`"),
            ('{"m":{"k":1,"k":2}}', "column `m.k` occurs twice"),
            ('{"m":{"k":1},"z":1}', "column `z` is not among"),
            ('{"z":1}', "column `z` is not among"),
            ('{"id":1,"z":"a\\":1"}', "column `z` is not among"),
            ('[{"id":1}]', "it begins with an array"),
            (" [1]", "it begins with an array"),
            ("null", "it is not an object"),
            ("7", "it is not an object"),
            ('{"id":1} {"id":2}', "it is not JSON"),
            ('{"id":', "it is not JSON"),
            ("x", "it is not an object"),
        ],
    )
    def test_members_that_would_be_lost_in_any_block(
        self, line: str, problem: str, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(json_files, "BLOCK_BYTES", 200)
        b = pa.struct([("b", pa.int64())])
        schema = pa.schema([("id", pa.int64()), ("s", b), ("l", pa.list_(b)), ("m", pa.map_(pa.string(), pa.int64()))])
        directory(out, schema)
        first = given(tmp_path / "first.json", {"id": 0})
        for before in (0, 50):
            path = given(tmp_path / "a.json", *[{"id": 1, "s": {"b": 1}}] * before, line)
            error = run("write", out, first, path, code=2).stderr
            assert f"'{path}', line {before + 1}, cannot be read as json: " in error
            assert problem in error

    @pytest.mark.parametrize(
        "line", ["null", "[1]", "7", '{"id":1,"id":2}', '{"id":{"a":1,"a":2}}', '{"id":"\\ud800"}']
    )
    def test_the_first_lines_of_a_new_directory(self, line: str, out: str, tmp_path: Path) -> None:
        assert ", line 1, cannot be read as json" in refused(out, given(tmp_path / "a.json", line))
        assert ", line 3, cannot be read as json" in refused(out, given(tmp_path / "a.json", "", "{}", line))

    def test_invalid_utf_8(self, out: str, tmp_path: Path) -> None:
        path = tmp_path / "a.json"
        path.write_bytes(b'{"a":"x"}\n\n{"a":"\xff"}\n')
        assert ", line 3, cannot be read as json: it has bytes that are not UTF-8" in refused(out, path)

    @pytest.mark.parametrize("space", ["", " ", "\t", " \t "])
    def test_unknown_members_behind_spaces(self, space: str, out: str, tmp_path: Path) -> None:
        """In a directory without maps, whose lines are not all checked one by one."""
        directory(out, pa.schema([("id", pa.int64())]))
        first = given(tmp_path / "first.json", {"id": 1})
        for line in ('{"id"S:S1,"z"S:S2}', '{"id"S:S1,"id"S:S1}', '{"id"S:Snull,"z"S:S2}'):
            path = given(tmp_path / "a.json", {"id": 1}, line.replace("S", space))
            error = run("write", out, first, path, code=2).stderr
            assert f"'{path}', line 2, cannot be read as json: column `" in error

    @pytest.mark.parametrize(
        "line",
        [
            '{"id":null,"id":2}',
            '{"id":2,"id":null}',
            '{"id":null,"id":null}',
            '{"s":{"b":null,"b":1}}',
            '{"l":[null,{"b":null, "b":1}]}',
        ],
    )
    def test_members_that_are_repeated_with_a_null(self, line: str, out: str, tmp_path: Path) -> None:
        b = pa.struct([("b", pa.int64())])
        directory(out, pa.schema([("id", pa.int64()), ("s", b), ("l", pa.list_(b))]))
        first = given(tmp_path / "first.json", {"id": 1, "s": None})
        path = given(tmp_path / "a.json", {"id": None, "l": [None, {"b": None}]}, line)
        assert "occurs twice" in run("write", out, first, path, code=2).stderr
        run("write", out, first)

    def test_texts_that_look_like_members(self, out: str, tmp_path: Path) -> None:
        rows = [{"a": 'x":1,"b":null', "b": None}, {"a": '":null', "b": {"c": [{"d": '"":'}, None, {}]}}, {}]
        run("write", out, given(tmp_path / "a.json", *rows))
        assert values(out)[1] == {"a": '":null', "b": {"c": [{"d": '"":'}, None, {"d": None}]}}

    def test_columns_with_the_names_of_other_things(self, out: str, tmp_path: Path) -> None:
        run("write", out, given(tmp_path / "a.json", {"_corrupt_record": "x", "": 1, "a.b": 2}))
        assert values(out) == [{"_corrupt_record": "x", "": 1, "a.b": 2}]

    def test_numbers_in_columns_of_texts_as_spark_reads_them(self, out: str, tmp_path: Path) -> None:
        run(
            "write",
            out,
            given(tmp_path / "a.json", '{"a":7.50,"b":1}', '{"a":{"x":[1]},"b":2}'),
            "--schema",
            "a string",
        )
        assert [row["a"] for row in values(out)] == ["7.50", '{"x":[1]}']

    def test_maps(self, out: str, tmp_path: Path) -> None:
        directory(out, pa.schema([("m", pa.map_(pa.string(), pa.int64()))]))
        run("write", out, given(tmp_path / "a.json", {"m": {"a": 1, "b": None}}, {"m": {}}, {"m": None}))
        assert values(out) == [{"m": [("a", 1), ("b", None)]}, {"m": []}, {"m": None}]
        numbers = directory(f"{out}-numbers", pa.schema([("m", pa.map_(pa.int64(), pa.int64()))]))
        assert "is not read from JSON" in refused(numbers, tmp_path / "a.json")
