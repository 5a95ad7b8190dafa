"""The logger `ftfile`: every line names the query and batch that it is about, where they are known.

In a process that has configured no logging, as Spark's Python workers, warnings go to stderr with time, level and
logger.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping


_CONTEXT: contextvars.ContextVar[str] = contextvars.ContextVar("ftfile_log_context", default="")
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _ContextAdapter(logging.LoggerAdapter):  # type: ignore[type-arg]  # generic only from Python 3.11
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:  # noqa: ANN401 - as in logging
        context = _CONTEXT.get()
        return f"[{context}] {msg}" if context else msg, kwargs


class _LastResort(logging.Handler):
    """Writes what no other handler gets, as Python's own last resort does, but not the message alone."""

    def emit(self, record: logging.LogRecord) -> None:
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return
            logger = logger.parent if logger.propagate else None
        try:
            sys.stderr.write(f"{self.format(record)}\n")
        except Exception:  # as all handlers do
            self.handleError(record)


def _last_resort() -> logging.Handler:
    handler = _LastResort(logging.WARNING)
    handler.setFormatter(logging.Formatter(_FORMAT))
    return handler


logging.getLogger("ftfile").addHandler(_last_resort())


def get_logger(name: str) -> logging.LoggerAdapter:  # type: ignore[type-arg]  # generic only from Python 3.11
    """Return the logger of a module by its `__name__`."""
    return _ContextAdapter(logging.getLogger(name), {})


@contextlib.contextmanager
def log_context(*, query: str | None = None, batch: int | None = None, job: str | None = None) -> Iterator[None]:
    """Name the query and batch, or the batch write, in all lines logged inside the block; only those that are known."""
    fields_given = {"job": job, "query": query, "batch": batch}
    token = _CONTEXT.set(" ".join(f"{kind} {name}" for kind, name in fields_given.items() if name is not None))
    try:
        yield
    finally:
        _CONTEXT.reset(token)
