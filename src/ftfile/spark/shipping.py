"""Objects that are sent to executors, with a check that their Python has the same ftfile.

Errors of ftfile in these objects are shown to users without tracebacks.
"""

from __future__ import annotations

import copyreg
import dataclasses
import functools
import io
import os
import pickle
import sys
import traceback
from abc import ABCMeta
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from msgspec import Struct
from pyspark.sql.datasource import DataSourceStreamReader

from ftfile.core import __version__
from ftfile.core.context import is_worker, main_module
from ftfile.core.errors import FtfileError, UserCodeError
from ftfile.core.logs import get_logger
from ftfile.spark.workers.tuning import acknowledge_at_once, tune_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql.datasource import InputPartition


__all__ = ("Shipped", "SourceType", "only_commits", "with_plain_errors")


# The program that Spark starts only to commit or abort the batches of a stream, and the daemon that forks workers,
# whose argument names their program. Imported modules are not evidence, because a daemon may import them earlier.
_COMMITTER, _DAEMON = "pyspark.sql.worker.python_streaming_sink_runner", "pyspark.daemon"

_OWN = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_log = get_logger(__name__)
_REMEDY = (
    "Install it there; or, before the session is made, set PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON to the Python in "
    "which ftfile is installed: os.environ['PYSPARK_PYTHON'] = os.environ['PYSPARK_DRIVER_PYTHON'] = sys.executable"
)
_Method = TypeVar("_Method", bound="Callable[..., Any]")
# The methods of readers and tasks that Spark calls, except for `read`, which yields.
_CALLED = frozenset(
    {
        *("schema", "reader", "streamReader", "writer", "streamWriter"),
        *("partitions", "pushFilters", "write", "commit", "abort"),
        *("initialOffset", "latestOffset", "reportLatestOffset", "prepareForTriggerAvailableNow"),
    }
)


def only_commits() -> bool:
    """Return True in a process of Spark that only commits or aborts the batches of streams."""
    program = main_module()
    return program == _COMMITTER or (program == _DAEMON and sys.argv[1:2] == [_COMMITTER])


