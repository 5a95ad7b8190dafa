"""The commands `cat`, `head`, `tail` and `count`."""

from __future__ import annotations

import csv
import datetime
import io
import json
import os
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.json as arrow_json
import pytest

import ftfile
from ftfile.log.format import layout
from ftfile.testing.micro_batch import MicroBatch, StoreBatch
from ftfile.tools.cli import read_commands as reading
from ftfile.tools.cli.row_formats import RowPrinter
from tests.kit.parameters import parametrize
from tests.unit.tools.cli.conftest import rows
from tests.unit.tools.cli.running import documents, run
from tests.unit.writing.files.encrypted import forget_all, ring

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ("ring",)


class _Clock:
    """A clock whose sleeps run the steps of a test. The last sleep raises KeyboardInterrupt."""

    def __init__(self, steps: Sequence[Callable[[], object]]) -> None:
        self._steps = iter(steps)

    def now_ms(self) -> int:
        return 0

    def sleep(self, seconds: float) -> None:
        assert seconds == 2.5
        step = next(self._steps, None)
        if step is None:
            raise KeyboardInterrupt
        step()


@pytest.mark.slow
def test_cat(out: str) -> None:
    expected = ftfile.open(out).to_arrow().to_pylist()
    assert documents("cat", out) == expected
    found = arrow_csv.read_csv(io.BytesIO(run("cat", out).stdout_bytes)).to_pylist()
    assert [row["word"] for row in found] == [row["word"] for row in expected]
    assert [row["id"] for row in found] == [row["id"] for row in expected]
    table = run("cat", out, "--format", "table").stdout.splitlines()
    assert table[0] == "id\tmonth\tword"
    assert table[4] == "3\t7\t日本日本日本"


@pytest.mark.slow
def test_columns_conditions_and_versions(out: str) -> None:
    assert documents("cat", out, "--columns", "word, id", "--where", "month = '7' AND id > 20") == [
        {"word": "日本", "id": 21},
        {"word": "日本日本日本", "id": 23},
    ]
    assert len(documents("cat", out, "--version", 0)) == 4
    assert "did you mean 'word'" in run("cat", out, "--columns", "wrod", code=2).stderr
    assert "nope" in run("cat", out, "--where", "nope = 1", code=2).stderr
    output = run("cat", out, "--where", "{'id': 7}", code=2).stderr
    assert output.endswith("is not understood; it takes a text, such as \"month >= 7 AND city IN ('a', 'b')\"\n")


