"""Creating a record: exclusively, and certainly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.commit.format import layout
from ftfile.commit.format.record import encode_record
from ftfile.core.errors import (
    AlreadyExists,
    CommitOutcomeUnknown,
    CorruptData,
    OutcomeUnknown,
    StorageError,
    Unavailable,
)
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from ftfile.commit.format.model import Record
    from ftfile.commit.log.log_reader import LogReader

__all__ = ("create_record", "outcome_unknown")

# Times that a creation without a certain outcome is tried again, over some 1.5 seconds.
CREATE_TRIES = 5

_log = get_logger(__name__)


def create_record(log: LogReader, record: Record) -> int | None:
    """Return the length of the record that was created, in bytes, or None when its version is another's.

    Raises:
        CommitOutcomeUnknown: it may or may not have been created.
        CorruptData: something that is no record has its name.
        StorageError: it was certainly not created.
    """
    path = layout.record_path(record.version)
    encoded = encode_record(record, layout.companion_path(record.version, record.nonce))
    size_bytes = len(encoded.content)
    if encoded.companion is not None:
        _create_companion(log, encoded.companion.path, encoded.companion.content)
        size_bytes += len(encoded.companion.content)
    doubt: StorageError | None = None
    for tried in range(CREATE_TRIES):
        try:
            log.fs.create_exclusive(path, encoded.content)
        except AlreadyExists:
            return size_bytes if _is_own(log, record) else None
        except (OutcomeUnknown, Unavailable) as error:
            _log.warning("creating version %d had no certain outcome, looking: %s", record.version, error)
            doubt = error
            log.clock.sleep(0.05 * 2**tried)
        except StorageError as error:
            if doubt is None:
                raise
            # It says nothing of the earlier try.
            raise outcome_unknown(record, error) from error
        else:
            return size_bytes
    raise outcome_unknown(record, doubt) from doubt


def outcome_unknown(record: Record, doubt: StorageError | None) -> CommitOutcomeUnknown:
    """Return the error that says so."""
    return CommitOutcomeUnknown(
        f"version {record.version} may or may not have been created ({doubt}); nothing was deleted. A streaming "
        "query finds out when it is started again. Before a batch write is repeated, look for it in "
        "ftfile.open(path).history()"
    )


def _create_companion(log: LogReader, path: str, content: bytes) -> None:
    try:
        log.fs.create_exclusive(path, content)
    except (AlreadyExists, OutcomeUnknown):
        if log.fs.read(path) != content:
            raise


def _is_own(log: LogReader, record: Record) -> bool:
    """Return True if the record that took our version is our own, made by a try whose reply was lost.

    Raises:
        CommitOutcomeUnknown: it could not be looked at, or not be made durable.
        CorruptData: something that is no record has its name.
    """
    try:
        found = log.read_record(record.version)
        newest = log.bases.newest() if found is None else None
        own = found is not None and found.nonce == record.nonce
        if own:
            log.fs.sync_directory(layout.LOG)
    except StorageError as error:
        raise outcome_unknown(record, error) from error
    if found is None and (newest is None or newest.version < record.version):
        path = layout.record_path(record.version)
        raise CorruptData(path, "a record, or nothing", "something that exists and cannot be read", "Move it away")
    return own
