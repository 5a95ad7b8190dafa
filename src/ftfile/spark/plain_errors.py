"""Errors as a user of Spark reads them: the message, and not the way through ftfile that led to it."""

from __future__ import annotations

import functools
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader

from ftfile.core.errors import FtfileError, UserCodeError
from ftfile.core.logs import get_logger
from ftfile.spark.worker import is_worker, tune_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql.datasource import InputPartition

__all__ = ("with_plain_errors",)

_OWN = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")

_log = get_logger(__name__)

_Method = TypeVar("_Method", bound="Callable[..., Any]")


def with_plain_errors(method: _Method, *, yields: bool = False) -> _Method:
    """Return a method that Spark calls, whose errors of ftfile come without traceback and causes; those are logged.

    Spark puts the text of the whole traceback before the message, but where a worker's environment says otherwise. The
    message of a `UserCodeError` ends with the user's own part. If it `yields`, it is the work of a task, whose iterator
    raises errors.
    """

    @functools.wraps(method)
    def called(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the method has it
        try:
            return method(*args, **kwargs)
        except (FtfileError, ImportError) as error:
            plain = _plain(error)
        if method.__name__ == "streamReader" and is_worker():
            return _FailedReader(plain)
        raise plain

    @functools.wraps(method)
    def iterated(*args: Any, **kwargs: Any) -> Iterator[Any]:  # noqa: ANN401 - as the method has it
        tune_worker()
        try:
            yield from method(*args, **kwargs)
        except (FtfileError, ImportError) as error:
            plain = _plain(error)
        else:
            return
        raise plain

    return iterated if yields else called  # type: ignore[return-value]  # of the method's type


class _FailedReader(DataSourceStreamReader):
    """Raises the error by which a reader could not be made when Spark first asks it for anything.

    Raised earlier, it would not be seen: in the end, Spark's process stops the reader, and fails since there is none.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:
        raise self._error

    def latestOffset(self, *_: object) -> dict[str, Any]:
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:  # noqa: ARG002 - Spark names them
        raise self._error

    def read(self, partition: InputPartition) -> NoReturn:  # noqa: ARG002 - likewise
        raise self._error


def _plain(error: FtfileError | ImportError) -> Exception:
    _log.debug("an error goes to Spark", exc_info=error)
    if isinstance(error, UserCodeError) and error.__cause__ is not None:
        error = UserCodeError(f"{error}\n{_users_part(error.__cause__)}")
    if is_worker():
        # The frames of workers go, too. It is the last error that this process shows: a worker ends with one.
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
    if isinstance(error, ImportError):
        return ImportError(
            f"{sys.executable}, the Python that Spark has started, cannot load what ftfile needs: {error}. Install it "
            "there; or, before the session is made, set PYSPARK_PYTHON to the Python in which ftfile is installed, as "
            "in os.environ['PYSPARK_PYTHON'] = sys.executable",
            name=error.name,
        )
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _users_part(error: BaseException) -> str:
    """Return the text of a traceback, and of those of its causes, without frames of ftfile's."""
    shown = traceback.TracebackException.from_exception(error)
    each: traceback.TracebackException | None = shown
    while each is not None:
        frames = [frame for frame in each.stack if not frame.filename.startswith(_OWN)]
        each.stack = traceback.StackSummary.from_list(frames)
        each = each.__cause__ or each.__context__
    return "".join(shown.format()).rstrip()