def test_strings_that_are_not_utf_8(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Strings that Spark writes may contain any bytes."""
    texts = pa.array([b"a", b"\xff", None], pa.binary()).view(pa.string())
    structs = pa.StructArray.from_arrays([texts], names=["x"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), texts)
    batch = pa.record_batch({"text": texts, "struct": structs, "list": lists, "blob": [b"\xff"] * 3})
    RowPrinter(batch.schema, "table", json=False).print([batch])
    assert capfdbinary.readouterr().out.decode().splitlines() == [
        "text\tstruct\tlist\tblob",
        'a\t{"x": "a"}\t["a"]\t/w==',
        '\\xff\t{"x": "\\\\xff"}\t["\\\\xff"]\t/w==',
        '\t{"x": null}\t[null]\t/w==',
    ]
    text = batch.select(["text"])
    RowPrinter(text.schema, "text", json=False).print([text])
    assert capfdbinary.readouterr().out == b"a\n\xff\n\n"


@pytest.mark.slow
def test_lines_of_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines are equal to the lines of the published files, byte for byte. A terminal shows escapes."""
    query = MicroBatch(str(tmp_path / "out"), {"line": "binary"}, {"fileFormat": "text"})
    batches: list[list[bytes | None]] = [[b'a,"b"', b"\xff\x1b[31m", None], ["日本".encode()]]
    for batch, values in enumerate(batches):
        query.run(batch, [[{"line": value} for value in values]])
    published = b"".join(Path(query.path, file.path).read_bytes() for file in ftfile.open(query.path).files())
    assert published == b'a,"b"\n\xff\x1b[31m\n\n\xe6\x97\xa5\xe6\x9c\xac\n'
    assert run("cat", query.path, "--format", "text").stdout_bytes == published
    assert run("head", query.path, "-n", 1, "--format", "text").stdout == 'a,"b"\n'
    monkeypatch.setattr("ftfile.tools.cli.row_formats.is_terminal", lambda: True)
    assert run("cat", query.path, "--format", "text").stdout == 'a,"b"\n\\xff\\x1b[31m\n\n日本\n'


@pytest.mark.slow
def test_text_is_one_column(out: str, store: str) -> None:
    assert run("cat", out, "--version", 0, "--columns", "word", "--format", "text").stdout == (
        "\n日本日本\n日本\n日本日本日本\n"
    )
    stderr = run("cat", out, "--format", "text", code=2).stderr
    assert "select one with --columns: month, word; or use table, json or csv" in stderr
    assert (
        "this version has no such column: use table, json or csv"
        in run("cat", out, "-c", "id", "--format", "text", code=2).stderr
    )
    assert run("kv", "scan", store, "--columns", "word", "--format", "text").stdout == "a\nb\n日本\n"


@pytest.mark.slow
def test_one_file(query: MicroBatch) -> None:
    """The rows are those of pyarrow, with the values of the path. The file may be replaced in a later version."""
    ftfile.compact(query.path)
    directory = ftfile.open(query.path)
    for version in (2, 3):
        for file in directory.files(version):
            at = Path(query.path, file.path if version == 3 else layout.retired_path(id_of(directory, file.path)))
            with pa.input_stream(str(at), compression="gzip") as stream:
                expected = [{**row, **file.partition} for row in arrow_json.read_json(stream).to_pylist()]
            assert documents("cat", f"{query.path}/{file.path}", "--version", version) == expected
            assert directory.to_arrow(version, file=file.path, columns=["id"]).to_pylist() == [
                {"id": row["id"]} for row in expected
            ]
    path = f"{query.path}/{directory.files()[0].path}"
    assert documents("head", path, "-n", 1, "--where", "id > 10", "--columns", "id") == [{"id": 12}]
    assert documents("cat", path, "--where", "month = '8'") == []


def id_of(directory: ftfile.Directory, path: str) -> str:
    ids: list[str] = [add.id for add in directory.snapshot(2).adds.values() if add.final_path == path]
    return ids[0]


@pytest.mark.slow
def test_one_file_that_is_none(query: MicroBatch) -> None:
    file = ftfile.open(query.path).files()[0].path
    stderr = run("cat", f"{query.path}/{file[:-9]}", code=2).stderr
    assert f"in version 2: did you mean {file!r}" in stderr
    later = ftfile.open(query.path).files()[-1].path
    assert "there is no finished file" in run("cat", f"{query.path}/{later}", "--version", 0, code=2).stderr
    assert "select rows with a condition" in run("cat", f"{query.path}/month=7", code=2).stderr
    assert "is not an ftfile directory" in run("cat", f"{query.path}x/month=7", code=2).stderr


@parametrize("where", [None, "month = '7'", "id >= 10 AND word != ''", "id < 0"], quick=1)
@pytest.mark.parametrize("version", [0, 2])
def test_count(out: str, where: str | None, version: int) -> None:
    """The count is equal to DuckDB's count of the published files."""
    files = [str(Path(out, file.path)) for file in ftfile.open(out).files(version)]
    sql = (
        f"SELECT count(*) FROM read_json({files!r}, hive_partitioning = true, hive_types = {{month: VARCHAR}}, "
        f"columns = {{id: 'BIGINT', word: 'VARCHAR'}}, format = 'newline_delimited') WHERE {where or 'true'}"
    )
    ((rows,),) = duckdb.sql(sql).fetchall()
    condition = () if where is None else ("--where", where)
    assert run("count", out, *condition, "--version", version).stdout == f"{rows}\n"
    assert documents("count", out, *condition, "--version", version) == [rows]
    assert ftfile.open(out).to_arrow(version, where=where).num_rows == rows


@pytest.mark.slow
def test_count_reads_no_file_where_the_log_knows(out: str) -> None:
    for file in ftfile.open(out).files():
        Path(out, file.path).unlink()
    assert run("count", out).stdout == "12\n"
    assert run("count", out, "--where", "month = '7'").stdout == "6\n"
    assert run("count", out, "--where", "id = 1", code=4).stdout == ""


@pytest.mark.slow
@pytest.mark.parametrize("names", ["", ",", " , "])
def test_columns_that_name_none(out: str, store: str, names: str) -> None:
    for command in (("cat", out), ("head", out), ("tail", out), ("kv", "scan", store), ("kv", "get", store, "a")):
        assert "--columns names no column" in run(*command, "--columns", names, code=2).stderr


@pytest.mark.slow
def test_a_version_of_a_time(query: MicroBatch) -> None:
    directory = ftfile.open(query.path)
    for version in range(3):
        set_times(Path(query.path, layout.record_path(version)), 1_719_835_200 + 60 * version)
    for command in ("cat", "head", "tail", "ls"):
        found = documents(command, query.path, "--timestamp", "2024-07-01T12:00:30Z")
        assert len(found) == (4 if command != "ls" else 2)
    assert directory.version_at("2024-07-01T12:01:30Z") == 1
    assert "give only one" in run("cat", query.path, "--version", 1, "--timestamp", "2024-07-01", code=2).stderr
    assert "is not an ISO 8601 time" in run("ls", query.path, "--timestamp", "yesterday", code=2).stderr


def set_times(path: Path, seconds: int) -> None:
    os.utime(path, (seconds, seconds))


@pytest.mark.slow
def test_head_reads_no_more_than_it_needs(out: str) -> None:
    assert documents("head", out, "-n", 3) == ftfile.open(out).to_arrow().slice(0, 3).to_pylist()
    assert documents("head", out, "-n", 0) == []
    assert run("head", out, "-n", 0).stdout == "id,month,word\n"
    for file in ftfile.open(out).files()[1:]:
        Path(out, file.path).unlink()
    assert len(documents("head", out, "-n", 2)) == 2


@pytest.mark.slow
def test_tail_reads_no_more_than_it_needs(out: str) -> None:
    expected = ftfile.open(out).to_arrow().to_pylist()
    for number in (0, 1, 3, 12, 99):
        assert documents("tail", out, "-n", number) == expected[len(expected) - min(number, 12) :]
    assert documents("tail", out, "-n", 1, "--version", 0) == expected[3:4]
    for file in ftfile.open(out).files()[:-1]:
        Path(out, file.path).unlink()
    assert documents("tail", out, "-n", 2) == expected[-2:]


@pytest.mark.slow
def test_tail_follows(query: MicroBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [
        lambda: query.run(3, [rows(3)]),
        lambda: None,
        lambda: ftfile.compact(query.path),
        lambda: query.run(4, [rows(4)]),
    ]
    monkeypatch.setattr(reading, "SystemClock", lambda: _Clock(steps))
    options = ("--interval", 2.5, "--where", "id >= 12", "--columns", "id")
    text = run("tail", "-f", query.path, "-n", 3, *options, "--json", code=130).stdout
    assert [json.loads(line)["id"] for line in text.splitlines()] == [20, 22, 21, 23, 30, 32, 31, 33, 40, 42, 41, 43][
        1:
    ]
    table = run("tail", "-f", query.path, "-n", 0, *options, code=130).stdout
    assert table == "id\n", "one heading"


def test_tail_follows_by_the_clocks_of_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = [datetime.datetime(2024, 7, 1, hour, tzinfo=datetime.timezone.utc) for hour in (2, 3, 4)]
    batch = [[{"id": time.hour, "at": time} for time in times]]
    options = {"fileFormat": "parquet", "timeZone": "Asia/Tokyo"}
    query = MicroBatch(str(tmp_path / "out"), {"id": "long", "at": "timestamp"}, options)
    query.run(0, batch)
    monkeypatch.setattr(reading, "SystemClock", lambda: _Clock([lambda: query.run(1, batch)]))
    where = "at = '2024-07-01 12:00:00' AND at > now()"  # the clock of the test begins in 1970
    options_of_tail = ("--interval", 2.5, "--where", where, "--columns", "id", "--json")
    text = run("tail", "-f", query.path, *options_of_tail, code=130).stdout
    assert [json.loads(line)["id"] for line in text.splitlines()] == [3, 3]


def test_values_of_all_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = {"type": "array", "elementType": "long", "containsNull": True}
    columns = {"a": array, "b": "binary", "t": "timestamp", "d": "decimal(10,2)", "s": "string"}
    query = MicroBatch(str(tmp_path / "out"), columns, {"fileFormat": "parquet"})
    time = datetime.datetime(2024, 7, 1, tzinfo=datetime.timezone.utc)
    row = {"a": [1, None], "b": b"\x00\xff", "t": time, "d": Decimal("1.50"), "s": "a\tb\n\x1b[31m"}
    query.run(0, [[row, dict.fromkeys(columns)]])
    first, second = documents("cat", query.path)
    assert first == {"a": [1, None], "b": "AP8=", "t": first["t"], "d": first["d"], "s": row["s"]}
    assert second == dict.fromkeys(columns)
    csv = run("cat", query.path).stdout
    assert '"[1, null]",AP8=,' in csv
    monkeypatch.setattr("ftfile.tools.cli.row_formats.is_terminal", lambda: True)
    shown = run("cat", query.path, "--format", "csv").stdout
    assert '"a\\tb\n\\x1b[31m"' in shown, "line ends are the only raw control characters"
    assert "\x1b" not in shown
    monkeypatch.undo()
    table = run("cat", query.path, "--format", "table").stdout
    assert table.splitlines()[1:] == [f"[1, null]\tAP8=\t{time}\t1.50\ta\\tb\\n\\x1b[31m", "\t\t\t\t"]


@pytest.mark.slow
def test_csv_that_standard_readers_read(tmp_path: Path) -> None:
    texts = [
        "plain",
        'a "quoted" word',
        "a,b",
        "a\nb",
        "a\r\nb",
        "a\\b",
        "\\",
        'a\\"b',
        '"',
        '\\"',
        "\t\x01\x1b[31m",
        "",
    ]
    query = MicroBatch(str(tmp_path / "out"), {'na"me': "string", "n": "long"}, {"fileFormat": "parquet"})
    query.run(0, [[{'na"me': text, "n": number} for number, text in enumerate(texts)]])
    store = StoreBatch(str(tmp_path / "store"), {"n": "long", "text": "string"}, {"keyColumns": "n"})
    store.run(0, [[{"n": number, "text": text} for number, text in enumerate(texts)]])
    for command in ("cat", "head", "tail"):
        printed = run(command, query.path, *(() if command == "cat" else ("-n", len(texts)))).stdout_bytes.decode()
        assert list(csv.reader(io.StringIO(printed, newline=""))) == [
            ['na"me', "n"],
            *([text, str(number)] for number, text in enumerate(texts)),
        ]
    printed = run("kv", "scan", store.path).stdout_bytes.decode()
    assert [text for _, text in csv.reader(io.StringIO(printed, newline=""))][1:] == texts


@pytest.mark.slow
def test_nothing_is_printed_before_rows_are_there(out: str) -> None:
    for file in ftfile.open(out).files():
        Path(out, file.path).unlink()
    for row_format in ("table", "json", "csv"):
        for command in ("cat", "head", "tail"):
            assert run(command, out, "--format", row_format, code=4).stdout == ""


@pytest.mark.slow
def test_an_encrypted_directory(tmp_path: Path, ring: Path) -> None:
    provider = f"file:{ring}"
    options = {"fileFormat": "json", "encryption": "aes-gcm", "encryptionKeyId": "first", "keyProvider": provider}
    query = MicroBatch(str(tmp_path / "out"), {"id": "long"}, options)
    for number in range(2):
        query.run(number, [[{"id": number}]])
    moved = ring.rename(tmp_path / "moved")
    forget_all()
    assert documents("cat", query.path, "--key-provider", f"file:{moved}") == [{"id": 0}, {"id": 1}]
    (path,) = Path(query.path).glob("part-0000000001-*")
    assert documents("cat", path, "--key-provider", f"file:{moved}") == [{"id": 1}]
    forget_all()
    assert str(ring) in run("cat", query.path, code=2).stderr
