"""`attach(spark)`, which maintains the directories and stores of a session's streams."""

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
from ftfile.core.options.parsing import parse_options
from ftfile.core.options.table import STORAGE_PREFIX
from ftfile.core.options.typed import ReadOptions, SinkOptions
from ftfile.core.per_process import PerProcess
from ftfile.kv.upkeep.compact import compact, compact_idle
from ftfile.operate.export.after_commit import EXPORT_WAIT_S, export_soon
from ftfile.operate.flush import flush
from ftfile.spark.settings import absolute_options
from ftfile.spark.token_keeper import TokenKeeper, process_of
from ftfile.spark.writers import CHECKPOINT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_log = get_logger(__name__)

_SINKS = ("ftfile", "ftkv")
_CODE = ("onpublish", "partfilename", "rollingpolicy")
_CONTINUOUS = (
    "trigger(continuous=...) gives Python sinks such as ftfile and ftkv no rows: use a micro-batch trigger, such as "
    "trigger(processingTime='1 second')"
)
_NOT_FINISHED = "files could not be finished; ftfile.flush"


def attach(spark: SparkSession) -> None:
    """Finish due files of this session's ftfile streams while no batch runs, and all open files when a stream ends.

    With `exportTo`, the content of the last batches is also exported. For ftkv streams, the due runs of the store are
    merged.

    For streams whose checkpoint is below `spark.sql.streaming.checkpointLocation`, Spark's offsets are recorded.
    Without `attach`, this requires the option `checkpointLocation`.

    A stream with `trigger(continuous=…)` is stopped with a logged error, because Spark gives Python sinks no rows in
    this mode.

    On a cluster with Kerberos, the Python processes of the driver use the tokens that Spark replaces in the JVM.

    Call it once per session, before streams are started; further calls do nothing. A stream ends when it is stopped,
    fails, or has read its whole source (`availableNow`, `once`). When the driver's Python exits, also after Ctrl-C, the
    remaining streams are stopped. A killed process, also with SIGTERM, finishes nothing; the next start resumes.

    Raises:
        ConfigError: the session is a Spark Connect session, whose queries run in another process.
    """
    if not hasattr(spark, "_jsparkSession"):
        raise ConfigError(
            "attach(spark) follows streams from within their driver, and a Spark Connect session is only a client "
            "of it: call ftfile.flush(path) when a stream has ended, or start the streams on the server"
        )
    attached = _attached.here
    if spark not in attached:
        _keep_tokens(spark)
        attached[spark] = _Flusher(spark)
        spark.streams.addListener(attached[spark])
        atexit.register(attached[spark].finish)


def detach(spark: SparkSession) -> None:
    """Stop maintaining the files of this session's streams. Without a previous `attach`, nothing happens."""
    attached, keepers = _attached.here, _keepers.here
    if spark in attached:
        flusher = attached.pop(spark)
        spark.streams.removeListener(flusher)
        atexit.unregister(flusher.finish)
    if not attached:
        while keepers:
            _, keeper = keepers.popitem()
            keeper.stop()


def _keep_tokens(spark: SparkSession) -> None:
    """Start to keep the tokens of a session's JVM, once for all of its sessions."""
    process = process_of(spark)
    keepers = _keepers.here
    if process not in keepers:
        keepers[process] = TokenKeeper(spark)
        atexit.register(keepers[process].stop)


def _no_sessions(parent: WeakKeyDictionary[SparkSession, _Flusher]) -> WeakKeyDictionary[SparkSession, _Flusher]:
    """Leave the streams and files of the parent alone at the end of a forked process."""
    for flusher in parent.values():
        atexit.unregister(flusher.finish)
    return WeakKeyDictionary()


def _no_keepers(parent: dict[int, TokenKeeper]) -> dict[int, TokenKeeper]:
    for keeper in parent.values():
        atexit.unregister(keeper.stop)
    return {}


_attached: PerProcess[WeakKeyDictionary[SparkSession, _Flusher]] = PerProcess(WeakKeyDictionary, _no_sessions)
# By the process of the JVM.
_keepers: PerProcess[dict[int, TokenKeeper]] = PerProcess(dict, _no_keepers)


class WrittenPlace(NamedTuple):
    """The directory to which a query writes."""

    query_id: str
    sink: str  # name of the format
    options: ReadOptions
    export_to: tuple[str, ...]  # table formats
    code: tuple[str, ...]  # set by the query's options


