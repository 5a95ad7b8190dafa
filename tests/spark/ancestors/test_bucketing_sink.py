"""Cases of Flink's BucketingSink, by the names of docs/internals/ancestors.md, as micro-batches of Spark.

An open file is in progress. A file with a record but without its final name is pending. A published file is final.
"""

from __future__ import annotations

import contextlib
import random
import time
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.errors import NotPublished
from ftfile.testing.context import ManualClock, current, repeatable
from tests.spark.ancestors.operators import joined, later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.ancestors.operators import Operator, Record

    Make = Callable[..., Operator]


def in_directories(*names: str, prefix: str = "") -> list[Record]:
    """Return one record for each directory."""
    return [(f"{prefix}{name}", f"{name}/part") for name in names]


def whole(operator: Operator) -> dict[str, list[Any]]:
    """Return the final content of each directory."""
    return {name.removesuffix("/part"): found for name, found in joined(operator.end()).items()}


@contextlib.contextmanager
def nothing_moves(sink: Operator) -> Iterator[None]:
    """Within the block, records are created and their files are not published."""
    broken = sink.out.parent / "broken"
    broken.touch()
    yield
    broken.unlink()


def end_idle(sink: Operator) -> None:
    """Finish idle files after an hour without a window."""
    with later(3600):
        ftfile.flush(sink.out, due_only=True, context=current())


def test_bs_1(operator: Make) -> None:
    """Once without a window, once without records."""
    sink = operator()
    sink.query = sink.start()
    sink.query.processAllAvailable()
    sink.crash()
    assert not sink.out.exists()
    sink.run([])
    assert sink.end() == {}


def test_bs_2(operator: Make) -> None:
    """Two idle directories end. The notification is late: their record exists, but their files are not published."""
    sink = operator(inactivityInterval="1h")
    sink.scheme = "failing:"
    sink.run(in_directories("a", "b"))
    an_hour_later = ManualClock(current().clock.now_ms() + 3_600_000)
    with nothing_moves(sink), repeatable(an_hour_later), pytest.raises(NotPublished):
        ftfile.flush(f"failing:{sink.out}", due_only=True, context=current())
    assert sink.files() == {}
    sink.run(in_directories("c", "d"))
    assert sorted(sink.files()) == ["a/part", "b/part"]
    end_idle(sink)
    assert sorted(sink.files()) == ["a/part", "b/part", "c/part", "d/part"]


def test_bs_3(operator: Make) -> None:
    """Files end by size and by time. Files in progress of other attempts are neither read nor changed."""
    sink = operator(maxBytesPerFile="10", inactivityInterval="1h")
    sink.run([("first", "a/part"), ("second", "a/part")])
    sink.crash_in(("never", "a/part"))
    (query,) = sink.out.joinpath("_ftfile", "staged").iterdir()
    leftover = query / "1" / "00000-0-leftover.spool"
    leftover.parent.mkdir(exist_ok=True)
    leftover.write_text("never\n")
    sink.put("a/_part-0-1.in-progress")
    sink.run([("third", "a/part"), ("fourth", "b/part")])
    end_idle(sink)
    assert sink.files() == {"a/part": [["first", "second"], ["third"]], "b/part": [["fourth"]]}
    assert leftover.read_text() == "never\n"
    sink.take_away()


def test_bs_4(operator: Make) -> None:
    """The number of tasks is unchanged, and another task writes each directory."""
    sink = operator(rolling="policy", partitions=2)
    names = ["a", "b", "c", "d", "e"]
    sink.run(in_directories(*names, prefix="1"))
    sink.crash()
    sink.run(in_directories(*reversed(names), prefix="2"))
    assert whole(sink) == {name: [f"1{name}", f"2{name}"] for name in names}


def test_bs_5(operator: Make) -> None:
    sink = operator(rolling="policy", partitions=3)
    sink.run(in_directories("a", "b", "c", "d"))
    sink.crash()
    sink.partitions = 2
    sink.run(in_directories("a", "d", prefix="2"))
    assert whole(sink) == {"a": ["a", "2a"], "b": ["b"], "c": ["c"], "d": ["d", "2d"]}
    assert len(sink.visible()) == 4


def test_bs_6(operator: Make) -> None:
    sink = operator(rolling="policy", partitions=2)
    sink.run(in_directories("a", "b", "c", "d", "e"))
    assert len(sink.end()) == 5
    sink.partitions = 3
    sink.run(in_directories("f", "g", "a"))
    assert len(sink.visible()) == 5
    assert sink.end() == {
        f"{name}/part": [[name], [name]] if name == "a" else [[name]] for name in ("a", "b", "c", "d", "e", "f", "g")
    }


def test_bs_7(operator: Make) -> None:
    """A finished part ends before later rows are added to it."""
    sink = operator(rolloverInterval="100ms")
    sink.run([0])
    time.sleep(0.11)
    sink.run([1])
    time.sleep(0.11)
    sink.run([], [])
    assert sink.files() == {"file": [[0], [1]]}


