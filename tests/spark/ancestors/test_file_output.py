"""Cases of Apex Malhar's AbstractFileOutputOperator, named as docs/ancestors.md names them, as micro-batches of Spark.

A window is a micro-batch, a logical file a directory `name=...`, a crash in a window an attempt that fails or a batch
that Spark has forgotten, a restore a restart from the checkpoint. Records are digits with a line end, two bytes long; a
file of more than `maxLength` 4 is one of `maxBytesPerFile` 5. A file of several parts is its parts in order.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.fs.registry import open_filesystem
from ftfile.testing.checker import check_directory
from tests.spark.scripted_source import Row, Script
from tests.spark.test_stream import forget_commit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Paths = dict[str, Any]
Files = dict[str, list[list[int]]]
EVEN, ODD = "even", "odd"
SIZE = {"maxBytesPerFile": "5", "rolling": "policy"}


class Operator:
    """An output operator of old: windows in, files out."""

    def __init__(self, spark: SparkSession, paths: Paths, names: dict[int, str] | None, **options: str) -> None:
        self.spark, self.paths, self.names, self.options = spark, paths, names, options
        self.script = Script(paths["script"]).write([], available=0)
        self.windows: list[list[int]] = []
        self.query: StreamingQuery | None = None
        self.foreign: list[Path] = []

    def put(self, *names: str) -> None:
        """Put files there that somebody else wrote."""
        for name in names:
            self.foreign.append(Path(self.paths["out"], name))
            self.foreign[-1].parent.mkdir(parents=True, exist_ok=True)
            self.foreign[-1].write_text("0\n1\n2\n")

    def rows(self, records: Sequence[int]) -> list[list[Row]]:
        names = self.names or {}
        return [[(record, names.get(record % 2, "file")) for record in records]]

    def run(self, *windows: Sequence[int]) -> None:
        """Run windows, one micro-batch each."""
        self.windows += [list(window) for window in windows]
        self.script.write([self.rows(window) for window in self.windows], available=len(self.windows) - len(windows))
        if self.query is None:
            self.query = self.start()
        for available in range(len(self.windows) - len(windows) + 1, len(self.windows) + 1):
            self.script.release(available)
            self.query.processAllAvailable()

    def crash(self) -> None:
        """Stop; the next run restores what the checkpoint has."""
        if self.query is not None:
            self.query.stop()
        self.query = None

    def crash_in(self, *records: int) -> None:
        """Lose a window: its attempt wrote some of its records and failed; it comes again with others."""
        number = len(self.windows)
        self.windows.append(list(records))
        self.script.write([self.rows(window) for window in self.windows]).fail(number, 0, times=3)
        if self.query is None:
            self.query = self.start()
        with pytest.raises(Exception, match="the script says"):
            self.query.processAllAvailable()
        self.crash()
        self.windows.pop()

    def forget(self) -> None:
        """Crash after a window was committed, before the engine knew."""
        self.crash()
        forget_commit(self.paths, len(self.windows) - 1)

    def start(self) -> StreamingQuery:
        stream = self.spark.readStream.format("scripted").option("script", str(self.script.directory)).load()
        columns = ["cast(id as string) as value", *(["word as name"] if self.names else [])]
        writer = stream.selectExpr(*columns).writeStream.format("ftfile").option("fileFormat", "text")
        options = {"checkpointLocation": self.paths["checkpoint"], **self.options}
        return writer.options(**options | ({"partitionBy": "name"} if self.names else {})).start(self.paths["out"])

    def end(self) -> Files:
        """End the stream and flush; return the parts of each file."""
        self.crash()
        if "rolling" in self.options or "maxBatchesPerFile" in self.options:
            ftfile.flush(self.paths["out"])
        return self.files()

    def files(self) -> Files:
        """Return what a plain reader sees: the parts of each file in order."""
        found: Files = defaultdict(list)
        for path in sorted(Path(self.paths["out"]).rglob("part-*.txt")):
            found[path.parent.name.rpartition("=")[2] if self.names else "file"].append(
                [int(line) for line in path.read_text().split()]
            )
        for path in self.foreign:
            assert path.read_text() == "0\n1\n2\n", "it is not ours to touch"
            path.unlink()
        check_directory(open_filesystem(self.paths["out"]))
        return dict(found)


def joined(files: Files) -> dict[str, list[int]]:
    return {name: list(chain.from_iterable(parts)) for name, parts in files.items()}


@pytest.fixture
def single(spark: SparkSession, paths: Paths) -> Iterator[Operator]:
    operator = Operator(spark, paths, None)
    yield operator
    operator.crash()


@pytest.fixture
def rolling(spark: SparkSession, paths: Paths) -> Iterator[Operator]:
    operator = Operator(spark, paths, None, **SIZE)
    yield operator
    operator.crash()


@pytest.fixture
def multi(spark: SparkSession, paths: Paths) -> Iterator[Operator]:
    operator = Operator(spark, paths, {0: EVEN, 1: ODD})
    yield operator
    operator.crash()


@pytest.fixture
def multi_rolling(spark: SparkSession, paths: Paths) -> Iterator[Operator]:
    operator = Operator(spark, paths, {0: EVEN, 1: ODD}, **SIZE)
    yield operator
    operator.crash()


def test_afo_1(single: Operator) -> None:
    single.run([0, 1], [2, 3])
    assert joined(single.end()) == {"file": [0, 1, 2, 3]}


def test_afo_2(single: Operator) -> None:
    """Apex replaces a file of the name; here no name is used twice, and what others wrote stays."""
    single.put("file")
    single.run([0, 1], [2, 3])
    assert joined(single.end()) == {"file": [0, 1, 2, 3]}


def test_afo_3(single: Operator) -> None:
    single.run([0, 1])
    single.crash_in(2, 2)
    single.run([4, 5], [6, 7])
    assert joined(single.end()) == {"file": [0, 1, 4, 5, 6, 7]}


def test_afo_4(single: Operator) -> None:
    single.put("file")
    single.run([0, 1])
    single.crash_in(2, 2)
    single.run([4, 5], [6, 7])
    assert joined(single.end()) == {"file": [0, 1, 4, 5, 6, 7]}


def test_afo_5(multi: Operator) -> None:
    multi.run([0, 1, 2, 3], [4, 5, 6, 7])
    assert joined(multi.end()) == {EVEN: [0, 2, 4, 6], ODD: [1, 3, 5, 7]}


def test_afo_6(multi: Operator) -> None:
    multi.put("name=even/file", "name=odd/file")
    multi.run([0, 1, 2, 3], [4, 5, 6, 7])
    assert joined(multi.end()) == {EVEN: [0, 2, 4, 6], ODD: [1, 3, 5, 7]}


def test_afo_7(multi: Operator) -> None:
    multi.run([0, 1, 2, 3])
    multi.crash_in(4, 5)
    multi.run([6, 7, 8, 9])
    assert joined(multi.end()) == {EVEN: [0, 2, 6, 8], ODD: [1, 3, 7, 9]}


def test_afo_8(rolling: Operator) -> None:
    rolling.run([0, 1, 2], [3, 4, 5, 6], [], [])
    assert rolling.files() == {"file": [[0, 1, 2], [3, 4, 5]]}


def test_afo_9(rolling: Operator) -> None:
    rolling.put("file.0", "file.1")
    rolling.run([0, 1, 2], [3, 4, 5, 6], [], [])
    assert rolling.files() == {"file": [[0, 1, 2], [3, 4, 5]]}


def test_afo_10(spark: SparkSession, paths: Paths) -> None:
    operator = Operator(spark, paths, None, **SIZE, maxBatchesPerFile="1")
    operator.run([0, 1, 2], [], [], [])
    assert operator.end() == {"file": [[0, 1, 2]]}


def test_afo_11(rolling: Operator) -> None:
    rolling.run([0, 1, 2])
    rolling.crash_in(3, 4)
    rolling.run([3, 4, 5], [6, 7, 8])
    assert rolling.end() == {"file": [[0, 1, 2], [3, 4, 5], [6, 7, 8]]}


def test_afo_12(rolling: Operator) -> None:
    """A second restore of the same checkpoint: the window that was committed is not written again."""
    rolling.run([0, 1, 2], [3, 4])
    rolling.crash_in(5, 5)
    rolling.run([5])
    rolling.forget()
    rolling.run([6, 7, 8])
    assert rolling.end() == {"file": [[0, 1, 2], [3, 4, 5], [6, 7, 8]]}


def test_afo_13(multi_rolling: Operator) -> None:
    multi_rolling.run([0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 6, 7])
    assert multi_rolling.end() == {EVEN: [[0, 2, 4], [6, 8, 6]], ODD: [[1, 3, 5], [7, 9, 7]]}


def test_afo_14(multi_rolling: Operator) -> None:
    multi_rolling.run([0, 1])
    multi_rolling.crash_in(2, 3)
    multi_rolling.run([2, 3], [4, 5], [6, 7, 8, 9, 6, 7])
    assert multi_rolling.end() == {EVEN: [[0, 2, 4], [6, 8, 6]], ODD: [[1, 3, 5], [7, 9, 7]]}


def test_afo_15(multi_rolling: Operator) -> None:
    multi_rolling.run([0, 1])
    multi_rolling.crash_in(2, 3)
    multi_rolling.run([4, 5], [6, 7, 8, 9, 6, 7, 10, 11])
    found = multi_rolling.end()
    assert joined(found) == {EVEN: [0, 4, 6, 8, 6, 10], ODD: [1, 5, 7, 9, 7, 11]}
    assert [found[EVEN][0], found[ODD][0]] == [[0, 4, 6], [1, 5, 7]]


def test_afo_16(rolling: Operator) -> None:
    """Records that were written after the checkpoint, and come no more, are in no file."""
    rolling.run([0, 1, 2], [3, 4])
    rolling.crash_in(3, 4, 5, 6, 7, 8)
    rolling.run([0, 1, 2], [3, 4, 5, 6], [])
    assert rolling.end() == {"file": [[0, 1, 2], [3, 4, 0], [1, 2, 3], [4, 5, 6]]}


def test_afo_17(spark: SparkSession, paths: Paths) -> None:
    with pytest.raises(Exception, match="maxBytesPerFile='-1' is not understood: it takes a size of at least one byte"):
        Operator(spark, paths, None, maxBytesPerFile="-1").run([0])


def test_afo_18(spark: SparkSession, paths: Paths) -> None:
    """Rotation after three windows instead of thirty."""
    operator = Operator(spark, paths, {0: EVEN, 1: ODD}, maxBatchesPerFile="3")
    counts = []
    for records, windows in (([1, 3], 3), ([0, 1, 2], 9), ([0, 2], 6)):
        operator.run(*[records] * windows, [])
        counts.append({name: len(parts) for name, parts in operator.files().items()})
    assert counts == [{ODD: 1}, {ODD: 4, EVEN: 3}, {ODD: 4, EVEN: 5}]
    operator.crash()


def test_afo_19(spark: SparkSession, paths: Paths) -> None:
    operator = Operator(spark, paths, {0: EVEN, 1: ODD}, maxBatchesPerFile="3")
    operator.run([0], [0], [0], [])
    first = operator.files()
    operator.run(*[[]] * 6)
    assert first == operator.end() == {EVEN: [[0, 0, 0]]}


def test_afo_23(multi_rolling: Operator) -> None:
    multi_rolling.run([0, 1, 2, 3])
    multi_rolling.crash()
    multi_rolling.run([4, 5], [6, 7, 8, 9, 6, 7])
    assert multi_rolling.end() == {EVEN: [[0, 2, 4], [6, 8, 6]], ODD: [[1, 3, 5], [7, 9, 7]]}


def test_sfo_2(single: Operator) -> None:
    single.run([0, 1])
    single.crash_in(2, 2)
    single.run([4, 5], [6, 7])
    assert single.end() == {"file": [[0, 1], [4, 5], [6, 7]]}


def test_wfo_1(single: Operator) -> None:
    """A file for each window, of the records with which it came last."""
    single.run([0, 0])
    single.crash_in(1, 1)
    single.run([2, 3], [4, 4])
    assert single.end() == {"file": [[0, 0], [2, 3], [4, 4]]}


def test_gfo_2(spark: SparkSession, paths: Paths) -> None:
    operator = Operator(spark, paths, None, rolling="policy", maxRecordsPerFile="10")
    operator.run(*[[2 * n, 2 * n + 1] for n in range(13)], [26], [])
    assert [len(part) for part in operator.files()["file"]] == [10, 10]
    assert [len(part) for part in operator.end()["file"]] == [10, 10, 7]


def test_gfo_4(spark: SparkSession, paths: Paths) -> None:
    operator = Operator(spark, paths, None, maxBatchesPerFile="5")
    operator.run(*[[] for _ in range(8)])
    assert operator.end() == {}
