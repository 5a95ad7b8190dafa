"""A stream to a storage system through a hostile proxy, by a process that is killed; afterwards every row is counted.

As a program, this module is that process: its argument is a `Stream` as JSON, and it runs batches until it is killed or
done.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import types
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ftfile
from ftfile.core.errors import FtfileError, StorageError
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.testing.checker import DirectoryReport
    from tests.object_stores.proxy import Proxy
    from tests.object_stores.servers import Storage

__all__ = ("Ordeal", "Stream", "hasten")

ROOT = Path(__file__).parents[2]
TASKS = 3
ROWS = 4
# Size of each large row: more than one request stores.
LARGE_BYTES = 6 << 20
# A call with such a short timeout may get no response on a busy machine.
TRIES_MAX = 200
KILLED_AFTER_S = (0.3, 3.0)
END_TIMEOUT_S = 600.0
# Clients wait this many times shorter.
HASTE = 20


def rows_of(batch: int, large_every: int) -> list[list[str]]:
    """Return the rows of a batch by task. Each row occurs once in all batches."""
    rows = [[f"{batch}-{task}-{row}" for row in range(ROWS)] for task in range(TASKS)]
    if large_every and batch % large_every == large_every - 1:
        rows[0][0] += "x" * LARGE_BYTES
    return rows


@dataclass(frozen=True)
class Stream:
    """A query.

    Attributes:
        url: of the directory.
        options: of the sink.
        checkpoint: directory of Spark's checkpoint.
        batches: number of batches.
        large_every: one of this many batches has a large row; 0 for none.
    """

    url: str
    options: dict[str, str]
    checkpoint: str
    batches: int
    large_every: int = 0

    def query(self) -> MicroBatch:
        """Return the query as a new process starts it."""
        options = {"fileFormat": "text", **self.options}
        return MicroBatch(self.url, {"value": "string"}, options, checkpoint=self.checkpoint, attempts=4)

    def prove(self) -> None:
        """Test the storage's capabilities, which a process does once."""
        settings = {name[8:]: text for name, text in self.options.items() if name.startswith("storage.")}
        for left in reversed(range(TRIES_MAX)):
            try:
                open_filesystem(self.url, settings=settings).prove("_ftfile")
                break
            except StorageError:
                if not left:
                    raise

    def run(self, between: Callable[[], object] = lambda: None) -> int:
        """Run the unrecorded batches, each until it is committed; return the number of failures."""
        query, failures = self.query(), 0
        for batch in range(query.next_batch(), self.batches):
            rows = [[{"value": text} for text in task] for task in rows_of(batch, self.large_every)]
            for tried in range(TRIES_MAX):
                try:
                    query.run(batch, rows)
                    break
                except FtfileError as error:
                    failures += 1
                    print(f"batch {batch} failed: {error}", file=sys.stderr)
                    if tried == TRIES_MAX - 1:
                        raise
                    query.restart()
            between()
        return failures

    def expected(self) -> Counter[bytes]:
        """Return all rows."""
        texts = (rows_of(batch, self.large_every) for batch in range(self.batches))
        return Counter(row.encode() for tasks in texts for task in tasks for row in task)


