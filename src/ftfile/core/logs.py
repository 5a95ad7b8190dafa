"""The logger `ftfile`, whose lines name their query and batch and contain no credentials.

Messages of servers and libraries can repeat a request with its URL and headers, so credentials are removed from log
lines and errors.

In a process without a logging configuration, such as Spark's Python workers, warnings go to stderr with time, level and
logger.
"""

from __future__ import annotations

import contextvars
import logging
import re
import sys
import traceback
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping


_HIDDEN = "…"
# A shorter text can be part of any message.
_SECRET_LENGTH_MIN = 4
# The last part of the names of secret URL parameters, headers and JSON fields.
_NAMES = (
    r"[\w.%-]{0,40}(?:token|delegation|password|passwd|secret|signature|credential)"
    r"|sig|upload_id|accountkey|urlstring|hadoop\.auth"
)
_VALUE = r"[^&;,\s'\"()<>]+"
_RULES = (
    # Base64 and other generated texts contain capitals or digits; words do not.
    (re.compile(r"\b((?i:bearer|basic|negotiate))(\s+)(?=[^\s'\"]*[A-Z0-9=])[\w.~+/=-]{6,}"), rf"\1\2{_HIDDEN}"),
    (re.compile(rf"(?<![\w.%-])({_NAMES})=(['\"]?){_VALUE}", re.IGNORECASE), rf"\1=\2{_HIDDEN}"),
    (re.compile(rf"(['\"])({_NAMES})\1(\s*:\s*b?['\"]){_VALUE}", re.IGNORECASE), rf"\1\2\1\3{_HIDDEN}"),
    (re.compile(rf"\b(x-amz-security-token)(\s*:\s*){_VALUE}", re.IGNORECASE), rf"\1\2{_HIDDEN}"),
    (re.compile(r"(//[^/\s:@'\"]*):[^/\s'\"]+@"), rf"\1:{_HIDDEN}@"),
)


def redact(text: str) -> str:
    """Return a text with `…` in place of tokens, passwords and signatures. Idempotent."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


def hide_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a redacted text that also contains none of the secrets."""
    for secret in secrets:
        if len(secret) >= _SECRET_LENGTH_MIN:
            text = text.replace(secret, _HIDDEN)
    return redact(text)


class Redacting(logging.Filter):
    """Removes credentials from the messages of a logger, and from the errors that are logged with them."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True, for every message."""
        message = record.getMessage()
        if (shown := redact(message)) != message:
            record.msg, record.args = shown, ()
        if record.exc_info and record.exc_info[0] is not None:
            # Formatters use this text instead of formatting the error.
            record.exc_text = redact("".join(traceback.format_exception(*record.exc_info))).rstrip("\n")
        return True


class _Enclosing(NamedTuple):
    """The innermost block of `log_context`, and the one around it."""

    block: weakref.ref[log_context]
    outer: _Enclosing | None


def _innermost_message() -> _Enclosing | None:
    """Return the innermost block that exists, without blocks that were deleted before their end."""
    enclosing = _CONTEXT.get()
    while enclosing is not None and enclosing.block() is None:
        enclosing = enclosing.outer
    return enclosing


_CONTEXT: contextvars.ContextVar[_Enclosing | None] = contextvars.ContextVar("ftfile_log_context", default=None)
_REDACTING = Redacting()
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _ContextAdapter(logging.LoggerAdapter):  # type: ignore[type-arg]  # generic only from Python 3.11
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:  # noqa: ANN401 - as in logging
        enclosing = _innermost_message()
        block = None if enclosing is None else enclosing.block()
        return f"[{block.names}] {msg}" if block is not None and block.names else msg, kwargs


class _LastResort(logging.Handler):
    """Writes messages that no other handler receives, like Python's last resort, with time, level and logger."""

    def handle(self, record: logging.LogRecord) -> bool:
        """Write a message, unless a filter drops it, and return whether it was written.

        Like Python 3.13, and unlike older ones, with a `with` statement: no signal handler runs between the lock and
        the block, so its exception does not leave the lock locked: python/cpython#109461.
        """
        if self.lock is None or not self.filter(record):
            return False
        with self.lock:
            self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return
            if logger.propagate:
                logger = logger.parent
            else:
                logger = None
        try:
            sys.stderr.write(f"{self.format(record)}\n")
        except Exception:  # as every handler of logging does
            self.handleError(record)


def _last_resort_handler() -> logging.Handler:
    handler = _LastResort(logging.WARNING)
    handler.setFormatter(logging.Formatter(_FORMAT))
    return handler


logging.getLogger("ftfile").addHandler(_last_resort_handler())


def get_logger(name: str) -> logging.LoggerAdapter:  # type: ignore[type-arg]  # generic only from Python 3.11
    """Return the logger of a module by its `__name__`."""
    logger = logging.getLogger(name)
    logger.addFilter(_REDACTING)
    return _ContextAdapter(logger, {})


class log_context:  # noqa: N801 - it reads as a function
    """Names the query and batch, or the batch write, in the lines that are logged inside the block, if known.

    The names are shown as long as the block exists. So an interrupt at any line leaves no name behind: then the block
    is deleted without its end.
    """

    def __init__(self, *, query: str | None = None, batch: int | None = None, operation: str | None = None) -> None:
        names = []
        if operation is not None:
            names.append(f"operation {operation}")
        if query is not None:
            names.append(f"query {query}")
        if batch is not None:
            names.append(f"batch {batch}")
        self.names = " ".join(names)

    def __enter__(self) -> None:
        _CONTEXT.set(_Enclosing(weakref.ref(self), _innermost_message()))

    def __exit__(self, *_: object) -> None:
        enclosing = _innermost_message()
        # In another thread, which ends the block of an abandoned generator, it is not the innermost one.
        if enclosing is not None and enclosing.block() is self:
            _CONTEXT.set(enclosing.outer)