def with_plain_errors(method: _Method, *, yields: bool = False) -> _Method:
    """Return a method for Spark whose ftfile errors have no traceback and no causes; both are logged.

    Spark shows the whole traceback before the message, unless the worker's environment disables it. The message of a
    `UserCodeError` ends with the user's part of the traceback. If `yields`, the method is the work of a task, and its
    iterator raises errors.
    """

    @functools.wraps(method)
    def called(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the method has it
        try:
            return method(*args, **kwargs)
        except (FtfileError, ImportError) as error:
            plain = _to_plain(error)
        if method.__name__ == "streamReader" and is_worker():
            return _FailedReader(plain)
        raise plain

    @functools.wraps(method)
    def iterated(*args: Any, **kwargs: Any) -> Iterator[Any]:  # noqa: ANN401 - as the method has it
        tune_worker()
        try:
            yield from method(*args, **kwargs)
        except (FtfileError, ImportError) as error:
            plain = _to_plain(error)
        else:
            return
        raise plain

    return iterated if yields else called  # type: ignore[return-value]  # of the method's type


class _FailedReader(DataSourceStreamReader):
    """Raises the error of the reader's construction when Spark first calls it.

    An earlier error would be hidden: Spark's process finally stops the reader, and fails because the reader is missing.
    Seen with Spark 4.3.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:
        raise self._error

    def latestOffset(self, *_: object) -> dict[str, Any]:
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:  # noqa: ARG002 - Spark names them
        raise self._error

    def read(self, partition: InputPartition) -> NoReturn:  # noqa: ARG002 - Spark names it
        raise self._error


def _to_plain(error: FtfileError | ImportError) -> Exception:
    _log.debug("an error goes to Spark", exc_info=error)
    if isinstance(error, UserCodeError) and error.__cause__ is not None:
        error = UserCodeError(f"{error}\n{_users_part(error.__cause__)}")
    if is_worker():
        # The frames of the worker are hidden as well. No other error follows, because the worker ends with this error.
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
    if isinstance(error, ImportError):
        return ImportError(
            f"{sys.executable}, the Python that Spark has started, cannot load what ftfile needs: {error}. {_REMEDY}",
            name=error.name,
        )
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _users_part(error: BaseException) -> str:
    """Return the text of a traceback and of the tracebacks of its causes, without frames of ftfile."""
    shown = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = shown
    while part is not None:
        frames = []
        for frame in part.stack:
            if not frame.filename.startswith(_OWN):
                frames.append(frame)
        part.stack = traceback.StackSummary.from_list(frames)
        part = part.__cause__ or part.__context__
    return "".join(shown.format()).rstrip()


class Shipped:
    """An object that is pickled with a check, so that only executors with the same ftfile unpickle it.

    The check is sent as code and not by name. The driver's check therefore runs even if the executor has another
    ftfile, or none. Errors of the methods that Spark calls have no traceback.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, method in [*vars(cls).items()]:
            if name in _CALLED or name == "read":
                setattr(cls, name, with_plain_errors(method, yields=name == "read"))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        file = io.BytesIO()
        pickler = _FieldRecordingPickler(file)
        pickler.dump((type(self), vars(self)))
        return _opener(), (__version__, pickler.fields, file.getvalue())

    @classmethod
    def unpack(cls, state: Mapping[str, Any]) -> Any:  # noqa: ANN401 - `Self` came with Python 3.11
        """Return the object in the executor, and let Spark send the rows or the share of the task at once."""
        acknowledge_at_once()
        opened = cls.__new__(cls)
        vars(opened).update(state)
        return opened


class _FieldRecordingPickler(pickle.Pickler):
    """Records the fields of all pickled dataclasses and Structs, since two builds of one version may differ in them."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        # Sources are pickled only by name, because the surrounding object contains the check.
        self.dispatch_table = dict(copyreg.dispatch_table)
        self.dispatch_table.pop(SourceType, None)
        self.fields: dict[str, list[str]] = {}

    def reducer_override(self, thing: Any) -> Any:  # noqa: ANN401 - any object
        kind = type(thing)
        if isinstance(thing, Struct):
            self.fields[f"{kind.__module__}:{kind.__qualname__}"] = [*kind.__struct_fields__]
        elif dataclasses.is_dataclass(kind):
            self.fields[f"{kind.__module__}:{kind.__qualname__}"] = [field.name for field in dataclasses.fields(kind)]
        return NotImplemented


def _opener() -> Callable[..., Any]:
    """Return a function that is pickled by its code, because it cannot be imported by name."""

    def difference(version: str, fields: dict[str, list[str]]) -> str | None:
        import dataclasses  # noqa: PLC0415 - code that is unpickled has no module around it
        import pkgutil  # noqa: PLC0415

        from ftfile import core  # noqa: PLC0415

        if core.__version__ != version:
            return f"ftfile {core.__version__} from {core.__file__}, and the driver {version}"
        for name, expected in fields.items():
            try:
                kind = pkgutil.resolve_name(name)
                names = [*getattr(kind, "__struct_fields__", ())] or [field.name for field in dataclasses.fields(kind)]
            except (AttributeError, TypeError):
                names = []
            if names != expected:
                return f"another build of ftfile {version} from {core.__file__} than the driver: {name} differs"
        return None

    def open_here(version: str, fields: dict[str, list[str]], content: bytes) -> Any:  # noqa: ANN401 - the sent object
        import pickle  # noqa: PLC0415
        import platform  # noqa: PLC0415
        import sys  # noqa: PLC0415

        here = f"{sys.executable} on the host {platform.node()!r}"
        try:
            wrong = difference(version, fields)
            if wrong is not None:
                raise RuntimeError(
                    f"{here}, the Python of an executor, runs {wrong}. Install one version on the driver and on all "
                    "executors, or ship it with the application"
                )
            kind, state = pickle.loads(content)  # noqa: S301 - of our own driver
        except ImportError as error:
            package = (error.name or "ftfile").partition(".")[0]
            packages = {name.partition(":")[0].partition(".")[0] for name in fields}
            if package != "ftfile" and package in packages:
                missing = f"{package!r}, whose code the driver uses"
            else:
                missing = f"the ftfile {version} of the driver"
            raise ImportError(
                f"{here}, the Python of an executor, cannot load {missing}: {error}. Install it there with what it "
                "needs, set PYSPARK_PYTHON to a Python that has it, or ship it with the application"
            ) from error
        return kind.unpack(state)

    return open_here


class SourceType(ABCMeta):
    """The metaclass of registered sources. Spark sends their classes to Python processes that may not have ftfile."""


def _class_opener() -> Callable[..., Any]:
    """Return a function that is pickled by its code, as in `_opener`."""

    def find_class(version: str, name: str, remedy: str) -> Any:  # noqa: ANN401 - a class
        import os  # noqa: PLC0415
        import pkgutil  # noqa: PLC0415
        import sys  # noqa: PLC0415

        try:
            return pkgutil.resolve_name(name)
        except ImportError as error:
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
            raise ImportError(
                f"{sys.executable}, the Python that Spark has started, cannot load the ftfile {version} of the "
                f"program: {error}. {remedy}"
            ) from error

    return find_class


def _reduce_source(source: type) -> tuple[Callable[..., Any], tuple[str, str, str]]:
    return _class_opener(), (__version__, f"{source.__module__}:{source.__qualname__}", _REMEDY)


copyreg.pickle(SourceType, _reduce_source)