class _Flusher(StreamingQueryListener):
    """Stores the directory of each run of a query, and maintains it. Spark calls it in the driver's process.

    Spark only reports starts synchronously: a restarted query may run before the end of its previous run is reported.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._session = spark
        self._places: dict[str, WrittenPlace] = {}
        self._ending = threading.Lock()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Store the query's directory, which may be unknown after the query. Runs in the query's thread."""
        execution = execution_of(self._session, str(event.id))
        if str(execution.sink().name()) in _SINKS and _is_continuous(execution):
            # In this mode, Spark 4.3 gives a Python sink no rows, and does not report errors of the commit to users.
            _log.error("the query is stopped: %s", _CONTINUOUS)
            jvm: Any = self._session._jvm  # noqa: SLF001
            execution.stopInNewThread(jvm.UnsupportedOperationException(_CONTINUOUS))
            return
        if (place := place_of(execution, str(event.id))) is None:
            return
        self._session.sparkContext.setLocalProperty(CHECKPOINT, str(execution.resolvedCheckpointRoot()))
        self._places[str(event.runId)] = place

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Do nothing; the next batch assembles the due files."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Finish the due files."""
        if place := self._places.get(str(event.runId)):
            _tend(place, due_only=True)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Finish all open files."""
        self._finish(str(event.runId))

    def finish(self) -> None:
        """Stop the remaining queries, and finish all their files. Spark calls no listener in a process that exits."""
        try:
            for query in self._session.streams.active:
                if str(query.runId) in self._places:
                    query.stop()
        except Exception as error:  # an error of Py4J if the JVM has already ended
            _log.debug("the running queries could not be stopped", exc_info=error)
        for run_id in [*self._places]:
            self._finish(run_id)
        with self._ending:  # waits until another thread has finished a directory
            pass

    def _finish(self, run_id: str) -> None:
        with self._ending:
            if place := self._places.pop(run_id, None):
                _tend(place, due_only=False)


def _tend(place: WrittenPlace, *, due_only: bool) -> None:
    options, query_id = place.options, place.query_id
    path, key_provider, storage = options.required_path(), options.key_provider, options.options_with_prefix("storage")
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
            again = "a compaction failed; ftfile.kv.compact" if place.sink == "ftkv" else _NOT_FINISHED
            _log.error("%s(%r) tries again: %s", again, path, error)


def execution_of(spark: SparkSession, query_id: str) -> Any:  # noqa: ANN401 - of the JVM
    """Return the execution of a running query of this session."""
    return spark._jsparkSession.streams().get(query_id).streamingQuery()  # noqa: SLF001 - of the JVM


def place_of(execution: Any, query_id: str) -> WrittenPlace | None:  # noqa: ANN401 - of the JVM
    """Return the options for the directory to which a query writes; None if the query does not write with ftfile."""
    sink = str(execution.sink().name())
    if sink not in _SINKS or _is_continuous(execution):
        return None
    extra = _field(execution, "extraOptions")
    iterator = extra.iterator()
    options = {}
    for _ in range(extra.size()):
        entry = iterator.next()
        options[str(entry.productElement(0)).lower()] = str(entry.productElement(1))
    place_options = {}
    for name, text in options.items():
        if name in {"path", "keyprovider"} or name.startswith(STORAGE_PREFIX):
            place_options[name] = text
    place = parse_options(absolute_options(place_options), ReadOptions)
    exports = {}
    if sink == "ftfile" and "exportto" in options:
        exports["exportto"] = options["exportto"]
    export_to = parse_options(exports, SinkOptions).export_to
    code = tuple(options[name] for name in _CODE if name in options)
    if place.path is not None:
        return WrittenPlace(query_id, sink, options=place, export_to=export_to, code=code)
    return None


def _is_continuous(execution: Any) -> bool:  # noqa: ANN401 - of the JVM
    return bool(execution.getClass().getSimpleName() == "ContinuousExecution")


def _field(java_object: Any, name: str) -> Any:  # noqa: ANN401 - of the JVM
    """Return a private field of a Java object. Before its first batch, a query's options are only in such fields."""
    kind = java_object.getClass()
    while kind is not None:
        for field in kind.getDeclaredFields():
            if field.getName() == name:
                field.setAccessible(True)
                return field.get(java_object)
        kind = kind.getSuperclass()
    raise AttributeError(name)
