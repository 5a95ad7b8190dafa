"""Directories: in which directory, and in which file, a record is."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ftfile
from ftfile.core.errors import ConfigError, EncodingError, SchemaError, UserCodeError
from ftfile.testing.checker import check_directory
from ftfile.testing.context import ManualClock, open_filesystem, repeatable
from ftfile.testing.micro_batch import MicroBatch, spark_schema
from ftfile.writing.files.file_options import SinkConfig
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMNS = {"id": "long", "word": "string", "ts": "timestamp"}
NTZ = {"id": "long", "local": "timestamp_ntz", "day": "date"}
USER_CODE = "tests.unit.writing.files.user_code"


def instant(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(f"{text}+00:00")


def directories(path: str) -> dict[str, list[int]]:
    """The ids below each directory, as a plain reader of json lines finds them."""
    found: dict[str, list[int]] = {}
    for file in sorted(Path(path).rglob("*.json")):
        ids = [int(number) for number in re.findall(r'"id":(\d+)', file.read_text())]
        found.setdefault(str(file.parent.relative_to(path)), []).extend(ids)
    return {directory: sorted(ids) for directory, ids in sorted(found.items())}


def stems(path: str) -> list[str]:
    return sorted(re.sub(r"-\d{10}-.*", "", str(file.relative_to(path))) for file in Path(path).rglob("*.json"))


def rows_of(path: str) -> list[dict[str, Any]]:
    return sorted(ftfile.open(path).to_arrow().to_pylist(), key=lambda row: row["id"])


def config(columns: Mapping[str, Any] = COLUMNS, /, **options: str) -> SinkConfig:
    return SinkConfig.from_options({"path": "/x", "fileFormat": "json", **options}, spark_schema(columns))


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def write(out: str, rows: list[dict[str, Any]], columns: Mapping[str, Any] = COLUMNS, /, **options: str) -> MicroBatch:
    query = MicroBatch(out, columns, {"fileFormat": "json", **options})
    query.run(0, [rows])
    check_directory(open_filesystem(out))
    return query


class TestPatternOfAColumn:
    def test_directories_and_rows_that_keep_the_time(self, out: str) -> None:
        rows = [
            {"id": 1, "word": "a", "ts": instant("2024-05-01T10:59:59.999999")},
            {"id": 2, "word": "b", "ts": instant("2024-05-01T11:00:00")},
            {"id": 3, "word": "c", "ts": instant("2024-05-01T10:00:00")},
        ]
        write(out, rows, directoryPattern="TS:yyyy/MM/dd/HH")
        assert directories(out) == {"2024/05/01/10": [1, 3], "2024/05/01/11": [2]}
        assert rows_of(out) == rows
        assert {file.directory for file in ftfile.open(out).files()} == {"2024/05/01/10", "2024/05/01/11"}

    def test_clocks_that_are_set_forward_have_no_hour_two(self, out: str) -> None:
        times = ["00:59:59", "01:00:00", "01:59:59"]
        rows = [{"id": n, "word": "", "ts": instant(f"2024-03-31T{time}")} for n, time in enumerate(times)]
        write(out, rows, directoryPattern="ts:yyyy-MM-dd--HH", timeZone="Europe/Berlin")
        assert directories(out) == {"2024-03-31--01": [0], "2024-03-31--03": [1, 2]}

    def test_clocks_that_are_set_back_have_one_directory_for_both_hours(self, out: str) -> None:
        times = ["2024-10-26T23:59:59", "2024-10-27T00:30:00", "2024-10-27T01:30:00", "2024-10-27T02:00:00"]
        rows = [{"id": n, "word": "", "ts": instant(time)} for n, time in enumerate(times)]
        write(out, rows, directoryPattern="ts:yyyy-MM-dd--HH", timeZone="Europe/Berlin")
        assert directories(out) == {"2024-10-27--01": [0], "2024-10-27--02": [1, 2], "2024-10-27--03": [3]}

    def test_a_zone_by_offset(self, out: str) -> None:
        rows = [{"id": 1, "word": "", "ts": instant("2024-01-01T22:30:00")}]
        write(out, rows, directoryPattern="ts:dd-HHmm", timeZone="+01:45")
        assert directories(out) == {"02-0015": [1]}

    def test_times_without_zone_and_dates_are_as_they_are(self, out: str) -> None:
        rows = [{"id": 1, "local": dt.datetime(2024, 5, 1, 23, 30), "day": dt.date(2023, 12, 31)}]  # noqa: DTZ001
        write(out, rows, NTZ, directoryPattern="local:yyyy-MM-dd-HH", timeZone="Asia/Tokyo")
        assert directories(out) == {"2024-05-01-23": [1]}
        other = f"{out}-day"
        write(other, rows, NTZ, directoryPattern="day:'year='yyyy/'month='MM")
        assert directories(other) == {"year=2023/month=12": [1]}
        assert rows_of(other) == rows

    @pytest.mark.parametrize("year", [1, 9999])
    def test_the_first_and_the_last_year(self, out: str, year: int) -> None:
        rows = [{"id": 1, "local": dt.datetime(year, 1, 1), "day": dt.date(year, 12, 31)}]  # noqa: DTZ001
        write(out, rows, NTZ, directoryPattern="local:yyyy")
        assert directories(out) == {f"{year:04}": [1]}

    @pytest.mark.parametrize("micros", [None, -62_135_700_000_000_000, 253_402_400_000_000_000, 2**62, -(2**62)])
    @pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "-08:00"])
    def test_no_directory_for_no_time_or_a_year_of_five_digits(self, micros: int | None, zone: str) -> None:
        settings = config(directoryPattern="ts:yyyy", timeZone=zone, fileFormat="parquet")
        refused: list[str] = []
        router = settings.directories.router(lambda _, faults: refused.extend(faults), 0)
        times = pa.array([0, micros, 1], pa.timestamp("us", "UTC"))
        batch = pa.record_batch({"id": [1, 2, 3], "word": ["a", "b", "c"], "ts": times})
        rows, directories = router.route(batch)
        assert rows["id"].to_pylist() == [1, 3]
        assert [directory for directory, _, _ in directories] == ["1970" if zone != "-08:00" else "1969"]
        assert len(refused) == 1
        assert refused[0].startswith(f"directoryPattern: column 'ts' is {'null' if micros is None else micros}")

    def test_a_local_time_beyond_the_last_year_has_none(self) -> None:
        settings = config(directoryPattern="ts:yyyy", timeZone="Asia/Tokyo")
        refused: list[Any] = []
        router = settings.directories.router(lambda rows, _: refused.extend(rows["id"].to_pylist()), 0)
        last = 253_402_300_799_999_999  # 9999-12-31T23:59:59.999999Z
        times = pa.array([last, last - 9 * 3_600_000_000], pa.timestamp("us", "UTC"))
        router.route(pa.record_batch({"id": [1, 2], "word": ["a", "b"], "ts": times}))
        assert refused == [1]


class TestPatternOfTheBatch:
    NOON = instant("2024-10-27T11:59:59")

    def clock(self) -> ManualClock:
        return ManualClock(int(self.NOON.timestamp() * 1000))

    @pytest.mark.slow
    def test_every_task_and_every_attempt_has_the_time_at_which_the_batch_was_planned(self, out: str) -> None:
        clock = self.clock()
        with repeatable(clock):
            query = MicroBatch(out, {"id": "long"}, {"fileFormat": "json", "directoryPattern": "yyyy-MM-dd--HH"})
            planned, writer = query.pickled_plan(), query.identity(0)
            messages = []
            for task in range(3):
                clock.sleep(3600)
                query.run_task(planned, writer, task, [{"id": task}])
                messages.append(query.run_task(planned, writer, task, [{"id": task}], attempt=1))
            query.commit(0, messages)
            assert directories(out) == {"2024-10-27--11": [0, 1, 2]}
            query.run(1, [[{"id": 3}]])
        assert directories(out) == {"2024-10-27--11": [0, 1, 2], "2024-10-27--14": [3]}
        assert [row["id"] for row in rows_of(out)] == [0, 1, 2, 3]

    def test_the_zones_clock(self, out: str) -> None:
        with repeatable(self.clock()):
            write(out, [{"id": 1}], {"id": "long"}, directoryPattern="yyyy/MM/dd/HH-mm", timeZone="Asia/Kolkata")
        assert directories(out) == {"2024/10/27/17-29": [1]}

    def test_a_replay_in_another_hour_writes_nothing(self, out: str) -> None:
        clock = self.clock()
        with repeatable(clock):
            query = write(out, [{"id": 1}], {"id": "long"}, directoryPattern="HH")
            clock.sleep(7200)
            query.restart()
            assert query.run(0, [[{"id": 1}]]).replayed
        assert directories(out) == {"11": [1]}


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("nosuch:yyyy", "names a column that does not exist: 'nosuch'; the columns are id, word, ts"),
        ("HH:mm", "A colon separates a column and its pattern"),
        ("word:yyyy", "column 'word' is string, but a date or timestamp is needed"),
        ("ts:yyyy-QQ", "'QQ' is not understood; accepted: yyyy, MM, dd, HH, mm, ss"),
        ("yyyyXXX", "'XXX' is not understood"),
        ("'dir'", "it must contain at least one field, and each field only once"),
        ("", "at least one"),
        ("/yyyy", "is absolute"),
        ("yyyy//MM", "has an empty part"),
        ("yyyy/", "has an empty part"),
        ("../yyyy", "has the part '..'"),
        ("'_'yyyy", "which readers ignore"),
        (".yyyy", "which readers ignore"),
        ("yyyy/'_x'MM", "which readers ignore"),
        ("yyyy'\n'", r"has the character '\n'"),
    ],
)
def test_patterns_that_are_refused(pattern: str, text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        config(directoryPattern=pattern)


class TestFileNames:
    def test_files_and_directories_are_chosen_by_records(self, out: str) -> None:
        names = ["orders", "eu/orders", "eu/de/returns", "orders"]
        rows = [{"id": n, "word": name, "ts": None} for n, name in enumerate(names)]
        write(out, rows, fileNameColumn="word")
        assert stems(out) == ["eu/de/returns", "eu/orders", "orders"]
        assert '"word"' not in "".join(file.read_text() for file in Path(out).rglob("*.json"))

    @parametrize("file_format", ["json", "parquet", "csv"], quick=1)
    def test_readers_of_the_log_get_the_column_back(self, out: str, file_format: str) -> None:
        rows = [{"id": 1, "word": "a", "ts": instant("2024-01-01T00:00:00")}]
        rows += [{"id": 2, "word": "b=1/id=7/c", "ts": instant("2024-01-01T00:00:00")}]
        for number, more in enumerate([{}, {"directoryPattern": "ts:yyyy/MM"}, {"partitionBy": "ts"}]):
            path = f"{out}-{number}"
            options = {"fileFormat": file_format, "fileNameColumn": "word", **more}
            options |= {"nullValue": "-"} if file_format == "csv" else {}
            MicroBatch(path, COLUMNS, options).run(0, [rows])
            assert rows_of(path) == rows
            assert {file.rows for file in ftfile.open(path).files()} == {1}

    def test_each_name_has_its_own_files(self, out: str) -> None:
        rows = [{"id": n, "word": f"name-{n % 3}", "ts": None} for n in range(30)]
        query = write(out, rows, fileNameColumn="word", maxRecordsPerFile="5")
        assert stems(out) == ["name-0", "name-0", "name-1", "name-1", "name-2", "name-2"]
        directories = {add.directory_key for add in ftfile.open(query.path).snapshot().adds.values()}
        assert directories == {"//name-0", "//name-1", "//name-2"}

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            (None, "column 'word' is null"),
            ("", "column 'word' is empty"),
            ("/etc/passwd", "'/etc/passwd', which is absolute"),
            ("../up", "'../up', which has the part '..', but files must be below"),
            ("a/../../up", "which has the part '..', but files must be below"),
            ("a/./b", "which has the part '.', but files must be below"),
            ("a//b", "which has an empty part"),
            ("a/", "which has an empty part"),
            ("_ftfile/log/x", "which has the part '_ftfile', which readers ignore"),
            ("a/.hidden", "which has the part '.hidden', which readers ignore"),
            ("a._COPYING_", "which readers ignore"),
            ("a\0b", r"has the character '\x00'"),
            ("a:b", "has the character ':'"),
            ("x" * 250, "has a part of 250 bytes, but a part may have at most"),
            ("é" * 128 + "/x", "has a part of 256 bytes, but a part may have at most 255"),
            ("/".join(["x" * 100] * 12), "has 1211 bytes, but a path may have at most 1000"),
        ],
    )
    def test_what_is_no_name_is_refused_with_column_and_value(self, out: str, name: str | None, text: str) -> None:
        query = MicroBatch(out, COLUMNS, {"fileFormat": "json", "fileNameColumn": "word"})
        rows: list[dict[str, Any]] = [{"id": 1, "word": "fine", "ts": None}, {"id": 2, "word": name, "ts": None}]
        with pytest.raises(EncodingError, match=re.escape(text)):
            query.run(0, [rows])
        assert not list(Path(out).rglob("*.staged"))

    def test_a_name_as_long_as_it_may_be(self, out: str) -> None:
        longest = config(fileNameColumn="word").publishing.naming.stem_bytes_max(".json")
        write(out, [{"id": 1, "word": "x" * longest, "ts": None}], fileNameColumn="word")
        assert rows_of(out)[0]["word"] == "x" * longest

    def test_names_that_are_not_utf_8(self) -> None:
        router = config(fileNameColumn="word").directories.router(self.refuse, 0)
        word = pa.array([b"a", b"\xff", None, b"b"], pa.binary()).view(pa.string())
        self.reasons: list[str] = []
        rows, directories = router.route(pa.record_batch({"id": range(4), "word": word}))
        assert rows["id"].to_pylist() == [0, 3]
        assert [directory for directory, _, _ in directories] == ["//a", "//b"]
        assert [reason.rsplit(" ", 3)[1:] for reason in self.reasons] == [
            ["is", "not", "UTF-8"],
            ["names", "no", "file"],
        ]

    def refuse(self, _rows: pa.RecordBatch, faults: Any) -> None:
        self.reasons += faults

    def test_what_is_no_column_of_names(self) -> None:
        with pytest.raises(
            ConfigError, match="fileNameColumn names a column that does not exist: 'x'; the columns are id, word, ts"
        ):
            config(fileNameColumn="x")
        with pytest.raises(ConfigError, match="column 'id' is int64, but a string is needed"):
            config(fileNameColumn="id")
        with pytest.raises(ConfigError, match="partitionBy and fileNameColumn both name 'word'"):
            config(fileNameColumn="WORD", partitionBy="word")
        with pytest.raises(SchemaError, match="partitionBy and fileNameColumn name every column"):
            config({"a": "string", "b": "string"}, fileNameColumn="a", partitionBy="b")


FRUITS: list[dict[str, Any]] = [
    {"id": n, "word": word, "ts": None} for n, word in enumerate(["apple", "avocado", "banana", "ananas"])
]


class TestAClassOfTheUsers:
    def test_gives_directories(self, out: str) -> None:
        write(out, FRUITS, directoryAssigner=f"{USER_CODE}:Initials")
        assert directories(out) == {"a": [0, 1, 3], "b": [2]}
        assert rows_of(out) == FRUITS

    def test_gets_its_options(self, out: str) -> None:
        write(out, FRUITS, directoryAssigner=f"{USER_CODE}:Initials", **{"DirectoryAssigner.Letters": "2"})
        assert directories(out) == {"an": [3], "ap": [0], "av": [1], "ba": [2]}

    def test_may_choose_the_directory_itself(self, out: str) -> None:
        write(out, FRUITS, directoryAssigner=f"{USER_CODE}:Initials", **{"directoryAssigner.letters": "0"})
        assert directories(out) == {".": [0, 1, 2, 3]}

    @pytest.mark.slow
    def test_may_name_files(self, out: str) -> None:
        rows = [{"id": 1, "word": "a/x", "ts": None}, {"id": 2, "word": "y", "ts": None}]
        write(out, rows, directoryAssigner=f"{USER_CODE}:Files")
        assert stems(out) == ["a/x", "y"]
        assert rows_of(out) == rows

    @pytest.mark.parametrize(
        ("word", "text"),
        [(None, "Files' returned null"), ("../x", "which has the part '..'"), ("", "has an empty part")],
    )
    def test_must_stay_below_the_directory(self, out: str, word: str | None, text: str) -> None:
        query = MicroBatch(out, COLUMNS, {"fileFormat": "json", "directoryAssigner": f"{USER_CODE}:Files"})
        with pytest.raises(EncodingError, match=re.escape(text)):
            query.run(0, [[{"id": 1, "word": word, "ts": None}]])

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            (
                {"directoryAssigner": "nosuch_module:X"},
                "directoryAssigner='nosuch_module:X' cannot be loaded: ModuleNotFoundError",
            ),
            ({"directoryAssigner": f"{USER_CODE}:Nosuch"}, "cannot be loaded: AttributeError"),
            ({"directoryAssigner": "nocolon"}, "write `module:name`"),
            ({"directoryAssigner": f"{USER_CODE}:NoMethod"}, "has no method paths(batch)"),
            ({"directoryAssigner": f"{USER_CODE}:Broken"}, "cannot be created from {}: KeyError('how')"),
            (
                {"directoryAssigner": f"{USER_CODE}:Broken", "directoryAssigner.how": "init"},
                "RuntimeError('cannot be made')",
            ),
            (
                {"directoryAssigner": f"{USER_CODE}:Broken", "directoryAssigner.how": "raise"},
                "Broken' raised ValueError",
            ),
            (
                {"directoryAssigner": f"{USER_CODE}:Broken", "directoryAssigner.how": "numbers"},
                "but must return strings",
            ),
            ({"directoryAssigner": f"{USER_CODE}:Broken", "directoryAssigner.how": "list"}, "but must return strings"),
            (
                {"directoryAssigner": f"{USER_CODE}:Broken", "directoryAssigner.how": "short"},
                "returned 1 keys for 0 rows",
            ),
            ({"directoryAssigner.letters": "2"}, "directoryAssigner.letters is an option for your class"),
            (
                {"directoryAssigner": f"{USER_CODE}:Files", "fileNameColumn": "word"},
                "directoryAssigner and fileNameColumn both",
            ),
        ],
    )
    def test_is_checked_at_the_start(self, options: dict[str, str], text: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(text)):
            config(**options)

    def test_is_named_when_it_fails(self, out: str) -> None:
        options = {"fileFormat": "json", "directoryAssigner": f"{USER_CODE}:Broken", "directoryAssigner.how": "late"}
        with pytest.raises(UserCodeError, match="Broken' raised ValueError"):
            MicroBatch(out, COLUMNS, options).run(0, [FRUITS])


@pytest.mark.slow
def test_directories_of_several_options_have_a_fixed_order(out: str) -> None:
    rows = [{"id": n, "word": word, "ts": instant("2024-05-01T00:00:00")} for n, word in enumerate(["ab", "b", "ab"])]
    write(out, rows, partitionBy="word", directoryPattern="ts:yyyy/MM", directoryAssigner=f"{USER_CODE}:Initials")
    assert directories(out) == {"word=ab/2024/05/a": [0, 2], "word=b/2024/05/b": [1]}
    other = f"{out}-files"
    write(other, rows, directoryPattern="ts:yyyy", fileNameColumn="word", partitionBy="ts")
    assert stems(other) == ["ts=2024-05-01 00%3A00%3A00/2024/ab", "ts=2024-05-01 00%3A00%3A00/2024/b"]
    assert rows_of(other) == rows


def test_columns_with_a_comma_are_named_in_backticks(out: str) -> None:
    columns = {"id": "long", "a,b": "string", "c": "string"}
    query = MicroBatch(out, columns, {"fileFormat": "json", "partitionBy": "`a,b`,c"})
    query.run(0, [[{"id": 1, "a,b": "x,y", "c": "z"}]])
    assert directories(out) == {"a,b=x,y/c=z": [1]}
    assert ftfile.open(out).to_arrow(where="`a,b` = 'x,y'").to_pylist() == [{"id": 1, "a,b": "x,y", "c": "z"}]
    changed = MicroBatch(out, columns, {"fileFormat": "json", "partitionBy": "c"})
    with pytest.raises(ConfigError, match="was written with partitionBy=`a,b`,c"):
        changed.run(1, [[{"id": 2, "a,b": "x", "c": "z"}]])


@pytest.mark.slow
def test_options_of_directories_may_change_from_one_batch_to_the_next(out: str) -> None:
    rows = [{"id": n, "word": f"w{n}", "ts": instant("2024-05-01T00:00:00")} for n in range(4)]
    query = MicroBatch(out, COLUMNS, {"fileFormat": "json"})
    changes: list[dict[str, str]] = [
        {},
        {"fileNameColumn": "word"},
        {"fileNameColumn": "word", "directoryPattern": "ts:yyyy/MM/dd"},
        {"directoryAssigner": f"{USER_CODE}:Initials"},
    ]
    for batch, options in enumerate(changes):
        query.options = {"fileFormat": "json", **options}
        query.run(batch, [[rows[batch]]])
        query.restart()
    assert rows_of(out) == rows