@dataclass
class Ordeal:
    """A stream through a proxy, with counts of its kills, restarts and failures.

    Attributes:
        storage: the server.
        stream: its settings lead through the proxy.
        proxy: between stream and server.
        kills: of processes of the stream.
        restarts: of the server, after a kill.
        failures: number of failed batches, each of which was repeated.
        looks: number of checks of all invariants, including a check after each kill.
    """

    storage: Storage
    stream: Stream
    proxy: Proxy
    kills: int = 0
    restarts: int = 0
    failures: int = 0
    looks: int = 0
    _random: random.Random = field(default_factory=random.Random)

    @classmethod
    def at(cls, storage: Storage, proxy: Proxy, seed: int, stream: Stream, settings: dict[str, str]) -> Ordeal:
        """Return an ordeal whose stream goes through the proxy, with these settings in addition."""
        told = storage.settings_at(f"http://{proxy.address}") | settings
        options = {f"storage.{name}": text for name, text in told.items()} | stream.options
        through = Stream(**asdict(stream) | {"options": options})
        return cls(storage, through, proxy, _random=random.Random(seed))

    def check(self) -> DirectoryReport:
        """Check every invariant without the proxy, including that no hint is ahead of the published version."""
        self.looks += 1
        return check_directory(open_filesystem(self.stream.url, settings=self.storage.settings))

    def run_here(self, restarts: int = 0) -> None:
        """Run the stream in this process. The server is killed before some of the batches."""
        due = set(self._random.sample(range(self.stream.batches), restarts))
        done = iter(range(self.stream.batches))

        def between() -> None:
            self.check()
            if next(done) in due:
                self.restart_server()

        self.failures += self.stream.run(between)

    def run_killed(self, kills: int) -> None:
        """Run the stream in a process that is killed `kills` times. The last process runs to its end."""
        environment = os.environ | self.storage.environment_at(f"http://{self.proxy.address}")
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        command = [sys.executable, "-m", "tests.object_stores.hostile", json.dumps(asdict(self.stream))]
        while True:
            with (
                tempfile.TemporaryFile("w+") as said,
                subprocess.Popen(
                    command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=said, text=True
                ) as process,
            ):
                try:
                    # A capability test has hundreds of requests, and fails if one has no response.
                    with self.proxy.quiet():
                        assert process.stdout is not None
                        process.stdout.readline()
                    wait_s = END_TIMEOUT_S if self.kills >= kills else self._random.uniform(*KILLED_AFTER_S)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(wait_s)
                    is_over = process.poll() is not None
                finally:
                    process.kill()
                    process.wait()
                said.seek(0)
                text = said.read()
            self.failures += text.count(" failed: ")
            if is_over:
                assert process.returncode == 0, text
                return
            assert self.kills < kills, f"the stream did not end:\n{text}"
            self.kills += 1
            if open_filesystem(self.stream.url, settings=self.storage.settings).exists("_ftfile/directory/_format"):
                self.check()

    def restart_server(self) -> None:
        """Kill the server and restart it."""
        self.storage.kill()
        self.restarts += 1
        self.storage.start()

    def count_rows(self) -> None:
        """Let one more batch finish the work of the last one, and check that every row is in the result once."""
        self.proxy.rate = 0.0
        Stream(**asdict(self.stream) | {"batches": self.stream.batches + 1}).run()
        object.__setattr__(self.stream, "batches", self.stream.batches + 1)
        storage = self.storage.settings
        ftfile.flush(self.stream.url, storage=storage)
        report, expected = self.check(), self.stream.expected()
        assert report.live_rows == expected
        assert report.visible_rows == expected
        found = ftfile.open(self.stream.url, storage=storage).to_arrow().column("value").to_pylist()
        assert Counter(text.encode() for text in found) == expected

    def __str__(self) -> str:
        rows = self.stream.expected().total()
        return (
            f"{self.stream.batches} batches, {rows} rows, {self.kills} kills, {self.restarts} restarts of the server, "
            f"{self.proxy.faults} faults in {self.proxy.exchanges} exchanges {dict(self.proxy.counts)}, "
            f"{self.failures} batches run again, {self.looks} checks"
        )


def hasten() -> Callable[[], None]:
    """Shorten the retry delays of GCS and Azure clients, which are seconds; return a function that restores them."""
    import gcsfs.retry
    from azure.storage.blob._shared import policies_async

    policy: Any = policies_async.AsyncStorageRetryPolicy
    before = (gcsfs.retry.asyncio, policy.sleep)
    gcsfs.retry.asyncio = types.SimpleNamespace(sleep=lambda seconds: asyncio.sleep(seconds / HASTE))
    # Its first delay would be 15 seconds.
    policy.sleep = lambda _, __, transport: transport.sleep(1 / HASTE)

    def undo() -> None:
        gcsfs.retry.asyncio, policy.sleep = before

    return undo


if __name__ == "__main__":
    hasten()
    stream = Stream(**json.loads(sys.argv[1]))
    stream.prove()
    print("proven", flush=True)
    stream.run()
