"""The logger `ftfile`: every line says which query and batch it speaks of."""

from __future__ import annotations

import contextlib
import contextvars
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping

__all__ = ("get_logger", "log_context")

_CONTEXT: contextvars.ContextVar[str] = contextvars.ContextVar("ftfile_log_context", default="-")


class _ContextAdapter(logging.LoggerAdapter):  # type: ignore[type-arg]  # generic only from Python 3.11
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:  # noqa: ANN401 - as in logging
        return f"[{_CONTEXT.get()}] {msg}", kwargs


def get_logger(name: str) -> logging.LoggerAdapter:  # type: ignore[type-arg]  # generic only from Python 3.11
    """Return the logger of a module by its `__name__`."""
    return _ContextAdapter(logging.getLogger(name), {})


@contextlib.contextmanager
def log_context(*, query: str | None = None, batch: int | None = None, job: str | None = None) -> Iterator[None]:
    """Name the query and batch, or the batch write, in all lines logged inside the block."""
    who = f"job {job}" if job is not None else f"query {query or '?'}"
    token = _CONTEXT.set(who if batch is None else f"{who} batch {batch}")
    try:
        yield
    finally:
        _CONTEXT.reset(token)
