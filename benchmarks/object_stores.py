"""The sink on object stores of this machine: one writer against the library alone, and what a commit costs."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.report import Cell, Table, percentile
from benchmarks.storage_assembly import assembly_table
from ftfile.testing.context import current, open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.batch import commit_batch, plan_write
from ftfile.writing.files.file_writer import FileSink
from ftfile.writing.messages import StreamIdentity
from tests.object_stores import azure, servers
from tests.object_stores.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sized
    from contextlib import AbstractContextManager

    from benchmarks.settings import Settings
    from tests.object_stores.azure import AzureStorage
    from tests.object_stores.servers import Storage

__all__ = ("run",)

MIB = 1 << 20
PART_BYTES = 8 * MIB
STREAM_BYTES, SMOKE_STREAM_BYTES = 512 * MIB, 20 * MIB
ROUNDS, SMOKE_ROUNDS = 5, 1
FILES, SMOKE_FILES = (8, 100, 1000), (8,)
COMMITS = {8: 20, 100: 5, 1000: 2}
WARM_UP = 1
PUBLISH = ("copy", "direct")

WRITING = "Medians over the rounds, the ratio within a round."
S3 = (
    "Parts of 8 MiB, four at a time, on the Versity gateway on this machine's disk, or moto where that is not built. "
    "It keeps no conditions for copies, so that each takes four requests instead of two."
)
AZURE = "Blocks of 8 MiB, by adlfs, on Azure's emulator, which keeps all in memory and answers with one thread."


@dataclass(frozen=True)
class _Subject:
    """A storage system, the library by which it is reached, and how to see the library's requests."""

    name: str
    storage: Storage
    library: str
    stream_bytes: int
    by_library: Callable[[str], None]
    requests: Callable[[], AbstractContextManager[Sized]]
    note: str


def run(settings: Settings) -> list[Table]:
    """Measure one writer, then commits; on Azure only where its emulator is."""
    os.environ.update(servers.CREDENTIALS)
    stream_bytes = SMOKE_STREAM_BYTES if settings.smoke else STREAM_BYTES
    with servers.versity() if servers.VERSITY.exists() else servers.moto() as storage:
        tables = _measured(_s3(storage, stream_bytes), smoke=settings.smoke)
        tables.append(assembly_table(storage, smoke=settings.smoke))
    if azure.what_is_missing():
        return tables
    with azure.azurite() as storage:
        os.environ[azure.CONNECTION] = storage.connection
        return tables + _measured(_azure(storage, stream_bytes), smoke=settings.smoke)


