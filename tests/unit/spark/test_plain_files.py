"""The parts that Spark's own sources may read, without a JVM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import ftfile
from ftfile.core.arguments import Access
from ftfile.read.directory import Directory
from ftfile.spark.native.groups import Ways, plan_groups
from ftfile.spark.native.listed_files import FileList, hadoop_url, write_sink_log
from ftfile.testing.micro_batch import MicroBatch, spark_schema
from tests.kit.parameters import parametrize
from tests.unit.tools.migrate.foreign import UUID, parquet

ARRAY_OF_EMPTY_NAMES = {
    "type": "array",
    "elementType": json.loads(spark_schema({"": "long", "b": "long"})),
    "containsNull": True,
}


def files_of(files: FileList) -> dict[str, int]:
    """Return the sizes of the files of a list, by path."""
    sizes = {}
    for directory, texts in files.texts.items():
        for text in texts:
            size_bytes, name, _ = text.split("\0")
            sizes[f"{directory}/{name}".removeprefix("/")] = int(size_bytes)
    return sizes


def ways_of(out: str, version: int | None = None, **how: Any) -> Ways:
    directory = Directory(out, Access())
    return plan_groups(directory, directory.snapshot(version), **how)


@parametrize(
    ("columns", "options", "reason"),
    [
        ({"_col1": "long", "_col2": "long"}, {"fileFormat": "orc"}, "all columns of orc begin with _col"),
        ({"_col1": "long", "id": "long"}, {"fileFormat": "orc"}, None),
        ({"id": "long", "a`b": "long"}, {"fileFormat": "orc"}, "names in orc have backticks, or are empty"),
        ({"list": ARRAY_OF_EMPTY_NAMES}, {"fileFormat": "orc"}, "names in orc have backticks, or are empty"),
        ({"id": "long", "a`b": "string"}, {"fileFormat": "orc", "partitionBy": "a`b"}, None),
        ({"id": "long", "a`b": "long"}, {}, None),
        ({"id": "long", "at": "timestamp"}, {"fileFormat": "json", "timeZone": "Asia/Tokyo"}, "['timeZone'] of json"),
        ({"id": "long"}, {"fileFormat": "json", "timeZone": "Asia/Tokyo", "dateFormat": "dd.MM.yyyy"}, None),
        ({"id": "long", "n": "long"}, {"fileFormat": "csv", "nullValue": "1"}, "nullValue or lineSep of csv"),
        ({"id": "long", "n": "long"}, {"fileFormat": "csv", "lineSep": "\r\n"}, "nullValue or lineSep of csv"),
        ({"id": "long"}, {"fileFormat": "json", "compression": "bzip2"}, "filters are bzip2"),
        ({"id": "long"}, {"fileFormat": "arrow"}, "Spark has no reader for arrow"),
        ({"id": "long"}, {"ifExists": "fail", "partFileName": "{index}{ext}"}, "names of files may be used again"),
        ({"id": "long", "f": "string"}, {"fileNameColumn": "f"}, "names of files contain a column"),
        ({"id": "long", "f": "string"}, {"partitionBy": "f", "directoryPattern": "yyyy"}, "directories are more than "),
        ({"id": "long"}, {"directoryPattern": "yyyy"}, None),
    ],
    quick=4,
)
def test_what_spark_would_read_differently(
    tmp_path: Path, columns: dict[str, Any], options: dict[str, str], reason: str | None
) -> None:
    out = str(tmp_path / "out")
    MicroBatch(out, columns, options).run(0, [[{name: "x" if columns[name] == "string" else None for name in columns}]])
    ways = ways_of(out)
    assert (len(ways.groups), len(ways.rest)) == ((1, 0) if reason is None else (0, 1))
    assert reason is None or next(iter(ways.reasons)).startswith(reason)


def test_decimals_in_paths_that_spark_would_take_for_others(tmp_path: Path) -> None:
    """Spark reads the digits of the text as an unscaled value of the type, so it would read 1 as 0.1."""
    null = "__HIVE_DEFAULT_PARTITION__"
    for number, directory in enumerate(("d e=1/n=1.25", "d e=1/n=1.250", "d e=1.0/n=1.250", f"d e={null}/n={null}")):
        parquet(tmp_path / directory / f"part-{number}-{UUID}.parquet", [number])
    ftfile.migrate(tmp_path, partition_by={"d e": "decimal(11,1)", "n": "decimal(12,3)"}, dry_run=False)
    ways = ways_of(str(tmp_path))
    assert ways.reasons == {"decimals in directories have another scale": 2}
    assert {name.rpartition("/")[2][5] for group in ways.groups for name in files_of(group.files)} == {"2", "3"}


def test_times_that_the_session_parses_otherwise(tmp_path: Path) -> None:
    for columns, ends in (({"at": "date"}, 0), ({"at": "long"}, 1)):
        out = str(tmp_path / columns["at"])
        MicroBatch(out, columns, {"fileFormat": "json"}).run(0, [[{"at": None}]])
        assert len(ways_of(out, legacy_times=True).groups) == ends
        assert len(ways_of(out).groups) == 1


@pytest.mark.slow
def test_parts_that_have_left_their_names(tmp_path: Path) -> None:
    """Other files may take the names of a version's parts later."""
    out = str(tmp_path / "out")
    query = MicroBatch(out, {"id": "long"})
    for batch in range(3):
        query.run(batch, [[{"id": batch}]])
    ftfile.compact(out)
    query.run(3, [[{"id": 3}]])
    assert ways_of(out, 2).reasons == {"a later version removed files": 3}
    assert len(ways_of(out).groups[0].files) == 2


