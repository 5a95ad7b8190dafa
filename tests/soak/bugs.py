"""Finds errors of Python itself, such as KeyError, in the tracebacks of a failure: no kill excuses such a bug."""

from __future__ import annotations

import re
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("BUGS", "find_bugs", "full_text")

# By name. They only come from a mistake in the code; input, files and servers cause other errors.
BUGS = {
    kind.__name__: kind
    for kind in (
        *(AssertionError, AttributeError, IndexError, KeyError, NameError, NotImplementedError),
        *(RecursionError, TypeError, UnboundLocalError, ZeroDivisionError),
    )
}
SHOWN = 1_500
# The frames, the name of the error, and the rest of its first line.
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n((?:[ \t]+.*\n)+)([\w.]+)(.*)")
_CHAINED = ("direct cause of the following exception:", "another exception occurred:")


def full_text(error: object) -> str:
    """Return the text of an error, its traceback, and the stack traces of its causes in a JVM, which its text lacks."""
    return "\n".join(_texts(error))


def _texts(error: object) -> Iterator[str]:
    if isinstance(error, BaseException):
        yield "".join(traceback.format_exception(error))
    else:
        yield str(error)
    while error is not None:
        yield getattr(error, "_stackTrace", "")
        error = getattr(error, "_cause", None)


def find_bugs(text: str) -> list[str]:
    """Return the end of each traceback that is a bug of ftfile.

    The innermost frame of ftfile, PySpark and Py4J must be of ftfile: if a JVM is killed, PySpark can raise such errors
    itself. An error that ftfile converted to one of its own errors is expected, so it is not a bug.
    """
    bugs, is_converted, end = [], False, len(text)
    for found in reversed(list(_TRACEBACK.finditer(text))):
        frames, name, _ = found.groups()
        if not any(words in text[found.end() : end] for words in _CHAINED):
            is_converted = name.startswith("ftfile.core.errors.")  # it is the last error of its chain
        if name in BUGS and not is_converted and _is_of_ftfile(frames):
            bugs.append(found[0][-SHOWN:])
        end = found.start()
    return bugs[::-1]


def _is_of_ftfile(frames: str) -> bool:
    for file in reversed(re.findall(r'File "([^"]+)"', frames)):
        if "/pyspark/" in file or "/py4j/" in file:
            return False
        if "/ftfile/" in file:
            return True
    return False
