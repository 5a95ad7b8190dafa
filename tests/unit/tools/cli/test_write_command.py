"""The command `write`: files of other programs in one commit, compared with other readers of the visible files."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import shlex
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import fastavro
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import feather, orc

import ftfile
from ftfile.core.errors import FtfileError
from ftfile.log.format import layout
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import StoreBatch
from ftfile.tools.cli.write_commands import InputFormat
from ftfile.tools.load import csv_files, file_rows, json_files, write_files
from ftfile.tools.load.input_files import FORMATS
from tests.unit.tools.cli.running import COMMAND, ENVIRONMENT, documents, run

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = [{"id": 1, "name": "007", "day": "a"}, {"id": 2, "name": None, "day": "b"}, {"id": 3, "name": "x,y", "day": "a"}]
TABLE = pa.Table.from_pylist(ROWS)
CSV = 'id,name,day\n1,"007",a\n2,,b\n3,"x,y",a\n'
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
NAMES = ("--schema", "name string")


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def write_stream(path: Path) -> None:
    with pa.ipc.new_stream(path, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=2)


def write_avro(path: Path) -> None:
    kinds = {"id": "long", "name": "string", "day": "string"}
    fields = [{"name": name, "type": ["null", kinds[name]]} for name in TABLE.column_names]
    with path.open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, TABLE.to_pylist(), codec="deflate")


KINDS: dict[str, Callable[[Path], object]] = {
    "a.parquet": lambda path: pq.write_table(TABLE, path, row_group_size=2),
    "a.orc": lambda path: orc.write_table(TABLE, path, compression="zstd"),
    "a.avro": write_avro,
    "a.csv": lambda path: path.write_text(CSV),
    "a.CSV.gz": lambda path: path.write_bytes(gzip.compress(CSV.encode())),
    "a.json": lambda path: path.write_text(LINES),
    "a.jsonl": lambda path: path.write_text("\ufeff\n" + LINES.rstrip("\n").replace("\n", "\r\n")),
    "a.ndjson.zst": lambda path: path.write_bytes(pa.compress(LINES.encode(), "zstd", asbytes=True)),
    "a.feather": lambda path: feather.write_feather(TABLE, path, compression="lz4"),
    "a.arrow": write_stream,
    "a.arrows": write_stream,
}


def given(path: Path, content: str | bytes = CSV) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def visible(out: str, ending: str = "parquet") -> list[Path]:
    return sorted(path for path in Path(out).rglob(f"*.{ending}") if "_ftfile" not in path.parts)


def rows_of(out: str) -> list[dict[str, Any]]:
    """Return the rows as pyarrow reads the visible files."""
    table = ds.dataset(visible(out), partitioning=ds.partitioning(flavor="hive"), format="parquet").to_table()
    return sorted(table.select(["id", "name", "day"]).to_pylist(), key=lambda row: int(row["id"]))


def refused(out: str, *arguments: object, code: int = 2) -> str:
    """Return the error of a command that must not create a version."""
    before = version_of(out)
    text = run("write", out, *arguments, code=code).stderr
    assert version_of(out) == before
    assert not [*Path(out).rglob("*.staged")]
    return text


def version_of(out: str) -> int:
    try:
        return ftfile.open(out).version()
    except FtfileError:
        return -1


class TestKinds:
    @pytest.mark.parametrize("name", KINDS)
    def test_files_of_each_kind(self, name: str, out: str, tmp_path: Path) -> None:
        path = tmp_path / name
        KINDS[name](path)
        types = NAMES if "csv" in name.lower() else ()
        result = run("write", out, path, *types)
        assert result.stdout == "Wrote 3 rows in 1 file, as version 0\n"
        assert result.stderr == ""
        assert rows_of(out) == ROWS
        check_directory(open_filesystem(out))

    def test_files_of_all_kinds_are_one_commit(self, out: str, tmp_path: Path) -> None:
        for name, write in KINDS.items():
            write(tmp_path / name)
        (report,) = documents("write", out, *(tmp_path / name for name in KINDS), "--partition-by", "day")
        assert report == {
            "version": 0,
            "rows": 3 * len(KINDS),
            "files": 2,
            "rows_read": 3 * len(KINDS),
            "already_committed": False,
        }
        assert rows_of(out) == [row for row in ROWS for _ in KINDS]

    @pytest.mark.parametrize("name", ["a.parquet", "a.orc", "a.avro", "a.feather", "a.arrows"])
    def test_columnar_stdin_is_recognised(self, name: str, out: str, tmp_path: Path) -> None:
        KINDS[name](tmp_path / name)
        written = subprocess.run(
            [*COMMAND, "write", out, "-"],
            input=(tmp_path / name).read_bytes(),
            env=ENVIRONMENT,
            capture_output=True,
            check=True,
        )
        assert written.stdout == b"Wrote 3 rows in 1 file, as version 0\n"
        assert rows_of(out) == ROWS

    def test_from_names_each_format(self) -> None:
        assert get_args(InputFormat) == FORMATS

    def test_text_from_stdin(self, out: str) -> None:
        run("write", out, "-", "--from", "csv", *NAMES, answer=CSV)
        run("write", out, "-", "--from", "json", answer=LINES)
        assert rows_of(out) == [row for row in ROWS for _ in range(2)]

    def test_hexadecimal_and_too_large_numbers_stay_texts(self, out: str, tmp_path: Path) -> None:
        """In columns without given types: pyarrow would derive the numbers 16 and infinity."""
        rows = "a,b,c,d,e,f\n1,1,1,inf, 0 , 1.5\n0x10,1e400,-1e400,-Infinity,,nan\n"
        run("write", out, given(tmp_path / "a.csv", rows))
        types = {field.name: str(field.type) for field in pq.read_table(visible(out)[0]).schema}
        assert types == {"a": "string", "b": "string", "c": "string", "d": "double", "e": "int64", "f": "double"}
        assert pq.read_table(visible(out)[0]).column("b").to_pylist() == ["1", "1e400"]
        run("write", f"{out}2", tmp_path / "a.csv", "--schema", "a long, b double")
        assert pq.read_table(visible(f"{out}2")[0]).column("a").to_pylist() == [1, 16]

    def test_a_pipe_has_no_name_that_shows_its_format(self, out: str, tmp_path: Path) -> None:
        path = tmp_path / "pipe"
        os.mkfifo(path)
        assert "--from" in refused(out, path)
        KINDS["a.parquet"](tmp_path / "a.parquet")
        with subprocess.Popen(["cp", tmp_path / "a.parquet", path]):
            run("write", out, path, "--from", "parquet")
        assert rows_of(out) == ROWS


class TestExistingDirectory:
    def test_types_and_options_are_those_of_the_directory(self, out: str, tmp_path: Path) -> None:
        table = pa.table({"name": ["001"], "id": pa.array([1], pa.int16()), "day": ["a"]})
        ftfile.write(out, table, file_format="csv", header=True, sep=";", compression="gzip", partition_by=["day"])
        run("write", out, given(tmp_path / "more.csv"))
        assert ftfile.open(out).to_arrow().schema.equals(table.schema)
        rows = []
        for path in visible(out, "csv.gz"):
            day = path.parent.name.removeprefix("day=")
            for row in csv.DictReader(io.StringIO(gzip.decompress(path.read_bytes()).decode()), delimiter=";"):
                rows.append((row["name"], row["id"], day))
        assert sorted(rows) == [("", "2", "b"), ("001", "1", "a"), ("007", "1", "a"), ("x,y", "3", "a")]

    def test_given_options_are_preferred(self, out: str, tmp_path: Path) -> None:
        path = given(tmp_path / "a.jsonl", LINES)
        run("write", out, path, "--format", "json", "-o", "compression=gzip", "--partition-by", "day")
        run("write", out, path, "-o", "compression=zstd")
        assert [len(visible(out, f"json.{ending}")) for ending in ("gz", "zst")] == [2, 2]
        run("write", out, path, "--mode", "overwrite", "--format", "parquet", "--partition-by", "")
        assert [row["name"] for row in pq.read_table(visible(out)[0]).to_pylist()] == ["007", None, "x,y"]

    @pytest.mark.parametrize(
        "options", [{"file_format": "json", "encryption": "aes-gcm", "compression": "zstd"}, {"encryption": "parquet"}]
    )
    def test_an_encrypted_directory_stays_encrypted(
        self, options: dict[str, Any], out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        encryption: Any = pytest.importorskip("pyarrow.parquet.encryption")
        if not hasattr(encryption.EncryptionConfiguration, "uniform_encryption"):
            pytest.skip("this pyarrow cannot encrypt all of a file")
        monkeypatch.setenv("FTFILE_KEYS", "one " + "A" * 43 + "=\ntwo " + "B" * 43 + "=\n")
        ftfile.write(out, TABLE, key_provider="env:FTFILE_KEYS", encryption_key_id="two", **options)
        path = given(tmp_path / "a.csv")
        assert "keyProvider" in refused(out, path)
        run("write", out, path, "--key-provider", "env:FTFILE_KEYS")
        assert ftfile.open(out).to_arrow().num_rows == 6
        visible_files = [path for path in Path(out).rglob("part-*") if path.is_file()]
        assert len(visible_files) == 2
        assert not [path for path in visible_files if b"007" in path.read_bytes()]

    def test_modes(self, out: str, tmp_path: Path) -> None:
        run("write", out, given(tmp_path / "a.csv"), "--partition-by", "day", *NAMES)
        only_b = given(tmp_path / "b.csv", "day,id,name\nb,7,new\n")
        run("write", out, only_b, "--mode", "dynamic")
        assert [row["id"] for row in rows_of(out)] == [1, 3, 7]
        run("write", out, only_b, "--mode", "overwrite", "--replace-where", "day = 'b'")
        assert [row["id"] for row in rows_of(out)] == [1, 3, 7]
        run("write", out, only_b, "--mode", "overwrite")
        assert rows_of(out) == [{"id": 7, "name": "new", "day": "b"}]

    def test_an_identity_is_committed_once(self, out: str, tmp_path: Path) -> None:
        arguments = ("write", out, given(tmp_path / "a.csv"), "--app-id", "nightly", "--version", "7", *NAMES)
        assert run(*arguments).stdout == "Wrote 3 rows in 1 file, as version 0\n"
        assert run(*arguments).stdout == "Already committed: nothing was written. The newest version is 0\n"
        assert documents(*arguments)[0]["already_committed"] is True
        assert rows_of(out) == ROWS

    def test_times_and_binary_values_of_text(self, out: str, tmp_path: Path) -> None:
        row = {"d": "2024-07-01", "t": "12:00:01.5", "at": "2024-07-01T12:00:00.5Z", "b": "AAEC", "n": "1.50"}
        columns = ("--schema", "d date, t time(6), at timestamp, b binary, n decimal(9,2)")
        run("write", out, given(tmp_path / "a.jsonl", json.dumps(row)), *columns)
        run("write", out, given(tmp_path / "a.csv", ",".join(row) + "\n" + ",".join(row.values()) + "\n"))
        first, second = ds.dataset(visible(out), format="parquet").to_table().to_pylist()
        assert first == second
        assert (str(first["d"]), str(first["t"]), first["b"], str(first["n"])) == (
            "2024-07-01",
            "12:00:01.500000",
            b"\0\1\2",
            "1.50",
        )
        assert first["at"].isoformat() == "2024-07-01T12:00:00.500000+00:00"

    @pytest.mark.parametrize("kind", ["double", "float"])
    def test_json_of_the_sink_with_all_numbers(self, kind: str, out: str, tmp_path: Path) -> None:
        """In columns of numbers by the first rows, by `--schema`, and by the directory; `cat` writes the same lines."""
        numbers = [1.5, None, float("nan"), float("inf"), float("-inf"), -0.0]
        texts = ["NaN", "Infinity", '"n":"NaN"', None, "x", "-Infinity"]
        schema = pa.schema([("n", pa.float64() if kind == "double" else pa.float32()), ("name", pa.string())])
        ftfile.write(out, pa.table([pa.array(numbers, schema[0].type), texts], schema), file_format="json")
        (lines,) = visible(out, "json")
        assert b'"NaN"' in lines.read_bytes()
        expected = sorted(map(repr, zip(numbers, texts, strict=True)))
        derived, given_type = f"{out}-derived", f"{out}-given"
        run("write", derived, lines)
        run("write", given_type, lines, "--schema", f"n {kind}")
        run("write", given_type, given(tmp_path / "more.json", '{"n":"NaN","name":"NaN"}\n'))
        run("write", out, "-", "--from", "json", "--mode", "overwrite", answer=run("cat", out, "--json").stdout)
        more = [repr((float("nan"), "NaN"))]
        for path, rows in ((out, expected), (derived, expected), (given_type, sorted(expected + more))):
            table = ftfile.open(path).to_arrow()
            assert sorted(repr((row["n"], row["name"])) for row in table.to_pylist()) == rows
        assert ftfile.open(given_type).to_arrow().schema.equals(schema)

    def test_csv_of_the_sink_with_doubled_quotes(self, out: str, tmp_path: Path) -> None:
        texts = ['an "x"', "x\\", "a\nb", None, "", '\\"q', ","]
        table = pa.table({"t": texts, "id": range(len(texts))})
        ftfile.write(tmp_path / "csv", table, file_format="csv", header=True, escape='"')
        run("write", out, *visible(str(tmp_path / "csv"), "csv"))
        assert pq.read_table(visible(out)[0]).equals(table)

    def test_a_store_is_no_directory(self, out: str, tmp_path: Path) -> None:
        StoreBatch(out, {"id": "long", "name": "string"}, {"keyColumns": "id"}).run(0, [[{"id": 1, "name": "a"}]])
        assert "store" in refused(out, given(tmp_path / "a.csv"))

    def test_a_lost_log_is_not_begun_again(self, out: str, tmp_path: Path) -> None:
        path = given(tmp_path / "a.csv")
        run("write", out, path)
        for record in Path(out, layout.LOG).iterdir():
            record.unlink()
        assert "ftfile repair" in run("write", out, path, code=4).stderr
        assert not [*Path(out, layout.LOG).iterdir()]


class TestRefused:
    def test_missing_unreadable_and_unknown_files(self, out: str, tmp_path: Path) -> None:
        good = given(tmp_path / "a.csv")
        assert f"'{tmp_path}/b.csv': there is no such file" in refused(out, good, tmp_path / "b.csv")
        assert "is a directory" in refused(out, good, tmp_path)
        assert "give --from" in refused(out, given(tmp_path / "a.txt"))
        assert "give --from" in refused(out, "-")
        assert "given twice" in refused(out, "-", "-", "--from", "csv")
        assert "decompress it first" in refused(out, given(tmp_path / "a.parquet.gz"))
        assert not Path(out).exists()

    @pytest.mark.parametrize("name", [*KINDS, "a.csv.gz"])
    def test_empty_files(self, name: str, out: str, tmp_path: Path) -> None:
        assert f"'{tmp_path}/{name}' cannot be read as" in refused(out, given(tmp_path / name, b""))

    @pytest.mark.parametrize(
        "name", ["a.parquet", "a.orc", "a.avro", "a.CSV.gz", "a.ndjson.zst", "a.arrows", "a.feather"]
    )
    def test_truncated_files(self, name: str, out: str, tmp_path: Path) -> None:
        KINDS[name](tmp_path / name)
        given(tmp_path / name, (tmp_path / name).read_bytes()[:-12])
        assert f"'{tmp_path}/{name}' cannot be read as" in refused(out, given(tmp_path / "b.csv"), tmp_path / name)

    def test_an_open_quote(self, out: str, tmp_path: Path) -> None:
        path = given(tmp_path / "a.csv", 'id,name\n1,"x\n2,y\n3,z\n')
        error = refused(out, path)
        assert f"'{path}' cannot be read as csv: the quote of its last value is not closed" in error
        assert "not closed" in run("write", out, "-", "--from", "csv", answer=path.read_text(), code=2).stderr

    def test_files_without_rows(self, out: str, tmp_path: Path) -> None:
        run("write", out, given(tmp_path / "a.csv"), *NAMES)
        for name, content in (("b.csv", "id,name,day\n"), ("c.csv", "id,name,day"), ("b.json", "\n\n")):
            assert "Wrote 0 rows in 0 files" in run("write", out, given(tmp_path / name, content)).stdout
        assert "--schema 'id string'" in refused(f"{out}2", tmp_path / "b.csv")

    @pytest.mark.parametrize(
        ("first", "name", "content", "problem"),
        [
            ("a.parquet", "b.csv", "id,day\n1,a\n", "column `name` is missing"),
            ("a.csv", "b.csv", "id,name,day,more\n1,a,b,c\n", "column `more` is not in"),
            ("a.csv", "b.csv", "id,name,day\nx,a,b\n", "column `id`, Row #2: CSV conversion error to int64"),
            ("a.csv", "b.csv", "id,id\n1,2\n", "column `id` occurs twice"),
            ("a.json", "b.jsonl", '{"id":1,"more":2}\n', ", line 1, cannot be read as json: column `more` is not"),
            ("a.json", "b.jsonl", '{"id":1}\n\n[2]\n', ", line 3, cannot be read as json"),
            ("a.json", "b.jsonl", '{"id":"x"}\n', ', line 1, cannot be read as json: column `id`: "x" is no int64'),
        ],
    )
    def test_other_columns(self, first: str, name: str, content: str, problem: str, out: str, tmp_path: Path) -> None:
        KINDS[first](tmp_path / first)
        error = refused(out, tmp_path / first, given(tmp_path / name, content), "--schema", "id long, name string")
        assert f"'{tmp_path}/{name}'" in error
        assert problem in error

    def test_a_column_of_the_schema_that_the_file_lacks(self, out: str, tmp_path: Path) -> None:
        path = given(tmp_path / "a.csv", "zip,day\n007,a\n")
        error = refused(out, path, "--schema", "zipp string")
        assert f"'{path}': column `zipp` is in the given schema, but not in the file. Nothing was written" in error

    @pytest.mark.parametrize("name", ["a.parquet", "a.feather", "a.arrows"])
    def test_a_schema_for_files_with_types(self, name: str, out: str, tmp_path: Path) -> None:
        KINDS[name](tmp_path / name)
        assert "contains the types of its columns" in refused(out, tmp_path / name, *NAMES)
        run("write", out, tmp_path / name, given(tmp_path / "a.csv"), *NAMES)

    @pytest.mark.parametrize(
        ("value", "kind", "problem", "remedy"),
        [
            ("2020-01-01 00:00:00+01:00", "timestamp_ntz", "has a time zone: remove the zone", "timestamp"),
            ("2020-01-01 00:00:00.123456789", None, "has nanoseconds: round it to microseconds", "string"),
            ("2020-01-01 00:00:00.123456789Z", None, "has nanoseconds: round it to microseconds", "string"),
        ],
    )
    def test_timestamps(
        self, value: str, kind: str | None, problem: str, remedy: str, out: str, tmp_path: Path
    ) -> None:
        path = given(tmp_path / "a.csv", f"id,at\n1,{value}\n")
        schema = ("--schema", f"at {kind}") if kind else ()
        error = refused(out, path, *schema)
        other = f"--schema 'at {remedy}'"
        assert f"column `at`, Row #2: '{value}' {problem}, or use {other} for a new directory. Nothing" in error
        run("write", out, path, "--schema", f"at {remedy}")

    def test_a_column_that_occurs_twice(self, out: str, tmp_path: Path) -> None:
        assert "column `id` occurs twice" in refused(out, given(tmp_path / "a.csv", "id,id\n1,2\n"))

    def test_a_json_array(self, out: str, tmp_path: Path) -> None:
        for content in ('[{"id": 1}, {"id": 2}]\n', '[\n{"id": 1},\n{"id": 2}\n]\n'):
            error = refused(out, given(tmp_path / "a.json", content))
            assert ", line 1, cannot be read as json: it begins with an array: write each object on a line" in error

    def test_json_without_a_final_line_end(self, out: str, tmp_path: Path) -> None:
        run("write", out, given(tmp_path / "a.json", '{"n":1}\n{"n":1.5,"more":"x"}'))
        assert pq.read_table(visible(out)[0]).to_pylist() == [{"n": 1.0, "more": None}, {"n": 1.5, "more": "x"}]

    def test_a_late_field_of_a_struct(self, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(json_files, "BLOCK_BYTES", 100)
        lines = ['{"n":1,"s":{"a":[{"b":1}]}}'] * 10
        late = '{"n":2,"s":{"a":[{"b":1},null,{"c":"x","b":2}]}}'
        path = given(tmp_path / "a.json", "\n".join([*lines, late]))
        error = refused(out, path)
        assert f"'{path}', line 11, cannot be read as json: the type of column `s` has no field" in error
        assert "has no field `s.a.element.c`. If the first lines" in error
        assert "give the type of the column to --schema, as the JSON of a StructType. Nothing was written" in error
        fields = [{"name": "b", "type": "long"}, {"name": "c", "type": "string"}]
        elements = {"type": "array", "elementType": {"type": "struct", "fields": fields}}
        column = {"name": "s", "type": {"type": "struct", "fields": [{"name": "a", "type": elements}]}}
        run("write", out, path, "--schema", json.dumps({"type": "struct", "fields": [column]}))
        rows = ftfile.open(out).to_arrow().to_pylist()
        assert max(rows, key=lambda row: int(row["n"])) == {
            "n": 2,
            "s": {"a": [{"b": 1, "c": None}, None, {"b": 2, "c": "x"}]},
        }

    def test_other_types(self, out: str, tmp_path: Path) -> None:
        KINDS["a.parquet"](tmp_path / "a.parquet")
        pq.write_table(TABLE.set_column(0, "id", pa.array([1, 2, 3], pa.int32())), tmp_path / "b.parquet")
        error = refused(out, tmp_path / "a.parquet", tmp_path / "b.parquet")
        assert f"'{tmp_path}/b.parquet': column `id` is int32, but int64 in '{tmp_path}/a.parquet'" in error

    def test_columns_of_the_directory(self, out: str, tmp_path: Path) -> None:
        run("write", out, given(tmp_path / "a.csv"), *NAMES)
        wider = given(tmp_path / "b.csv", "id,name,day,n\n1,a,b,5\n")
        assert "n is new" in refused(out, wider)
        run("write", out, wider, "-o", "onSchemaChange=widen")
        assert "n is missing" in refused(out, tmp_path / "a.csv")

    def test_a_bad_line_of_a_later_block(self, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(json_files, "BLOCK_BYTES", 100)
        lines = [json.dumps({"id": number, "name": "x"}) for number in range(100)]
        path = given(tmp_path / "a.jsonl", "\n".join(lines))
        run("write", out, path)
        assert pq.read_table(visible(out)[0]).column("id").to_pylist() == [*range(100)]
        for bad, problem in (
            ('{"id": 1', "it is not JSON: Expecting"),
            ('{"id": 1, "z": 2}', "column `z` is not among"),
        ):
            lines[76] = bad
            error = refused(out, given(path, "\n".join(lines)))
            assert f"'{path}', line 77, cannot be read as json" in error
            assert problem in error

    def test_a_bad_row_of_a_later_block(self, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(csv_files, "BLOCK_BYTES", 100)
        rows = ["id,name", *(f'{number},"a\nb"' for number in range(100))]
        path = given(tmp_path / "a.csv", "\n".join(rows))
        run("write", out, path)
        assert pq.read_table(visible(out)[0]).column("id").to_pylist() == [*range(100)]
        rows[77] = "1.5,x"
        assert "column `id`, Row #78: CSV conversion error" in refused(out, given(path, "\n".join(rows)))
        rows[77] = "1," + "x" * 300
        assert "a row has more than 100 bytes" in refused(out, given(path, "\n".join(rows)))

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            (("-o", "compresion=zstd"), "Did you mean compression?"),
            (("-o", "compression"), "NAME=VALUE"),
            (("-o", "fileFormat=json", "--format", "csv"), "--format and --option both"),
            (("-o", "rolling=policy"), "rolling=policy"),
            (("--format", "xml"), "xml"),
            (("--mode", "replace"), "--mode"),
            (("--replace-where", "id = 1"), "only for --mode overwrite"),
            (("--app-id", "a"), "give both, or none"),
            (("--threads", "0"), "--threads"),
            (("--schema", "id map<string,long>"), "schema"),
            (("--at-least-version", "3"), "3"),
            (("--no-such",), "--no-such"),
        ],
    )
    def test_options(self, options: tuple[str, ...], problem: str, out: str, tmp_path: Path) -> None:
        code = 5 if "--at-least-version" in options else 2
        assert problem in refused(out, given(tmp_path / "a.csv"), *options, code=code)


@pytest.mark.slow
def test_ctrl_c_ends_the_read_of_a_pipe(out: str) -> None:
    """More rows than one thread writes, so that a thread waits for the next bytes of stdin."""
    command = [*COMMAND, "write", out, "-", "--from", "json"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"".join(b'{"id":%d}\n' % number for number in range(700_000)))
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr is not None
        assert b"interrupted. Nothing was written" in process.stderr.read()
    assert version_of(out) == -1
    assert visible(out) == []


def interrupted_after(owner: object, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Ctrl-C follow a call."""
    function = getattr(owner, name)

    def interrupted(*arguments: Any, **options: Any) -> None:
        function(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, name, interrupted)


