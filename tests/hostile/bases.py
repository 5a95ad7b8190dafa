"""Small directories that are mutated: each is created in a place with all files that its processes use.

A place contains `out`, the directory or store, and its other files: the `checkpoint` of the query that wrote it, or
`in` and `state`, the files that a stream reads and its state. Files contain absolute paths, so a place must be used at
the path at which it was created.
"""

from __future__ import annotations

import contextlib
import gzip
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any
from unittest import mock

import ftfile
from ftfile import kv
from ftfile.kv.run import writer
from ftfile.log.checkpoints import write_checkpoint
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.read.compacted_writer import write_due_compacted
from ftfile.log.sealed import open_with_keys
from ftfile.operate.repair_actions import set_aside
from ftfile.source import plan_log
from ftfile.storage.registry import normalise
from ftfile.testing.context import ManualClock, SeededIds, current, repeatable
from ftfile.testing.micro_batch import MicroBatch, StoreBatch
from ftfile.testing.source_run import Killed
from ftfile.writing.files.file_writer import forget_caches
from tests.kit.files_run import FilesRun

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COLUMNS = {"id": "long", "kind": "string", "at": "timestamp"}
SOURCE_COLUMNS = {"id": "long", "kind": "string"}
STORE_COLUMNS = {"word": "string", "day": "date", "n": "long", "gone": "boolean"}
STORE_OPTIONS = {
    "keyColumns": "word,day",
    "deleteColumn": "gone",
    "merge": "n:sum",
    "buckets": "2",
    "flushIntervalCount": "3",
}
WRITER = "w"


def file_options(file_format: str) -> dict[str, str]:
    """Return the options with which the files of a base are written."""
    return {
        "fileFormat": file_format,
        "partitionBy": "kind",
        "rolling": "policy",
        "maxRecordsPerFile": "3",
        "eventTimeInterval": "at:1h",
        "successFile": "_SUCCESS",
        "badRecords": "deadLetter",
        "maxRecordBytes": "60",
    }


def row(number: int, kind: str = "a") -> dict[str, Any]:
    """Return a row whose time in minutes is its number."""
    return {"id": number, "kind": kind, "at": datetime(2026, 1, 1, 0, number % 60, tzinfo=timezone.utc)}


def query_of(place: Path, file_format: str, **options: str) -> MicroBatch:
    """Return the query that writes a directory of files."""
    more = file_options(file_format) | options
    return MicroBatch(str(place / "out"), COLUMNS, more, checkpoint=str(place / "checkpoint"))


def store_query(place: Path) -> StoreBatch:
    """Return the query that writes a store."""
    return StoreBatch(str(place / "out"), STORE_COLUMNS, STORE_OPTIONS, checkpoint=str(place / "checkpoint"))


def stream_of(place: Path) -> FilesRun:
    """Return the stream that reads files of other programs."""
    options = {"fileFormat": "json", "stateLocation": str(place / "state"), "maxFilesPerTrigger": "1"}
    return FilesRun(str(place / "in"), SOURCE_COLUMNS, options, pause_s=2)


def store_row(word: str, day: int, n: int, *, gone: bool = False) -> dict[str, Any]:
    """Return a row of a store."""
    return {"word": word, "day": datetime(2026, 1, day, tzinfo=timezone.utc).date(), "n": n, "gone": gone}


def make_files(place: Path, file_format: str) -> None:
    """Make a directory with open and unpublished files, dead letters, and retired and quarantined files."""
    query = query_of(place, file_format)
    query.run(
        0, [[row(1), row(2), row(3), row(4)], [row(4, "b"), row(5, "much too long for a record of sixty bytes" * 2)]]
    )
    query.run(1, [[row(6)], [row(7, "b")]])
    query.run(2, [[row(8), row(9)], []])
    job = {"fileFormat": file_format, "partitionBy": "kind", "txnAppId": "app", "txnVersion": "7"}
    MicroBatch(str(place / "out"), COLUMNS, job).run_batch_write("2" * 32, [[row(10)], [row(11)]])
    ftfile.compact(str(place / "out"), context=current())
    fs = open_with_keys(normalise(str(place / "out")), current(), None)
    log = CommitLog(fs)
    write_checkpoint(fs, SeededIds(2), log.refresh())
    write_due_compacted(log, log.refresh())
    fs.put("in the way", b"somebody's\n")
    set_aside(fs, "in the way", "it has the name of a part")
    stage = layout.staged_directory(query.query_id)
    fs.make_directories(stage)
    fs.create_exclusive(f"{stage}/00000-0-{'3' * 32}.staged", b'{"id":9,"at":"2026-01-01T00:09:00.000Z"}\n')
    note = b"kind=a/part-0000000003-00001-444444444444.json"
    fs.create_exclusive(layout.note_path(f"{stage}/_", f"00001-0-{'4' * 32}"), note)
    messages = query.run_tasks(3, [[row(12), row(13), row(14)], []])
    # The driver dies before the files of its record are published.
    with mock.patch("ftfile.log.protocol.CommitTimer.note_created", side_effect=Killed), contextlib.suppress(Killed):
        query.commit(3, messages)


@mock.patch.object(writer, "BLOCK_BYTES", 4096)
def make_store(place: Path) -> None:
    """Make a store with several runs, due compactions and a result, a purge, and windows, one of them unrecorded."""
    query = store_query(place)
    for batch in range(5):
        rows = [store_row(word, batch + 1, batch, gone=batch == 3 and word == "b") for word in "abcdef"]
        query.run(batch, [rows[:3], rows[3:]])
    kv.purge(str(place / "out"), prefix=("c",), context=current())
    fs = open_with_keys(normalise(str(place / "out")), current(), None)
    write_checkpoint(fs, SeededIds(2), CommitLog(fs).refresh())
    query.run(5, [[store_row("g", 6, 1)], []])
    with open_store(place) as store:
        for window in (5, 6):
            store.begin_window(window)
            store.merge(("a", store_row("a", 1, 0)["day"]), window)
            store.purge(prefix=("x",))
            store.end_window()
        store.committed(5)


def open_store(place: Path) -> kv.KeyValueStore:
    """Open the store as the writer of its windows."""
    return kv.KeyValueStore(str(place / "out"), writer=WRITER, maintenance="none", context=current())


def make_stream(place: Path) -> None:
    """Make a stream of other programs' files whose log of plans has a checkpoint and a columns file."""
    (place / "in").mkdir()
    run = stream_of(place)
    with mock.patch.object(plan_log, "COLUMNS_MIN_BYTES", 1):
        for number in range(6):
            content = f'{{"id":{number},"kind":"a"}}\n'.encode() * (number + 1)
            with (place / "in" / (f"{number}.json.gz" if number == 2 else f"{number % 4}.json")).open("ab") as file:
                file.write(gzip.compress(content, mtime=0) if number == 2 else content)
            run.run()
    (place / "in" / "late.json").write_bytes(b'{"id":9,"kind":"b"}\n')
    (log_id,) = (path.name for path in (place / "state").iterdir())
    fs = open_with_keys(normalise(str(place / "state" / log_id)), current(), None)
    write_checkpoint(fs, SeededIds(2), CommitLog(fs).refresh())


BASES: dict[str, Callable[[Path], None]] = {
    "json": lambda place: make_files(place, "json"),
    "parquet": lambda place: make_files(place, "parquet"),
    "store": make_store,
    "stream": make_stream,
}


def make(name: str, place: Path) -> None:
    """Make a base at a place that does not exist yet."""
    place.mkdir()
    with repeatable(ManualClock(tick_ms=1)):
        forget_caches()
        BASES[name](place)
