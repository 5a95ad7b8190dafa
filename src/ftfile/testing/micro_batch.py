"""Micro-batches without a JVM, in the order of Spark's calls."""

from __future__ import annotations

import contextlib
import functools
import json
import pickle
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from ftfile.core.errors import AlreadyExists, FtfileError, NotFound
from ftfile.kv.config import StoreConfig
from ftfile.kv.driver import recorded_definition
from ftfile.kv.writer import StoreSink
from ftfile.rows.spark_types import arrow_schema
from ftfile.storage.registry import normalise
from ftfile.testing.context import current, open_filesystem
from ftfile.writing.batch import abort_batch, commit_batch, plan_write
from ftfile.writing.files.file_options import SinkConfig
from ftfile.writing.files.file_writer import FileSink, forget_caches
from ftfile.writing.messages import OperationIdentity, StreamIdentity, TaskIdentity
from ftfile.writing.task import write_task

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ftfile.log.protocol import Committed
    from ftfile.writing.messages import TaskCommit, WriterIdentity
    from ftfile.writing.options import WriteConfig
    from ftfile.writing.sink import Sink, WritePlan


__all__ = ("BatchQuery", "MicroBatch", "StoreBatch", "spark_schema")


Row = dict[str, Any]


def spark_schema(columns: Mapping[str, Any]) -> str:
    """Return Spark's schema JSON for column names and types as in Spark's JSON; all columns are nullable."""
    fields = []
    for name, kind in columns.items():
        fields.append({"name": name, "type": kind, "nullable": True, "metadata": {}})
    return json.dumps({"type": "struct", "fields": fields})


@functools.lru_cache(maxsize=64)
def _in_zone(schema_json: str, time_zone: str) -> pa.Schema:
    """Return the Arrow schema of rows that Spark sends in a session with this time zone."""
    sent = {_INSTANT: pa.timestamp("us", time_zone), pa.time64("us"): pa.time64("ns")}
    fields = []
    for column in arrow_schema(schema_json):
        fields.append(column.with_type(sent.get(column.type, column.type)))
    return pa.schema(fields)


_INSTANT = pa.timestamp("us", "UTC")


