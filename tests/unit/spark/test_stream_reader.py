"""Streams without a JVM, called as Spark calls them: both kinds and protocols, and errors before the first batch."""

from __future__ import annotations

import pickle
import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ftfile.core.errors import ConfigError
from ftfile.spark.datasource import FtFileDataSource
from ftfile.spark.stream_reader import FtFileStreamReader
from ftfile.testing.micro_batch import MicroBatch
from tests.unit.spark.pickled import pickled

if TYPE_CHECKING:
    from pathlib import Path

START = {"kind": "start"}


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    """A source directory with a log of two and a half lines, and a state location."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.log").write_text("one\ntwo\nthr")
    return {
        "path": str(tmp_path / "in"),
        "fileFormat": "text",
        "checkpointLocation": str(tmp_path / "checkpoint"),
        "scanInterval": "0s",
    }


def struct(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def opened(options: dict[str, str], schema: StructType | None = None) -> FtFileStreamReader:
    """Return the reader that Spark receives, with the user's schema or the schema of the source."""
    source = FtFileDataSource(options)
    found = source.streamReader(source.schema() if schema is None else schema)
    assert isinstance(found, FtFileStreamReader)
    return found


def first_batch(options: dict[str, str], schema: StructType | None = None) -> dict[str, Any]:
    """Run the steps of Spark up to the plan of the first batch."""
    reader = opened(options, schema)
    return reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())


def next_offset(reader: FtFileStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    """Return the next offset. Retry for a short time, because a listing takes at most a fifth of the time."""
    deadline_s = time.monotonic() + 300
    while (end := reader.latestOffset(start)) == start:
        assert time.monotonic() < deadline_s, "the reader finds no new files"
        time.sleep(0.01)
    return end


def values(
    reader: FtFileStreamReader, start: dict[str, Any], end: dict[str, Any], other: FtFileStreamReader
) -> list[Any]:
    """Return the first column of a batch that one reader plans and another process reads."""
    shipped = pickle.loads(pickled(other))
    partitions = pickle.loads(pickled(reader.partitions(start, end)))
    return [value for each in partitions for batch in shipped.read(each) for value in batch.column(0).to_pylist()]


def test_a_log_is_read_on(options: dict[str, str], tmp_path: Path) -> None:
    reader = opened(options)
    assert reader.initialOffset() == START
    first = reader.latestOffset(START)
    assert values(reader, START, first, opened(options)) == ["one", "two"]
    reader.commit(first)
    assert reader.latestOffset(first) == first
    with (tmp_path / "in" / "a.log").open("a") as log:
        log.write("ee\n")
    second = next_offset(reader, first)
    assert values(reader, first, second, opened(options)) == ["three"]
    report = reader.reportLatestOffset()
    assert report is not None
    assert (report["plan"], report["known"], report["bytesBehind"]) == (1, 1, 0)


def test_a_new_process_plans_as_the_last_one_did(options: dict[str, str], tmp_path: Path) -> None:
    """For both protocols: Spark 4.2 passes the end of the last batch, while Spark 4.0 first requests its partitions."""
    first = opened(options).latestOffset(START)
    for name in ("b.log", "c.log"):
        (tmp_path / "in" / name).write_text(f"{name}\n")
    second = opened(options).latestOffset(first)
    old = opened(options)
    assert old.partitions(first, first) == []
    assert old.latestOffset() == opened(options).latestOffset(first) == second
    (tmp_path / "in" / "c.log").rename(tmp_path / "in" / "d.log")
    assert values(opened(options), first, second, opened(options)) == ["b.log", "c.log"]


def test_available_now_ends_with_what_was_there(options: dict[str, str], tmp_path: Path) -> None:
    for name in ("b.log", "c.log"):
        (tmp_path / "in" / name).write_text(f"{name}\n")
    reader = opened({**options, "maxFilesPerTrigger": "1"})
    reader.prepareForTriggerAvailableNow()
    (tmp_path / "in" / "later.log").write_text("later\n")
    with (tmp_path / "in" / "b.log").open("a") as log:
        log.write("later\n")
    position, found = START, []
    while (end := reader.latestOffset(position, reader.getDefaultReadLimit())) != position:
        batch = values(reader, position, end, opened(options))
        assert len(batch) <= 2
        found += batch
        position = end
    assert sorted(found) == ["b.log", "c.log", "one", "two"]


def test_limits_are_those_of_the_options(options: dict[str, str]) -> None:
    all_there_is = pytest.importorskip("pyspark.sql.streaming.datasource").ReadAllAvailable
    limited = opened({**options, "maxBytesPerTrigger": "1"})
    assert isinstance(opened(options).getDefaultReadLimit(), all_there_is)
    assert not isinstance(limited.getDefaultReadLimit(), all_there_is)
    assert values(limited, START, limited.latestOffset(START, limited.getDefaultReadLimit()), opened(options)) == [
        "one"
    ]
    limited = opened({**options, "maxBytesPerTrigger": "1"})
    assert values(limited, START, limited.latestOffset(START, all_there_is()), opened(options)) == ["one", "two"]


def test_a_state_may_have_a_place_of_its_own(options: dict[str, str], tmp_path: Path) -> None:
    first_batch(options)
    assert len(list((tmp_path / "checkpoint" / "ftfile-source").iterdir())) == 1
    first_batch({**options, "stateLocation": str(tmp_path / "state")})
    first_batch({**options, "stateLocation": str(tmp_path / "state")})
    assert len(list((tmp_path / "state").iterdir())) == 2
    assert len(list((tmp_path / "checkpoint" / "ftfile-source").iterdir())) == 1


WHOLE_FILE = {"path": StringType(), "modificationTime": TimestampType(), "length": LongType(), "content": BinaryType()}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, struct(value=StringType())),
        ({"FILEFORMAT": "text"}, struct(value=StringType())),
        ({"fileFormat": "binary"}, struct(**WHOLE_FILE)),
        ({"fileFormat": "binary", "delimiter": "|"}, struct(value=BinaryType())),
    ],
)
def test_some_formats_have_columns_of_their_own(
    options: dict[str, str], more: dict[str, str], expected: StructType
) -> None:
    if "FILEFORMAT" in more:
        del options["fileFormat"]
    assert FtFileDataSource({**options, **more}).schema() == expected


