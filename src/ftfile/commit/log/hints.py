"""Hints: overwritten files that save work, and tell of lost records. One that is torn or old is as good as none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from ftfile.commit.files import write_file
from ftfile.commit.format import layout
from ftfile.commit.format.record import UNREADABLE, from_checked_text, to_checked_text
from ftfile.core.errors import ConfigError, CorruptData, StorageError
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from ftfile.fs.api import FileSystem

_log = get_logger(__name__)


class PublishedHint(NamedTuple):
    """Everything up to and including the record (version, nonce) is published, names synced."""

    version: int
    nonce: str


def read_published(fs: FileSystem) -> PublishedHint | None:
    """Return the hint if there is a whole one; the caller checks that its record exists."""
    try:
        text = json.loads(from_checked_text(fs.read(layout.PUBLISHED_HINT), layout.PUBLISHED_HINT)[0])
        version, nonce = text["version"], text["nonce"]
        return PublishedHint(version, nonce) if type(version) is int and type(nonce) is str else None
    except (StorageError, CorruptData, ConfigError, *UNREADABLE):
        return None


def write_published(fs: FileSystem, hint: PublishedHint) -> bool:
    """Overwrite the hint and return True; failing is harmless and only logged."""
    text = json.dumps({"version": hint.version, "nonce": hint.nonce}).encode()
    try:
        write_file(fs, fs.put, layout.PUBLISHED_HINT, to_checked_text([text]))
    except StorageError as error:
        _log.warning("could not write a hint, the next start will look at more files: %s", error)
        return False
    return True


def store_now_ms(fs: FileSystem) -> int:
    """Return the store's own time, which ages are measured by: that of a file written now."""
    write_file(fs, fs.put, layout.CLOCK_HINT, b"now\n")
    return fs.stat(layout.CLOCK_HINT).modified_ms
