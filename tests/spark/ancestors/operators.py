"""An output operator of older engines, as a query of Spark.

A window is a micro-batch. A crash in a window is a failing attempt, or a batch that Spark has not recorded. A restore
is a restart from the checkpoint. Records name their logical file in `fileNameColumn`; its parts have numbers. Records
are mostly digits with a line end, two bytes long: a file of more than `maxLength` 4 is a file of `maxBytesPerFile` 5.
"""

from __future__ import annotations

import os
from collections import defaultdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.clock import SystemClock
from ftfile.testing.checker import check_directory
from ftfile.testing.context import current, open_filesystem, repeatable
from tests.spark.test_stream import forget_commit, query_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Paths = dict[str, Any]
Files = dict[str, list[list[Any]]]
Record = int | str | tuple[Any, str]

EVEN, ODD = "even", "odd"
NUMBERED = {"partFileName": "{name}.{number}", "ifExists": "fail"}
SIZE = {"maxBytesPerFile": "5", "rolling": "policy"}
FOREIGN = "0\n1\n2\n"
POISON = "poison"


def one_file(record: Any) -> str:
    del record
    return "file"


def by_parity(record: int) -> str:
    return ODD if record % 2 else EVEN


class Operator:
    """An operator that writes windows to files.

    Args:
        spark: the session.
        paths: of the output, the checkpoint, and the source.
        name_of: the logical file of a record without a name.
        select: the columns, derived from `value` and `name`.
        partitions: number of tasks that write records; 0 for a single task in the order of the input.
        options: of the sink; None removes an option of the operator.
    """

    def __init__(
        self,
        spark: SparkSession,
        paths: Paths,
        name_of: Callable[[Any], str] = one_file,
        *,
        select: Sequence[str] = ("value", "name"),
        partitions: int = 0,
        **options: str | None,
    ) -> None:
        self.spark, self.paths, self.name_of, self.select, self.partitions = spark, paths, name_of, select, partitions
        given = {"fileFormat": "text", "fileNameColumn": "name", **NUMBERED, **options}
        self.options = {name: text for name, text in given.items() if text is not None}
        self.out = Path(paths["out"])
        self.scheme = ""
        self.windows = 0
        self.query: StreamingQuery | None = None
        self.foreign: list[Path] = []
        Path(paths["script"]).mkdir()

    def put(self, *names: str) -> None:
        """Create files of another program."""
        for name in names:
            self.foreign.append(self.out / name)
            self.foreign[-1].parent.mkdir(parents=True, exist_ok=True)
            self.foreign[-1].write_text(FOREIGN)

    def take_away(self) -> None:
        """Delete the files of the other program, which must be unchanged."""
        for path in self.foreign:
            assert path.read_text() == FOREIGN, "it is not ours to touch"
            path.unlink()
        self.foreign.clear()

    def run(self, *windows: Sequence[Record]) -> None:
        """Run windows, one micro-batch each."""
        for window in windows:
            self.offer(window)
        if self.query is None:
            self.query = self.start()
        self.query.processAllAvailable()

    def crash(self) -> None:
        """Stop the query. The next run restores the state of the checkpoint."""
        if self.query is not None:
            self.query.stop()
        self.query = None

    def crash_in(self, *records: Record) -> None:
        """Lose a window: its attempts write records and fail, and its repetition has other records."""
        self.refused("the script says", *records, POISON)

    def refused(self, text: str, *records: Record) -> None:
        """Lose a window because of an error."""
        with pytest.raises(Exception, match=text):
            self.run([*records])
        self.crash()
        self.windows -= 1  # the next window takes its place

    def forget(self) -> None:
        """Crash after a window was committed and before Spark recorded it. The next run repeats it."""
        self.crash()
        forget_commit(self.paths, self.windows - 1)

    def offer(self, records: Sequence[Record]) -> None:
        """Add a window to the source."""
        rows = [record if isinstance(record, tuple) else (record, self._name(record)) for record in records]
        file, hidden = self.source / f"{self.windows:05d}", self.source / ".new"
        hidden.write_text("".join(f"{value},{name}\n" for value, name in rows))
        os.utime(hidden, (self.windows, self.windows))  # the source reads the oldest file first
        hidden.replace(file)
        self.windows += 1

    @property
    def source(self) -> Path:
        return Path(self.paths["script"])

    def start(self) -> StreamingQuery:
        stream = self.spark.readStream.schema("value string, name string").option("maxFilesPerTrigger", "1")
        failing = f"if(value = '{POISON}', raise_error('the script says that this attempt fails'), value) as value"
        rows = stream.csv(str(self.source))
        rows = rows.repartition(self.partitions) if self.partitions else rows
        rows = rows.selectExpr(failing, "name").selectExpr(*self.select)
        writer = rows.writeStream.format("ftfile").option("checkpointLocation", self.paths["checkpoint"])
        return writer.options(**self.options).start(f"{self.scheme}{self.out}")

    def end(self) -> Files:
        """End the stream, finish the open files, and return the parts of each file."""
        self.crash()
        code = [self.options[option] for option in ("onPublish",) if option in self.options]
        ftfile.flush(self.paths["out"], code=code, context=current())
        return self.files()

    def files(self) -> Files:
        """Return the view of a plain reader: the parts of each file in order, each a list of records."""
        found: dict[str, dict[int, list[Any]]] = defaultdict(dict)
        for path, text in self.visible().items():
            stem, _, number = path.rpartition(".")
            name = stem.split("/")[0].rpartition("=")[2] if "partitionBy" in self.options else stem
            found[name][int(number)] = [int(line) if line.isdigit() else line for line in text.split()]
        return {name: [parts[number] for number in sorted(parts)] for name, parts in found.items()}

    def visible(self) -> dict[str, str]:
        """Return the text of every file that a plain reader sees, by path. Check the invariants of ftfile's files."""
        aside = [path.rename(self.source / f".foreign-{n}") for n, path in enumerate(self.foreign)]
        check_directory(open_filesystem(self.paths["out"]), recorded_by_spark=self._recorded())
        files = [path for path in self.out.rglob("*") if path.is_file()]
        read = {str(path.relative_to(self.out)): path for path in files}
        found = {name: path.read_text() for name, path in sorted(read.items()) if not name.startswith("_")}
        for path, hidden in zip(self.foreign, aside, strict=True):
            hidden.rename(path)
        return found

    def _recorded(self) -> dict[str, range]:
        commits = Path(self.paths["checkpoint"], "commits")
        return {query_id(self.paths): range(len(list(commits.glob("[0-9]*"))))}

    def _name(self, record: Record) -> str:
        return self.name_of(0 if record == POISON else record)


def joined(files: Files) -> dict[str, list[Any]]:
    """Return each file as one list: its parts in order."""
    return {name: list(chain.from_iterable(parts)) for name, parts in files.items()}


class _Later(SystemClock):
    def __init__(self, seconds: float) -> None:
        self._more_ms = int(seconds * 1e3)

    def now_ms(self) -> int:
        return super().now_ms() + self._more_ms


def later(seconds: float) -> AbstractContextManager[object]:
    """Return a block in which the clock of the current context is ahead, so that files are due earlier."""
    return repeatable(_Later(seconds), current().ids)
