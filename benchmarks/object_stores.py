"""The sink on an S3 server of this machine: one writer against the library alone, and what a commit costs."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from benchmarks.report import Cell, Table, percentile
from ftfile.fs.registry import open_filesystem
from ftfile.sink.identity import StreamIdentity
from ftfile.sink.writer import SinkWriter
from ftfile.testing.micro_batch import MicroBatch
from tests.object_stores import servers
from tests.object_stores.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.settings import Settings
    from tests.object_stores.servers import Store

__all__ = ("run",)

MIB = 1 << 20
PART_BYTES = 8 * MIB
STREAM_BYTES, SMOKE_STREAM_BYTES = 512 * MIB, 20 * MIB
ROUNDS, SMOKE_ROUNDS = 3, 1
FILES, SMOKE_FILES = (8, 100, 1000), (8,)
COMMITS = {8: 20, 100: 5, 1000: 2}
WARM_UP = 1
PUBLISH = ("copy", "direct")

SERVER = "The Versity gateway on this machine's disk, or moto where that is not built: it compares ways, not stores."


def run(settings: Settings) -> list[Table]:
    """Measure one writer, then commits."""
    os.environ.update(servers.CREDENTIALS)
    with servers.versity() if servers.VERSITY.exists() else servers.moto() as store:
        rounds, size_bytes = (SMOKE_ROUNDS, SMOKE_STREAM_BYTES) if settings.smoke else (ROUNDS, STREAM_BYTES)
        return [_writers(store, size_bytes, rounds), _commits(store, smoke=settings.smoke)]


def _writers(store: Store, size_bytes: int, rounds: int) -> Table:
    chunk = os.urandom(MIB)
    fs = open_filesystem(f"{store.url}/writer", settings=store.settings)
    alone = servers.client(store.endpoint)

    def by_ftfile(name: str) -> None:
        with fs.create(name) as stream:
            for _ in range(size_bytes // MIB):
                stream.write(chunk)

    def by_library(name: str) -> None:
        where = {"Bucket": servers.BUCKET, "Key": name}
        upload = alone.create_multipart_upload(**where)["UploadId"]
        body = chunk * (PART_BYTES // MIB)

        def send(number: int) -> dict[str, Any]:
            length = min(PART_BYTES, size_bytes - (number - 1) * PART_BYTES)
            part = alone.upload_part(**where, UploadId=upload, PartNumber=number, Body=body[:length])
            return {"PartNumber": number, "ETag": part["ETag"]}

        with ThreadPoolExecutor(4) as pool:
            parts = list(pool.map(send, range(1, -(-size_bytes // PART_BYTES) + 1)))
        alone.complete_multipart_upload(**where, UploadId=upload, MultipartUpload={"Parts": parts})

    def best(write: Callable[[str], None], kind: str) -> float:
        times = []
        for number in range(rounds):
            began = time.perf_counter()
            write(f"{kind}-{number}")
            times.append(time.perf_counter() - began)
        return size_bytes / 1e6 / min(times)

    library, ours = best(by_library, "library"), best(by_ftfile, "ftfile")
    rows: tuple[tuple[Cell, ...], ...] = (("botocore alone", library, 1.0), ("ftfile", ours, ours / library))
    note = f"Parts of 8 MiB, four at a time, the best of {rounds}. {SERVER}"
    return Table(f"one writer of {size_bytes // MIB} MiB on S3", ("writer", "MB/s", "x botocore"), rows, note)


def _commits(store: Store, *, smoke: bool) -> Table:
    rows = []
    for publish in PUBLISH:
        for files in SMOKE_FILES if smoke else FILES:
            commits = 1 if smoke else COMMITS[files]
            rows.append(_commit(store, publish, files, commits))
    columns = ("publish", "files", "commits", "p50 ms", "requests", "requests for each file")
    note = f"The server keeps no conditions for copies, so that each takes four requests instead of two. {SERVER}"
    return Table("commit on S3", columns, tuple(rows), note)


def _commit(store: Store, publish: str, files: int, commits: int) -> tuple[Cell, ...]:
    options = {f"storage.{name}": text for name, text in store.settings.items()}
    options |= {"fileFormat": "text", "publish": publish}
    query = MicroBatch(f"{store.url}/commit-{publish}-{files}", {"value": "string"}, options)
    times_ms, requests = [], []
    for batch in range(commits + WARM_UP):
        messages = _write(query, batch, files)
        writer = SinkWriter.plan(query.config())
        with Wire(store)() as wire:
            began = time.perf_counter()
            writer.commit(messages, batch)
            times_ms.append((time.perf_counter() - began) * 1000)
        requests.append(len(wire.sent))
    times_ms, requests = times_ms[WARM_UP:], requests[WARM_UP:]
    median = percentile(requests, 50)
    return (publish, files, commits, percentile(times_ms, 50), int(median), median / files)


def _write(query: MicroBatch, batch: int, files: int) -> list[Any]:
    planned, writer = query.plan(), StreamIdentity(query.query_id, query.run_id, batch)
    with ThreadPoolExecutor(8) as pool:
        tasks = pool.map(lambda task: query.run_task(planned, writer, task, [{"value": f"row {task}"}]), range(files))
        return list(tasks)
