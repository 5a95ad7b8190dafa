"""The kind of a directory: files for any reader, or a store of keys and values. A log is of one kind for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftfile.core.errors import ConfigError

if TYPE_CHECKING:
    from ftfile.commit.log.state import LogState

__all__ = ("refuse_files", "refuse_store", "store_of")


def store_of(head: LogState) -> dict[str, Any] | None:
    """Return the store's definition, see `kv.definition`; None for a directory of files, or without rows."""
    encoding = head.definitions[head.encoding] if head.encoding is not None else {}
    found: dict[str, Any] | None = encoding.get("store")
    return found


def refuse_store(head: LogState, path: str) -> None:
    """Raise a ConfigError if the directory is a store."""
    if store_of(head) is not None:
        raise ConfigError(
            f"path={path!r} is a store of keys and values, not a directory of files: write and read it with the format "
            "`ftkv`, or open it with ftfile.kv.open. For files, use another path"
        )


def refuse_files(head: LogState, path: str) -> None:
    """Raise a ConfigError if the directory has files that are no store's."""
    if head.encoding is not None and store_of(head) is None:
        raise ConfigError(
            f"path={path!r} is a directory of files, not a store of keys and values: write and read it with the format "
            "`ftfile`, and merge its files with ftfile.compact. For a store, use another path"
        )
