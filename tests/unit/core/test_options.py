"""The options: declarations, spelling, errors, documentation."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import get_args

import pytest

from ftfile.core.errors import ConfigError
from ftfile.core.options.declaration import attribute_name
from ftfile.core.options.kinds import FORMATS, OF_FILES, STORES, columns_text
from ftfile.core.options.parsing import parse_options
from ftfile.core.options.table import DEFAULTS, OPTIONS
from ftfile.core.options.typed import (
    DirectoryFollowOptions,
    FilesOptions,
    Options,
    ReadOptions,
    SinkOptions,
    StoreFollowOptions,
    StoreReadOptions,
    StoreSinkOptions,
    Use,
)
from ftfile.formats.api import format_from_options

ROOT = Path(__file__).parents[3]
KINDS: dict[Use, type[Options]] = {
    kind.USE: kind
    for kind in (
        SinkOptions,
        ReadOptions,
        DirectoryFollowOptions,
        FilesOptions,
        StoreSinkOptions,
        StoreReadOptions,
        StoreFollowOptions,
    )
}


def test_all_uses_are_in_the_table() -> None:
    assert {use for option in OPTIONS for use in option.used_by} == {*get_args(Use)} == KINDS.keys()


@pytest.mark.parametrize("use", KINDS)
def test_the_attributes_of_options_are_those_of_the_table(use: Use) -> None:
    options = KINDS[use]()
    table = {option.attribute: option for option in OPTIONS if use in option.used_by}
    assert {name: getattr(options, name) for name in table} == {name: row.default for name, row in table.items()}
    assert [*table] == [attribute_name(row.name) for row in table.values()]


def test_a_name_that_is_no_option_is_not_asked_for() -> None:
    options = parse_options({"path": "/x"}, SinkOptions)
    assert (options.is_given("path"), options.is_given("rolling")) == (True, False)
    with pytest.raises(KeyError):
        options.is_given("pathh")


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        (" Auto ", "auto"),
        ("NONE", "none"),
        ("`auto`", (("auto",),)),
        ("id, a.b ,`c.d`.`e``,`", (("id",), ("a", "b"), ("c.d", "e`,"))),
        ("a b", (("a b",),)),
    ],
)
def test_columns_with_statistics(text: str, columns: object) -> None:
    assert parse_options({"statisticsColumns": text}, SinkOptions).statistics_columns == columns


@pytest.mark.parametrize("text", ["", ",", "a,", "a.", ".a", "a..b", "`a", "a,`A`", "a.b,c,a.b"])
def test_paths_of_columns_that_are_incomplete_or_repeated_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="statisticsColumns"):
        parse_options({"statisticsColumns": text}, SinkOptions)


def test_keys_in_any_case_and_defaults() -> None:
    parsed = parse_options({"PATH": "/x", "maxbytesperfile": "1 MiB", "SuccessDelay": "2min"}, SinkOptions)
    assert parsed.given == {"path": "/x", "maxBytesPerFile": 1 << 20, "successDelay": 120.0}
    assert parsed.file_format == "parquet"
    assert parsed.max_records_per_file is None


def test_sparks_own_keys_are_known() -> None:
    parsed = parse_options(
        {"checkpointLocation": "/c", "queryname": "q", "owner": "me", "option.path": "x"}, SinkOptions
    )
    assert parsed.given == {}
    assert parsed.spark["checkpointlocation"] == "/c"


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("maxRecordsPerFiles", "1", "did you mean maxRecordsPerFile"),
        ("qwertz", "1", "the options are "),
        ("flush.size", "1", "there is no option 'flush.size': use maxRecordsPerFile"),
        ("rolloverSchedule", "7h", "a duration that divides a day"),
        ("rolloverInterval", "1", "a duration with its unit"),
        ("eventTimeInterval", "1h", "a timestamp column and a duration"),
        ("ENCRYPTION", "aes", "it takes one of `none`, `aes-gcm`, `parquet`"),
        ("retention", "7d", "there is no option 'retention': give it to ftfile.vacuum(path, retention='7d')"),
        ("rolling", "x", "it takes one of `batch`"),
        ("maxRecordsPerFile", "0", "a whole number of 1 or more"),
        ("maxRecordsPerFile", "1.5", "a whole number of 1 or more"),
        ("maxRecordsPerFile", "1_000", "a whole number of 1 or more"),
        ("maxRecordsPerFile", "\u0663", "a whole number of 1 or more"),
        ("maxRecordsPerFile", str(2**63), "a whole number of 1 or more"),
        ("maxBytesPerFile", "\u0663m", "a size of at least one byte"),
        ("userMetadata", "x" * 70_000, "userMetadata='" + "x" * 100 + "…' is not understood: it takes text of at most"),
        ("maxBytesPerFile", "0", "a size of at least one byte"),
        ("maxBytesPerFile", "-3", "a size of at least one byte"),
        ("partitionBy", "a,,b", "column names separated by commas"),
        ("partitionBy", "a,A", "none twice"),
        ("partitionBy", "a,`A`", "none twice"),
        ("partitionBy", "a,", "column names separated by commas, names with a comma in backticks"),
        ("partitionBy", "``", "column names separated by commas"),
        ("partitionBy", "`a", "column names separated by commas"),
        ("partitionBy", "`a`b", "column names separated by commas"),
        ("onGap", "maybe", "one of `fail`, `accept`"),
        ("versionAsOf", "1", "is for reading, not for writing"),
        ("timestampAsOf", "2024-07-01", "is for reading, not for writing"),
        ("txnVersion", "-1", "a whole number of 0 or more"),
        ("txnVersion", str(2**63), "less than 2^63"),
        ("maxFilesPerTrigger", "1", "not for writing; set it on readStream"),
        ("encoding", "UTF-16", "not for writing; text is written in UTF-8"),
        ("parquet.block.size", "1", "there is no option 'parquet.block.size': row groups have a size"),
        ("mergeSchema", "true", "wider types with onSchemaChange=widen"),
        ("overwriteSchema", "true", "mode('overwrite') accepts any schema; leave it out"),
        ("dataChange", "false", "each write changes data; ftfile.compact(path) does not"),
        ("clusterBy", "day", "use partitionBy for directories, DataFrame.sortWithinPartitions"),
        ("optimizeWrite", "true", "merge small files with ftfile.compact(path)"),
        ("numPartitions", "4", "there is no option 'numPartitions': call DataFrame.repartition(…)"),
        ("mode", "append", "call write.mode(…)"),
        ("trigger", "once", "call writeStream.trigger(…)"),
        ("bucketBy", "a", "not for files (`ftfile`): writing; use partitionBy for directories"),
        ("recordNamespace", "com.example", "use recordName with the namespace, such as com.example.Row"),
        ("emptyValue", "", 'an empty text is "", and null is nullValue'),
        ("parquet.compression", "gzip", "there is no option 'parquet.compression': use compression"),
        (
            "spark.sql.sources.partitionOverwriteMode",
            "dynamic",
            "use partitionOverwriteMode, or set this in the session",
        ),
        ("startingVersion", "1", "not for writing; read new rows with readStream and startingVersion"),
        ("compresion", "gzip", "did you mean compression or compressionLevel?"),
        ("replication", "2", "there is no option 'replication': use storage.replication"),
        ("blockSize", "1MiB", "there is no option 'blockSize': use storage.blockSize"),
        ("sep", "ab", r"it takes a single character, or `\t`"),
        ("delta.columnMapping.mode", "name", "it is an option of another program: leave it out"),
        ("delta.autoOptimize.autoCompact", "true", "merge small files with ftfile.compact(path)"),
        ("spark.sql.shuffle.partitions", "4", "set it in the session: spark.conf.set(…)"),
        ("fs.s3a.endpoint", "x", "use storage.<name>; settings of Hadoop"),
        ("overwrite", "true", "call write.mode(…)"),
    ],
)
def test_mistakes_say_what_to_write_instead(key: str, value: str, text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        parse_options({key: value}, SinkOptions)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a , b", ["a", "b"]),
        ("`a,b`,c", ["a,b", "c"]),
        (" `a,b` , `c` ", ["a,b", "c"]),
        ("```a`` b`", ["`a` b"]),
        ("` a`,\ta", [" a", "a"]),
        ("a`b,c`", ["a`b", "c`"]),
        ("`,`", [","]),
        ("x y\n", ["x y"]),
    ],
)
def test_columns_in_backticks(text: str, names: list[str]) -> None:
    assert parse_options({"partitionBy": text}, SinkOptions).partition_by == tuple(names)
    for key in ("keyColumns", "bucketBy"):
        assert parse_options({key: text}, StoreSinkOptions).given[key] == tuple(names)
    assert parse_options({"partitionBy": columns_text(names)}, SinkOptions).partition_by == tuple(names)


def test_columns_are_in_backticks_where_they_must_be() -> None:
    assert columns_text(["a", "b c", "d,e", "`f", "g`", "`"]) == "a,b c,`d,e`,```f`,g`,````"


@pytest.mark.parametrize(
    ("key", "value", "meant"),
    [
        ("compression", "UNCOMPRESSED", "none"),
        ("sep", r"\t", "\t"),
        ("sep", "\t", "\t"),
        ("escape", r"\\", "\\"),
        ("escape", "\\", "\\"),
        ("quote", r"\"", '"'),
    ],
)
def test_values_as_spark_takes_them(key: str, value: str, meant: str) -> None:
    assert parse_options({key: value}, SinkOptions).given[key] == meant


def test_several_paths_are_answered() -> None:
    with pytest.raises(ConfigError, match="a reader reads one directory"):
        parse_options({"paths": '["/a", "/b"]'}, ReadOptions)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("header", "not for reading; the log describes how a version is read: leave it out"),
        ("pathGlobFilter", "not for reading; the log describes how a version is read: leave it out"),
        ("mergeSchema", "a reader returns the newest columns"),
        ("inferSchema", "the log of a directory of ftfile contains its columns"),
        ("mode", "a reader has no modes, and fails if data is damaged"),
        ("filter", "call the method of the DataFrame"),
        ("snapshot-id", "use versionAsOf"),
        ("as-of-timestamp", "use timestampAsOf"),
        ("readChangeFeed", "`ftkv` with `readChangeFeed`), not for files (`ftfile`): reading; read new rows"),
        ("endingVersion", "read new rows with readStream and startingVersion"),
        ("startingVersion", "not for reading; read new rows with readStream"),
        ("maxFilesPerTrigger", "not for reading; set it on readStream"),
        ("partition_by", "no option 'partition_by', and option 'partitionBy' is for writing, not for reading"),
        ("filterPushDwn", "did you mean filterPushdown?"),
        ("delta", "there is no option 'delta'; the options are "),
    ],
)
def test_what_a_reader_of_a_version_takes_from_the_log(key: str, text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        parse_options({key: "1"}, ReadOptions)


@pytest.mark.parametrize("use", ["follow", "ftkv-follow"])
@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("versionAsOf", "; set the start of a stream with startingVersion"),
        ("timestampAsOf", "; set the start of a stream with startingTimestamp"),
    ],
)
def test_a_stream_begins_where_other_options_say(use: Use, key: str, text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        parse_options({key: "1"}, KINDS[use])


def test_options_of_another_format_are_named() -> None:
    parsed = parse_options({"header": "true"}, SinkOptions)
    assert parsed.for_format("csv") == {"header": True}
    with pytest.raises(ConfigError, match="'header' is for fileFormat=csv, but fileFormat is json"):
        parsed.for_format("json")


@pytest.mark.parametrize("family", [OF_FILES, STORES])
def test_names_are_unique_in_any_case(family: frozenset[str]) -> None:
    names = [option.name.lower() for option in OPTIONS if option.used_by & family]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("key", "use", "text"),
    [
        ("keyColumns", "write", "is for writing keyed stores (`ftkv`), not for files (`ftfile`): writing"),
        ("maxFileSize", "write", "not for files (`ftfile`): writing; use maxBytesPerFile"),
        ("cacheBytes", "read", "is for reading keyed stores (`ftkv`), not for files (`ftfile`): reading"),
        ("header", "ftkv-write", "is for files (`ftfile`): writing and streams of other programs' files"),
        ("startingVersion", "ftkv-read", "is for reading the changes of keyed stores (`ftkv` with `readChangeFeed`)"),
        ("deleteColumn", "ftkv-read", "is for writing keyed stores (`ftkv`), not for reading"),
        ("keys", "ftkv-write", "use keyColumns for the key columns"),
        ("aesKey", "ftkv-write", "keys are never set in options"),
        ("filterPush", "ftkv-read", "did you mean filterPushdown"),
    ],
)
def test_files_and_stores_have_options_of_their_own(key: str, use: Use, text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        parse_options({key: "1"}, KINDS[use])


def test_one_name_may_be_of_files_and_of_stores() -> None:
    assert parse_options({"compression": "gzip"}, SinkOptions).compression == "gzip"
    assert parse_options({}, SinkOptions).compression is None
    assert parse_options({}, StoreSinkOptions).compression == "lz4"


PAGE = ROOT / "docs" / "options.md"
PAGES = runpy.run_path(str(ROOT / ".ci/options.py"))


def problem_of_page() -> str:
    """Return the change that makes the page of options agree with the table; empty for a correct page."""
    page = PAGE.read_text()
    try:
        made = PAGES["to_markdown"](page)
    except SystemExit as error:
        return f"{error}: add it by hand, then run `make docs`"
    if made != page:
        return "docs/options.md differs from core/options/typed.py: run `make docs`"
    return ""


def test_the_page_of_options_says_what_the_table_says() -> None:
    problem = problem_of_page()
    assert not problem, problem


def test_the_keyword_arguments_are_those_of_the_declarations() -> None:
    module = PAGES["ARGUMENTS"].read_text()
    assert PAGES["to_arguments"](module) == module, "SinkArguments differs from core/options/typed.py: run `make docs`"
    stale = re.sub(r"    file_format: .*\n", "", module).replace("part_prefix: str", "part_prefix: int")
    assert stale != module
    assert PAGES["to_arguments"](stale) == module


# One test reports a page that lacks an option. Tests of changed pages need a correct page.
needs_correct_page = pytest.mark.skipif(bool(problem_of_page()), reason="docs/options.md differs from the table")


PATH_TABLE = "| option for all | takes | meaning |\n|---|---|---|\n| `path`"


@needs_correct_page
@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("| `header` (csv) | **`true`** |", "| `header` (csv) | `true`, **`false`** |"),
        ("| `sep` (text) |", "| `sep` (csv) |"),
        ("| 2 or more | A file closes", "| 1 or more | A file closes"),
        ("| `rolling` | `batch`, **`policy`** |", "| `rolling` | **`batch`**, `policy` |"),
        ("| `rolling` | x; default: `policy`; `batch` without any rule |", "| `rolling` | **`batch`**, `policy` |"),
        ("| `successFile` | text; default: `_SUCCESS` |", "| `successFile` | text |"),
        ("| `partSuffix` | text, **`-x`** |", "| `partSuffix` | text |"),
        ("| `publish` (write) |", "| `publish` |"),
        ("| option for read | takes | meaning |\n|---|---|---|\n| `path`", PATH_TABLE),
    ],
)
def test_facts_in_the_page_follow_from_the_table(wrong: str, right: str) -> None:
    page = PAGE.read_text()
    before = re.sub(r"`batch`, `policy`; default: .*? \|", "**`batch`**, `policy` |", page)
    assert right in before
    assert PAGES["to_markdown"](before.replace(right, wrong)) == before


@needs_correct_page
@pytest.mark.parametrize("begins", ["| `header` ", "| `compression` (write)", "| `compression` | "])
@pytest.mark.parametrize("left", ["", "| `{name}` | text | |\n"])
def test_the_page_says_of_every_option_what_it_means(begins: str, left: str) -> None:
    name = begins.split("`")[1]
    (line,) = [line for line in PAGE.read_text().splitlines(keepends=True) if line.startswith(begins)]
    with pytest.raises(SystemExit, match=f"no whole row, with a meaning, of {name}"):
        PAGES["to_markdown"](PAGE.read_text().replace(line, left.format(name=name)))


@pytest.mark.parametrize("name", FORMATS)
def test_formats_have_the_defaults_of_the_table(name: str) -> None:
    of_format = [option for option in OPTIONS if name in option.formats and option.default is not None]
    without = format_from_options(name, {"timeZone": "UTC"})
    for option in of_format:
        assert format_from_options(name, {"timeZone": "UTC", option.name: option.default}) == without, (
            f"{option.name} has another default in the format than in the table"
        )


@pytest.mark.parametrize(
    ("name", "option", "other"),
    [
        ("json", "ignoreNullFields", False),
        ("json", "timestampFormat", "yyyy"),
        ("csv", "dateFormat", "yyyy"),
        ("csv", "sep", ";"),
        ("text", "lineSep", "\r\n"),
        ("binary", "delimiter", b";"),
        ("avro", "recordName", "row"),
    ],
)
def test_formats_take_defaults_from_the_table(
    name: str, option: str, other: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, by_default = format_from_options(name, {option: other}), format_from_options(name, {})
    assert chosen != by_default
    monkeypatch.setitem(DEFAULTS, option, other)
    assert format_from_options(name, {}) == chosen
