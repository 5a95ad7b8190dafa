"""The log of one directory: read on to the head, create the next version."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ftfile.commit import layout
from ftfile.commit.bases import RECORD_COST_BYTES, newest_base, read_base
from ftfile.commit.hints import read_published
from ftfile.commit.known_paths import KnownPaths
from ftfile.commit.model import JobAuthor, StreamAuthor
from ftfile.commit.record_format import IS_SEALED, decode_record, encode_record
from ftfile.commit.state import LogState
from ftfile.commit.tail import Tail
from ftfile.core.clock import SYSTEM_CLOCK
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
from ftfile.core.ids import SYSTEM_IDS
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from ftfile.commit.model import Record
    from ftfile.commit.state import LogView
    from ftfile.core.clock import Clock
    from ftfile.core.ids import IdSource
    from ftfile.fs.api import FileSystem

__all__ = ("LAYOUT_VERSION", "CommitLog")

LAYOUT_VERSION = b"ftfile directory, layout 1\n"
CREATE_TRIES = 5
READ_ON_TRIES = 100

_log = get_logger(__name__)


class CommitLog:
    """A directory's log, with a cache of its state that is checked before every use.

    Reading on and creating are safe from any thread; who shares a log with other threads holds `lock` over a commit.

    Args:
        fs: rooted at the directory.
        clock: for the time in records and for waiting.
        ids: for nonces and names.
        start: what the caller knows already; used when its record still exists and no base is newer.
    """

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock = SYSTEM_CLOCK,
        ids: IdSource = SYSTEM_IDS,
        start: LogView | None = None,
    ) -> None:
        self.fs = fs
        self.clock = clock
        self.ids = ids
        self._state: LogState | None = start.to_state() if start is not None and start.version >= 0 else None
        self._followed: LogState | None = None
        self._durable_to = -1
        self._prepared = False
        self.tail = Tail()
        self.known_paths = KnownPaths()
        self.lock = threading.RLock()

    def prepare_directory(self) -> None:
        """Create the directory and what it needs; repeatable, free after the first time.

        Raises:
            CorruptData: the directory has a layout that this version does not know.
            NotADirectory: a file is in the way.
            Unsupported: the store does not keep what the protocol stands on.
        """
        if self._prepared:
            return
        self.fs.prove(layout.META)
        for directory in ("", *layout.DIRECTORIES):
            self.fs.make_directories(directory)
        try:
            self.fs.create_exclusive(layout.FORMAT_FILE, LAYOUT_VERSION)
        except AlreadyExists:
            self.check_layout()
        # Whoever made a directory may have died before its name was durable, so everybody syncs all of them.
        for directory in (layout.META, ""):
            self.fs.sync_directory(directory)
        self._prepared = True

    def check_layout(self) -> None:
        """Refuse a directory that a later ftfile laid out.

        Raises:
            ConfigError: it is encrypted, and no keys are known.
            CorruptData: its layout is not known here.
            NotFound: it is no ftfile directory.
        """
        found = self.fs.read(layout.FORMAT_FILE)
        if found.startswith(LAYOUT_VERSION) and found != LAYOUT_VERSION:
            raise ConfigError(IS_SEALED)
        if found != LAYOUT_VERSION:
            raise CorruptData(
                layout.FORMAT_FILE, repr(LAYOUT_VERSION), repr(found[:80]), "Use the version of ftfile that wrote it"
            )

    def read_on(self, *, durable: bool = False) -> LogState:
        """Return the state at the head of the log.

        Args:
            durable: for callers that act on what they read: make it durable first, since whoever wrote it
                may have died before it was.
        """
        with self.lock:
            for _ in range(READ_ON_TRIES):
                state = self._start()
                began = state.version
                self._follow(state)
                newest = newest_base(self.fs)
                # Records up to a base may be gone or, created anew by a committer left behind, mean nothing.
                if newest is None or newest.version <= began:
                    if durable:
                        self._make_durable(state.version)
                    return state
                self._forget()
            raise StorageError("read_on", layout.LOG, "the log's bases changed faster than they could be read")

    def _follow(self, state: LogState) -> None:
        """Read records to the end; a hint that names a later one shows that the end is a hole."""
        cold = state is not self._followed
        while True:
            while (found := self._read(state.version + 1)) is not None:
                self._take_in(state, *found)
            # Behind a base there may be no record any more: whoever reads on starts over from the base.
            if not cold or self._has_base_after(state.version) or not self.is_hole(state.version + 1):
                break
        self._followed = state

    def _take_in(self, state: LogState, record: Record, size_bytes: int) -> None:
        state.apply(record)
        state.delta_bytes += size_bytes + RECORD_COST_BYTES
        self.tail.append(record, size_bytes)

    def _has_base_after(self, version: int) -> bool:
        newest = newest_base(self.fs)
        return newest is not None and newest.version > version

    def is_hole(self, version: int) -> bool:
        """Say whether records that are not there yet have been created since; the hint for what is published tells.

        Raises:
            CorruptData: the record of `version` is missing, and later ones exist.
        """
        hint = read_published(self.fs)
        if hint is None or hint.version < version:
            return False
        later = self.read_record(hint.version)
        if later is None or later.nonce != hint.nonce:
            return False
        if self.read_record(version) is None:
            path = layout.record_path(version)
            raise CorruptData(
                path, "a record", f"none, although there is version {hint.version}", "Restore it from a copy"
            )
        return True

    def create(self, record: Record) -> LogState | None:
        """Create the record and return the state that includes it; None when its version is another's.

        A lost reply is settled by looking for the record's nonce.

        Raises:
            CommitOutcomeUnknown: looking did not help; nothing was deleted.
            StorageError: it was certainly not created.
        """
        with self.lock:
            self.tail.keep()
            follows = self._state is not None and self._state.version == record.version - 1
            if self._state is not None and follows:
                self._state.check(record)
            size_bytes = self._create(record)
            if size_bytes is None:
                return None
            try:
                included = self._is_part_of_the_log(record)
                if not included or self._state is None or not follows:
                    self._forget()
                    return self.read_on(durable=True) if included else None
            except StorageError as error:
                raise self._unknown(record, error) from error
            self._durable_to = record.version
            self._take_in(self._state, record, size_bytes)
            return self._state

    def read_record(self, version: int) -> Record | None:
        """Return a record, or None when there is none at that version (yet, or any more)."""
        found = self._read(version)
        return found[0] if found else None

    def _read(self, version: int) -> tuple[Record, int] | None:
        """Return a record and how many bytes it has, its companion's included."""
        path = layout.record_path(version)
        read: list[bytes] = []
        companions: list[str] = []

        def read_companion(companion: str) -> bytes:
            companions.append(companion)
            read.append(self.fs.read(companion))
            return read[-1]

        try:
            read.append(self.fs.read(path))
            record = decode_record(read[0], path, read_companion)
        except NotFound as error:
            # Vacuum deletes a record before what it keeps elsewhere.
            if not companions or not self.fs.exists(path):
                return None
            raise CorruptData(companions[0], "the adds of a record", "no such file", "Restore a copy") from error
        return record, sum(map(len, read))

    def find_batch(self, query_id: str, batch_id: int) -> Record | None:
        """Return the record of a batch at or before its query's last, or None when a base has taken its place.

        Records at or below the newest base decide nothing: they may be gone, or dead.
        """
        state, newest = self.read_on(), newest_base(self.fs)
        oldest = newest.version + 1 if newest is not None else 0
        version = state.queries[query_id].version if query_id in state.queries else -1
        while version >= oldest and (record := self.read_record(version)) is not None:
            author = record.author
            if isinstance(author, StreamAuthor) and author.query_id == query_id and author.batch_id <= batch_id:
                return record if author.batch_id == batch_id else None
            version -= 1
        return None

    def _start(self) -> LogState:
        """Return the cached state if its record is still there, else the newest base, else the empty log."""
        if self._state is not None and self._state.version >= 0:
            record = self.read_record(self._state.version)
            if record is not None and record.nonce == self._state.nonce:
                # A view does not have it.
                self._state.due = record.due
                return self._state
        self._prepared = False
        self._forget()
        self._state = self._newest_base_state() or LogState()
        self._durable_to = self._state.version
        return self._state

    def _forget(self) -> None:
        self._state = None
        self.tail.clear()

    def _newest_base_state(self) -> LogState | None:
        while (name := newest_base(self.fs)) is not None:
            try:
                return read_base(self.fs, name)
            except NotFound:
                continue  # replaced by a newer one since the listing
        return None

    def _make_durable(self, version: int) -> None:
        if version > self._durable_to:
            self.fs.sync_directory(layout.LOG)
            self._durable_to = version

    def _create(self, record: Record) -> int | None:
        """Return the length of the record that was created, or None when its version is another's."""
        path = layout.record_path(record.version)
        encoded = encode_record(record, layout.companion_path(record.version, record.nonce))
        size_bytes = len(encoded.content)
        if encoded.companion is not None:
            self._create_companion(encoded.companion.path, encoded.companion.content)
            size_bytes += len(encoded.companion.content)
        doubt: StorageError | None = None
        for tried in range(CREATE_TRIES):
            try:
                self.fs.create_exclusive(path, encoded.content)
            except AlreadyExists:
                return size_bytes if self._is_own(record) else None
            except (OutcomeUnknown, Unavailable) as error:
                _log.warning("creating version %d had no certain outcome, looking: %s", record.version, error)
                doubt = error
                self.clock.sleep(0.05 * 2**tried)
            except StorageError as error:
                if doubt is None:
                    raise
                # It says nothing of the earlier try.
                raise self._unknown(record, error) from error
            else:
                return size_bytes
        raise self._unknown(record, doubt) from doubt

    def _unknown(self, record: Record, doubt: StorageError | None) -> CommitOutcomeUnknown:
        return CommitOutcomeUnknown(
            f"version {record.version} may or may not have been created ({doubt}); nothing was deleted. A streaming "
            "query finds out when it is started again. Before a batch write is repeated, look for it in "
            "ftfile.open(path).history()"
        )

    def _create_companion(self, path: str, content: bytes) -> None:
        try:
            self.fs.create_exclusive(path, content)
        except (AlreadyExists, OutcomeUnknown):
            if self.fs.read(path) != content:
                raise

    def _is_own(self, record: Record) -> bool:
        """Say whether the record that took our version is our own, made by a try whose reply was lost.

        Raises:
            CommitOutcomeUnknown: it could not be looked at, or not be made durable.
        """
        try:
            found = self.read_record(record.version)
            newest = newest_base(self.fs) if found is None else None
            own = found is not None and found.nonce == record.nonce
            if own:
                self.fs.sync_directory(layout.LOG)
        except StorageError as error:
            raise self._unknown(record, error) from error
        if found is None and (newest is None or newest.version < record.version):
            path = layout.record_path(record.version)
            raise CorruptData(path, "a record, or nothing", "something that exists and cannot be read", "Move it away")
        return own

    def _is_part_of_the_log(self, record: Record) -> bool:
        """Ask the bases: a slot at or before one of them may have been emptied, and our record in it be dead."""
        newest = newest_base(self.fs)
        if newest is None or newest.version < record.version:
            return True
        base = self._newest_base_state()
        included = base is not None and base.includes(record.version, record.nonce)
        author = record.author
        found_again = isinstance(author, StreamAuthor) or (isinstance(author, JobAuthor) and author.transaction)
        if included is None and not found_again:
            raise CommitOutcomeUnknown(
                f"the log went far past version {record.version} while it was being created: look for "
                f"{author} in ftfile.open(path).history() before writing it again"
            )
        return bool(included)
