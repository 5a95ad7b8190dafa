"""Ctrl-C, or the exception of a signal handler, before any line of the product, or within a module of Python."""

from __future__ import annotations

import linecache
import logging
import sys
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ftfile

if TYPE_CHECKING:
    from types import FrameType, TracebackType

PRODUCT = str(Path(ftfile.__file__).parent)
# Models of storage systems are not the product.
MODELS = str(Path(ftfile.__file__).parent / "testing")


# The modules of Python.
LIBRARY = str(Path(threading.__file__).parent)
# Before Python 3.13, these functions return with a lock that a signal handler can leave locked.
LOGGING_LOCKS = {"acquire", "_acquireLock"}
_FINALIZE = weakref.finalize.__call__.__code__


class LibraryInterrupt:
    """Raises an exception after a call of C code by a module of Python that this thread runs within the block.

    Python runs signal handlers there, so a lock can have been acquired that nothing releases. Calls count from 1. The
    locks of `logging` are not counted, except for that of ftfile's handler: no library can protect other handlers.
    """

    def __init__(self, call: int, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.calls = 0
        self._call, self._error = call, error
        # Python 3.11 calls freed memory if a function that ends its own profile has no other reference.
        self._function = self._profile

    def __enter__(self) -> LibraryInterrupt:  # noqa: PYI034 - typing.Self comes with Python 3.11
        sys.setprofile(self._function)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _function: object) -> None:
        file = frame.f_code.co_filename
        if event != "c_return" or not file.startswith(LIBRARY) or "-packages" in file or _is_of_other_handler(frame):
            return
        self.calls += 1
        if self.calls == self._call:
            sys.setprofile(None)
            raise self._error


def _is_of_other_handler(frame: FrameType) -> bool:
    """Return True in a function that acquires a lock of `logging`, or of a handler that is not ftfile's."""
    if frame.f_code.co_filename != logging.__file__ or frame.f_code.co_name not in LOGGING_LOCKS:
        return False
    return not type(frame.f_locals.get("self")).__module__.startswith("ftfile")


def _is_called_by_collection(frame: FrameType) -> bool:
    """Return True for a call within a finalizer of an object that was collected."""
    caller = frame.f_back
    while caller is not None:
        # Python gives the dead reference to the finalizer. Other callers give nothing.
        if caller.f_code is _FINALIZE and caller.f_locals["_"] is not None:
            return True
        caller = caller.f_back
    return False


class Interrupt:
    """Raises an exception before a line that this thread runs within the block, counted from 1.

    Only lines of the files `below` these paths, and of functions with this name, are counted.

    Two kinds of lines are not counted, because Python checks for no signal there: the end of a `with` statement, before
    the call of `__exit__`, and the line `try:`, which has no instruction that can raise. Neither are lines of a
    finalizer that the collection of an object calls, perhaps of another test: Python discards exceptions there.

    Attributes:
        is_raised: the exception was raised; otherwise the block had fewer lines.
    """

    def __init__(
        self,
        line: int,
        error: type[BaseException] = KeyboardInterrupt,
        *,
        below: tuple[str, ...] = (PRODUCT,),
        function: str | None = None,
    ) -> None:
        self.is_raised = False
        self._lines_left, self._error, self._below, self._function = line, error, below, function
        self._entered: set[tuple[FrameType, int]] = set()
        self._previous: Any = None

    def __enter__(self) -> Interrupt:  # noqa: PYI034 - typing.Self comes with Python 3.11
        self._previous = sys.gettrace()
        sys.settrace(self._trace_call)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.settrace(self._previous)
        self._entered.clear()

    def _trace_call(self, frame: FrameType, _event: str, _argument: object) -> Any:
        file = frame.f_code.co_filename
        if self.is_raised or not file.startswith(self._below) or file.startswith(MODELS):
            return None
        if self._function not in {None, frame.f_code.co_name} or _is_called_by_collection(frame):
            return None
        return self._trace_line

    def _trace_line(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event != "line" or self.is_raised or self._is_without_signals(frame):
            return self._trace_line
        self._lines_left -= 1
        if self._lines_left == 0:
            self.is_raised = True
            raise self._error
        return self._trace_line

    def _is_without_signals(self, frame: FrameType) -> bool:
        place, text = (frame, frame.f_lineno), linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        is_end_of_with = place in self._entered
        if text.startswith("with "):
            self._entered.add(place)
        return is_end_of_with or text == "try:"
