"""`attach(spark)`: open files end and runs of stores are merged in time, also when a stream is idle or has ended."""

from __future__ import annotations

import atexit
import threading
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, FtfileError, NotFound
from ftfile.core.logs import get_logger, log_context
from ftfile.core.options import STORAGE_PREFIX, ParsedOptions, parse_options
from ftfile.kv.upkeep.compact import compact, compact_idle
from ftfile.operate.export.after_commit import export_soon
from ftfile.operate.flush import flush
from ftfile.spark.file_writers import EXPORT_WAIT_S
from ftfile.spark.settings import absolute_options
from ftfile.spark.writers import CHECKPOINT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_log = get_logger(__name__)


def attach(spark: SparkSession) -> None:
    """Finish the files of this session's ftfile streams whose rules fire while no batch runs, and all when one ends.

    With `exportTo`, export what their last batches brought, too.

    Of ftkv streams, merge the runs of the store that are due, likewise.

    The offsets of streams whose checkpoint is below `spark.sql.streaming.checkpointLocation` are recorded, as those of
    streams with the option `checkpointLocation` are without it.

    A stream with `trigger(continuous=…)`, in which Spark gives Python sinks no rows, is stopped, and an error logged.

    Call it once per session, before streams are started; another call does nothing. A stream ends when it is stopped,
    fails, or has used up its source (`availableNow`, `once`). When the driver's Python exits, also by Ctrl-C, it stops
    the streams that still run. What is killed, also by SIGTERM, finishes nothing: the next start goes on.

    Raises:
        ConfigError: it is a session of Spark Connect, whose queries run elsewhere.
    """
    if not hasattr(spark, "_jsparkSession"):
        raise ConfigError(
            "attach(spark) follows streams from within their driver, and a Spark Connect session is only a client "
            "of it: call ftfile.flush(path) when a stream has ended, or start the streams on the server"
        )
    if spark not in _attached:
        _attached[spark] = _Flusher(spark)
        spark.streams.addListener(_attached[spark])
        atexit.register(_attached[spark].finish)


def detach(spark: SparkSession) -> None:
    """Stop maintaining the files of this session's streams. Without a previous `attach`, nothing happens."""
    if spark in _attached:
        flusher = _attached.pop(spark)
        spark.streams.removeListener(flusher)
        atexit.unregister(flusher.finish)


_attached: WeakKeyDictionary[SparkSession, _Flusher] = WeakKeyDictionary()


class WrittenPlace(NamedTuple):
    """The directory to which a query writes."""

    query_id: str
    sink: str  # name of the format
    options: ParsedOptions
    export_to: tuple[str, ...]  # table formats
    code: tuple[str, ...]  # set by the query's options