@dataclass
class BatchQuery(ABC):
    """A streaming query that writes to a directory, and batch writes for comparison.

    `run` executes a whole micro-batch. `pickled_plan`, `run_task`, `commit` and `abort` are its steps, for tests
    in which attempts fail or finish late, or messages are lost.
    """

    sink: ClassVar[Sink[Any]]

    path: str  # of the directory
    columns: Mapping[str, Any]  # names and types, as for `spark_schema`
    options: Mapping[str, str] = field(default_factory=dict)  # of the sink
    query_id: str = "00000000-0000-0000-0000-000000000001"  # unchanged by restarts
    checkpoint: str | None = None  # directory for `metadata`, `offsets/N` and `commits/N`, as in Spark
    overwrite: bool = False  # every batch replaces all rows, as in complete mode or `mode("overwrite")`
    attempts: int = 1  # of a failing task, as `spark.task.maxFailures`: 1 on a local master, otherwise 4
    time_zone: str = "UTC"  # of the session: of the timestamps that Spark sends to tasks
    run_id: str = "run-1"  # changes with each restart
    _runs: int = field(default=1, init=False)

    def restart(self) -> None:
        """Start a new run of the query, which has only the state on storage."""
        self._runs += 1
        self.run_id = f"run-{self._runs}"
        forget_caches()

    def run(self, batch_id: int, partitions: Sequence[Sequence[Row]]) -> Committed:
        """Run a micro-batch: every task, then the commit; if one of them raises, abort, as Spark does."""
        self.write_offsets(batch_id)
        planned, writer = self._pickled_plan_of_batch(), self.identity(batch_id)
        messages: list[TaskCommit | None] = [None] * len(partitions)
        try:
            for number, rows in enumerate(partitions):
                messages[number] = self._run_attempts(planned, writer, number, rows)
            done = self.commit(batch_id, messages)
        except BaseException:
            with contextlib.suppress(FtfileError):  # the first error must be raised, not the error of `abort`
                self.abort(batch_id, messages)
            raise
        self._keep(f"commits/{batch_id}", 'v1\n{"nextBatchWatermarkMs":0}')
        return done

    def write_offsets(self, batch_id: int) -> None:
        """Write the checkpoint files that Spark writes before it plans a batch; without a checkpoint, do nothing."""
        metadata = json.dumps({"id": self.query_id})
        of_batch = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": current().clock.now_ms(), "conf": {}})
        self._keep("metadata", metadata)
        self._keep(f"offsets/{batch_id}", f'v1\n{of_batch}\n{{"batch":{batch_id}}}')

    def run_tasks(self, batch_id: int, partitions: Sequence[Sequence[Row]]) -> list[TaskCommit]:
        """Plan the batch and run its tasks one after the other; return their messages."""
        return self._messages_of(self._pickled_plan_of_batch(), self.identity(batch_id), partitions)

    def identity(self, batch_id: int) -> StreamIdentity:
        """Return the identity of the writer of a batch in this run."""
        return StreamIdentity(self.query_id, self.run_id, batch_id)

    @abstractmethod
    def config(self) -> WriteConfig:
        """Return the settings, parsed from the options again, as for every batch."""

    def plan(self) -> WritePlan[Any]:
        """Return the plan of a new batch."""
        return plan_write(self.sink, self.config(), current())

    def pickled_plan(self) -> bytes:
        """Return the pickled plan of a new batch, which the driver sends to its tasks."""
        return pickle.dumps(self.plan())

    def _pickled_plan_of_batch(self) -> bytes:
        """Return the pickled plan of a batch that the log may contain."""
        config = self.config()
        streaming = replace(config, common=replace(config.common, is_stream=True))
        return pickle.dumps(plan_write(self.sink, streaming, current()))

    def run_task(
        self,
        planned: bytes,
        writer: WriterIdentity,
        partition: int,
        rows: Sequence[Row],
        attempt: int = 0,
        error: BaseException | None = None,
    ) -> TaskCommit:
        """Run one attempt of a task in the same way as Spark, and return its message.

        `planned` and `writer` come from `pickled_plan` and `identity`. An `error` is raised at the end of the input, so
        the attempt fails after it has written its rows.
        """
        task = TaskIdentity(writer, partition, attempt)
        shipped: WritePlan[Any] = pickle.loads(planned)  # noqa: S301 - our own
        message = write_task(shipped, task, self._batches(rows, error), current())
        returned: TaskCommit = pickle.loads(pickle.dumps(message))  # noqa: S301 - our own
        return returned

    def commit(self, batch_id: int, messages: Sequence[TaskCommit | None]) -> Committed:
        """Commit with newly parsed settings and without the plan, as Spark does in another process."""
        return commit_batch(self.sink, self.config(), messages=messages, batch_id=batch_id, context=current())

    def abort(self, batch_id: int, messages: Sequence[TaskCommit | None]) -> None:
        """Abort, as Spark does if a task or the commit raised, or if the query is stopped."""
        abort_batch(self.config(), messages, batch_id, current())

    def run_batch_write(self, operation_id: str, partitions: Sequence[Sequence[Row]]) -> Committed:
        """Run a batch write instead: a separate commit without a batch id, with the settings of the pickled plan."""
        planned, writer = self.pickled_plan(), OperationIdentity(operation_id)
        messages = self._messages_of(planned, writer, partitions)
        shipped: WritePlan[Any] = pickle.loads(planned)  # noqa: S301 - our own
        return commit_batch(shipped.sink, shipped.config, messages=messages, batch_id=None, context=current())

    def _messages_of(
        self, planned: bytes, writer: WriterIdentity, partitions: Sequence[Sequence[Row]]
    ) -> list[TaskCommit]:
        messages = []
        for partition, rows in enumerate(partitions):
            messages.append(self._run_attempts(planned, writer, partition, rows))
        return messages

    def next_batch(self) -> int:
        """Return the batch with which a restarted query resumes: the first batch without a file in `commits`."""
        if self.checkpoint is None:
            raise ValueError("this query keeps no checkpoint: give it one, or remember what was committed")
        try:
            infos = open_filesystem(normalise(self.checkpoint)).list("commits")
        except NotFound:
            return 0
        # A killed process can leave temporary files in this directory.
        newest = -1
        for info in infos:
            name = info.path.rpartition("/")[2]
            if name.isdigit():
                newest = max(newest, int(name))
        return newest + 1

    def all_options(self) -> dict[str, str]:
        """Return the options in the form in which Spark passes them to a writer."""
        options = {"path": self.path} | ({"checkpointlocation": self.checkpoint} if self.checkpoint else {})
        return options | dict(self.options)

    def _run_attempts(self, planned: bytes, writer: WriterIdentity, partition: int, rows: Sequence[Row]) -> TaskCommit:
        for attempt in range(self.attempts - 1):
            with contextlib.suppress(FtfileError):
                return self.run_task(planned, writer, partition=partition, rows=rows, attempt=attempt)
        return self.run_task(planned, writer, partition=partition, rows=rows, attempt=self.attempts - 1)

    def _batches(self, rows: Sequence[Row], error: BaseException | None) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist(list(rows), schema=_in_zone(spark_schema(self.columns), self.time_zone))
        if error is not None:
            raise error

    def _keep(self, name: str, content: str) -> None:
        """Write a file of the checkpoint unless it exists, because a retried batch keeps its offsets."""
        if self.checkpoint is None:
            return
        fs = open_filesystem(normalise(self.checkpoint))
        fs.make_directories(name.rpartition("/")[0])
        with contextlib.suppress(AlreadyExists):
            fs.create_exclusive(name, content.encode())


class MicroBatch(BatchQuery):
    """A query that writes to a directory of files.

    For example::

        query = MicroBatch("/data/out", {"id": "long"}, {"fileFormat": "json"})
        query.run(0, [[{"id": 1}], [{"id": 2}]])   # two tasks
        query.restart()
        query.run(0, [[{"id": 2}, {"id": 1}]])     # the same batch again, partitioned otherwise
    """

    sink = FileSink()

    def config(self) -> SinkConfig:
        """Return the settings."""
        return SinkConfig.from_options(self.all_options(), spark_schema(self.columns), overwrite=self.overwrite)


class StoreBatch(BatchQuery):
    """A query that writes to a store.

    For example::

        query = StoreBatch("/data/counts", {"word": "string", "n": "long"}, {"keyColumns": "word", "merge": "n:sum"})
        query.run(0, [[{"word": "a", "n": 1}], [{"word": "a", "n": 1}]])
    """

    sink = StoreSink()

    def config(self) -> StoreConfig:
        """Return the settings."""
        options = self.all_options()
        if self.overwrite:
            recorded = None
        else:
            recorded = recorded_definition(options, current())
        return StoreConfig.from_options(
            options, spark_schema(self.columns), overwrite=self.overwrite, recorded=recorded
        )
