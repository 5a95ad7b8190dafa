"""A directory whose log is lost: commands say so, and end with `DAMAGED`, where Python finds nothing in it."""

import contextlib
from typing import TYPE_CHECKING

import ftfile
from ftfile.core.errors import ConfigError, CorruptData

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.maintenance.opened import OpenedDirectory


def open_directory(path: str, key_provider: str | None, settings: dict[str, str] | None) -> "OpenedDirectory":
    """Return a directory of files.

    Raises:
        ConfigError: it is none.
        CorruptData: it has had commits, and none of them can be read; with what `status` says of it.
    """
    directory = ftfile.open(path, key_provider, storage=settings)
    if directory.version() < 0:
        for finding in directory.status(lag=False).findings:
            if finding.severity == "error":
                raise CorruptData(finding.path, finding.expected, finding.found, finding.remedy)
    return directory


def require_log(path: str, key_provider: str | None, settings: dict[str, str] | None) -> None:
    """Raise `CorruptData` if a directory, in which a command found nothing, has lost its log."""
    with contextlib.suppress(ConfigError):  # a store, which has a log
        open_directory(path, key_provider, settings)


def require_query(path: str, query_id: str, key_provider: str | None, settings: dict[str, str] | None) -> None:
    """Raise a `ConfigError` if no query of this id wrote to a directory."""
    known = [query.query_id for query in open_directory(path, key_provider, settings).status(lag=False).queries]
    if query_id not in known:
        raise ConfigError(
            f"--query {query_id!r}: no such query wrote here; those that did: {', '.join(known) or 'none'}"
        )


@contextlib.contextmanager
def requiring_log(path: str, key_provider: str | None, settings: dict[str, str] | None) -> "Iterator[None]":
    """Raise `CorruptData` where the block names what a directory does not have, because it has lost its log."""
    try:
        yield
    except ConfigError:
        require_log(path, key_provider, settings)
        raise
