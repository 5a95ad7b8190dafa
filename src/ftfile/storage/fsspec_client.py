"""A client of an fsspec file system, with timeouts and the errors of the interface."""

from __future__ import annotations

import contextlib
import errno
import functools
import re
import threading
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypeVar

import fsspec

from ftfile.core.errors import (
    AlreadyExists,
    ConfigError,
    NotADirectory,
    NotFound,
    OutcomeUnknown,
    OutOfSpace,
    PermissionDenied,
    StorageError,
    Unavailable,
    Unsupported,
    WrongConnection,
)
from ftfile.core.logs import hide_secrets
from ftfile.core.per_process import OnePerKey
from ftfile.storage.api import READING, FileInfo
from ftfile.storage.calls import NoThreadError, run_within
from ftfile.storage.connections import causes_of, endpoint_fault, tls_fault
from ftfile.storage.paths import check_path, fault_of, join

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ftfile.storage.fsspec_settings import FsspecSettings


# A larger file is sent in parts of this length, which all storage systems with parts accept.
BLOCK_BYTES = 5 << 20
# Characters that some storage systems interpret as a slash, or omit from listings.
FORBIDDEN = "\\\n\r"
# The size of a read.
READ_BYTES = 16 << 20
# Names of the modification time in implementations, the precise ones first.
_TIMES = ("mtime", "updated", "last_modified", "LastModified", "modified", "created")
# The environment variable that names trusted certificates.
_BUNDLE = "SSL_CERT_FILE (for s3fs: AWS_CA_BUNDLE)"
_ENDPOINT = re.compile(r"https?://[^\s;,'\"}]+")
_DENIED = "the storage denies access to these credentials: check which credentials are used, and their permissions"

_MEANINGS = (
    (FileNotFoundError, NotFound, "it does not exist"),
    (IsADirectoryError, NotFound, "it is a directory, not a file"),
    (NotADirectoryError, NotADirectory, "a file is where a directory is needed"),
    (FileExistsError, AlreadyExists, "it already exists, and files are never overwritten"),
    (PermissionError, PermissionDenied, _DENIED),
    (NotImplementedError, Unsupported, "the implementation cannot do this"),
)

_NUMBERS: dict[int, tuple[type[StorageError], str]] = {
    errno.ENOSPC: (OutOfSpace, "the storage is full"),
    errno.EDQUOT: (OutOfSpace, "a quota is exceeded"),
    errno.ENAMETOOLONG: (Unsupported, "the name is too long for the storage; shorten it"),
}

# Attributes in which libraries store the HTTP status.
_STATUS_NAMES = ("status_code", "status", "code")
_DENYING = frozenset({401, 403})
_GONE = 404
# Mistakes of the caller or of the library; a retry cannot help.
_MISTAKES = (TypeError, ValueError, AttributeError, LookupError, AssertionError)

Result = TypeVar("Result")


