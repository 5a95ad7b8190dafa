"""Epochs: each process that opens a store as a writer records the next one, and so fences those before it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import ConfigError, Fenced

if TYPE_CHECKING:
    from ftfile.commit.log.state import LogState

__all__ = ("check_writer_name", "epoch_of", "opening", "require_epoch")

TABLE = "operators"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_writer_name(writer: str) -> None:
    """Raise `ConfigError` for a name that directories cannot have everywhere."""
    if not _NAME.fullmatch(writer):
        raise ConfigError(
            f"writer={writer!r}: a name of at most 100 letters, digits, points, hyphens and underscores is needed, "
            "which begins with a letter or digit. It says who goes on after a restart"
        )


def epoch_of(head: LogState, writer: str) -> int:
    """Return the epoch of the process that opened the store last as this writer; 0 for none."""
    table = head.tables.get(TABLE)
    found = None if table is None else table.get(writer)
    return 0 if found is None else int(found[1])


def opening(writer: str, epoch: int) -> dict[str, Any]:
    """Return the change of the log's tables that says that an epoch has begun."""
    return {TABLE: {"set": {writer: epoch}}}


def require_epoch(head: LogState, writer: str, epoch: int) -> None:
    """Raise `Fenced` if a newer process has opened the store as this writer."""
    newest = epoch_of(head, writer)
    if newest != epoch:
        raise Fenced(
            f"another process has opened the store as writer {writer!r}, in epoch {newest}, and goes on in place of "
            f"this one, which opened it in epoch {epoch}. Nothing of the last window was acknowledged. End this process"
        )
