"""Files of other programs that are too long, too deep, or of wrong types: an error that changes nothing."""

from __future__ import annotations

import gzip
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.log.directory import migration_of
from ftfile.log.format import layout
from ftfile.log.format.model import MIGRATION
from ftfile.log.state import LogState, SharedMap
from ftfile.storage.local import LocalFileSystem
from ftfile.testing.context import open_filesystem
from ftfile.tools.migrate import inventory, named_files, reading, undo
from ftfile.tools.migrate.sources import recorded_program
from ftfile.tools.migrate.undo import REASON, foreign_in_quarantine
from ftfile.writing import spark_checkpoint
from ftfile.writing.spark_checkpoint import read_offsets, read_progress, read_query_id
from tests.unit.tools.migrate import foreign
from tests.unit.tools.migrate.foreign import parquet, spark_log

if TYPE_CHECKING:
    from pathlib import Path

SPARSE_BYTES = 1 << 32
DEEP = "[" * 100_000 + "]" * 100_000
HUGE = "9" * 10_000
BAD_VALUES = {
    "too deep": DEEP,
    "a huge number": HUGE,
    "a path that is a number": '{"path": 1, "size": 1}',
    "a list": "[]",
}
ROWS_1 = '{"id": 1}\n'


def lengthen(path: Path) -> None:
    """Append zeros as a hole, which takes no space on the disk."""
    os.truncate(path, SPARSE_BYTES)


@pytest.fixture(autouse=True)
def _unread(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (inventory, reading):
        monkeypatch.setattr(module, "FILE_BYTES_MAX", 10_000)
    monkeypatch.setattr(undo, "SMALL_BYTES_MAX", 10_000)
    monkeypatch.setattr(spark_checkpoint, "OFFSETS_BYTES_MAX", 10_000)
    read = LocalFileSystem.read

    def read_some(fs: LocalFileSystem, path: str, bytes_max: int | None = None) -> bytes:
        # Code that reads the whole file would use all memory of the machine.
        assert bytes_max is not None or fs.stat(path).size_bytes < SPARSE_BYTES, f"{path} is read whole"
        return read(fs, path, bytes_max)

    monkeypatch.setattr(LocalFileSystem, "read", read_some)


@pytest.fixture
def spark(tmp_path: Path) -> Path:
    parquet(tmp_path / "out/a.parquet", [1])
    spark_log(tmp_path / "out", "0", [("add", "a.parquet")])
    return tmp_path / "out"


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    """A table of one file."""
    out = tmp_path / "out"
    parquet(out / "a.parquet", [1])
    schema = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
    actions = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": "x", "schemaString": json.dumps(schema), "partitionColumns": [], "configuration": {}}},
        {"add": {"path": "a.parquet", "size": (out / "a.parquet").stat().st_size, "partitionValues": {}}},
    ]
    (out / "_delta_log").mkdir()
    (out / f"_delta_log/{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    return out


def refused(out: Path, match: str, **more: Any) -> None:
    names = set(out.rglob("*"))
    with pytest.raises(ConfigError, match=match):
        ftfile.migrate(str(out), dry_run=False, **more)
    assert set(out.rglob("*")) == names


class TestMigrate:
    def test_a_table_of_spark_as_it_is(self, spark: Path) -> None:
        assert ftfile.migrate(str(spark)).rows == 1

    def test_a_table_of_delta_as_it_is(self, delta: Path) -> None:
        assert ftfile.migrate(str(delta)).rows == 1

    def test_a_long_entry_of_sparks_log(self, spark: Path) -> None:
        lengthen(spark / "_spark_metadata/0")
        refused(spark, r"_spark_metadata/0' has more than 10000 bytes.* restore it from a copy")

    @pytest.mark.parametrize("name", BAD_VALUES)
    def test_an_entry_of_sparks_log_of_other_values(
        self, spark: Path, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(inventory, "FILE_BYTES_MAX", 1 << 20)
        (spark / "_spark_metadata/0").write_text(f"v1\n{BAD_VALUES[name]}")
        refused(spark, "is damaged")

    @pytest.mark.parametrize("name", [f"{0:020}.json", f"{0:020}.checkpoint.parquet"])
    def test_a_long_file_of_deltas_log(self, delta: Path, name: str) -> None:
        (delta / "_delta_log" / name).touch()
        lengthen(delta / "_delta_log" / name)
        refused(delta, f"_delta_log/{name}' has more than 10000 bytes.* restore it from a copy")

    @pytest.mark.parametrize("name", BAD_VALUES)
    def test_a_commit_of_delta_of_other_values(self, delta: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(inventory, "FILE_BYTES_MAX", 1 << 20)
        with (delta / f"_delta_log/{0:020}.json").open("a") as file:
            file.write(f'\n{{"add": {BAD_VALUES[name]}}}')
        refused(delta, "is damaged")

    @pytest.mark.parametrize("text", ["", HUGE])
    def test_a_length_of_a_file_of_flink(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "part-0-0").write_text(ROWS_1)
        path = tmp_path / "_part-0-0.valid-length"
        path.write_text(text)
        if not text:
            lengthen(path)
        assert named_files.LENGTH_BYTES_MAX == 40
        refused(tmp_path, "must contain a number of bytes", file_format="json")

    def test_a_compressed_file_that_is_read_in_memory(self, tmp_path: Path) -> None:
        parquet(tmp_path / "a.parquet", range(5000))
        plain = (tmp_path / "a.parquet").read_bytes()
        assert len(plain) > 10_000
        (tmp_path / "a.parquet").unlink()
        (tmp_path / "a.parquet.gz").write_bytes(gzip.compress(plain))
        refused(tmp_path, r"a.parquet.gz.* has \d+ bytes when decompressed", file_format="parquet")


class TestNotes:
    @pytest.fixture
    def note(self, tmp_path: Path) -> Path:
        path = tmp_path / layout.QUARANTINE / "x.origin"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"reason": f"{REASON}x", "path": "a"}))
        return path

    def test_a_note_of_any_length_is_not_read(self, tmp_path: Path, note: Path) -> None:
        fs = open_filesystem(str(tmp_path))
        assert foreign_in_quarantine(fs) == []
        lengthen(note)
        with pytest.raises(CorruptData, match=r"at most 10000 bytes.*then undo again"):
            foreign_in_quarantine(fs)

    @pytest.mark.parametrize(
        "text", [DEEP[:2000] + DEEP[-2000:], HUGE[:9000], '{"reason": 1}', f'{{"reason": "{REASON}", "path": 1}}']
    )
    def test_a_note_of_other_values(self, tmp_path: Path, note: Path, text: str) -> None:
        note.write_text(text)
        with pytest.raises(CorruptData, match=r"a note of a file's place.*then undo again"):
            foreign_in_quarantine(open_filesystem(str(tmp_path)))