@pytest.mark.parametrize(
    "options",
    [
        {"fileFormat": "text"},
        {"fileFormat": "json"},
        {"fileFormat": "csv", "nullValue": "-"},
        {"fileFormat": "parquet", "compression": "none"},
        {"fileFormat": "parquet", "compression": "gzip"},
    ],
    ids=["text", "json", "csv", "parquet", "parquet-gzip"],
)
def test_bs_8(operator: Make, spark: SparkSession, options: Mapping[str, str]) -> None:
    messages = [f"message #{number}" for number in range(100)]
    sink = operator(fileNameColumn=None, select=("value",), **options, partFileName="{name}-0-{number}")
    sink.run(messages)
    sink.crash()
    assert [path.name for path in sink.out.iterdir() if path.is_file()] == ["part-0-0"]
    read = spark.read.schema("value string").format(options["fileFormat"]).load(str(sink.out))
    assert [row.value for row in read.collect()] == messages


def test_bs_9(operator: Make) -> None:
    sink = operator(
        select=("value", "timestamp_seconds(1700002800 + value * 720) as at"),
        directoryPattern="at:yyyy-MM-dd--HH",
        fileNameColumn=None,
        fileFormat="csv",
        nullValue="-",
    )
    sink.run([*range(20)])
    found = {name: [line.split(",")[0] for line in text.split()] for name, text in sink.visible().items()}
    # 23:00 UTC and later, in the time zone of the session.
    assert found == {
        f"2023-11-14--{18 + hour}/part.0": [str(number) for number in range(5 * hour, 5 * hour + 5)]
        for hour in range(4)
    }


def test_bs_10(operator: Make) -> None:
    """User-defined directories: two that are idle end, two that are not stay in progress."""
    sink = operator(
        directoryAssigner="tests.spark.ancestors.user_code:ByFive",
        fileNameColumn=None,
        select=("value",),
        inactivityInterval="1h",
    )
    sink.run([*range(10)])
    end_idle(sink)
    sink.run([*range(10, 20)], [])
    directories = {
        f"directory-{directory}/part": [[*range(5 * directory, 5 * directory + 5)]] for directory in range(4)
    }
    assert sink.files() == {name: directories[name] for name in ("directory-0/part", "directory-1/part")}
    assert sink.end() == directories


def test_bs_11(operator: Make) -> None:
    """Settings of the file system are used in every process."""
    sink = operator(filePermission="604", directoryPermission="705", rolling="policy")
    sink.run(in_directories("a"))
    sink.crash()
    assert {path.suffix: _mode(path) for path in (sink.out / "_ftfile").rglob("_0*.*")} == {
        ".record": 0o604,
        ".spool": 0o604,
    }
    del sink.options["rolling"]
    sink.run(in_directories("b"), [])
    assert {name: _mode(sink.out / name) for name in ("a", "a/part.0", "b", "b/part.0")} == {
        "a": 0o705,
        "a/part.0": 0o604,
        "b": 0o705,
        "b/part.0": 0o604,
    }


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def unpublished(sink: Operator) -> None:
    """Leave a pending file: a window's record exists, and its file is not published yet."""
    with nothing_moves(sink):
        sink.refused("is committed but not completely published", ("0", "b/part"))
    sink.windows += 1


def open_file(sink: Operator) -> None:
    """Leave an open file of an earlier run."""
    sink.options["maxBatchesPerFile"] = "1"
    sink.run([("0", "b/part")])
    assert sink.visible() == {}


def finished(sink: Operator) -> None:
    sink.run([("0", "b/part")])


@pytest.mark.parametrize(
    ("suffix", "before"),
    [
        pytest.param(suffix, before, id=f"bs_{number}")
        for number, (suffix, before) in enumerate(
            [(suffix, before) for suffix in (".my", "") for before in (open_file, unpublished, finished)], 12
        )
    ],
)
def test_bs_12_to_17(operator: Make, suffix: str, before: Callable[[Operator], None]) -> None:
    """After a file in progress, pending or final, the next number follows, with a suffix and without."""
    sink = operator(partFileName=f"{{name}}-0-{{number}}{suffix}")
    sink.scheme = "failing:"
    before(sink)
    sink.crash()
    sink.run([("1", "b/part")], [], [])
    assert sink.visible() == {f"b/part-0-0{suffix}": "0\n", f"b/part-0-1{suffix}": "1\n"}


def test_bs_18(operator: Make, spark: SparkSession, seed: int) -> None:
    """A failure at 70 to 90 percent, twelve tasks, files of 10,000 bytes."""
    count, windows = 16_000, 2
    fails_at = random.Random(seed).randrange(int(count * 0.7), int(count * 0.9))
    sink = operator(partitions=12, maxBytesPerFile="10000", rolling="policy")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "200")
    messages = [f"message#{number}" for number in range(count)]
    for first in range(0, count, count // windows):
        end = first + count // windows
        if first <= fails_at < end:
            sink.crash_in(*messages[first:fails_at])
        sink.run(messages[first:end])
    found = sink.end()["file"]
    assert sorted(message for part in found for message in part) == sorted(messages)
    sizes = [sum(len(message) + 1 for message in part) for part in found]
    assert all(10_000 <= size < 10_100 for size in sizes[:-1]), sizes
