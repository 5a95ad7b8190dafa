"""Errors as a user of Spark reads them: the message, and not the way through ftfile that led to it."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from ftfile.core.errors import FtfileError, UserCodeError
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ("with_plain_errors",)

_log = get_logger(__name__)

_Method = TypeVar("_Method", bound="Callable[..., Any]")


def with_plain_errors(method: _Method, *, yields: bool = False) -> _Method:
    """Return a method that Spark calls, whose errors of ftfile come without traceback and causes; those are logged.

    Spark puts the text of the whole traceback before the message. Of a `UserCodeError` the user's own part is kept.

    Args:
        method: one that Spark calls.
        yields: it returns an iterator, which raises errors, too.
    """

    @functools.wraps(method)
    def called(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the method has it
        try:
            return method(*args, **kwargs)
        except (FtfileError, ImportError) as error:
            plain = _plain(error)
        raise plain

    @functools.wraps(method)
    def iterated(*args: Any, **kwargs: Any) -> Iterator[Any]:  # noqa: ANN401 - as the method has it
        try:
            yield from method(*args, **kwargs)
        except (FtfileError, ImportError) as error:
            plain = _plain(error)
        else:
            return
        raise plain

    return iterated if yields else called  # type: ignore[return-value]  # of the method's type


def _plain(error: FtfileError | ImportError) -> Exception:
    _log.debug("an error goes to Spark", exc_info=error)
    if isinstance(error, UserCodeError):
        return error
    if isinstance(error, ImportError):
        return ImportError(
            f"{sys.executable}, the Python that Spark has started, cannot load what ftfile needs: {error}. Install it "
            "there; or, before the session is made, set PYSPARK_PYTHON to the Python in which ftfile is installed, as "
            "in os.environ['PYSPARK_PYTHON'] = sys.executable",
            name=error.name,
        )
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
