"""The table of storage drivers by URL scheme, and file systems that retry; drivers are imported at first use.

A driver of another package is an entry point of the group `ftfile.filesystems`. Its name is the scheme, and its value
is a function that returns the file system of a `Location`. `register` adds a driver to one process, so Spark's workers
do not have it. If no driver has the scheme, fsspec opens the URL.
"""

from __future__ import annotations

import pkgutil
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from ftfile.core.errors import ConfigError, StorageError, Unavailable
from ftfile.core.extensions import list_installed
from ftfile.core.retries import RetryPolicy, call_with_retries
from ftfile.storage.api import READING, CopyingStream, FileSystem, InputFile, OutputStream, Watch, copy_range
from ftfile.storage.paths import Location, normalise, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from ftfile.core.context import Context
    from ftfile.storage.api import Capabilities, StoredFile

    Factory: TypeAlias = Callable[[Location], FileSystem]

__all__ = (
    "ENTRY_POINT_GROUP",
    "REPEATABLE",
    "Method",
    "Result",
    "RetryingFileSystem",
    "WrapperFile",
    "WrapperFileSystem",
    "WrapperStream",
    "WrapperWatch",
    "is_local",
    "known_schemes",
    "normalise",
    "open_filesystem",
    "register",
    "settings_for_others",
    "unregister",
)


Method = TypeVar("Method", bound="Callable[..., object]")
Result = TypeVar("Result")
# The operations that are repeated after an error. Creating, renaming and deleting are missing on purpose: if the first
# attempt succeeds and its reply is lost, a second one would report "exists" or "not found". So the protocol checks the
# storage before it repeats such a call.
REPEATABLE = READING | {"make_directories", "sync_directory"}
ENTRY_POINT_GROUP = "ftfile.filesystems"
_BUILT_IN = {
    "file": "ftfile.storage.local:open_location",
    "hdfs": "ftfile.storage.hdfs.native:open_location",
    "memory": "ftfile.testing.fs.memory:open_location",
    "s3": "ftfile.storage.s3.filesystem:open_location",
    "s3a": "ftfile.storage.s3.filesystem:open_location",
    "swebhdfs": "ftfile.storage.hdfs.webhdfs:open_location",
    "webhdfs": "ftfile.storage.hdfs.webhdfs:open_location",
}
# Functions that return the settings for processes on other hosts; see `settings_for_others`.
_HANDING_OVER = dict.fromkeys(("hdfs", "swebhdfs", "webhdfs"), "ftfile.storage.hdfs.handover:settings_for_executors")
_registered: dict[str, Factory] = {}
# Places of loaded drivers by scheme. Cached, since a lookup of entry points takes as long as a small commit.
_places: dict[str, str] = {}


def _delegate(method: Method, operation: str | None = None) -> Method:
    """Return a wrapper's method, which passes the call of the inner file system's method to `around`."""
    name: str = method.__name__

    def delegate(self: WrapperFileSystem, path: str, *arguments: object, **keywords: object) -> object:
        inner_method = getattr(self.inner, name)
        call = partial(inner_method, self.inner_path(path), *arguments, **keywords)
        return self.around(operation or name, path, call)

    return cast("Method", delegate)


