"""Calls of one of fsspec's file systems: each has a time limit, and fails with an error of the port."""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypeVar

import fsspec

from ftfile.core.errors import (
    ConfigError,
    NotFound,
    OutcomeUnknown,
    StorageError,
    Unavailable,
    Unsupported,
    WrongConnection,
)
from ftfile.fs.api import FileInfo
from ftfile.fs.calls.deadline import NoThreadError, run_within
from ftfile.fs.calls.per_process import PerProcess
from ftfile.fs.calls.tls import endpoint_fault, tls_fault
from ftfile.fs.fsspec.errors import remote_error
from ftfile.fs.paths import fault_of, join, require_valid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ftfile.fs.fsspec.settings import FsspecSettings

__all__ = ("BLOCK_BYTES", "FORBIDDEN", "FsspecClient", "NewFile", "client_of")

# A larger file is sent in parts of this length, which every store takes that has parts.
BLOCK_BYTES = 5 << 20
# What a store, or an implementation, takes for a slash, or leaves out of its listings.
FORBIDDEN = "\\\n\r"
# How much is asked for in one call, which must end in time.
READ_BYTES = 16 << 20

# Under which names implementations tell when a file was modified: the exact ones first.
_TIMES = ("mtime", "updated", "last_modified", "LastModified", "modified", "created")

# By which variable libraries that speak HTTP are told which certificates to trust.
_BUNDLE = "SSL_CERT_FILE (for s3fs: AWS_CA_BUNDLE)"
_ENDPOINT = re.compile(r"https?://[^\s;,'\"}]+")

Result = TypeVar("Result")


def client_of(url: str, settings: FsspecSettings) -> FsspecClient:
    """Return this process's client; raises `ConfigError` and `Unavailable` as `open_location` does."""
    return _clients.of((url, settings))


class FsspecClient:
    """One file system for all threads of a process; paths are relative to the directory of the URL.

    Attributes:
        implementation: name of the class.
        proven: the probe went well.
        proving: held by the thread that probes.
    """

    def __init__(self, url: str, settings: FsspecSettings) -> None:
        self.where = url
        self.proven = False
        self.proving = threading.Lock()
        self._settings = settings
        self._timeout_s = settings.timeout_s
        self._has_answered = False
        scheme = url.partition(":")[0]
        try:
            kind = fsspec.get_filesystem_class(scheme)
            # These two are how an implementation is told its URLs; there are no others.
            found = kind._get_kwargs_from_urls(url)  # noqa: SLF001
            self._root: str = kind._strip_protocol(url).rstrip("/")  # noqa: SLF001
            arguments = {**found, **settings.arguments()}
            self._endpoints: list[str] = _ENDPOINT.findall(str(arguments))
            # What others wrote is seen at once only by who keeps no listings.
            make = functools.partial(kind, **arguments, use_listings_cache=False, skip_instance_cache=True)
            # Some ask the store already.
            self._store: Any = run_within(self._timeout_s, make)
        except ConfigError:
            raise
        except (TimeoutError, NoThreadError) as error:
            text = f"{type(error).__name__} when fsspec opened {url!r}: {error}: the store is away, or silent"
            raise Unavailable("open", "", text) from error
        except Exception as error:
            raise ConfigError(
                f"{url!r}: fsspec cannot open it ({type(error).__name__}: {settings.hidden(str(error))}): install the "
                f"package that it names for {scheme!r}, and give what its constructor needs as options "
                "storage.<argument>"
            ) from self._shown(error)
        self.implementation = f"{kind.__module__}.{kind.__qualname__}"

    def name(self, operation: str, path: str) -> str:
        """Return the implementation's name of a path, or raise `Unsupported` for one that the store may not keep."""
        require_valid(operation, path)
        fault = fault_of(path, FORBIDDEN, blank_ends=False)
        if fault is not None:
            raise Unsupported(operation, path, f"it {fault}")
        return f"{self._root}/{path}" if path else self._root

    def call(self, operation: str, path: str, do: Callable[[Any], Result], *, is_upload: bool = False) -> Result:
        """Call the file system, or an open file of it; `is_upload`: what it makes is no file before the end.

        Raises:
            WrongConnection: no request ever got through.
            StorageError: see `remote_error`.
        """
        try:
            result = run_within(self._timeout_s, lambda: do(self._store))
        except Exception as error:
            raise self._translated(operation, path, error, is_upload=is_upload) from self._shown(error)
        self._has_answered = True
        return result

    def _translated(self, operation: str, path: str, error: Exception, *, is_upload: bool) -> StorageError:
        text = self._settings.hidden(str(error))
        found = remote_error(operation, path, self.where, error, text, is_upload=is_upload)
        fault = tls_fault(error, _BUNDLE)
        if fault is None and not self._has_answered and type(found) in {Unavailable, OutcomeUnknown, StorageError}:
            faults = (endpoint_fault(endpoint, _BUNDLE) for endpoint in self._endpoints)
            fault = next((each for each in faults if each is not None), None)
        return found if fault is None else WrongConnection(operation, path, f"{self.where}: {fault} ({text})")

    def _shown(self, error: Exception) -> Exception | None:
        """Return an error's cause without secrets."""
        return error if self._settings.hidden(str(error)) == str(error) else None

    def info(self, operation: str, path: str) -> FileInfo:
        """Return the status of a path, or raise `NotFound`."""
        name = self.name(operation, path)
        return self.call(operation, path, lambda store: _file_info(path, _anew(store).info(name)))

    def file_info(self, operation: str, path: str) -> FileInfo:
        """Return a file's length and time; raise `NotFound` for a directory, too."""
        info = self.info(operation, path)
        if info.is_directory:
            raise NotFound(operation, path, f"a directory is there below {self.where}, and a file was asked for")
        return info

    def children(self, operation: str, path: str) -> list[FileInfo]:
        """Return the entries of a directory; none if it does not exist."""
        name = self.name(operation, path)
        try:
            return self.call(operation, path, lambda store: _children(path, name, _anew(store).ls(name, detail=True)))
        except NotFound:
            return []

    def read(self, operation: str, path: str, offset: int, length: int) -> bytes:
        """Return bytes that are in a file."""
        name, end = self.name(operation, path), offset + length
        pieces = [
            self._piece(operation, path, name, start, min(start + READ_BYTES, end))
            for start in range(offset, end, READ_BYTES)
        ]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _piece(self, operation: str, path: str, name: str, start: int, end: int) -> bytes:
        content = bytes(self.call(operation, path, lambda store: store.cat_file(name, start=start, end=end)))
        if len(content) != end - start:
            raise Unavailable(
                operation,
                path,
                f"{len(content)} bytes came from {start} on instead of {end - start} below {self.where}",
            )
        return content

    def delete(self, operation: str, path: str) -> None:
        """Delete a file, or raise `NotFound`."""
        name = self.name(operation, path)
        self.call(operation, path, lambda store: store.rm_file(name))


