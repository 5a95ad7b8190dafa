"""`ftfile write` and `ftfile migrate` of values and types with very many levels: an error, and no crash."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ftfile
from ftfile.core.errors import ConfigError, SchemaError
from tests.unit.tools.cli.running import COMMAND, ENVIRONMENT, run

if TYPE_CHECKING:
    from pathlib import Path

TOO_MANY = "column `c` has more than 32 levels"
SHAPES = {"arrays": ("[", "1", "]"), "objects": ('{"a":', "1", "}"), "both": ('[{"a":', "1", "}]")}


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def deep(levels: int, shape: str = "arrays") -> str:
    start, value, end = SHAPES[shape]
    count = levels // len(end)
    return start * count + value + end * count


def in_a_process(out: str, path: Path, *options: str) -> str:
    """Return the error of a command. A crash would end the tests."""
    command = [*COMMAND, "write", out, str(path), "--format", "parquet", *options]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr[-500:]
    return done.stderr


@pytest.mark.parametrize("shape", SHAPES)
def test_a_line_with_more_levels_than_spark_reads(out: str, tmp_path: Path, shape: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"id":1}}\n{{"id":2,"c":{deep(30_000, shape)}}}\n')
    assert "line 2, cannot be read as json: it has more than 1000 levels" in in_a_process(out, path)
    path.write_text(f'{{"c":{deep(1_200, shape)}}}\n')
    assert "line 1, cannot be read as json: it has more than 1000 levels" in run("write", out, path, code=2).stderr


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("levels", [34, 600])
def test_a_column_with_more_levels_than_a_type_can_have(out: str, tmp_path: Path, shape: str, levels: int) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"id":[1],"c":{deep(levels, shape)}}}\n')
    assert TOO_MANY in run("write", out, path, code=2).stderr
    # pyarrow refuses the line, since the type of `id` is given, so the other columns are derived without it.
    assert TOO_MANY in run("write", out, path, "--schema", "id string", code=2).stderr


def test_levels_in_a_text_column_are_text(out: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"c":{deep(800)}}}\n')
    run("write", out, path, "--schema", "c string", "--format", "json")
    assert ftfile.open(out).to_arrow()["c"].to_pylist() == [deep(800)]


def test_a_value_over_several_lines(out: str, tmp_path: Path) -> None:
    """Each line has few levels, but pyarrow continues a value on the next line."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"id":1}\n' + '{"c":[\n' * 30_000 + '{"c":1}' + "]}" * 30_000 + "\n")
    assert "line 2, cannot be read as json: it is not JSON" in in_a_process(out, path)


@pytest.mark.parametrize("end", ["\n", "\r\n", " \n", "\n\n \t\n"])
def test_ends_of_lines(out: str, tmp_path: Path, end: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(f'{{"id":1}}{end}{{"id":2}}{end}{{"id":3}}'.encode())
    run("write", out, path, "--format", "parquet")
    assert ftfile.open(out).count() == 3


@pytest.mark.parametrize("levels", [40, 300, 1_200])
def test_a_schema_with_many_levels(out: str, tmp_path: Path, levels: int) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"c":1}\n')
    kind = '{"type":"array","containsNull":true,"elementType":' * levels + '"long"' + "}" * levels
    field = f'{{"name":"c","type":{kind},"nullable":true,"metadata":{{}}}}'
    error = run("write", out, path, "--schema", f'{{"type":"struct","fields":[{field}]}}', code=2).stderr
    assert TOO_MANY in error or "not the JSON text of a Spark StructType" in error


def list_of_lists(levels: int) -> pa.DataType:
    kind = pa.int64()
    for _ in range(levels):
        kind = pa.list_(kind)
    return kind


@pytest.mark.parametrize("levels", [40, 2_000])
def test_a_given_schema_of_a_migration(tmp_path: Path, levels: int) -> None:
    (tmp_path / "a.json").write_text("{}\n")
    with pytest.raises(SchemaError, match=TOO_MANY):
        ftfile.migrate(str(tmp_path), schema=pa.schema([("c", list_of_lists(levels))]))


@pytest.mark.parametrize("levels", [40, 200, 450, 900])
def test_avro_with_many_levels(tmp_path: Path, levels: int) -> None:
    kind = '{"type": "array", "items": ' * levels + '"long"' + "}" * levels
    described = f'{{"type": "record", "name": "r", "fields": [{{"name": "c", "type": {kind}}}]}}'
    (tmp_path / "a.avro").write_bytes(avro_file(described))
    with pytest.raises(ConfigError, match=f"{TOO_MANY}|description of its columns|an invalid header"):
        ftfile.migrate(str(tmp_path))


def avro_file(schema: str) -> bytes:
    """Return an Avro file without rows."""

    def text(value: bytes) -> bytes:
        return long(len(value)) + value

    def long(number: int) -> bytes:
        number <<= 1
        encoded = b""
        while number > 0x7F:
            encoded += bytes([number & 0x7F | 0x80])
            number >>= 7
        return encoded + bytes([number])

    entries = text(b"avro.schema") + text(schema.encode()) + text(b"avro.codec") + text(b"null")
    return b"Obj\1" + long(2) + entries + long(0) + b"0" * 16


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("levels", [45, 2_000])
def test_columnar_files_with_many_levels(out: str, tmp_path: Path, kind: str, levels: int) -> None:
    path = tmp_path / f"a.{kind}"
    schema = pa.schema([("c", list_of_lists(levels))])
    if kind == "parquet":
        pq.ParquetWriter(path, schema).close()
    else:
        pa.ipc.new_file(path, schema).close()
    run("write", out, path, code=2)
    with pytest.raises(ConfigError):
        ftfile.migrate(str(tmp_path))