@pytest.mark.parametrize("file_format", ["parquet", "json", "csv", "avro", "orc", "arrow"])
def test_others_need_a_schema(options: dict[str, str], file_format: str) -> None:
    with pytest.raises(ConfigError, match=rf"columns of fileFormat={file_format} are not known.*\.schema\("):
        first_batch({**options, "fileFormat": file_format})
    first_batch({**options, "fileFormat": file_format}, struct(id=LongType()))


WRONG_OPTIONS = [
    ({"fileFormat": "jsn"}, "fileFormat='jsn'"),
    ({"maxFilesPerTrigger": "0"}, "maxFilesPerTrigger='0' is not understood: it takes a whole number of 1 or more"),
    ({"maxBytesPerTrigger": "0"}, "maxBytesPerTrigger='0' is not understood: it takes a size of at least one byte"),
    ({"maxRowsPerTrigger": "1"}, "'maxRowsPerTrigger' is for following"),
    ({"startingVersion": "1"}, "'startingVersion' is for following"),
    ({"startingTimestamp": "2026-01-01"}, "'startingTimestamp' is for following"),
    ({"skipChangeCommits": "true"}, "'skipChangeCommits' is for following"),
    ({"versionAsOf": "1"}, "'versionAsOf' is for reading"),
    ({"partitionBy": "a"}, "'partitionBy' is for writing"),
    ({"startingOffsets": "7"}, "startingOffsets='7' is not understood: it takes one of `earliest`, `latest`"),
    ({"filePattern": "a("}, r"filePattern='a\(' is not understood: it takes a regular expression"),
    ({"ignoreFilePattern": "*"}, r"ignoreFilePattern='\*' is not understood"),
    ({"pathGlobFilter": "a["}, "without its ]"),
    ({"recursiveFileLookup": "deep"}, "recursiveFileLookup='deep' is not understood"),
    ({"scanInterval": "5"}, "scanInterval='5' is not understood: it takes a duration"),
    ({"maxFileAge": "week"}, "maxFileAge='week' is not understood"),
    ({"maxRetries": "-1"}, "maxRetries='-1' is not understood"),
    ({"closeInactive": "1"}, "closeInactive='1' is not understood"),
    ({"minFileAge": "1"}, "minFileAge='1' is not understood"),
    ({"fileIdentity": "inode"}, "fileIdentity='inode' is not understood"),
    ({"allowOverwrites": "1"}, "allowOverwrites='1' is not understood"),
    ({"failOnDataLoss": "1"}, "failOnDataLoss='1' is not understood"),
    ({"tail": "true", "fileFormat": "binary"}, "tail=true is only for"),
    ({"multiLine": "true"}, "'multiLine' is for fileFormat=json|csv"),
    ({"encoding": "UTF-16"}, "encoding='UTF-16'"),
    ({"encoding": "UTF-9"}, "encoding='UTF-9'"),
    ({"lineSep": ""}, "lineSep"),
    ({"header": "true"}, "'header' is for fileFormat=csv"),
    ({"cleanSource": "archive"}, "sourceArchiveDir"),
    ({"cleanSource": "move"}, "cleanSource='move' is not understood"),
    ({"maxPartitionBytes": "0"}, "maxPartitionBytes='0' is not understood"),
    ({"badRecords": "deadLetter"}, "badRecords"),
    ({"latestFirst": "true"}, "no option 'latestFirst': the oldest files are always read first"),
    ({"fileNameOnly": "true"}, "no option 'fileNameOnly': a file is identified by its path and content"),
    ({"modifiedAfter": "2026-01-01"}, "no option 'modifiedAfter': use filePattern, or startingOffsets=latest"),
    ({"inferSchema": "true"}, "no option 'inferSchema': the log of a directory of ftfile contains its columns"),
    ({"maxFilePerTrigger": "1"}, "did you mean maxFilesPerTrigger"),
    ({"checkpointLocation": ""}, r"option\('checkpointLocation', .*option\('stateLocation', "),
    ({"path": ""}, "path"),
]


