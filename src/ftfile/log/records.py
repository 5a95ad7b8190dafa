"""The records of a directory and its hint as files."""

from __future__ import annotations

import json
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from ftfile.core.checksum import Decoding
from ftfile.core.errors import (
    AlreadyExists,
    CommitOutcomeUnknown,
    ConfigError,
    CorruptData,
    NotFound,
    OutcomeUnknown,
    StorageError,
    Unavailable,
)
from ftfile.core.logs import get_logger
from ftfile.core.remedies import Advice, Remedy
from ftfile.log.checkpoints import LogCheckpoints
from ftfile.log.format import layout
from ftfile.log.format.model import Count, Value
from ftfile.log.format.record import (
    FILE_BYTES_MAX,
    SMALL_BYTES_MAX,
    decode_json,
    decode_record,
    encode_record,
    from_checked_text,
    nonce_of,
    read_within,
    to_checked_text,
)
from ftfile.log.places import write_file

if TYPE_CHECKING:
    from ftfile.log.format.model import Record
    from ftfile.storage.api import FileSystem, StoredFile


_log = get_logger(__name__)
# In ms. Clocks that differ by more were not only read at different moments.
CLOCK_ERROR_MS = 10_000
# Vacuum does not delete younger records with any retention; `CommitLog.create` depends on this.
RECORD_AGE_MIN_MS = 3_600_000
# Attempts to create a record with an uncertain outcome, over some 1.5 seconds.
CREATE_TRIES = 5
_ADVICE = Advice(
    "Restore the missing files from a copy of the directory, with all of _ftfile; if there is no copy, ",
    Remedy("repair", accept_lost_records=True, dry_run=False),
    " accepts the loss",
)
_NO_CHECKPOINT_ADVICE = (
    "Restore the missing files from a copy of the directory, with all of _ftfile; if there is no copy, start a new "
    "log, as docs/disaster-recovery.md shows"
)


class EndCheck(IntEnum):
    """How thoroughly a process has checked that no record exists after the last one that it read."""

    NONE = 0  # only by the hint, or not at all
    READ = 1  # also by a listing of the records
    COMMIT = 2  # and the hint names no later version, so the log has not lost its newest records


class CreatedRecord(NamedTuple):
    """A record that this process has created."""

    content: bytes  # without its companion
    size_bytes: int  # including its companion
    stored: StoredFile | None  # as the storage has confirmed it, if it did


class PublishedHint(Value, frozen=True):
    """All versions up to this record (version, nonce) are published, with durable names."""

    version: Count
    nonce: str


def read_published(fs: FileSystem) -> PublishedHint | None:
    """Return the hint if it is complete; the caller checks that its record exists."""
    try:
        lines = from_checked_text(read_within(fs, layout.PUBLISHED_HINT, SMALL_BYTES_MAX), layout.PUBLISHED_HINT)
        with Decoding(layout.PUBLISHED_HINT, "a hint"):
            return decode_json(lines[0], PublishedHint)
    except (StorageError, CorruptData, ConfigError):
        return None


def write_published(fs: FileSystem, hint: PublishedHint) -> None:
    """Overwrite the hint; a failure is harmless and logged."""
    text = json.dumps({"version": hint.version, "nonce": hint.nonce}).encode()
    try:
        write_file(fs, fs.put, layout.PUBLISHED_HINT, to_checked_text([text]))
    except StorageError as error:
        _log.warning("could not write a hint, the next start will check more files: %s", error)


def storage_now_ms(fs: FileSystem) -> int:
    """Return the storage's time, from which ages are computed: the modification time of a file written now."""
    write_file(fs, fs.put, layout.CLOCK_HINT, b"now\n")
    return fs.stat(layout.CLOCK_HINT).modified_ms


class StorageClock:
    """The storage's clock, estimated by this machine, for the times in records, which copies keep.

    The difference is measured once, and again after this machine's clock was set or the machine was suspended.
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._offset_ms = 0
        self._booted_ms: float | None = None  # the machine's time minus its uptime, when it was measured

    def time_at(self, now_ms: int) -> int | None:
        """Return the storage's time for `now_ms` of this machine; None if both agree, or the storage has no times."""
        clock = self._fs.context.clock
        booted_ms = now_ms - clock.monotonic_s() * 1000
        if self._booted_ms is None or abs(booted_ms - self._booted_ms) > CLOCK_ERROR_MS:
            try:
                storage_ms = storage_now_ms(self._fs)
            except StorageError as error:
                _log.warning("the storage's time is unknown, the record contains the time of this machine: %s", error)
                return None
            after_ms = clock.now_ms()
            is_apart = not now_ms - CLOCK_ERROR_MS <= storage_ms <= after_ms + CLOCK_ERROR_MS
            self._offset_ms, self._booted_ms = storage_ms - after_ms if is_apart else 0, booted_ms
        if self._offset_ms:
            return now_ms + self._offset_ms
        return None