class WrapperFileSystem(FileSystem):
    """A file system that passes every call to `inner`; subclasses override `around`, or single methods."""

    def __init__(self, inner: FileSystem) -> None:
        self.inner = inner
        self.context = inner.context

    def around(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        """Run `call`, which does `operation` on `path`; wrapped streams and files pass their calls here, too."""
        del operation, path
        return call()

    def inner_path(self, path: str) -> str:
        """Return the path in the inner file system."""
        return path

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    def prove(self, directory: str) -> None:
        self.inner.prove(self.inner_path(directory))

    create = _delegate(FileSystem.create)
    open = _delegate(FileSystem.open)
    read = _delegate(FileSystem.read)
    stat = _delegate(FileSystem.stat)
    list = _delegate(FileSystem.list)
    names_after = _delegate(FileSystem.names_after, "list")
    make_directories = _delegate(FileSystem.make_directories)
    sync_directory = _delegate(FileSystem.sync_directory)
    create_exclusive = _delegate(FileSystem.create_exclusive)
    put = _delegate(FileSystem.put)
    delete = _delegate(FileSystem.delete)
    remove_directory = _delegate(FileSystem.remove_directory)

    def watch(self) -> Watch | None:
        inner = self.inner.watch()
        if inner is None:
            return None
        return WrapperWatch(inner, self)

    def rename(self, source: str, target: str) -> None:
        call = partial(self.inner.rename, self.inner_path(source), self.inner_path(target))
        self.around("rename", source, call)


class WrapperStream(CopyingStream):
    """A stream whose writes, syncs and close pass through `around` of the file system that opened it."""

    def __init__(self, inner: OutputStream, owner: WrapperFileSystem) -> None:
        super().__init__(inner.path, frozenset())
        self._inner = inner
        self._owner = owner

    @property
    def stored(self) -> StoredFile | None:
        return self._inner.stored

    def has_capability(self, name: str) -> bool:
        return self._inner.has_capability(name)

    def _write(self, data: memoryview) -> None:
        self._owner.around("write", self.path, partial(self._inner.write, data))

    def _copy_from(self, path: str, offset: int, length: int) -> None:
        source = self._owner.inner_path(path)
        self._owner.around("copy_from", self.path, partial(copy_range, self._inner, source, offset, length))

    def _hflush(self) -> None:
        self._owner.around("hflush", self.path, self._inner.hflush)

    def _hsync(self) -> None:
        self._owner.around("hsync", self.path, self._inner.hsync)

    def _close(self) -> None:
        self._owner.around("close", self.path, self._inner.close)

    def _abort(self) -> bool:
        return self._inner.abort()


class WrapperFile(InputFile):
    """A file whose reads pass through `around` of the file system that opened it."""

    def __init__(self, inner: InputFile, owner: WrapperFileSystem) -> None:
        self.path = inner.path
        self.size_bytes = inner.size_bytes
        self._inner = inner
        self._owner = owner

    def read_at(self, offset: int, length: int) -> bytes:
        return self._owner.around("read_at", self.path, partial(self._inner.read_at, offset, length))

    def mapped(self) -> memoryview | None:
        return self._owner.around("read_at", self.path, self._inner.mapped)

    def close(self) -> None:
        self._inner.close()


class WrapperWatch(Watch):
    """A watch that translates paths of the wrapper to paths of the inner file system."""

    def __init__(self, inner: Watch, owner: WrapperFileSystem) -> None:
        self._inner = inner
        self._owner = owner

    def add(self, directory: str) -> None:
        self._inner.add(self._owner.inner_path(directory))

    def changed(self, wait_s: float = 0.0) -> bool:
        return self._inner.changed(wait_s)


class RetryingFileSystem(WrapperFileSystem):
    """A file system that retries the operations in `REPEATABLE` after errors that a retry can cure.

    If the context has no retry policy, a driver that retries on its own is called once. Errors contain the URL of the
    root. An `Unavailable` error also contains the duration of the call.
    """

    def __init__(self, inner: FileSystem, context: Context, url: str) -> None:
        super().__init__(inner)
        self.context = context
        self._url = url
        attempts = 5
        if inner.capabilities.retries_internally:
            attempts = 1
        self._policy = context.retry or RetryPolicy(attempts)

    def around(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        del path
        clock = self.context.clock
        began_s = clock.monotonic_s()
        try:
            if operation in REPEATABLE:
                return call_with_retries(call, self._policy, clock)
            return call()
        except StorageError as error:
            error.url = self._url
            if isinstance(error, Unavailable):
                error.waited_s = clock.monotonic_s() - began_s
            raise

    def open(self, path: str) -> InputFile:
        return WrapperFile(super().open(path), self)


def register(scheme: str, factory: Factory) -> None:
    """Open the URLs of a scheme by `factory` in this process, even if another driver of the scheme is installed."""
    _registered[scheme.lower()] = factory


def unregister(scheme: str) -> None:
    """Undo `register`; idempotent."""
    _registered.pop(scheme.lower(), None)


def known_schemes() -> tuple[str, ...]:
    """Return all schemes that have a driver in this process, sorted."""
    return tuple(sorted({*_list_installed(), *_BUILT_IN, *_registered}))


def is_local(url: str) -> bool:
    """Return True for a directory of the local file system, which other libraries open by its path."""
    scheme = parse(url).scheme
    return scheme == "file" and scheme not in _registered


def open_filesystem(
    url: str,
    context: Context,
    settings: Mapping[str, str] | None = None,
    optional_settings: Mapping[str, str] | None = None,
) -> FileSystem:
    """Open a directory by its URL or absolute path, as a file system that retries; the directory need not exist.

    The driver refuses unknown `settings`, and ignores unknown `optional_settings`.

    Raises:
        ConfigError: the URL is malformed, no driver supports its scheme, or the driver refuses it.
        Unavailable: the driver connects when it is opened, and the storage does not respond.
    """
    parsed = parse(url)
    location = Location(
        parsed.scheme,
        parsed.authority,
        parsed.path,
        settings=dict(settings or {}),
        optional_settings=dict(optional_settings or {}),
        context=context,
    )
    return RetryingFileSystem(_open(location, url), context, url)


def settings_for_others(url: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for processes on other hosts.

    For HDFS, they also contain the configuration of this process without its secrets and, when they are pickled, its
    token for the URL. Other settings are unchanged.
    """
    scheme = parse(url).scheme
    if scheme in _registered or scheme not in _HANDING_OVER:
        return dict(settings)
    hand_over: Callable[[str, Mapping[str, str]], dict[str, str]] = pkgutil.resolve_name(_HANDING_OVER[scheme])
    return hand_over(url, settings)


def _list_installed() -> dict[str, str]:
    return {name.lower(): place for name, place in list_installed(ENTRY_POINT_GROUP).items()}


def _by_fsspec(scheme: str) -> str | None:
    import fsspec  # noqa: PLC0415 - only needed for schemes without a driver

    is_known = scheme in fsspec.available_protocols() or scheme in fsspec.registry
    if is_known:
        return "ftfile.storage.fsspec:open_location"
    return None


def _open(location: Location, url: str) -> FileSystem:
    scheme = location.scheme
    if scheme in _registered:
        return _registered[scheme](location)
    name = _BUILT_IN.get(scheme) or _places.get(scheme) or _list_installed().get(scheme) or _by_fsspec(scheme)
    if name is None:
        schemes = ", ".join(known_schemes())
        detail = f"no driver for the scheme {scheme!r} of {url!r} is installed, and fsspec has none"
        raise ConfigError(f"{detail}; available schemes: {schemes}")
    try:
        factory: Factory = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"the driver {name!r} of the scheme {scheme!r} cannot be loaded: {error}") from error
    _places[scheme] = name
    return factory(location)