def _s3(storage: Storage, stream_bytes: int) -> _Subject:
    alone = servers.client(storage.endpoint)
    body = os.urandom(MIB) * (PART_BYTES // MIB)

    def by_library(name: str) -> None:
        where = {"Bucket": servers.BUCKET, "Key": name}
        upload = alone.create_multipart_upload(**where)["UploadId"]

        def send(number: int) -> dict[str, Any]:
            length = min(PART_BYTES, stream_bytes - (number - 1) * PART_BYTES)
            part = alone.upload_part(**where, UploadId=upload, PartNumber=number, Body=body[:length])
            return {"PartNumber": number, "ETag": part["ETag"]}

        with ThreadPoolExecutor(4) as pool:
            parts = list(pool.map(send, range(1, -(-stream_bytes // PART_BYTES) + 1)))
        alone.complete_multipart_upload(**where, UploadId=upload, MultipartUpload={"Parts": parts})

    @contextlib.contextmanager
    def requests() -> Iterator[Sized]:
        with Wire(storage)() as wire:
            yield wire.sent

    return _Subject("S3", storage, "botocore", stream_bytes, by_library, requests, S3)


def _azure(storage: AzureStorage, stream_bytes: int) -> _Subject:
    import fsspec  # noqa: PLC0415 - adlfs is slow to import

    alone = fsspec.filesystem("abfs", connection_string=storage.connection)
    chunk = os.urandom(MIB)

    def by_library(name: str) -> None:
        with alone.open(f"{azure.CONTAINER}/{name}", "wb", block_size=PART_BYTES) as stream:
            for _ in range(stream_bytes // MIB):
                stream.write(chunk)

    return _Subject("Azure", storage, "adlfs", stream_bytes, by_library, _requests_of_azure, AZURE)


@contextlib.contextmanager
def _requests_of_azure() -> Iterator[Sized]:
    """Yield what Azure's library says of each request."""
    said: list[logging.LogRecord] = []

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if str(record.msg).startswith("Request URL"):
                said.append(record)

    logger, handler = logging.getLogger("azure.core.pipeline.policies.http_logging_policy"), Noting()
    level, logger.propagate = logger.level, False
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = True


def _measured(subject: _Subject, *, smoke: bool) -> list[Table]:
    return [_writers(subject, SMOKE_ROUNDS if smoke else ROUNDS), _commits(subject, smoke=smoke)]


def _writers(subject: _Subject, rounds: int) -> Table:
    chunk, megabytes = os.urandom(MIB), subject.stream_bytes / 1e6
    fs = open_filesystem(f"{subject.storage.url}/writer", settings=subject.storage.settings)

    def by_ftfile(name: str) -> None:
        with fs.create(name) as stream:
            for _ in range(subject.stream_bytes // MIB):
                stream.write(chunk)

    def speed(write: Callable[[str], None], name: str) -> float:
        began = time.perf_counter()
        write(name)
        return megabytes / (time.perf_counter() - began)

    pairs = [
        (speed(subject.by_library, f"library-{number}"), speed(by_ftfile, f"ftfile-{number}"))
        for number in range(rounds)
    ]
    rows: tuple[tuple[Cell, ...], ...] = (
        (f"{subject.library} alone", median(library for library, _ in pairs), 1.0),
        ("ftfile", median(ours for _, ours in pairs), median(ours / library for library, ours in pairs)),
    )
    title = f"one writer of {subject.stream_bytes // MIB} MiB on {subject.name}"
    columns = ("writer", "MB/s", f"x {subject.library}")
    return Table(title, columns, rows, f"{WRITING} {subject.note}")


def _commits(subject: _Subject, *, smoke: bool) -> Table:
    rows = []
    for publish in PUBLISH:
        for files in SMOKE_FILES if smoke else FILES:
            commits = 1 if smoke else COMMITS[files]
            rows.append(_commit(subject, publish, files, commits))
    columns = ("publish", "files", "commits", "p50 ms", "requests", "requests for each file")
    return Table(f"commit on {subject.name}", columns, tuple(rows), subject.note)


def _commit(subject: _Subject, publish: str, files: int, commits: int) -> tuple[Cell, ...]:
    options = {f"storage.{name}": text for name, text in subject.storage.settings.items()}
    options |= {"fileFormat": "text", "publish": publish}
    query = MicroBatch(f"{subject.storage.url}/commit-{publish}-{files}", {"value": "string"}, options)
    times_ms, requests = [], []
    for batch in range(commits + WARM_UP):
        messages = _write(query, batch, files)
        plan = plan_write(FileSink(), query.config(), current())
        with subject.requests() as sent:
            began = time.perf_counter()
            commit_batch(plan.sink, plan.config, messages, batch, current())
            times_ms.append((time.perf_counter() - began) * 1000)
            requests.append(len(sent))
    times_ms, requests = times_ms[WARM_UP:], requests[WARM_UP:]
    middle = percentile(requests, 50)
    return (publish, files, commits, percentile(times_ms, 50), int(middle), middle / files)


def _write(query: MicroBatch, batch: int, files: int) -> list[Any]:
    planned, writer = query.pickled_plan(), StreamIdentity(query.query_id, query.run_id, batch)
    with ThreadPoolExecutor(8) as pool:
        tasks = pool.map(lambda task: query.run_task(planned, writer, task, [{"value": f"row {task}"}]), range(files))
        return list(tasks)