class FsspecClient:
    """One file system for all threads of a process; paths are relative to the directory of the URL."""

    def __init__(self, url: str, settings: FsspecSettings) -> None:
        self.where = url
        self.proven = False
        self.proving = threading.Lock()  # held by the thread that probes
        self._secrets = settings.secrets()  # variables can change
        self._timeout_s = settings.timeout_s
        self._has_answered = False
        scheme = url.partition(":")[0]
        try:
            kind = fsspec.get_filesystem_class(scheme)
            url_arguments = kind._get_kwargs_from_urls(url)  # noqa: SLF001 - nothing public takes a URL apart
            self._root: str = kind._strip_protocol(url).rstrip("/")  # noqa: SLF001
            arguments = {**url_arguments, **settings.arguments()}
            self._endpoints: list[str] = _ENDPOINT.findall(str(arguments))
            # Cached listings would hide files that other processes wrote.
            make = functools.partial(kind, **arguments, use_listings_cache=False, skip_instance_cache=True)
            # Some constructors send requests.
            self._storage: Any = run_within(self._timeout_s, make)
        except ConfigError:
            raise
        except (TimeoutError, NoThreadError) as error:
            text = (
                f"{type(error).__name__} when fsspec opened {url!r}: {error}: the storage is unreachable or does not "
                "respond"
            )
            raise Unavailable("open", "", text) from error
        except Exception as error:
            text = f"{type(error).__name__}: {hide_secrets(str(error), self._secrets)}"
            raise ConfigError(
                f"{url!r}: fsspec cannot open it ({text}): install the package that it names for {scheme!r}, and give "
                "the arguments of its constructor as options storage.<argument>"
            ) from self._hide_secrets(error)
        self.implementation = f"{kind.__module__}.{kind.__qualname__}"

    def name(self, operation: str, path: str) -> str:
        """Return the name of a path in the implementation; raise `Unsupported` if the storage may not support it."""
        check_path(operation, path)
        fault = fault_of(path, FORBIDDEN, blank_ends=False)
        if fault is not None:
            raise Unsupported(operation, path, f"it {fault}")
        if path:
            return f"{self._root}/{path}"
        return self._root

    def call(self, operation: str, path: str, do: Callable[[Any, str], Result], *, is_upload: bool = False) -> Result:
        """Call `do` with the file system and its name of a path; `is_upload`: only the last call creates the file."""
        name = self.name(operation, path)
        try:
            result = run_within(self._timeout_s, functools.partial(do, self._storage, name))
        except Exception as error:
            raise self._translate_error(operation, path, error, is_upload=is_upload) from self._hide_secrets(error)
        self._has_answered = True
        return result

    def _translate_error(self, operation: str, path: str, error: Exception, *, is_upload: bool) -> StorageError:
        text = hide_secrets(str(error), self._secrets)
        translated = remote_error(operation, path, error=error, text=text, is_upload=is_upload)
        fault = tls_fault(error, _BUNDLE)
        if fault is None and not self._has_answered and type(translated) in {Unavailable, OutcomeUnknown, StorageError}:
            fault = self._endpoint_fault()
        if fault is None:
            return translated
        return WrongConnection(operation, path, f"{self.where}: {fault} ({text})")

    def _endpoint_fault(self) -> str | None:
        for endpoint in self._endpoints:
            fault = endpoint_fault(endpoint, _BUNDLE)
            if fault is not None:
                return fault
        return None

    def _hide_secrets(self, error: Exception) -> Exception | None:
        """Return the cause to show; None if the error, or an error that caused it, contains a secret."""
        for cause in causes_of(error):
            text = str(cause)
            if hide_secrets(text, self._secrets) != text:
                return None
        return error

    def info(self, operation: str, path: str) -> FileInfo:
        """Return the status of a path."""

        def stat(storage: Any, name: str) -> FileInfo:  # noqa: ANN401 - fsspec ships no types
            return _file_info(path, _invalidate_listings(storage).info(name))

        return self.call(operation, path, stat)

    def file_info(self, operation: str, path: str) -> FileInfo:
        """Return the status of a file; raise `NotFound` for a directory as well."""
        info = self.info(operation, path)
        if info.is_directory:
            raise NotFound(operation, path, "it is a directory, not a file")
        return info

    def children(self, operation: str, path: str) -> list[FileInfo]:
        """Return the entries of a directory; an empty list if it does not exist."""
        try:
            return self.call(operation, path, functools.partial(_children, path))
        except NotFound:
            return []

    def read(self, operation: str, path: str, offset: int, length: int) -> bytes:
        """Return the bytes of a range, which must be within the file."""
        end = offset + length
        starts = range(offset, end, READ_BYTES)
        pieces = [self._piece(operation, path, start, min(start + READ_BYTES, end)) for start in starts]
        if len(pieces) == 1:
            return pieces[0]
        return b"".join(pieces)

    def _piece(self, operation: str, path: str, start: int, end: int) -> bytes:
        def read(storage: Any, name: str) -> bytes:  # noqa: ANN401 - fsspec ships no types
            return bytes(storage.cat_file(name, start=start, end=end))

        content = self.call(operation, path, read)
        if len(content) != end - start:
            detail = f"{len(content)} bytes were received from position {start} instead of {end - start}"
            raise Unavailable(operation, path, detail)
        return content

    def delete(self, operation: str, path: str) -> None:
        """Delete a file."""

        def delete(storage: Any, name: str) -> None:  # noqa: ANN401 - fsspec ships no types
            storage.rm_file(name)

        self.call(operation, path, delete)

    def put(self, operation: str, path: str, content: bytes) -> None:
        """Write a file, and replace an existing one."""

        def put(storage: Any, name: str) -> None:  # noqa: ANN401 - fsspec ships no types
            storage.pipe_file(name, content)

        self.call(operation, path, put)


def _open_client(key: tuple[str, FsspecSettings]) -> FsspecClient:
    url, settings = key
    return FsspecClient(url, settings)


clients = OnePerKey(_open_client)


