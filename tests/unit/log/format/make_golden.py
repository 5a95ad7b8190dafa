"""The golden files: small directories with one file of every kind, whose bytes are the same each time.

After an intended change of the format, `python -m tests.unit.log.format.make_golden` writes them again.
"""

from __future__ import annotations

import base64
import os
import shutil
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from msgspec import structs

import ftfile
from ftfile import kv
from ftfile.core.context import SYSTEM
from ftfile.filters.keys import Keys, forget_keys
from ftfile.kv.run import writer
from ftfile.log import records
from ftfile.log.checkpoints import write_checkpoint
from ftfile.log.commit_log import CommitLog
from ftfile.log.directory import write_marker
from ftfile.log.format import layout, record
from ftfile.log.format.model import MaintenanceAuthor, Record
from ftfile.log.read.compacted_writer import write_due_compacted
from ftfile.log.records import PublishedHint, storage_now_ms, write_published
from ftfile.log.sealed import SealedFileSystem
from ftfile.operate.repair_actions import set_aside
from ftfile.source import plan_log
from ftfile.source.known_rows import key_of
from ftfile.source.plan import FileEntry, Late, PlanPosition, Range, Refused, SourcePlan
from ftfile.source.plan_log import PlanLog
from ftfile.storage.local import LocalFileSystem
from ftfile.testing.context import ManualClock, SeededIds, current, repeatable
from ftfile.testing.micro_batch import MicroBatch, StoreBatch
from ftfile.writing.files.file_writer import forget_caches
from tests.unit.kv.runs import NUMBERS, numbered, written
from tests.wrappers import InContext

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

GOLDEN = Path(__file__).parent / "golden"
KEY = f"golden {base64.b64encode(bytes(range(32))).decode()}"
COLUMNS = {"id": "long", "kind": "string", "at": "timestamp"}
OPTIONS = {
    "fileFormat": "json",
    "partitionBy": "kind",
    "maxRecordsPerFile": "2",
    "eventTimeInterval": "at:1h",
    "partFileName": "{batch}-{number}-{unique}{ext}",
    "successFile": "_SUCCESS",
    "badRecords": "deadLetter",
    "maxRecordBytes": "30",
}


def row(number: int, kind: str = "a") -> dict[str, object]:
    """Return a row whose time is its number in minutes."""
    return {"id": number, "kind": kind, "at": datetime(2026, 1, 1, 0, number, tzinfo=timezone.utc)}


def _one_clock() -> AbstractContextManager[object]:
    """Give the disk the clock of the authors, so that records do not contain the time of the run."""
    return mock.patch.object(records, "storage_now_ms", lambda fs: fs.context.clock.now_ms())


def make_plain(path: Path) -> None:
    """Make a directory of a query, a batch write and a compaction, with every kind of file that is not encrypted."""
    with repeatable(), _one_clock(), mock.patch.object(record, "COMPANION_FROM_BYTES", 3_000):
        forget_caches()
        query = MicroBatch(str(path), COLUMNS, OPTIONS)
        query.run(0, [[row(1), row(2), row(3)], [row(4, "b"), row(5, "much too long for a record of thirty bytes")]])
        query.run(1, [[row(6)], []])
        query.run(2, [[], []])
        job = {"fileFormat": "json", "partitionBy": "kind", "txnAppId": "app", "txnVersion": "7"}
        MicroBatch(str(path), COLUMNS, job).run_batch_write("2" * 32, [[row(7)], [row(8)]])
        ftfile.compact(str(path), context=current())
        ids = SeededIds(1)
        fs = InContext(LocalFileSystem(str(path), SYSTEM), ids=ids)
        log = CommitLog(fs)
        write_checkpoint(fs, ids, log.refresh())
        write_due_compacted(log, log.refresh())
        storage_now_ms(fs)
        write_marker(fs)
        fs.put("in the way", b"somebody's\n")
        os.utime(path / "in the way", (1_700_000_000, 1_700_000_000))
        set_aside(fs, "in the way", "it has the name of a part")
        stage = layout.staged_directory(query.query_id)
        fs.make_directories(stage)
        fs.create_exclusive(f"{stage}/_3-00000-0-{'3' * 32}.staged", b'{"id":9,"at":"2026-01-01T00:09:00.000Z"}\n')
        fs.create_exclusive(
            layout.note_path(f"{stage}/_", f"3-00001-0-{'4' * 32}"), b"kind=a/part-0000000003-00001-444444444444.json"
        )


def make_sealed(path: Path) -> None:
    """Make the log of an encrypted directory: a record, a checkpoint, a range and a hint with their MACs."""
    with mock.patch.dict("os.environ", {"FTFILE_GOLDEN_KEYS": KEY}):
        forget_keys()
        local = InContext(LocalFileSystem(str(path), SYSTEM), ids=SeededIds())
        log = CommitLog(SealedFileSystem(local, Keys("env:FTFILE_GOLDEN_KEYS"), "golden"))
        log.prepare_directory()
        log.create(Record(0, "0" * 32, MaintenanceAuthor("vacuum", "1" * 32), 0, horizon_ms=5, previous_nonce=""))
        head = log.refresh()
        write_checkpoint(log.fs, SeededIds(2), head)
        write_due_compacted(log, head)
        write_published(log.fs, PublishedHint(head.version, head.nonce))
    forget_keys()


