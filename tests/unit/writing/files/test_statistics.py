"""Statistics of the files of a directory: the columns and rows for which the log records them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.operate.compact import compact_log
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.file_statistics import as_lists
from tests.unit.writing.files.encrypted import files_of, out, ring, snapshot
from tests.unit.writing.files.test_matrix import parquet_if_it_can

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("out", "ring")

COLUMNS = {"id": "long", "word": "string"}
ADDRESS = {"type": "struct", "fields": [{"name": "city", "type": "string", "nullable": True, "metadata": {}}]}
FORMATS = ["json", "csv", "parquet", "avro", "orc", "arrow"]


def rows(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": number, "word": f"w{number}"} for number in numbers]


def statistics(out: str) -> list[dict[str, list[Any]]]:
    """Return the statistics of the live files, in their order."""
    return [as_lists(add.statistics) for add in snapshot(out).adds.values()]


def encodings(out: str) -> list[Any]:
    """Return the recorded columns of the live files."""
    current = snapshot(out)
    return [current.definitions[add.encoding].get("statistics") for add in current.adds.values()]


@pytest.mark.parametrize("name", FORMATS)
def test_tasks_compactions_and_deletes_record_the_rows_of_their_files(out: str, name: str) -> None:
    query = MicroBatch(out, COLUMNS, {"fileFormat": name})
    query.run(0, [rows(3, 1), [*rows(7), {"id": None, "word": "w9"}]])
    assert statistics(out) == [{"id": [1, 3, 0], "word": ["w1", "w3", 0]}, {"id": [7, 7, 1], "word": ["w7", "w9", 0]}]
    assert encodings(out) == [["id", "word"]] * 2
    ftfile.compact(out)
    assert statistics(out) == [{"id": [1, 7, 1], "word": ["w1", "w9", 0]}]
    ftfile.delete(out, "id = 7 OR id IS NULL")
    assert statistics(out) == [{"id": [1, 3, 0], "word": ["w1", "w3", 0]}]
    assert encodings(out) == [["id", "word"]]


def test_a_batch_write_records_them(out: str) -> None:
    MicroBatch(out, COLUMNS, {"fileFormat": "json"}).run_batch_write("job", [rows(5)])
    assert statistics(out) == [{"id": [5, 5, 0], "word": ["w5", "w5", 0]}]


@pytest.mark.parametrize("limit", [{"maxRecordsPerFile": "2"}, {"maxBytesPerFile": "40"}, {"compression": "gzip"}])
def test_a_file_has_the_statistics_of_its_rows_only(out: str, limit: dict[str, str]) -> None:
    query = MicroBatch(out, COLUMNS, {"fileFormat": "json"} | limit)
    query.run(0, [rows(*range(9))])
    ids = iter(range(9))
    for add in snapshot(out).adds.values():
        inside = [next(ids) for _ in range(add.rows)]
        assert add.statistics["id"] == (inside[0], inside[-1], 0)
    assert next(ids, None) is None


def test_a_row_that_cannot_be_encoded_is_in_no_statistics(out: str) -> None:
    options = {"fileFormat": "json", "badRecords": "drop", "maxRecordBytes": "40"}
    MicroBatch(out, COLUMNS, options).run(0, [[*rows(2), {"id": 9, "word": "w" * 99}, *rows(4)]])
    assert statistics(out) == [{"id": [2, 4, 0], "word": ["w2", "w4", 0]}]


def test_columns_in_paths_have_none_and_each_directory_has_separate_ones(out: str) -> None:
    query = MicroBatch(out, COLUMNS, {"fileFormat": "json", "partitionBy": "word"})
    query.run(0, [[*rows(1, 2), {"id": 5, "word": "w1"}]])
    assert statistics(out) == [{"id": [1, 5, 0]}, {"id": [2, 2, 0]}]
    with pytest.raises(ConfigError, match="statisticsColumns names 'word'"):
        MicroBatch(out, COLUMNS, {**query.options, "statisticsColumns": "word"}).run_batch_write("job", [rows(1)])


def test_none_records_nothing_and_a_compaction_continues_with_it(out: str) -> None:
    query = MicroBatch(out, COLUMNS, {"fileFormat": "json", "statisticsColumns": "none"})
    query.run(0, [rows(1), rows(2)])
    ftfile.compact(out)
    assert (statistics(out), encodings(out)) == ([{}], [None])


def test_named_columns_and_fields(out: str) -> None:
    columns = {"id": "long", "a": ADDRESS, "b.c": "long"}
    query = MicroBatch(out, columns, {"fileFormat": "parquet", "statisticsColumns": "A.City, `b.c`"})
    query.run(0, [[{"id": 1, "a": {"city": "Rom"}, "b.c": 1}], [{"id": 2, "a": None, "b.c": 2}]])
    ftfile.compact(out)
    assert statistics(out) == [{"a.city": ["Rom", "Rom", 1], "b\\.c": [1, 2, 0]}]


def test_files_of_other_columns_are_not_merged(out: str) -> None:
    query = MicroBatch(out, COLUMNS, {"fileFormat": "json"})
    query.run(0, [rows(1)])
    MicroBatch(out, COLUMNS, {"fileFormat": "json", "statisticsColumns": "id"}).run_batch_write("job", [rows(2)])
    ftfile.compact(out)
    assert statistics(out) == [{"id": [1, 1, 0], "word": ["w1", "w1", 0]}, {"id": [2, 2, 0]}]


@pytest.mark.parametrize("name", ["text", "json"])
def test_a_column_that_the_format_changes_is_an_error_if_it_is_named(out: str, name: str) -> None:
    columns = {"word": "string"} if name == "text" else {"word": "date"}
    pattern = {} if name == "text" else {"dateFormat": "yyyy-MM"}
    query = MicroBatch(out, columns, {"fileFormat": name, "statisticsColumns": "word"} | pattern)
    with pytest.raises(ConfigError, match="statisticsColumns names 'word', but"):
        query.run(0, [[]])


def test_adds_of_compacted_logs_have_none(out: str) -> None:
    query = MicroBatch(out, COLUMNS, {"fileFormat": "json"})
    query.run(0, [rows(1)])
    compact_log(out)
    check_directory(open_filesystem(out))
    query.run(1, [rows(2)])
    assert statistics(out) == [{}, {"id": [2, 2, 0], "word": ["w2", "w2", 0]}]
    ftfile.compact(out)
    assert statistics(out) == [{"id": [1, 2, 0], "word": ["w1", "w2", 0]}]
    assert ftfile.open(out).verify().ok


@pytest.mark.parametrize("encryption", ["aes-gcm", *parquet_if_it_can()])
def test_an_encrypted_directory_contains_no_statistics(out: str, ring: Path, encryption: str) -> None:
    keys = {"encryption": encryption, "keyProvider": f"file:{ring}", "fileFormat": "parquet"}
    query = MicroBatch(out, COLUMNS, keys)
    query.run(0, [rows(123_456_789), rows(123_456_788)])
    ftfile.compact(out, key_provider=f"file:{ring}")
    ftfile.delete(out, "id < 123456789", key_provider=f"file:{ring}")
    content = b"\n".join(path.read_bytes() for path in files_of(out))
    assert b'"rows":1' in content
    for hidden in (b"statistics", b"12345678", b"w12345678"):
        assert hidden not in content.replace(b"id < 123456789", b"")


def test_names_of_columns_in_an_encrypted_directory_are_an_error(out: str, ring: Path) -> None:
    keys = {"encryption": "aes-gcm", "keyProvider": f"file:{ring}", "fileFormat": "json"}
    with pytest.raises(ConfigError, match="the log, which contains the statistics, is authenticated but not encrypted"):
        MicroBatch(out, COLUMNS, keys | {"statisticsColumns": "id"}).run(0, [rows(1)])
    MicroBatch(out, COLUMNS, keys | {"statisticsColumns": "none"}).run(0, [rows(1)])