class NewFile:
    """A new file that is being written; other processes see it after `finish`."""

    def __init__(self, client: FsspecClient, operation: str, path: str) -> None:
        self._client = client
        self._operation = operation
        self._path = path
        self._file: Any = None
        client.name(operation, path)  # raises for an unsupported path at once

    def send(self, content: bytes | bytearray) -> None:
        """Send the next part."""
        self._call(functools.partial(self._send, content))

    def finish(self, content: bytes | bytearray) -> None:
        """Send the last part and create the file, or raise `AlreadyExists`; never `NotFound`."""

        def finish(storage: Any, name: str) -> None:  # noqa: ANN401 - fsspec ships no types
            try:
                self._send(content, storage, name)
                self._file.close()
            except BaseException:
                _give_up(self._file)
                raise

        self._call(finish)

    def give_up(self) -> None:
        """Discard the file, if the implementation can."""
        with contextlib.suppress(StorageError):
            self._client.call("abort", self._path, self._discard)

    def _discard(self, *_: object) -> None:
        _give_up(self._file)

    def _call(self, do: Callable[[Any, str], None]) -> None:
        self._client.call(self._operation, self._path, do, is_upload=True)

    def _send(self, content: bytes | bytearray, storage: Any, name: str) -> None:  # noqa: ANN401 - fsspec ships no types
        if self._file is None:
            self._file = storage.open(name, "xb", block_size=BLOCK_BYTES)
        written = self._file.write(content)
        if written != len(content):
            raise OSError(f"{written} of {len(content)} bytes were accepted")


def _give_up(file: Any) -> None:  # noqa: ANN401 - fsspec ships no types
    if file is None:
        return
    with contextlib.suppress(Exception):
        file.discard()
    with contextlib.suppress(AttributeError):
        file.closed = True  # otherwise garbage collection creates the file: fsspec/s3fs#154


def _invalidate_listings(storage: Any) -> Any:  # noqa: ANN401 - fsspec ships no types
    """Return the file system without cached listings."""
    storage.invalidate_cache()
    return storage


def _children(path: str, storage: Any, name: str) -> list[FileInfo]:  # noqa: ANN401 - fsspec ships no types
    directory_name = name.strip("/")
    children: dict[str, FileInfo] = {}
    for entry in _invalidate_listings(storage).ls(name, detail=True):
        # An entry with the name of the directory is the marker of an empty directory, or a file.
        if entry["name"].strip("/") != directory_name:
            child = entry["name"].rstrip("/").rpartition("/")[2]
            children[child] = _file_info(join(path, child), entry)
    return list(children.values())


def _file_info(path: str, entry: Mapping[str, Any]) -> FileInfo:
    if entry["type"] == "directory":
        return FileInfo(path, 0, 0, is_directory=True)
    size = entry.get("size")
    return FileInfo(path, -1 if size is None else int(size), _milliseconds(entry))


def _milliseconds(entry: Mapping[str, Any]) -> int:
    """Return the modification time in whole seconds, since only listings can contain fractions; 0 if unknown."""
    value: Any = 0
    for name in _TIMES:
        if entry.get(name) is not None:
            value = entry[name]
            break
    if isinstance(value, str):
        if value.endswith("Z"):
            value = f"{value[:-1]}+00:00"
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        if not value.tzinfo:
            value = value.replace(tzinfo=timezone.utc)
        value = value.timestamp()
    return int(value) * 1000


def remote_error(
    operation: str, path: str, error: Exception, text: str | None = None, *, is_upload: bool = False
) -> StorageError:
    """Return the error of the interface; `text` replaces the text of the error."""
    kind, advice = _meaning(error) or (None, "")
    if is_upload and kind is NotFound:
        kind = None  # the upload does not exist any more: the library may have sent its end twice
    if kind is None and operation not in READING:
        kind, advice = OutcomeUnknown, "the operation may have taken effect"
    if kind is None:
        kind = Unavailable
        if isinstance(error, _MISTAKES):
            kind = StorageError
        advice = "the implementation failed"
    shown = (str(error) if text is None else text).strip()
    return kind(operation, path, f"{type(error).__name__}: {shown or 'no text'}: {advice}")


def _meaning(error: Exception) -> tuple[type[StorageError], str] | None:
    for raised, kind, advice in _MEANINGS:
        if isinstance(error, raised):
            return kind, advice
    if isinstance(error, OSError) and error.errno in _NUMBERS:
        return _NUMBERS[error.errno]
    for name in _STATUS_NAMES:
        status = getattr(error, name, None)
        if status in _DENYING:
            return PermissionDenied, _DENIED
        if status == _GONE:
            return NotFound, "it does not exist"
    return None