def make_plans(path: Path) -> None:
    """Make the log of plans of a file source; the last plan names a columns file."""
    found = Range("a.log", 0, 20, "0123456789abcdef", "fedcba9876543210", 25, 1_700_000_000_000, "local:1:2")
    key = key_of("file:///data/in", "a.log").hex()
    marks = found.head, found.tail, 40, found.modified_ms, found.identity
    plans = [
        SourcePlan(ranges=(found,)),
        SourcePlan(
            ranges=(
                structs.replace(found, path="a.log.1", start=20, end=40, size_bytes=40),
                structs.replace(found, path="f.log.gz", start=20, end=40, size_bytes=40, compression="gzip"),
            ),
            files=(
                FileEntry("a.log.1", "moved", 40, *marks, previous_keys=(key,)),
                FileEntry("f.log.gz", "continued", 40, *marks, advances="00" * 16),
                FileEntry("b.log", "new", 0, "", "", 9, 1_700_000_000_000, parked="it cannot be read"),
            ),
        ),
        SourcePlan(
            files=(
                FileEntry("b.log", "replaced", 0, "", "", 9, 1_700_000_000_000, displaces=True),
                FileEntry("c.log", "copy", 9, "0" * 16, "1" * 16, 9, 1_700_000_000_000),
            ),
            late=(Late("d.log", 5),),
            refused=(Refused("e.log", "permission denied"),),
            low=1_600_000_000_000,
        ),
    ]
    with repeatable(), mock.patch.object(plan_log, "COLUMNS_MIN_BYTES", 1):
        fs = InContext(LocalFileSystem(str(path), SYSTEM), clock=ManualClock(), ids=SeededIds(3))
        log = PlanLog(fs, "0" * 32, "1" * 32)
        position = PlanPosition("0" * 32, -1, "")
        for plan in plans:
            log.read_known()
            before, position = (
                position,
                log.add(position, structs.replace(plan, root="file:///data/in", planned_ms=1_700_000_000_000)),
            )
            if before.plan == 0:
                log.commit(before)


def make_runs(path: Path) -> None:
    """Make runs of a store: without rows, with a few, and with pages; each compression."""
    path.mkdir()
    for rows, compression in ((0, "none"), (3, "none"), (300, "lz4"), (5000, "zstd")):
        content = written([numbered(rows)], NUMBERS, ["id"], compression)
        (path / f"{rows}-{compression}.run").write_bytes(content)


STORE_OPTIONS = {"flushIntervalCount": "2", "compression": "none"}


@mock.patch.object(writer, "BLOCK_BYTES", 4096)
def make_store(path: Path) -> None:
    """Make a store of words with due compactions and their result, a purge, and windows. One window is not recorded."""
    with repeatable(), _one_clock():
        forget_caches()
        options = {"keyColumns": "word", "deleteColumn": "gone", "merge": "n:sum", "buckets": "1"} | STORE_OPTIONS
        query = StoreBatch(str(path), {"word": "string", "n": "long", "gone": "boolean"}, options)
        query.run(0, [[{"word": "a", "n": 1, "gone": False}, {"word": "b", "n": 2, "gone": False}]])
        query.run(1, [[{"word": "a", "n": 1, "gone": False}, {"word": "b", "n": None, "gone": True}]])
        kv.purge(str(path), "b", "c", context=current())
        query.run(2, [[]])
        with open_golden_store(str(path)) as store:
            for window in (5, 6):
                store.begin_window(window)
                store.merge("a", window)
                store.purge("x")
                store.end_window()
            store.committed(5)


def open_golden_store(path: str) -> kv.KeyValueStore:
    """Open the store as the writer of its windows."""
    return kv.KeyValueStore(
        path,
        writer="w",
        keys={"word": "string"},
        values={"n": "long"},
        buckets=1,
        merge="n:sum",
        maintenance="none",
        options=STORE_OPTIONS,
        context=current(),
    )


MAKERS = {"plain": make_plain, "sealed": make_sealed, "plans": make_plans, "runs": make_runs, "store": make_store}


def files_of(path: Path) -> dict[str, bytes]:
    """Return the content of every file below a directory, by its path in it."""
    found = (file for file in path.rglob("*") if file.is_file())
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in sorted(found)}


def main() -> None:
    """Replace the golden files."""
    shutil.rmtree(GOLDEN, ignore_errors=True)
    for name, make in MAKERS.items():
        with tempfile.TemporaryDirectory() as directory:
            make(Path(directory, name))
            shutil.copytree(Path(directory, name), GOLDEN / name)
            print(*files_of(GOLDEN / name), sep="\n")


if __name__ == "__main__":
    main()