def test_names_that_differ_by_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier ftfile admitted these names. Spark's reader may find no column, or the wrong column."""
    out = str(tmp_path / "out")
    MicroBatch(out, {"id": "long"}).run(0, [[{"id": 1}]])
    monkeypatch.setattr("ftfile.writing.files.prepared_files.check_schema_change", lambda *_: None)
    monkeypatch.setattr("ftfile.writing.files.prepared_files._check_older_rows", lambda *_: None)
    MicroBatch(out, {"ID": "long"}).run(1, [[{"ID": 2}]])
    ways = ways_of(out)
    assert ways.reasons == {"column 'ID' is 'id' in files": 1}
    assert [len(group.files) for group in ways.groups] == [1]


def test_urls_and_the_list(tmp_path: Path) -> None:
    out = str(tmp_path / "a b%20[ü]")
    assert hadoop_url("s3://bucket/a", "b=%25 c/d") == "s3a://bucket/a/b%3D%2525%20c/d"
    assert hadoop_url("file:///", "d") == "file:///d"
    MicroBatch(out, {"id": "long"}).run(0, [[{"id": 1}], [{"id": 2}]])
    (group,) = ways_of(f"file://{out}").groups
    write_sink_log(tmp_path, f"file://{out}", group.files.samples())
    version, *entries = (tmp_path / "_spark_metadata/0").read_text().splitlines()
    assert version == "v1"
    sizes = {entry["path"]: entry["size"] for entry in map(json.loads, entries)}
    paths = sorted(Path(out).glob("*.parquet"))
    assert files_of(group.files) == {path.name: path.stat().st_size for path in paths}
    (url,) = sizes
    assert unquote(urlsplit(url).path) in {*map(str, paths)}
    assert sizes[url] == Path(unquote(urlsplit(url).path)).stat().st_size


def test_orc_is_read_in_the_order_of_its_columns_where_timestamps_would_change_places(tmp_path: Path) -> None:
    """Spark compares the timestamp types of the file and of the read columns by position, not by name."""
    out, options = str(tmp_path / "out"), {"fileFormat": "orc", "onSchemaChange": "any"}
    first = {"gone": "long", "at": "timestamp", "local": "timestamp_ntz"}
    for batch, columns in enumerate([first, {"at": "timestamp", "local": "timestamp_ntz"}]):
        MicroBatch(out, columns, options).run(batch, [[dict.fromkeys(columns)]])
    found = [[field["name"] for field in json.loads(group.schema_json)["fields"]] for group in ways_of(out).groups]
    assert found == [["gone", "at", "local"], ["at", "local"]]
    MicroBatch(out, {"new": "long"} | first, options).run(2, [[]])
    assert len(ways_of(out, 0).groups) == 1
