"""From a URL to a file system; a driver is imported when its scheme is first asked for.

A driver from outside is an entry point of the group `ftfile.filesystems`: its name is the scheme, its value
a function from `Location` to a file system rooted at the location's path. `register` does the same for one
process only: Spark's workers are other processes and do not see it. Any other scheme that fsspec knows is opened by
fsspec.
"""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING

from ftfile.core.errors import ConfigError
from ftfile.core.extensions import installed
from ftfile.fs.location import Location, normalise, parse
from ftfile.fs.wrapper import RetryingFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from ftfile.core.context import Context
    from ftfile.fs.api import FileSystem

    Factory: TypeAlias = Callable[[Location], FileSystem]

__all__ = (
    "ENTRY_POINT_GROUP",
    "is_local",
    "known_schemes",
    "normalise",
    "open_filesystem",
    "register",
    "settings_for_others",
    "unregister",
)

ENTRY_POINT_GROUP = "ftfile.filesystems"

_BUILT_IN = {
    "file": "ftfile.fs.local.filesystem:open_location",
    "hdfs": "ftfile.fs.hdfs.native.filesystem:open_location",
    "memory": "ftfile.testing.fs.memory:open_location",
    "s3": "ftfile.fs.s3.filesystem:open_location",
    "s3a": "ftfile.fs.s3.filesystem:open_location",
    "swebhdfs": "ftfile.fs.hdfs.webhdfs.filesystem:open_location",
    "webhdfs": "ftfile.fs.hdfs.webhdfs.filesystem:open_location",
}

# Functions that add a driver's environment to its settings, for processes elsewhere.
_HANDING_OVER = dict.fromkeys(("hdfs", "swebhdfs", "webhdfs"), "ftfile.fs.hdfs.settings:hand_over")

_registered: dict[str, Factory] = {}


def register(scheme: str, factory: Factory) -> None:
    """Make `factory` open the URLs of a scheme in this process, also of one that is installed."""
    _registered[scheme.lower()] = factory


def unregister(scheme: str) -> None:
    """Undo `register`; idempotent."""
    _registered.pop(scheme.lower(), None)


def known_schemes() -> tuple[str, ...]:
    """Return every scheme that has a driver of its own in this process, sorted."""
    return tuple(sorted({*_installed(), *_BUILT_IN, *_registered}))


def is_local(url: str) -> bool:
    """Return True for a directory of this machine's own file system, which other libraries open by its path."""
    scheme = parse(url).scheme
    return scheme == "file" and scheme not in _registered


def open_filesystem(
    url: str, context: Context, settings: Mapping[str, str] | None = None, offered: Mapping[str, str] | None = None
) -> FileSystem:
    """Open a directory, which need not exist yet, by its URL or absolute path; as a file system that retries.

    The driver refuses `settings` that it does not know; of those that are `offered`, it takes the ones that it knows.

    Raises:
        ConfigError: the URL is malformed, no driver knows its scheme, or the driver refuses it.
        Unavailable: the store does not answer a driver that asks it at once.
    """
    parsed = parse(url)
    where = parsed.scheme, parsed.authority, parsed.path
    location = Location(*where, dict(settings or {}), dict(offered or {}), context)
    return RetryingFileSystem(_factory(parsed.scheme, url)(location), context)


def settings_for_others(url: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for processes on other hosts, with this one's environment and without secrets."""
    scheme = parse(url).scheme
    name = _HANDING_OVER.get(scheme) if scheme not in _registered else None
    return dict(settings) if name is None else pkgutil.resolve_name(name)(settings)


def _installed() -> dict[str, str]:
    return {name.lower(): place for name, place in installed(ENTRY_POINT_GROUP).items()}


def _by_fsspec(scheme: str) -> str | None:
    import fsspec  # noqa: PLC0415 - for foreign schemes alone

    known = scheme in fsspec.available_protocols() or scheme in fsspec.registry
    return "ftfile.fs.fsspec.filesystem:open_location" if known else None


def _factory(scheme: str, url: str) -> Factory:
    if scheme in _registered:
        return _registered[scheme]
    name = _BUILT_IN.get(scheme) or _installed().get(scheme) or _by_fsspec(scheme)
    if name is None:
        known = ", ".join(known_schemes())
        detail = f"no driver for the scheme {scheme!r} of {url!r} is installed, and fsspec knows none"
        raise ConfigError(f"{detail}; there are: {known}")
    try:
        factory: Factory = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"the driver {name!r} of the scheme {scheme!r} cannot be loaded: {error}") from error
    return factory