class _Flusher(StreamingQueryListener):
    """Knows the directory of each run of a query, and tends it; Spark calls it in the driver's own process.

    A query that is started again may run before the end of its run before is told: only starts are told at once.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._session = spark
        self._places: dict[str, WrittenPlace] = {}
        self._ending = threading.Lock()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Note where the query writes: later it may be gone. Spark calls this from the thread of the query."""
        execution = execution_of(self._session, str(event.id))
        if str(execution.sink().name()) in _SINKS and _is_continuous(execution):
            # Spark gives a Python sink no rows then, and tells its user of no error of the commit.
            _log.error("the query is stopped: %s", _CONTINUOUS)
            jvm: Any = self._session._jvm  # noqa: SLF001
            execution.stopInNewThread(jvm.UnsupportedOperationException(_CONTINUOUS))
            return
        if (place := place_of(execution, str(event.id))) is None:
            return
        self._session.sparkContext.setLocalProperty(CHECKPOINT, str(execution.resolvedCheckpointRoot()))
        self._places[str(event.runId)] = place

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Leave it to the next batch."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Finish what is due."""
        if place := self._places.get(str(event.runId)):
            _tend(place, due_only=True)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Finish everything."""
        self._finish(str(event.runId))

    def finish(self) -> None:
        """Stop the queries that still run, and finish everything: Spark tells a process that exits nothing more."""
        try:
            for query in self._session.streams.active:
                if str(query.runId) in self._places:
                    query.stop()
        except Exception as error:  # of Py4J, if the JVM has ended before
            _log.debug("the running queries could not be stopped", exc_info=error)
        for run_id in [*self._places]:
            self._finish(run_id)
        with self._ending:  # what another thread finishes is whole
            pass

    def _finish(self, run_id: str) -> None:
        with self._ending:
            if place := self._places.pop(run_id, None):
                _tend(place, due_only=False)


def _tend(place: WrittenPlace, *, due_only: bool) -> None:
    options, query_id = place.options, place.query_id
    path, key_provider, storage = options["path"], options["keyProvider"], options.prefixed("storage")
    with log_context(query=query_id):
        try:
            if place.sink == "ftkv":
                compact_runs = compact_idle if due_only else compact
                compact_runs(path, key_provider=key_provider, storage=storage)
            else:
                flush(
                    path,
                    due_only=due_only,
                    query_id=query_id,
                    code=place.code,
                    key_provider=key_provider,
                    storage=storage,
                )
                export_soon(path, place.export_to, storage, SYSTEM, wait_s=0 if due_only else EXPORT_WAIT_S)
        except FtfileError as error:
            if isinstance(error, ConfigError) and isinstance(error.__cause__, NotFound):
                _log.debug("nothing was ever committed to %s", path)
                return
            again = "runs could not be merged; ftfile.kv.compact" if place.sink == "ftkv" else _NOT_FINISHED
            _log.error("%s(%r) tries again: %s", again, path, error)


_SINKS = ("ftfile", "ftkv")
_CODE = ("onpublish", "partfilename", "rollingpolicy")
_CONTINUOUS = (
    "trigger(continuous=...) gives Python sinks such as ftfile and ftkv no rows: use a micro-batch trigger, such as "
    "trigger(processingTime='1 second')"
)
_NOT_FINISHED = "files could not be finished; ftfile.flush"


def execution_of(spark: SparkSession, query_id: str) -> Any:  # noqa: ANN401 - of the JVM
    """Return the execution of a running query of this session."""
    return spark._jsparkSession.streams().get(query_id).streamingQuery()  # noqa: SLF001 - of the JVM


def place_of(execution: Any, query_id: str) -> WrittenPlace | None:  # noqa: ANN401 - of the JVM
    """Return the options that say where a query writes, or None if it writes no rows by ftfile."""
    sink = str(execution.sink().name())
    if sink not in _SINKS or _is_continuous(execution):
        return None
    extra = _field(execution, "extraOptions")
    iterator = extra.iterator()
    entries = (iterator.next() for _ in range(extra.size()))
    options = {str(entry.productElement(0)).lower(): str(entry.productElement(1)) for entry in entries}
    place_options = {name for name in options if name in {"path", "keyprovider"} or name.startswith(STORAGE_PREFIX)}
    place = parse_options(absolute_options({name: options[name] for name in place_options}), "read")
    exports = {name: text for name, text in options.items() if name == "exportto" and sink == "ftfile"}
    export_to = parse_options(exports, "write")["exportTo"]
    code = tuple(options[name] for name in _CODE if name in options)
    return WrittenPlace(query_id, sink, place, export_to, code) if place["path"] is not None else None


def _is_continuous(execution: Any) -> bool:  # noqa: ANN401 - of the JVM
    return bool(execution.getClass().getSimpleName() == "ContinuousExecution")


def _field(java_object: Any, name: str) -> Any:  # noqa: ANN401 - of the JVM
    """Return a field that Spark does not show; a query's options are nowhere else before its first batch."""
    kind = java_object.getClass()
    while kind is not None:
        for field in kind.getDeclaredFields():
            if field.getName() == name:
                field.setAccessible(True)
                return field.get(java_object)
        kind = kind.getSuperclass()
    raise AttributeError(name)
