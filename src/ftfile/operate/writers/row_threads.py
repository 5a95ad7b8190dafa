"""Threads that write rows to files, each as one task of a batch."""

from __future__ import annotations

from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

from ftfile.core.answers import wait_for
from ftfile.core.context import cores
from ftfile.core.errors import ConfigError
from ftfile.core.remedies import Advice, Argument
from ftfile.storage.calls import start
from ftfile.writing.dropped_files import delete_dropped, files_of
from ftfile.writing.messages import TaskIdentity
from ftfile.writing.task import write_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from ftfile.core.answers import Answer
    from ftfile.core.context import Context
    from ftfile.writing.files.file_options import SinkConfig
    from ftfile.writing.messages import TaskCommit, WriterIdentity
    from ftfile.writing.sink import WritePlan

# The second thread starts after this number of rows, and the thread n after n² times as many: small batches have one
# file in each directory, and large batches have large files.
ROWS_PER_THREAD = 1 << 16
# Smaller batches are written by the thread of the caller: for commits of ten rows, a second thread costs more time than
# it saves, since both wait for Python's lock.
SMALL_ROWS = 1 << 12
SMALL_BYTES = 1 << 20


def threads_of(threads: int | None, context: Context) -> int:
    """Return the number of threads of a writer: by default one for each core. A number below 1 raises a ConfigError."""
    if threads is not None and threads < 1:
        raise ConfigError(Advice(Argument("threads", threads), ": at least one thread is needed"))
    return threads or context.threads or cores()


class RowThreads:
    """The threads of one batch. At most one batch of rows waits for each thread, so memory is bounded.

    Each row is written by one thread, in the order of `put` within its files. The first thread writes all rows of a
    batch with fewer than `ROWS_PER_THREAD` rows. Small batches are kept until `finish`, which writes them itself.
    """

    def __init__(self, plan: WritePlan[SinkConfig], writer: WriterIdentity, threads: int, context: Context) -> None:
        self._plan, self._writer, self._threads_max, self._context = plan, writer, threads, context
        self._kept: list[pa.RecordBatch] = []  # before the first thread is started
        # Batches for the threads; None wakes a thread at the end of the rows, or after an error.
        self._waiting: SimpleQueue[Sequence[pa.RecordBatch] | None] = SimpleQueue()
        self._room: SimpleQueue[None] = SimpleQueue()  # an entry for each batch that may wait
        self._tasks: list[Answer[TaskCommit]] = []
        self._rows = self._bytes = 0
        self._error: BaseException | None = None

    @property
    def has_rows(self) -> bool:
        """Return True if the batch has rows."""
        return self._rows > 0

    def write_all(self, batches: Iterable[pa.RecordBatch]) -> list[TaskCommit]:
        """Write all rows, and return the messages of all threads. If there is an error, discard the files."""
        try:
            for batch in batches:
                self.put(batch)
            return self.finish()
        except BaseException:  # including Ctrl-C
            self.discard()
            raise

    def put(self, batch: pa.RecordBatch) -> None:
        """Hand over rows to a thread; wait while all threads are busy. Raise the first error of a thread."""
        needs_thread = self._rows >= len(self._tasks) ** 2 * ROWS_PER_THREAD
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if not self._tasks and self._rows <= SMALL_ROWS and self._bytes <= SMALL_BYTES:
            self._kept.append(batch)
            return
        if needs_thread and len(self._tasks) < self._threads_max:
            self._start()
        if self._kept:
            kept, self._kept = self._kept, []
            self._hand_over(kept)
        self._hand_over([batch])

    def finish(self) -> list[TaskCommit]:
        """Return the messages of all threads after they have written all rows. Raise the first error of a thread.

        A batch without rows has one message.
        """
        if not self._tasks:
            return [self._write(self._identity(0), self._kept)]
        for _task in self._tasks:
            self._waiting.put(None)
        wait_for(self._tasks)
        self._raise_error()
        return [task.result() for task in self._tasks]

    def stop(self) -> None:
        """Make all threads end soon, and delete their unfinished files. Idempotent."""
        self._fail(_StoppedError())

    def discard(self) -> None:
        """End all threads, and delete the files that they created, if possible. No record may name them. Idempotent.

        The messages of the threads also name spools of earlier batches, which are kept.
        """
        self.stop()
        wait_for(self._tasks)
        messages = [task.result() for task in self._tasks if task.error() is None]
        fs = self._plan.config.log(self._context).fs
        self._tasks.clear()
        for message in messages:
            delete_dropped(fs, message.identity.stem, files_of(message))

    def _start(self) -> None:
        identity = self._identity(len(self._tasks))
        self._tasks.append(start(partial(copy_context().run, self._write, identity, self._batches())))
        self._room.put(None)

    def _hand_over(self, batches: Sequence[pa.RecordBatch]) -> None:
        self._raise_error()
        self._room.get()
        self._raise_error()
        self._waiting.put(batches)

    def _identity(self, number: int) -> TaskIdentity:
        return TaskIdentity(self._writer, number, 0)

    def _write(self, identity: TaskIdentity, batches: Iterable[pa.RecordBatch]) -> TaskCommit:
        try:
            return write_task(self._plan, identity, batches, self._context)
        except BaseException as error:  # any error of one thread ends the batch
            self._fail(error)
            raise

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while True:
            batches = self._waiting.get()
            self._raise_error()
            if batches is None:
                return
            self._room.put(None)
            yield from batches

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        for _thread in range(self._threads_max):
            self._waiting.put(None)
        self._room.put(None)

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error


class _StoppedError(Exception):
    """The batch was stopped."""
