"""Errors of `hdfs-native` as errors of the interface."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from ftfile.core.errors import (
    AlreadyExists,
    NotFound,
    OutcomeUnknown,
    StorageError,
    Unavailable,
    Unsupported,
    WrongConnection,
)
from ftfile.storage.api import READING
from ftfile.storage.calls import NoThreadError
from ftfile.storage.hdfs.java_errors import error_of_expired, no_ticket, remote_error
from ftfile.storage.hdfs.native_nodes import NoConfigurationError, NoNameNodeError, WebPortError

if TYPE_CHECKING:
    from collections.abc import Iterator


CODED = (
    "the directory is erasure-coded, and hdfs:// cannot write such files safely; write with webhdfs://, or to a "
    "replicated directory (hdfs ec -setPolicy -replicate -path …)"
)

_MEANINGS = (
    ((FileNotFoundError, IsADirectoryError), NotFound, "it does not exist or is not a file"),
    ((FileExistsError,), AlreadyExists, "it already exists"),
    ((NotImplementedError,), Unsupported, "hdfs-native cannot do this"),
)

# Errors of hdfs-native 0.14 without a class are the text of Rust's debug form.
_REMOTE = re.compile(r'(?:Fatal)?RPCError\("([^"]*)", "(.*)"\)', re.DOTALL)
# Messages of errors that are raised before a request is sent.
_EXPIRED = re.compile("GSS_S_CREDENTIALS_EXPIRED|[Tt]icket expired|TKT_EXPIRED")
_NO_TICKET = re.compile("GSS_S_NO_CRED|NoSASLMechanism|No Kerberos credentials|GSS_S_")
_NO_SYNC = "hsync is not supported for erasure-coded files"
_NEVER_SENT = re.compile(r"[Cc]onnection refused|[Tt]imed out connecting|failed to lookup address|No route to host")


@contextlib.contextmanager
def native_errors(operation: str, path: str, where: str) -> Iterator[None]:
    """Translate errors of the library within the block, and panics of its Rust code."""
    try:
        yield
    except (OSError, RuntimeError, NotImplementedError, ValueError) as error:
        raise _translate_error(operation, path, where, error) from error
    except BaseException as error:
        # This class is not exported by hdfs-native 0.14, and is not derived from `Exception`.
        if (type(error).__module__, type(error).__name__) != ("pyo3_runtime", "PanicException"):
            raise
        raise _translate_error(operation, path, where, RuntimeError(str(error))) from error


def _translate_error(operation: str, path: str, where: str, error: Exception) -> StorageError:
    text = str(error)
    line = text.partition("\n")[0]
    if isinstance(error, WebPortError | NoConfigurationError):
        return WrongConnection(operation, path, text)
    if isinstance(error, NoThreadError | NoNameNodeError):
        return Unavailable(operation, path, text)
    for classes, error_class, meaning in _MEANINGS:
        if isinstance(error, classes):
            return error_class(operation, path, f"{meaning}: {line}")
    remote = _REMOTE.search(text)
    if remote is not None:
        return remote_error(operation, path, java_class=remote[1], message=remote[2])
    return _library_error(operation, path, where, text=line)


def _library_error(operation: str, path: str, where: str, text: str) -> StorageError:
    """Return the interface's error for an error of the library with this text."""
    if _EXPIRED.search(text):
        return error_of_expired(operation, path, where, reason=text)
    if _NO_TICKET.search(text):
        return no_ticket(operation, path, where, reason=text)
    if _NO_SYNC in text:
        return Unsupported(operation, path, CODED)
    if operation in READING or _NEVER_SENT.search(text):
        return Unavailable(operation, path, f"{where} does not respond: {text}; check that NameNode and DataNodes run")
    return OutcomeUnknown(operation, path, f"the reply of {where} was lost: {text}")