class Records:
    """The records of a directory; times, waits and names are from the context of its file system."""

    def __init__(self, fs: FileSystem) -> None:
        self.fs = fs
        self.clock = fs.context.clock
        self.ids = fs.context.ids
        self.checkpoints = LogCheckpoints(fs, self._nonce)

    def read_record(self, version: int) -> Record | None:
        """Return a record, or None if the version has none (yet, or any more)."""
        record_and_size = self._read(version)
        if record_and_size:
            return record_and_size[0]
        return None

    def _read(self, version: int) -> tuple[Record, int] | None:
        """Return a record and its length in bytes, including its companion."""
        content = self._content(version)
        if content is not None:
            return self._decode_record(version, content)
        return None

    def _nonce(self, version: int) -> str | None:
        """Return the nonce of a record, or None if the version has none."""
        content = self._content(version)
        if content is not None:
            return nonce_of(content, layout.record_path(version))
        return None

    def _content(self, version: int) -> bytes | None:
        """Return a record as on storage, without its companion."""
        try:
            return read_within(self.fs, layout.record_path(version), FILE_BYTES_MAX)
        except NotFound:
            return None

    def _decode_record(self, version: int, content: bytes) -> tuple[Record, int] | None:
        path = layout.record_path(version)
        read = [content]
        companions: list[str] = []

        def read_companion(companion: str) -> bytes:
            companions.append(companion)
            read.append(read_within(self.fs, companion, FILE_BYTES_MAX))
            return read[-1]

        try:
            record = decode_record(content, path, read_companion)
        except NotFound as error:
            # Vacuum deletes a record before its companion.
            if not self.fs.exists(path):
                return None
            raise CorruptData(companions[0], "the adds of a record", "no such file", "Restore a copy") from error
        return record, sum(map(len, read))

    def _create(self, record: Record) -> CreatedRecord | None:
        """Create a record; return None if another process created its version."""
        path = layout.record_path(record.version)
        encoded = encode_record(record)
        size_bytes = len(encoded.content)
        if encoded.companion is not None:
            self._create_companion(layout.companion_path(record.version, record.nonce), encoded.companion)
            size_bytes += len(encoded.companion)
        doubt: StorageError | None = None
        for tried in range(CREATE_TRIES):
            try:
                stored = self.fs.create_exclusive(path, encoded.content)
            except AlreadyExists:
                if self._is_own(record):
                    return CreatedRecord(encoded.content, size_bytes, None)
                return None
            except (OutcomeUnknown, Unavailable) as error:
                _log.warning("creating version %d had an unknown outcome, checking it: %s", record.version, error)
                doubt = error
                self.clock.sleep(0.05 * 2**tried)
            except StorageError as error:
                if doubt is None:
                    raise
                # The error contains nothing about the earlier attempt.
                raise outcome_unknown(record, error) from error
            else:
                return CreatedRecord(encoded.content, size_bytes, stored)
        raise outcome_unknown(record, doubt) from doubt

    def _create_companion(self, path: str, content: bytes) -> None:
        try:
            self.fs.create_exclusive(path, content)
        except (AlreadyExists, OutcomeUnknown):
            if self.fs.read(path, len(content)) != content:
                raise

    def _is_own(self, record: Record) -> bool:
        """Return True if this process created the record of the version, by an attempt whose response was lost."""
        try:
            record_there = self.read_record(record.version)
            newest = None
            if record_there is None:
                newest = self.checkpoints.newest()
            is_own = record_there is not None and record_there.nonce == record.nonce
            if is_own:
                self.fs.sync_directory(layout.LOG)
        except StorageError as error:
            raise outcome_unknown(record, error) from error
        if record_there is None and (newest is None or newest.version < record.version):
            path = layout.record_path(record.version)
            raise CorruptData(path, "a record, or nothing", "an entry that exists but cannot be read", "Move it away")
        return is_own

    def _is_end(self, version: int, check: EndCheck) -> bool:
        """Return True if the log ends at a version, after which no record was found; False if it has grown."""
        hint = read_published(self.fs)
        hinted = hint.version if hint is not None else -1
        listed = -1
        if check is not EndCheck.NONE:
            listed = self._newest_listed(version)
        if max(hinted, listed) <= version:
            return True
        if self.read_record(version + 1) is not None:
            return False
        newest = self.checkpoints.newest()
        if newest is not None and newest.version > version:
            return True  # records before a checkpoint can be deleted: reading starts again from it
        path = layout.record_path(version + 1)
        if listed > version or self.read_record(hinted) is not None:
            text = f"no record, although version {max(listed, hinted)} exists"
            if version < 0:
                raise CorruptData(
                    path, "the first record, or a log checkpoint that replaces it", text, _NO_CHECKPOINT_ADVICE
                )
            raise CorruptData(path, "a record", text, _ADVICE)
        if check is EndCheck.COMMIT:
            text = f"no record, although version {hinted} was published: the log has lost its newest records"
            raise CorruptData(path, "a record", text, _ADVICE)
        _log.warning(
            "the log ends at version %d, but version %d was published: its newest records are lost", version, hinted
        )
        return True

    def _newest_listed(self, version: int) -> int:
        """Return the newest version with a listed record, -1 for none after `version`."""
        try:
            names = self.fs.names_after(layout.LOG, layout.record_path(version + 1).rpartition("/")[2])
        except NotFound:
            return -1
        parsed = (layout.parse_log_name(f"{layout.LOG}/{name}") for name in names)
        return max((name.version for name in parsed if name is not None and name.nonce is None), default=-1)


def outcome_unknown(record: Record, doubt: StorageError | None) -> CommitOutcomeUnknown:
    """Return the error of a record that may have been created."""
    return CommitOutcomeUnknown(
        Advice(
            f"it is unknown whether version {record.version} was created ({doubt}); nothing was deleted. A streaming "
            "query checks this when it is restarted. Before you repeat a batch write, check ",
            Remedy("history"),
            " for it",
        )
    )
