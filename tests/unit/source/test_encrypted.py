"""Files that ftfile has encrypted are read without their log."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ftfile
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.source.plan import START
from ftfile.source.settings import FileDecoding
from ftfile.testing.context import repeatable
from tests.kit.files_run import FilesRun
from tests.kit.parameters import parametrize
from tests.unit.source.planned import Files
from tests.unit.writing.files.encrypted import SCHEMA, out, parts, ring, rows_of, stream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ("out", "ring")

CLEAR = "".join(f"clear {number}\n" for number in range(100)).encode()
OPTIONS = {"binary": {"delimiter": r"\n"}, "csv": {"nullValue": r"\N"}}
WORDS = [f"word {number}" for number in range(20_000)]


def written(out: str, ring: Path, tmp_path: Path, **options: str) -> tuple[Files, Path]:
    stream(out, ring, **options).run(0, [rows_of(*WORDS)])
    [part] = parts(out)
    files = Files(tmp_path / "foreign")
    files.write(part.name, part.read_bytes())
    return files, files.root / part.name


def words(files: Files, name: str, ring: Path | None, **fields: Any) -> list[str]:
    key_provider = None if ring is None else f"file:{ring}"
    rows = files.rows(files.whole(name), SCHEMA, FileDecoding(**fields, key_provider=key_provider))
    return [row[0] for row in rows]


@pytest.mark.parametrize("compression", ["none", "gzip"])
@parametrize("file_format", ["text", "json", "parquet", "arrow"], quick=1)
def test_with_its_name_and_the_keys_a_file_is_read(
    out: str, ring: Path, tmp_path: Path, file_format: str, compression: str
) -> None:
    codec = {} if file_format in {"parquet", "arrow"} else {"compression": compression}
    files, file = written(out, ring, tmp_path, fileFormat=file_format, **codec)
    assert file.name.endswith(".enc")
    assert words(files, file.name, ring, file_format=file_format) == WORDS
    renamed = file.rename(files.root / f"copied-{file.name.rpartition('-')[2]}")
    assert words(files, renamed.name, ring, file_format=file_format) == WORDS


def test_without_keys_or_with_another_name_it_is_refused(out: str, ring: Path, tmp_path: Path) -> None:
    files, file = written(out, ring, tmp_path)
    with pytest.raises(ConfigError, match="keyProvider"):
        words(files, file.name, None, file_format="text")
    other = file.rename(files.root / "other.txt.enc")
    with pytest.raises(CorruptData, match="encrypted file"):
        words(files, other.name, ring, file_format="text")


@pytest.mark.slow
def test_an_end_that_was_cut_off_is_damage(out: str, ring: Path, tmp_path: Path) -> None:
    files, file = written(out, ring, tmp_path)
    content = file.read_bytes()
    for size in (len(content) - 1, len(content) - 100_000, 10):
        file.write_bytes(content[:size])
        with pytest.raises(CorruptData, match="encrypted file"):
            words(files, file.name, ring, file_format="text")
        kept = words(files, file.name, ring, file_format="text", ignore_corrupt_files=True)
        assert kept == WORDS[: len(kept)]


@pytest.mark.slow
def test_keys_are_where_the_variable_says(
    out: str, ring: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, file = written(out, ring, tmp_path)
    monkeypatch.setenv("FTFILE_KEY_PROVIDER", f"file:{ring}")
    assert words(files, file.name, None, file_format="text") == WORDS
    files.write("clear", b"some word\n")
    assert words(files, "clear", None, file_format="text") == ["some word"]


@dataclass
class Input:
    """A directory into which files are copied, and the state of streams that read the directory."""

    root: Path
    state: Path
    ring: Path

    def add(self, out: str, **options: str) -> Path:
        """Write an encrypted directory with one file, and copy this file."""
        stream(out, self.ring, **options).run(0, [rows_of(*WORDS[:100])])
        [part] = parts(out)
        return self.write(part.name, part.read_bytes())

    def write(self, name: str, content: bytes) -> Path:
        file = self.root / name
        file.write_bytes(content)
        return file

    def run(self, column: str = "value", **options: str) -> FilesRun:
        given = {"fileFormat": "text", "stateLocation": str(self.state), "scanInterval": "0s", "minFileAge": "0s"}
        keys = {"keyProvider": f"file:{self.ring}"}
        return FilesRun(str(self.root), {column: "string"}, given | keys | options, pause_s=1)


@pytest.fixture
def source(tmp_path: Path, ring: Path) -> Iterator[Input]:
    (tmp_path / "in").mkdir()
    with repeatable():
        yield Input(tmp_path / "in", tmp_path / "state", ring)


@pytest.mark.parametrize("tail", ["true", "false"])
@parametrize("file_format", ["text", "json", "csv", "parquet", "orc", "arrow", "avro", "binary"], quick=1)
def test_a_stream_reads_each_encrypted_file_once_and_whole(
    source: Input, out: str, file_format: str, tail: str
) -> None:
    options = OPTIONS.get(file_format, {})
    file = source.add(out, fileFormat=file_format, **options)
    grows = {"tail": tail} if file_format in {"text", "json", "csv"} else {}
    column = {"text": "value", "binary": "value"}.get(file_format, "word")
    run = source.run(column, fileFormat=file_format, **options, **grows)
    run.run()
    values = [row[column] for row in run.rows]
    assert [value.decode() if isinstance(value, bytes) else value for value in values] == WORDS[:100]
    assert [range_.whole for range_ in ranges(run)] == [True], file.name
    run.restart()
    assert run.run() == 0


def test_a_stream_reads_encrypted_files_of_records_over_lines(source: Input, out: str) -> None:
    options = OPTIONS.get("csv", {})
    source.add(out, fileFormat="csv", compression="gzip", **options)
    run = source.run("word", fileFormat="csv", multiLine="true", **options)
    run.run()
    assert [row["word"] for row in run.rows] == WORDS[:100]


@pytest.mark.slow
@pytest.mark.parametrize("names", [["content", "length"], ["length"]])
def test_a_file_that_is_one_row_is_decrypted(out: str, ring: Path, tmp_path: Path, names: list[str]) -> None:
    files, file = written(out, ring, tmp_path)
    plain = "".join(f"{word}\n" for word in WORDS).encode()
    schema = pa.schema([(name, pa.binary() if name == "content" else pa.int64()) for name in names])
    decoding = FileDecoding("binary", key_provider=f"file:{ring}")
    row = files.rows(files.whole(file.name), schema, decoding)
    assert row == [(plain, len(plain)) if len(names) > 1 else (len(plain),)]


def ranges(run: FilesRun) -> list[Any]:
    stream = run.started()
    return [cut.range for share in stream.shares(START, json.loads(run.offsets[0])) for cut in share.cuts]


class TestInTheClear:
    @pytest.mark.parametrize("name", ["a.log", "a.log.gz", "a.enc.log"])
    @pytest.mark.parametrize("identity", ["native", "content"])
    def test_a_file_is_left_out_and_named(
        self, source: Input, out: str, name: str, identity: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        source.add(out)
        source.write(name, gzip.compress(CLEAR) if name.endswith(".gz") else CLEAR)
        run = source.run(fileIdentity=identity)
        run.run()
        assert [row["value"] for row in run.rows] == WORDS[:100]
        assert f"'in/{name}' is skipped until it changes: keyProvider is set" in caplog.text
        [status] = ftfile.source_status(str(source.root), stateLocation=str(source.state))
        assert [parked.path for parked in status.parked] == [f"in/{name}"]
        assert "allowClearFiles=true" in status.parked[0].reason

    def test_a_file_is_read_where_that_is_asked_for(self, source: Input) -> None:
        source.write("a.log", CLEAR)
        run = source.run()
        run.run()
        assert not run.rows
        run.options = {**run.options, "allowClearFiles": "true"}
        run.restart()
        run.run()
        assert [row["value"] for row in run.rows] == CLEAR.decode().splitlines()

    def test_a_plan_of_a_time_without_keys_is_not_believed(
        self, files: Files, ring: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        files.write("a.log", CLEAR)
        planned = files.range("a.log")
        keys = {"key_provider": f"file:{ring}"}
        with pytest.raises(CorruptData, match="allowClearFiles=true reads unencrypted files"):
            files.lines(planned, **keys)
        assert files.lines(planned, **keys, ignore_corrupt_files=True) == []
        assert "an unencrypted file" in caplog.text
        assert files.lines(planned, **keys, allow_clear_files=True) == CLEAR.decode().splitlines()


def test_a_provider_that_there_is_not_is_refused_before_any_file_is_read(source: Input) -> None:
    with pytest.raises(ConfigError, match="this value is not one of"):
        source.run(keyProvider="vault:ring").config()