@pytest.mark.parametrize(("owner", "name"), [(write_files, "input_files"), (file_rows, "_in_schema")])
def test_ctrl_c_before_the_last_row(
    owner: object, name: str, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted_after(owner, name, monkeypatch)
    error = run("write", out, given(tmp_path / "a.csv"), *NAMES, code=130).stderr
    assert error == "ftfile: interrupted. Nothing was written\n"
    assert version_of(out) == -1


def test_ctrl_c_after_the_commit(out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted_after(write_files, "write", monkeypatch)
    error = run("write", out, given(tmp_path / "a.csv"), *NAMES, code=130).stderr
    assert error == "ftfile: interrupted. All rows were written, or none: see ftfile history\n"
    assert rows_of(out) == ROWS


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_columns_without_a_type(out: str, tmp_path: Path, kind: str) -> None:
    """The type is the one of the directory, of `--schema` or of an earlier file; otherwise, the error names it."""
    path, typed = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"
    empty = pa.table({"id": [1], "x y": pa.nulls(1), "l": pa.array([[None]], pa.list_(pa.null()))})
    full = pa.table({"id": [2], "x y": ["a"], "l": [["b"]]})
    for each, table in ((path, empty), (typed, full)):
        if kind == "parquet":
            pq.write_table(table, each)
        else:
            feather.write_feather(table, each)
    error = run("write", out, path, code=2).stderr
    assert "column `x y` has the type null and no values, so its type in Spark is not known" in error
    assert "give it, as in --schema '`x y` string'" in error
    assert (
        "as in --schema with the JSON of a StructType"
        in run("write", out, path, "--schema", "`x y` string", code=2).stderr
    )
    schema = '{"type":"struct","fields":[{"name":"x y","type":"date"},{"name":"l","type":{"type":"array",'
    schema += '"elementType":"long","containsNull":true}}]}'
    run("write", out, path, "--schema", schema)
    assert ftfile.open(out).to_arrow().schema.field("x y").type == pa.date32()
    run("write", out, path)
    assert ftfile.open(out).count() == 2
    run("write", out + "2", typed, path)
    assert ftfile.open(out + "2").to_arrow()["x y"].to_pylist() == ["a", None]


def test_a_schema_that_differs_from_a_file(out: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    error = run("write", out, tmp_path / "a.parquet", "--schema", "id string", code=2).stderr
    assert "column `id` is int64 in the file, and string in --schema: the file contains the types" in error


@pytest.mark.parametrize("name", ["", "b c", "it's", "a`b", "x,y", "{", "(", "plain"])
@pytest.mark.parametrize("ending", ["csv", "json"])
def test_the_remedy_for_a_column_without_values_can_be_given(out: str, tmp_path: Path, name: str, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    if ending == "csv":
        given(path, f'a,"{name}"\n1,\n')
    else:
        given(path, json.dumps({"a": 1, name: None}) + "\n")
    error = run("write", out, path, code=2).stderr
    remedy = error.partition("as in ")[2].removesuffix(". Nothing was written\n")
    run("write", out, path, *shlex.split(remedy), "--format", "json")
    assert ftfile.open(out).to_arrow().schema.field(name).type == pa.string()


@pytest.mark.parametrize(
    ("number", "kind", "shown", "other"),
    [
        (2**70, "bigint", "BIGINT", "decimal(38,0)"),
        (-(2**63) - 1, "bigint", "BIGINT", "decimal(38,0)"),
        (10**38, "bigint", "BIGINT", "string"),
        (2**31, "int", "INT", "bigint"),
        (-129, "tinyint", "TINYINT", "bigint"),
    ],
)
def test_integers_that_are_too_large(out: str, tmp_path: Path, number: int, kind: str, shown: str, other: str) -> None:
    path = given(tmp_path / "a.json", f'{{"x y":1}}\n{{"x y":{number}}}\n')
    error = run("write", out, path, "--schema", f"`x y` {kind}", code=2).stderr
    assert f"line 2, cannot be read as json: column `x y`: {number} does not fit its type, {shown}: correct it" in error
    assert f"or use --schema '`x y` {other}' for a new directory" in error
    run("write", out, path, "--schema", f"`x y` {other}", "--format", "json")


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63)])
def test_the_largest_integers(out: str, tmp_path: Path, number: int) -> None:
    run("write", out, given(tmp_path / "a.json", f'{{"a":{number}}}\n'), "--schema", "a bigint")
    assert ftfile.open(out).to_arrow()["a"].to_pylist() == [number]


def test_nested_integers_that_are_too_large(out: str, tmp_path: Path) -> None:
    path = given(tmp_path / "a.json", '{"s":{"x":[1]}}\n')
    run("write", out, path)
    error = run("write", out, given(path, f'{{"s":{{"x":[{2**70}]}}}}\n'), code=2).stderr
    assert f"column `s.x.element`: {2**70} does not fit its type, BIGINT: correct it. Nothing" in error


@pytest.mark.parametrize("ending", ["arrow", "arrows"])
def test_wide_integers_of_polars(out: str, tmp_path: Path, ending: str) -> None:
    pl: Any = pytest.importorskip("polars")  # `make unit-pythons` installs `ftfile[unit]`, which lacks Polars
    frame = pl.DataFrame({"a": pl.Series([2**100], dtype=pl.Int128)})
    write_frame = frame.write_ipc if ending == "arrow" else frame.write_ipc_stream
    write_frame(tmp_path / f"a.{ending}")
    error = run("write", out, tmp_path / f"a.{ending}", code=2).stderr
    assert "a column has integers of 128 bits, such as the type Int128 of Polars" in error
    assert "pl.Decimal(38, 0)" in error