class TestCheckpoints:
    @pytest.fixture
    def checkpoint(self, tmp_path: Path) -> Path:
        foreign.spark_checkpoint(tmp_path / "checkpoint", 1)
        return tmp_path / "checkpoint"

    @pytest.mark.parametrize("name", ["metadata", "offsets/0"])
    def test_a_file_of_any_length_is_not_read(self, checkpoint: Path, name: str) -> None:
        assert read_progress(str(checkpoint), "spark-query", SYSTEM).planned == 0
        lengthen(checkpoint / name)
        with pytest.raises(ConfigError, match=f"its file '{name}' has more than 10000 bytes"):
            read_progress(str(checkpoint), "spark-query", SYSTEM)

    def test_writers_go_on_without_what_is_too_long(self, checkpoint: Path) -> None:
        for name in ("metadata", "offsets/0"):
            lengthen(checkpoint / name)
        assert read_query_id(str(checkpoint), SYSTEM) is None
        assert read_offsets(str(checkpoint), 0, SYSTEM) is None

    @pytest.mark.slow
    def test_values_that_are_too_deep_or_too_large(self, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(spark_checkpoint, "OFFSETS_BYTES_MAX", 1 << 20)
        (checkpoint / "offsets/0").write_text(f'v1\n{{"batchTimestampMs":{HUGE[:4000]}}}\n{DEEP}\n{HUGE}')
        offsets = read_offsets(str(checkpoint), 0, SYSTEM)
        assert offsets is not None
        assert (offsets.offsets, offsets.time_ms) == ([DEEP, HUGE], None)
        for number in (HUGE[:4000], str(1 << 63), "-1", "1.5"):
            (checkpoint / "offsets/0").write_text(f'v1\n{{"batchTimestampMs":{number}}}\n{{}}')
            offsets = read_offsets(str(checkpoint), 0, SYSTEM)
            assert offsets is not None
            assert (offsets.offsets, offsets.time_ms) == ([{}], None)
        (checkpoint / "metadata").write_text(DEEP)
        assert read_query_id(str(checkpoint), SYSTEM) is None


@pytest.mark.parametrize(
    "entry",
    [
        None,
        {},
        {"from": 1, "log": None, "lastEntry": 1},
        {"from": "excel", "log": None, "lastEntry": 1},
        {"from": "spark", "log": "../out", "lastEntry": 1},
        {"from": "spark", "log": None, "lastEntry": -1},
    ],
    ids=str,
)
def test_a_recorded_migration_of_other_values(entry: object) -> None:
    head = LogState(0, "0", tables={MIGRATION: SharedMap({"last": [0, entry]})})

    def program() -> object:
        return recorded_program(migration_of(head) or pytest.fail("no migration"))

    with pytest.raises(CorruptData):
        program()
