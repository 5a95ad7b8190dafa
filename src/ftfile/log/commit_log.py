"""The log of one directory: reading it up to the head, and creation of records."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ftfile.core.errors import AlreadyExists, CommitOutcomeUnknown, ConfigError, KeysRequired, RolledBack, StorageError
from ftfile.core.per_process import PerProcess
from ftfile.core.remedies import Advice, Remedy
from ftfile.log.apply import Fold, state_after
from ftfile.log.checkpoints import RECORD_COST_BYTES
from ftfile.log.format import layout
from ftfile.log.format.model import BatchWriteAuthor, StreamAuthor
from ftfile.log.format.record import IS_SEALED, SMALL_BYTES_MAX, from_checked_text, read_within, to_checked_text
from ftfile.log.records import RECORD_AGE_MIN_MS, EndCheck, Records, StorageClock, outcome_unknown
from ftfile.log.state import LogState

if TYPE_CHECKING:
    from typing import Any

    from ftfile.log.format.model import Record
    from ftfile.log.state import LogView
    from ftfile.storage.api import FileSystem, StoredFile


LAYOUT_VERSION = b"ftfile directory, layout 1"
# For the log of plans of a file source.
PLANS_LAYOUT = b"ftfile plans, layout 2"
# Retries when another process writes a newer checkpoint during the read.
REFRESH_TRIES = 100
# A process assumes that it is the only writer after this number of records without a record of others between them.
ALONE_FROM = 2
# The clocks of a storage system's servers can differ by less than this.
CLOCK_MARGIN_MS = 600_000
# The number of directories that a process remembers, so that each is checked once; about 100 bytes each.
DIRECTORIES_KEPT = 100_000
_HAS_PLANS = (
    "this directory is the state of a stream that reads files: it contains plans but no rows, and the stream trims it "
    "automatically. Give the directory that its query writes to; ftfile.source_status shows what the stream has read"
)
_FORMAT_ADVICE = Advice(
    Remedy("repair", dry_run=False),
    " quarantines it and writes it again. The file of an encrypted directory must be restored from a copy",
)


class _Instant(NamedTuple):
    """A time by the clock of the machine, and by its monotonic clock, which can stop while the machine is suspended."""

    time_ms: int
    monotonic_s: float


@dataclass(slots=True, kw_only=True)
class RecentRecords:
    """Consecutive records up to the newest one, for writing compacted logs; empty in a process without commits."""

    records: dict[int, Record] = field(default_factory=dict)  # by version
    is_kept: bool = False
    size_bytes: int = 0  # of the records on storage
    failures: int = 0  # consecutive failures to write a compacted log of them
    paused_to: int = -1  # the version before which writing a compacted log is not tried again

    def clear(self) -> None:
        """Forget all records, because a compacted log replaces them, or because they may not be part of the log."""
        self.records = {}
        self.size_bytes = 0


@dataclass(slots=True, kw_only=True)
class KnownPaths:
    """Final paths that are known from one commit to the next."""

    directories: dict[str, None] = field(default_factory=dict)  # seen in the storage, oldest first
    durable: set[str] = field(default_factory=set)  # directories of the stage whose names are durable
    live: set[str] = field(default_factory=set)  # names that can repeat, of the parts that were live at `version`
    version: int = -1  # -1 if nothing is known
    nonce: str = ""  # of the record at `version`

    def remember(self, directory: str) -> None:
        """Remember a directory; above the limit, forget the oldest half."""
        self.directories[directory] = None
        if len(self.directories) > DIRECTORIES_KEPT:
            self.directories = dict.fromkeys(list(self.directories)[DIRECTORIES_KEPT // 2 :])


@dataclass(slots=True, kw_only=True)
class CommitMetrics:
    """Counts of a process since its last record, for the metrics of its next one."""

    replays: int = 0  # batches that were in the log already
    recoveries: int = 0  # records that it published after their own commit had not
    orphans: int = 0  # staged files that no record names
    # version of its last record, and the times that were measured after its creation
    last_commit: dict[str, Any] | None = None


def check_at_least(version: int, at_least_version: int | None) -> None:
    """Raise `RolledBack` if the newest version, -1 for none, is before a version that is known to have existed."""
    if at_least_version is not None and version < at_least_version:
        newest = "no version"
        if version >= 0:
            newest = f"version {version}"
        raise RolledBack(
            f"{newest} is the newest here, but at least version {at_least_version} is expected (atLeastVersion, "
            "at_least_version): the directory was restored to an older state or replaced, or its storage returns "
            "outdated listings. If the storage may be behind, try again later. Otherwise find out who changed the "
            "directory, and lower at_least_version only if that was intended"
        )


class CommitLog(Records):
    """The log of a directory, with a cached state that is validated before every use.

    Reading and creating records are thread-safe; threads that share a log hold `lock` during a commit. A view to
    `start` with is used while its record exists and no checkpoint is newer. Logs of other kinds have another
    `layout_line`. A head before `at_least_version` is refused.
    """

    def __init__(
        self,
        fs: FileSystem,
        start: LogView | None = None,
        *,
        layout_line: bytes = LAYOUT_VERSION,
        at_least_version: int | None = None,
    ) -> None:
        super().__init__(fs)
        self._layout_line = layout_line
        # Versions of other logs have no times.
        self.storage_clock = StorageClock(fs) if layout_line == LAYOUT_VERSION else None
        self._at_least_version = at_least_version
        self.recent = RecentRecords()
        self.known_compacted: set[layout.CompactedName] = set()
        self.checkpoint_bytes = self.delta_bytes = 0
        self.segments_max = 0  # the largest known number of live segments since the last checkpoint
        self.reads = 0  # records and checkpoints that were read to find the head
        self.commit_metrics = CommitMetrics()
        self._state: LogState | None = start.to_state() if start is not None and start.version >= 0 else None
        self._end_check = EndCheck.NONE  # of the last read record
        # The last decoded record of the state, so that a waiting reader does not decode it each time.
        self._newest_content: bytes | None = None
        self._own_records = 0  # created by this process at the end of the state, without a record of others between
        self._newest_stored: StoredFile | None = None  # the newest record, if this process created it
        self._newest_created = _Instant(0, 0.0)  # by the clocks of this process
        self._durable_to = -1
        self._prepared = False
        self.hinted: int | None = None  # the version of the last hint of this process
        self.known_paths = KnownPaths()
        self._lock = PerProcess(threading.RLock)

    @property
    def lock(self) -> threading.RLock:
        """Return the lock of this process."""
        return self._lock.here

    def prepare_directory(self) -> None:
        """Create the directory and its subdirectories; idempotent, and free after the first time."""
        if self._prepared:
            return
        self.fs.prove(layout.META)
        for directory in ("", *layout.DIRECTORIES):
            self.fs.make_directories(directory)
        try:
            self.fs.create_exclusive(layout.FORMAT_FILE, to_checked_text([self._layout_line]))
        except AlreadyExists:
            self.check_layout()
        # The creator of a directory can have died before its name was durable, so every process syncs all of them.
        for directory in (layout.DIRECTORY, layout.META, ""):
            self.fs.sync_directory(directory)
        self._prepared = True

    def check_layout(self) -> None:
        """Refuse a damaged format file (CorruptData), another kind of log, or a later layout; NotFound if missing.

        Raises:
            ConfigError: the log is of another kind or layout, or encrypted, and no keys are known.
        """
        content = read_within(self.fs, layout.FORMAT_FILE, SMALL_BYTES_MAX, _FORMAT_ADVICE)
        line, *seal = from_checked_text(content, layout.FORMAT_FILE, _FORMAT_ADVICE)
        if line == PLANS_LAYOUT != self._layout_line:
            raise ConfigError(_HAS_PLANS)
        if line != self._layout_line:
            raise ConfigError(
                f"this directory has the format {line[:80].decode(errors='replace')!r}, which this version of ftfile "
                "does not support here: install the version that wrote it, or a later one"
            )
        if seal:
            raise KeysRequired(IS_SEALED)

    def refresh(self, *, durable: bool = False, confirm: bool = True) -> LogState:
        """Return the state at the head of the log; the state does not change when the log grows.

        Callers that act on the log make it `durable` first, since its writer can have died before, and check that no
        record is lost. Callers that only create a record, or only plan, need not `confirm` a state to which no record
        was added: `create` finds out if vacuum has deleted later records.

        Raises:
            CorruptData: a record is damaged or missing.
            RolledBack: the log ends before the required version.
        """
        check = EndCheck.COMMIT if durable else EndCheck.READ
        with self.lock:
            for _ in range(REFRESH_TRIES):
                began = self._starting_state().version
                is_cached = self._end_check >= check
                state = self._read_to_end(check)
                # Unpublished files of an outdated state may have been removed since.
                if not confirm and is_cached and state.version == began and not state.unpublished:
                    return state
                newest = self.checkpoints.newest()
                # Records up to a checkpoint can be deleted or, if an outdated committer created them again, are
                # invalid.
                if newest is None or newest.version <= began:
                    check_at_least(state.version, self._at_least_version)
                    if durable:
                        self._make_durable(state.version)
                    return state
                self._reset()
            raise StorageError("refresh", layout.LOG, "the log's checkpoints changed faster than they could be read")

    def assumed_head(self) -> LogState | None:
        """Return the cached state if it is probably the head, since this process created the last records alone.

        Only the newest record is read, which shows that the directory was not replaced. If the caller cannot create the
        next record, or finds an error, it reads the log to its end by `refresh`.
        """
        with self.lock:
            if self._own_records >= ALONE_FROM and self._end_check is EndCheck.COMMIT:
                state = self._starting_state()
                if self._own_records >= ALONE_FROM and not state.unpublished:
                    check_at_least(state.version, self._at_least_version)
                    return state
            return None

    def _read_to_end(self, check: EndCheck) -> LogState:
        """Read records to the end, and check that it is the end unless this was checked before."""
        while True:
            assert self._state is not None, "reading continues from a state"
            fold = None
            while (record_and_size := self._read((fold or self._state).version + 1)) is not None:
                fold = fold or Fold(self._state)
                fold.apply(record_and_size[0])
                self.reads += 1
                self._count_record(*record_and_size)
            if fold is not None:
                self._state = fold.finish()
                self._own_records, self._newest_stored = 0, None
            if self._end_check >= check:
                return self._state
            # A task that starts with a view decides nothing, and there are many tasks.
            is_hint_enough = check is EndCheck.READ and not self._state.whole
            if self._is_end(self._state.version, EndCheck.NONE if is_hint_enough else check):
                self._end_check = check
                return self._state

    def _count_record(self, record: Record, size_bytes: int) -> None:
        self.delta_bytes += size_bytes + RECORD_COST_BYTES
        if self.recent.is_kept:
            self.recent.records[record.version] = record
            self.recent.size_bytes += size_bytes

    def create(self, record: Record) -> LogState | None:
        """Create the record and return the state that includes it; None if another process created its version.

        After a lost response, the nonce of the record decides. CommitOutcomeUnknown means that this failed; after
        CorruptData or a StorageError, the record was certainly not created.
        """
        with self.lock:
            self.recent.is_kept = True
            follows = self._state is not None and self._state.version == record.version - 1
            next_state = None
            if self._state is not None and follows:
                next_state = state_after(self._state, record)
            if self._state is not None:
                self.segments_max = max(self.segments_max, len(self._state.segments))
            began = _Instant(self.clock.now_ms(), self.clock.monotonic_s())
            created = self._create(record)
            if created is None:
                return None
            try:
                included = (follows and self._follows_young_record(created.stored)) or self._is_in_log(record)
                if not included or next_state is None:
                    self._reset()
                    if included:
                        return self.refresh(durable=True)
                    return None
            except StorageError as error:
                raise outcome_unknown(record, error) from error
            self._durable_to = record.version
            self._count_record(record, created.size_bytes)
            self._state, self._newest_content = next_state, created.content
            self._own_records, self._newest_stored = self._own_records + 1, created.stored
            self._newest_created = began
            return next_state

    def _starting_state(self) -> LogState:
        """Return the cached state if its record still exists, else the newest checkpoint, else the empty log."""
        if self._state is not None and self._state.version >= 0:
            content = self._content(self._state.version)
            if content is not None and content == self._newest_content and self._state.whole:
                return self._state
            record_and_size = None
            if content is not None:
                record_and_size = self._decode_record(self._state.version, content)
            record = None
            if record_and_size is not None:
                record = record_and_size[0]
            if record is not None and record.nonce == self._state.nonce:
                self._newest_content = content
                if not self._state.whole:
                    self._state = replace(self._state, jobs=record.jobs)  # a view does not have it
                return self._state
            self.checkpoints.useless.clear()
            self.known_compacted.clear()
        self._prepared = False
        self.known_paths.durable.clear()
        self.hinted = None
        self._reset()
        checkpoint = self.checkpoints.read_newest()
        self.reads += checkpoint is not None
        if checkpoint is not None:
            self._state, self.checkpoint_bytes = checkpoint
        else:
            self._state, self.checkpoint_bytes = (LogState(), 0)
        self.segments_max = len(self._state.segments)
        self._durable_to = self._state.version
        return self._state

    def _reset(self) -> None:
        self._state = self._newest_content = self._newest_stored = None
        self._own_records = 0
        self._end_check = EndCheck.NONE
        self.delta_bytes = 0
        self.recent.clear()

    def _make_durable(self, version: int) -> None:
        if version > self._durable_to:
            self.fs.sync_directory(layout.LOG)
            self._durable_to = version

    def _follows_young_record(self, stored: StoredFile | None) -> bool:
        """Return True if no vacuum can have deleted a record after the newest one of the cached state.

        Such a record would be younger than the newest one, which this process created. Both times are of the storage's
        clock. If it was set back after a vacuum, only the clocks of this process show how long the process has stopped.
        """
        if stored is None or self._newest_stored is None:
            return False
        limit_ms = RECORD_AGE_MIN_MS - CLOCK_MARGIN_MS
        age_ms = stored.answered_ms - self._newest_stored.modified_ms
        created = self._newest_created
        waited_ms = max(self.clock.now_ms() - created.time_ms, (self.clock.monotonic_s() - created.monotonic_s) * 1000)
        return 0 <= age_ms < limit_ms and waited_ms < limit_ms

    def _is_in_log(self, record: Record) -> bool:
        """Return False if a checkpoint shows that the record is dead: vacuum had deleted its version before."""
        newest = self.checkpoints.newest()
        if newest is None or newest.version < record.version:
            return True
        checkpoint = self.checkpoints.read_newest()
        if checkpoint is None or checkpoint[0].version < record.version:
            return True
        included = checkpoint[0].includes(record.version, record.nonce)
        author = record.author
        found_again = isinstance(author, StreamAuthor) or (isinstance(author, BatchWriteAuthor) and author.transaction)
        if included is None and not found_again:
            raise CommitOutcomeUnknown(
                Advice(
                    f"the log advanced far past version {record.version} while that version was being created: check ",
                    Remedy("history"),
                    f" for {author} before you write it again",
                )
            )
        return bool(included)


class CommitTimer:
    """Times of one commit, and the metrics of earlier commits for its record."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._began_s = self._now_s()
        self._reads = log.reads
        self._creating_s = self._create_s = 0.0

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of a record that is created now."""
        counts = self._log.commit_metrics
        measures = {
            "prepareSeconds": in_seconds(self._now_s() - self._began_s),
            "logReads": self._log.reads - self._reads,
            "recoveries": counts.recoveries,
            "replays": counts.replays,
            "orphans": counts.orphans,
            "lastCommit": counts.last_commit,
        }
        self._creating_s = self._now_s()
        metrics: dict[str, Any] = {}
        for name, value in measures.items():
            if value:
                metrics[name] = value
        return metrics

    def note_created(self) -> None:
        """Forget the counts, which the new record contains."""
        self._log.commit_metrics = CommitMetrics()
        self._began_s = self._now_s()
        self._create_s = self._began_s - self._creating_s

    def note_published(self, version: int) -> None:
        """Store how long it took to create and publish the record of a version, for the next record."""
        seconds = {
            "createSeconds": in_seconds(self._create_s),
            "publishSeconds": in_seconds(self._now_s() - self._began_s),
        }
        if any(seconds.values()):
            self._log.commit_metrics.last_commit = {"version": version, **seconds}

    def _now_s(self) -> float:
        return self._log.clock.monotonic_s()


def in_seconds(seconds: float) -> float:
    """Return a time in the precision of records, to the microsecond."""
    return round(seconds, 6)