@pytest.mark.parametrize(("more", "text"), WRONG_OPTIONS, ids=[f"{option}" for option, _ in WRONG_OPTIONS])
def test_wrong_options_are_told_before_the_first_batch(
    options: dict[str, str], more: dict[str, str], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        first_batch({**options, **more})


@pytest.mark.parametrize(
    ("schema", "more", "text"),
    [
        (struct(value=LongType()), {}, "(?s)fileFormat=text cannot be read.*column `value`: int64"),
        (struct(id=LongType(), tags=ArrayType(StringType())), {"fileFormat": "csv"}, "(?s)fileFormat=csv.*`tags`"),
        (struct(size=LongType()), {"fileFormat": "binary"}, "(?s)fileFormat=binary.*`size`.*modificationTime"),
        (struct(id=LongType()), {"fileFormat": "binary", "delimiter": "|"}, "(?s)fileFormat=binary.*`id`"),
    ],
)
def test_columns_that_a_format_cannot_have(
    options: dict[str, str], schema: StructType, more: dict[str, str], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        first_batch({**options, **more}, schema)


@pytest.mark.parametrize(
    ("schema", "more", "text"),
    [
        (
            struct(value=StringType(), other=StringType()),
            {},
            r"(?s)fileFormat=text .*'in/a.log'.*columns value, other: give one column in \.schema",
        ),
        (struct(id=LongType(), value=LongType()), {}, "(?s)fileFormat=text.*columns id, value.*`id`: int64; make it a"),
        (
            struct(path=StringType(), size=LongType()),
            {"fileFormat": "binary"},
            "(?s)fileFormat=binary.*`size`: if a file",
        ),
        (
            struct(length=StringType(), path=StringType()),
            {"fileFormat": "binary"},
            "`length`: string; it must be int64",
        ),
        (struct(a=BinaryType(), b=BinaryType()), {"fileFormat": "binary", "delimiter": "|"}, "columns a, b: give one"),
    ],
)
def test_columns_that_neither_files_nor_directories_have_are_told_before_the_first_batch(
    options: dict[str, str], tmp_path: Path, schema: StructType, more: dict[str, str], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        first_batch({**options, "minFileAge": "0s", **more}, schema)
    assert not (tmp_path / "checkpoint").exists()


def test_a_plan_is_run_again_when_the_schema_is_mended(options: dict[str, str]) -> None:
    """The columns may differ in each run, so the columns of an existing plan are checked before the tasks."""
    end = first_batch(options)
    wrong = struct(value=StringType(), other=StringType())
    with pytest.raises(ConfigError, match="columns value, other"):
        opened(options, wrong).partitions(START, end)
    assert values(opened(options), START, end, opened(options)) == ["one", "two"]


def test_columns_of_directories_come_on_top(options: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "in" / "day=7").mkdir()
    (tmp_path / "in" / "a.log").rename(tmp_path / "in" / "day=7" / "a.log")
    schema = struct(value=StringType(), day=LongType())
    reader = opened(options, schema)
    end = reader.latestOffset(START)
    assert values(reader, START, end, opened(options, schema)) == ["one", "two"]
    (tmp_path / "in" / "b.log").write_text("three\n")
    with pytest.raises(ConfigError, match=r"(?s)'in/b.log', without the columns .* value, day: give"):
        next_offset(reader, end)
    (tmp_path / "in" / "b.log").rename(tmp_path / "in" / "day=7" / "b.log")
    assert values(reader, end, next_offset(reader, end), opened(options, schema)) == ["three"]


def test_nothing_is_at_the_path(options: dict[str, str], tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path / "nowhere" / "deep", tmp_path / "nowhere" / "*.log"):
        with pytest.raises(ConfigError, match=r"path=.* does not exist"):
            first_batch({**options, "path": str(path)})
    assert first_batch({**options, "path": str(tmp_path / "in" / "*.txt")}) == START
    (tmp_path / "in" / "a.log").chmod(0o600)
    assert first_batch({**options, "path": str(tmp_path / "in" / "a.log")}) != START
    with pytest.raises(ConfigError, match=r"pattern .* has a \[ without its \]"):
        first_batch({**options, "path": str(tmp_path / "in" / "a[.log")})


@pytest.mark.parametrize("below", ["", "*.parquet", "{a,b}", "word=a"])
def test_an_ftfile_directory_is_not_read_as_files(options: dict[str, str], tmp_path: Path, below: str) -> None:
    path = tmp_path / "written"
    MicroBatch(str(path), {"id": "long", "word": "string"}, {"partitionBy": "word"}).run(0, [[{"id": 1, "word": "a"}]])
    with pytest.raises(ConfigError, match=r"an ftfile directory.*omit fileFormat"):
        first_batch({**options, "path": str(path / below)})


def test_files_are_not_followed(options: dict[str, str]) -> None:
    following = {"path": options["path"]}
    with pytest.raises(ConfigError, match=r"no log, but has other files.*set fileFormat"):
        first_batch(following, struct(value=StringType()))
    with pytest.raises(ConfigError, match=r"has no log.*fileFormat"):
        first_batch(following)


@pytest.mark.parametrize(
    "more", [{"tail": "true"}, {"fileIdentity": "content"}, {"maxFileAge": "1d"}, {"stateLocation": "/state"}]
)
def test_options_of_files_are_none_of_following(tmp_path: Path, more: dict[str, str]) -> None:
    path = str(tmp_path / "written")
    MicroBatch(path, {"id": "long"}).run(0, [[{"id": 1}]])
    with pytest.raises(ConfigError, match=f"option '{next(iter(more))}' is for .*fileFormat"):
        first_batch({"path": path, **more})
    first_batch({"path": path})


def test_files_of_others_are_streams_only(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="option 'fileFormat' is for writing and streams"):
        FtFileDataSource(options).reader(struct(value=StringType()))


def test_files_are_deleted_once_their_batches_are_done(options: dict[str, str], tmp_path: Path) -> None:
    """This includes the files of a batch whose end Spark did not report, because Spark was killed."""
    options = {**options, "cleanSource": "delete", "closeInactive": "0s"}
    first = first_batch(options)
    (tmp_path / "in" / "b.log").write_text("four\n")
    reader = opened(options)
    second = next_offset(reader, first)
    assert sorted(path.name for path in (tmp_path / "in").iterdir()) == ["a.log", "b.log"]
    reader.commit(second)
    assert list((tmp_path / "in").iterdir()) == []
    reader.commit(second)
    (tmp_path / "in" / "c.log").write_text("five\n")
    third = next_offset(reader, second)
    with (tmp_path / "in" / "c.log").open("a") as log:
        log.write("six\n")
    reader.commit(third)
    assert (tmp_path / "in" / "c.log").exists()


def test_files_are_moved_out_of_the_way(options: dict[str, str], tmp_path: Path) -> None:
    options = {**options, "cleanSource": "archive", "closeInactive": "0s"}
    for within in ("in", "in/deep", "."):
        with pytest.raises(ConfigError, match="contains the other"):
            first_batch({**options, "sourceArchiveDir": str(tmp_path / within)})
    reader = opened({**options, "sourceArchiveDir": str(tmp_path / "archive")})
    reader.commit(reader.latestOffset(START))
    assert (tmp_path / "archive" / "in" / "a.log").read_text() == "one\ntwo\nthr"
    assert list((tmp_path / "in").iterdir()) == []
