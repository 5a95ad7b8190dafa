"""Translation of `hdfs-native`'s errors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ftfile.core.errors import (
    AlreadyExists,
    NotFound,
    OutcomeUnknown,
    PermissionDenied,
    StorageError,
    Unavailable,
    Unsupported,
)
from ftfile.fs.calls.deadline import NoThreadError
from ftfile.fs.calls.error_translation import ErrorTranslator
from ftfile.fs.hdfs.errors import READING, expired, no_ticket, remote_error
from ftfile.fs.hdfs.native.nodes import NoNameNodeError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ("CODED", "NativeErrorTranslator")

CODED = (
    "the directory is erasure-coded, and hdfs:// writes no such files safely; write by webhdfs://, or to a replicated "
    "directory (hdfs ec -setPolicy -replicate -path …)"
)

# The library's errors without a class of their own are the text of Rust's debug form.
_REMOTE = re.compile(r'(?:Fatal)?RPCError\("([^"]*)", "(.*)"\)', re.DOTALL)
# Said before anything is sent.
_EXPIRED = re.compile("GSS_S_CREDENTIALS_EXPIRED|[Tt]icket expired|TKT_EXPIRED")
_NO_TICKET = re.compile("GSS_S_NO_CRED|NoSASLMechanism|No Kerberos credentials|GSS_S_")
_NO_SYNC = "hsync is not supported for erasure-coded files"
_NEVER_SENT = re.compile(r"[Cc]onnection refused|[Tt]imed out connecting|failed to lookup address|No route to host")


def _is_panic(error: BaseException) -> bool:
    """Return True if the library's Rust code panicked: a class that is no `Exception`, and that nothing exports."""
    kind = type(error)
    return (kind.__module__, kind.__name__) == ("pyo3_runtime", "PanicException")


class NativeErrorTranslator(ErrorTranslator):
    """A `with` block in which the library's errors become the port's."""

    __slots__ = ()

    errors = (OSError, RuntimeError, NotImplementedError, ValueError)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and _is_panic(error):
            raise self._translated(RuntimeError(str(error))) from error
        super().__exit__(kind, error, trace)

    def _translated(self, error: Exception) -> StorageError:
        operation, path, text = self._operation, self._path, str(error)
        if isinstance(error, NoThreadError | NoNameNodeError):
            return Unavailable(operation, path, text)
        if isinstance(error, FileNotFoundError | IsADirectoryError):
            return NotFound(operation, path, f"nothing, or no file, is there below {self._where}: {_line(text)}")
        if isinstance(error, FileExistsError):
            return AlreadyExists(operation, path, f"something is there already below {self._where}: {_line(text)}")
        if isinstance(error, NotImplementedError):
            return Unsupported(operation, path, f"hdfs-native cannot do this below {self._where}: {_line(text)}")
        found = _REMOTE.search(text)
        if found is not None:
            return remote_error(operation, path, self._where, found[1], found[2])
        kind, detail = self._meaning(_line(text))
        return kind(operation, path, detail)

    def _meaning(self, text: str) -> tuple[type[StorageError], str]:
        """Return the port's error for an error of the library itself."""
        if _EXPIRED.search(text):
            return PermissionDenied, expired(self._where, text)
        if _NO_TICKET.search(text):
            return PermissionDenied, no_ticket(self._where, text)
        if _NO_SYNC in text:
            return Unsupported, CODED
        if self._operation in READING or _NEVER_SENT.search(text):
            return Unavailable, f"{self._where} does not answer: {text}; look whether NameNode and DataNodes run"
        return OutcomeUnknown, f"the reply of {self._where} was lost: {text}"


def _line(text: str) -> str:
    return text.partition("\n")[0]