_clients: PerProcess[tuple[str, FsspecSettings], FsspecClient] = PerProcess(lambda key: FsspecClient(*key))


class NewFile:
    """A file that is being made where there is none; nothing of it is seen before `finish`."""

    def __init__(self, client: FsspecClient, operation: str, path: str) -> None:
        self._client = client
        self._operation = operation
        self._path = path
        self._name = client.name(operation, path)
        self._file: Any = None

    def send(self, content: bytes | bytearray) -> None:
        """Send the next part."""
        self._call(lambda store: self._send(store, content))

    def finish(self, content: bytes | bytearray) -> None:
        """Send the last part and make the file, or raise `AlreadyExists`; `NotFound` is never raised."""

        def finish(store: Any) -> None:  # noqa: ANN401 - fsspec ships no types
            try:
                self._send(store, content)
                self._file.close()
            except BaseException:
                _give_up(self._file)
                raise

        self._call(finish)

    def give_up(self) -> None:
        """Leave the file away, as far as that can be done."""
        with contextlib.suppress(StorageError):
            self._client.call("abort", self._path, lambda _: _give_up(self._file))

    def _call(self, do: Callable[[Any], None]) -> None:
        self._client.call(self._operation, self._path, do, is_upload=True)

    def _send(self, store: Any, content: bytes | bytearray) -> None:  # noqa: ANN401 - fsspec ships no types
        if self._file is None:
            self._file = store.open(self._name, "xb", block_size=BLOCK_BYTES)
        written = self._file.write(content)
        if written != len(content):
            raise OSError(f"{written} bytes were taken of {len(content)}")


def _give_up(file: Any) -> None:  # noqa: ANN401 - fsspec ships no types
    if file is None:
        return
    with contextlib.suppress(Exception):
        file.discard()
    with contextlib.suppress(AttributeError):
        # Or else the file would be made when it is collected as garbage.
        file.closed = True


def _anew(store: Any) -> Any:  # noqa: ANN401 - fsspec ships no types
    """Return the file system, which has forgotten what it has seen."""
    store.invalidate_cache()
    return store


def _children(path: str, name: str, found: Iterable[Mapping[str, Any]]) -> list[FileInfo]:
    # What is named like the directory is what others make to show an empty one, or it is a file.
    own = name.strip("/")
    children = {each["name"].rstrip("/").rpartition("/")[2]: each for each in found if each["name"].strip("/") != own}
    return [_file_info(join(path, child), each) for child, each in children.items()]


def _file_info(path: str, found: Mapping[str, Any]) -> FileInfo:
    if found["type"] == "directory":
        return FileInfo(path, 0, 0, is_directory=True)
    size = found.get("size")
    return FileInfo(path, -1 if size is None else int(size), _milliseconds(found))


def _milliseconds(found: Mapping[str, Any]) -> int:
    """Return the time of modification, in whole seconds: some tell fractions in listings alone; 0 for none."""
    value = next((found[name] for name in _TIMES if found.get(name) is not None), 0)
    if isinstance(value, str):
        value = datetime.fromisoformat(f"{value[:-1]}+00:00" if value.endswith("Z") else value)
    if isinstance(value, datetime):
        value = (value if value.tzinfo else value.replace(tzinfo=timezone.utc)).timestamp()
    return int(value) * 1000
