"""Epochs: each process that opens a store as a writer records the next one, and so fences those before it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ftfile.commit.format import layout
from ftfile.commit.log.fold import ENTRIES_MAX
from ftfile.commit.wal.files import recorded_window
from ftfile.core.errors import ConfigError, CorruptData, Fenced

if TYPE_CHECKING:
    from ftfile.commit.format.model import Transaction
    from ftfile.commit.log.state import LogState

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


def refuse_application(head: LogState, writer: str) -> None:
    """Raise `ConfigError` if batches of Spark were written with this writer's name as `txnAppId`."""
    # A full table has forgotten the epochs of writers that opened the store long ago.
    if (
        epoch_of(head, writer) == 0
        and recorded_window(head, writer) >= 0
        and len(head.tables.get(TABLE, ())) < ENTRIES_MAX
    ):
        raise ConfigError(
            f"writer={writer!r}: Spark has written to the store with txnAppId={writer!r}, and its last txnVersion, "
            f"{recorded_window(head, writer)}, would count as a window that is recorded. Take another name as writer"
        )


def refuse_operator(head: LogState, transaction: Transaction | None) -> None:
    """Raise `ConfigError` for a batch whose `txnAppId` is the name of an operator."""
    if transaction is not None and epoch_of(head, transaction.app_id):
        raise ConfigError(
            f"txnAppId={transaction.app_id!r}: a KeyValueStore writes to the store as writer={transaction.app_id!r}, "
            f"and txnVersion={transaction.version} would count as one of its windows. Take another txnAppId"
        )


def opening(writer: str, epoch: int) -> dict[str, Any]:
    """Return the change of the log's tables that says that an epoch has begun."""
    return {TABLE: {"set": {writer: epoch}}}


def require_epoch(head: LogState, writer: str, epoch: int) -> None:
    """Raise `Fenced` if a newer process has opened the store as this writer; CorruptData if the epoch is lost."""
    newest = epoch_of(head, writer)
    if newest < epoch:
        raise CorruptData(
            layout.LOG,
            f"epoch {epoch} of writer {writer!r}, which this process recorded",
            f"epoch {newest}: the log was lost while the store was open",
            "End this process, restore the log from a copy, with all of _ftfile, and open the store again",
        )
    if newest != epoch:
        raise Fenced(
            f"another process has opened the store as writer {writer!r}, in epoch {newest}, and goes on in place of "
            f"this one, which opened it in epoch {epoch}. Nothing of the last window was acknowledged. End this process"
        )
