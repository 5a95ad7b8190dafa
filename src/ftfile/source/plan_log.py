"""The log of plans, in which plan n is version n.

A plan is durable before it is returned, and never changes. Spark's offsets name plans. If two drivers plan at the same
time, one of them creates the plan, and both return it. A batch reads the plan that its end offset names, and this plan
names its start. A slow driver may create a record at a trimmed version. This record is never read, because no offset
contains its nonce.

The log is trimmed without a vacuum: its oldest plans are deleted. A *columns file* contains the files known after all
plans up to a version. The next record names it in the tables of the log. Records are deleted only if two
checkpoints and two columns files are newer, so that one of each may be lost. The record that names the newer columns
file announces the new start of the log. The older records are deleted after that.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from ftfile.core.checksum import Decoding, checksum, matches
from ftfile.core.errors import CorruptData, FtfileError, NotFound, StateLost, StorageError
from ftfile.core.logs import get_logger
from ftfile.log.checkpoints import CHECKPOINTS_KEPT, RECORD_COST_BYTES
from ftfile.log.commit_log import PLANS_LAYOUT, CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import Body, StreamAuthor
from ftfile.log.format.record import definition_key
from ftfile.log.places import delete_file, list_own, stat_or_none, write_file
from ftfile.log.protocol import record_of
from ftfile.log.publish import renew_checkpoint
from ftfile.source.known_files import KnownFiles
from ftfile.source.plan import PlanPosition, SourcePlan
from ftfile.storage.calls import parallel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.log.format.model import Record
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem


TABLE = "columns"
# Versions kept before the newest version that is done, for a reader that returns to an older position.
VERSIONS_KEPT = 100
# Number of the newest columns files that the log names.
COLUMNS_KEPT = 2
# A columns file is due when the records after the newest columns file exceed this size and half of the file's size. It
# is also due after RECORDS_MAX records, because a restart reads records one by one.
COLUMNS_MIN_BYTES = 32 * RECORD_COST_BYTES
RECORDS_MAX = 1000

_ADVICE = "Restore it from a copy of the state; without a copy, give the query a new checkpointLocation"


class ColumnsFile(NamedTuple):
    """A columns file that the log names."""

    name: layout.ColumnsName
    size_bytes: int
    checksum: str

    @property
    def path(self) -> str:
        """Return the path of the file."""
        return layout.columns_path(self.name)


def columns_files(state: LogState) -> list[ColumnsFile]:
    """Return the columns files that the log names, newest first."""
    files = []
    for version, (_, (unique, size_bytes, digest)) in state.tables.get(TABLE, {}).items():
        files.append(ColumnsFile(layout.ColumnsName(int(version), unique), size_bytes, digest))
    return sorted(files, reverse=True)


def is_columns_due(log: CommitLog, state: LogState) -> bool:
    """Return True if another columns file must be written."""
    newest = next(iter(columns_files(state)), None)
    if state.version - (newest.name.version if newest is not None else -1) > RECORDS_MAX:
        return True
    return log.delta_bytes > max(COLUMNS_MIN_BYTES, newest.size_bytes // 2 if newest is not None else 0)


def write_columns(log: CommitLog, version: int, content: bytes) -> ColumnsFile:
    """Write the known files at a version to a columns file. The next record makes it effective by naming it."""
    file = ColumnsFile(layout.ColumnsName(version, log.ids.unique()[:16]), len(content), checksum(content))
    write_file(log.fs, log.fs.create_exclusive, file.path, content)
    return file


def read_columns(fs: FileSystem, file: ColumnsFile) -> bytes:
    """Return the content of a columns file.

    Raises:
        CorruptData: the file is missing, or its content differs from the written content.
    """
    try:
        content = fs.read(file.path, file.size_bytes)
    except NotFound as error:
        raise CorruptData(file.path, f"{file.size_bytes} bytes", "no such file", _ADVICE) from error
    if len(content) != file.size_bytes or not matches(content, file.checksum):
        expected = f"{file.size_bytes} bytes with {file.checksum}"
        raise CorruptData(file.path, expected, f"{len(content)} bytes with {checksum(content)}", _ADVICE)
    return content


def naming(state: LogState, file: ColumnsFile) -> dict[str, Any]:
    """Return the change of the log's tables that names another columns file and keeps the newest earlier file."""
    value = [file.name.unique, file.size_bytes, file.checksum]
    dropped = [str(old.name.version) for old in columns_files(state)[COLUMNS_KEPT - 1 :]]
    return {TABLE: {"set": {str(file.name.version): value}, "drop": dropped}}


def log_start_after(log: CommitLog, state: LogState, newest: ColumnsFile, done: int) -> int | None:
    """Return the start of the log that the record naming `newest` may announce; None to leave the start unchanged.

    `state` is the state at the head. `done` is the newest version that no reader needs.
    """
    names = log.checkpoints.names()[-CHECKPOINTS_KEPT:]
    older = next(iter(columns_files(state)), None)
    if len(names) < CHECKPOINTS_KEPT or older is None:
        return None
    # The record of a checkpoint is kept, because readers only use a checkpoint whose record exists.
    start = min(done - VERSIONS_KEPT, names[0].version, older.name.version + 1)
    if start <= state.log_start or any(log.checkpoints.read(name) is None for name in names):
        return None
    for file in (older, newest):
        info = stat_or_none(log.fs, file.path)
        if info is None or info.size_bytes != file.size_bytes:
            return None
    return start


def trim(fs: FileSystem, state: LogState) -> int:
    """Delete records before the log's start and columns files that no record names; return the number of records.

    The record that announced the start must be durable.
    """
    records, companions = [], []
    for info in list_own(fs, layout.LOG):
        name = layout.parse_log_name(info.path)
        if name is None or name.version >= state.log_start:
            continue
        if name.nonce is None:
            records.append(info.path)
        else:
            companions.append(info.path)
    # Companions are deleted last: a reader that finds a record without a companion checks if the record still exists.
    for paths in (records, companions, _unnamed_columns(fs, state)):
        parallel(fs, partial(delete_file, fs), paths)
    return len(records)


def _unnamed_columns(fs: FileSystem, state: LogState) -> list[str]:
    """Return the columns files that no record names now or later: only the record after its version may name a file."""
    named = {file.name for file in columns_files(state)}
    paths = []
    for info in list_own(fs, layout.COLUMNS):
        name = layout.parse_columns_name(info.path)
        if name is not None and name not in named and name.version < state.version:
            paths.append(info.path)
    return paths


# Retries when other drivers trim the state during the read.
LOAD_TRIES = 100
_ANEW = (
    "The query would skip or repeat rows. Restore the state and the checkpoint from copies of the same time; or give "
    "the query a new checkpointLocation, which reads all files again"
)
_RESTORE = (
    "Restore it from a copy of the state; or give the query a new checkpointLocation, which reads all files again"
)

_log = get_logger(__name__)


class PlanLog:
    """The plans of one source, in a separate directory whose name is the id.

    The run's id only shows users which driver wrote a plan. The log contains the options for `ftfile.source_status`.
    """

    def __init__(self, fs: FileSystem, log_id: str, run_id: str, options: Mapping[str, str] | None = None) -> None:
        self.id = log_id
        self._run_id = run_id
        if options:
            self._options = {definition_key(options): dict(options)}
        else:
            self._options = {}
        self._log = CommitLog(fs, layout_line=PLANS_LAYOUT)
        # The records that were read to find the head are needed again for the files known at the head.
        self._log.recent.is_kept = True
        self._head: LogState | None = None
        self._known: tuple[int, KnownFiles] | None = None  # the version of a plan, and the files known after it
        self._done = -1
        self._columns: ColumnsFile | None = None  # written, but not yet named by the plan after its version
        self._trimmed_to = -1

    @property
    def head(self) -> PlanPosition | None:
        """Return the newest plan that was read; None if the log was not read yet."""
        if self._head is None:
            return None
        return PlanPosition(self.id, self._head.version, self._head.nonce)

    @property
    def options(self) -> dict[str, str]:
        """Return the options of the stream that created the newest plan that was read; empty if they are unknown."""
        if self._head is None:
            state = None
        else:
            state = self._head.queries.get(self.id)
        if self._head is None or state is None or state.settings is None:
            return {}
        options = self._head.definitions.get(state.settings, {})
        with Decoding(layout.LOG, "the options of a stream", _RESTORE):
            return {name: _text(value) for name, value in options.items()}

    def position_after(self, position: PlanPosition) -> PlanPosition | None:
        """Return the durable plan that follows a position; None if the position is the newest plan.

        Raises:
            ConfigError: another version of ftfile wrote the log in another layout.
            StateLost: the position is in another log, or the log no longer contains the next plan.
            CorruptData: the log is damaged.
        """
        head = self._apply_records_since()
        if position.plan > head.version:
            newest = "there is no plan"
            if head.version >= 0:
                newest = f"the newest plan is {head.version}"
            raise StateLost(f"the query has read plan {position.plan} of {self._told()}, and {newest}. {_ANEW}")
        if position.plan == head.version:
            self._require_same(position, head.nonce)
            return None
        number = position.plan + 1
        record = None
        if number >= head.log_start:
            record = self._log.read_record(number)
        # The log may have been trimmed during the read, so that the record at a trimmed version is not a valid plan.
        oldest = self._apply_records_since().log_start
        if number < oldest:
            raise StateLost(
                f"plan {number} of {self._told()} must be read, and the oldest remaining plan is {oldest}: another "
                f"run of the query continued to plan {head.version}. Stop this run; or, if its checkpoint was "
                "restored from an older copy, use the newest checkpoint"
            )
        if record is None:
            raise CorruptData(layout.record_path(number), "a plan", "nothing", _RESTORE)
        self._require_same(position, record.previous_nonce)
        return PlanPosition(self.id, number, record.nonce)

    def add(self, position: PlanPosition, plan: SourcePlan) -> PlanPosition:
        """Create the plan that follows a position. If another driver was first, its plan is returned.

        The returned plan is durable. `plan` must be based on the files known at the position, which must be the newest
        known plan.

        Raises:
            StateLost, CorruptData: as `after`.
            CommitOutcomeUnknown: it is unknown if the plan was created; the next call finds out.
        """
        nonce, payload = self._log.ids.unique(), plan.to_json()
        while (found := self.position_after(position)) is None:
            head = self._head
            assert head is not None, "after has read on"
            self._log.prepare_directory()
            columns, self._columns = self._columns, None
            if columns is not None and columns.name.version != head.version:
                columns = None  # another driver created the plan after its version, so no record can name it
            author = StreamAuthor(self.id, self._run_id, head.version + 1)
            record = record_of(self._log, head, body=self._body(head, payload, columns), author=author, nonce=nonce)
            if (after := self._log.create(record)) is not None:
                self._head = after
                if columns is not None:
                    renew_checkpoint(self._log, after)
                return PlanPosition(self.id, record.version, nonce)
        return found

    def read(self, position: PlanPosition, start: PlanPosition | None) -> SourcePlan:
        """Return the plan of a batch by its end and start positions; a start of None is the beginning.

        Raises:
            StateLost: the plan is missing, or is another plan.
        """
        record = self._record(position.plan)
        if record is None or record.nonce != position.nonce:
            found = "is another plan"
            if record is None:
                found = "is missing"
            raise StateLost(f"plan {position.plan} of {self._told()}, which the query must read, {found}. {_ANEW}")
        begins = PlanPosition(self.id, position.plan - 1, record.previous_nonce or "")
        if begins != (start or PlanPosition(self.id, -1, "")):
            raise StateLost(f"plan {position.plan} of {self._told()} does not follow {start}. {_ANEW}")
        return plan_of(record)

    def last_plans(self, position: PlanPosition) -> list[SourcePlan]:
        """Return the plan of a position and the previous plan, if they are kept."""
        found, number, nonce = [], position.plan, position.nonce
        while number > position.plan - 2 and (record := self._record(number)) is not None and record.nonce == nonce:
            found.append(plan_of(record))
            number, nonce = number - 1, record.previous_nonce or ""
        return found

    def read_known(self) -> KnownFiles:
        """Return the files known after the newest plan that was read."""
        for _ in range(LOAD_TRIES):
            head = self._head or self._apply_records_since()
            try:
                self._known = head.version, self._fold(head)
            except CorruptData:
                # Another driver may have continued and trimmed the records that this call needs.
                if self._apply_records_since().version == head.version:
                    raise
            else:
                kept = self._log.recent.records
                if head.version in kept:
                    self._log.recent.records = {head.version: kept[head.version]}
                else:
                    self._log.recent.records = {}
                return self._known[1]
        raise StorageError("read", layout.COLUMNS, "the state changed faster than it could be read")

    def commit(self, position: PlanPosition) -> None:
        """Note that batches up to a position will not be repeated, and trim older plans. Failures are only logged."""
        self._done = max(self._done, position.plan)
        for step in (self._trim, self._write_columns):
            try:
                step(self._head or self._apply_records_since())
            except FtfileError as error:
                _log.warning("could not trim %s, which is kept longer than needed: %s", self._told(), error)

    def _trim(self, head: LogState) -> None:
        if head.log_start > self._trimmed_to:
            trim(self._log.fs, head)
            self._trimmed_to = head.log_start

    def _write_columns(self, head: LogState) -> None:
        if is_columns_due(self._log, head):
            content = self.read_known().to_bytes()
            assert self._known is not None, "known() has set it"
            self._columns = write_columns(self._log, self._known[0], content)

    def _apply_records_since(self) -> LogState:
        if self._head is None:
            self._check_layout()
        self._head = self._log.refresh(durable=True)
        return self._head

    def _check_layout(self) -> None:
        """Refuse a log of another layout, whose plans would be applied to known files with other keys."""
        try:
            self._log.check_layout()
        except NotFound:
            return  # the log is new, or its format file was lost; the first plan creates the file

    def _body(self, head: LogState, payload: dict[str, Any], columns: ColumnsFile | None) -> Body:
        body = Body(payload=payload, settings=next(iter(self._options), None), definitions=self._options)
        if columns is None:
            return body
        start = log_start_after(self._log, head, columns, self._done)
        return structs.replace(body, tables=naming(head, columns), log_start=start)

    def _record(self, number: int) -> Record | None:
        found = self._log.recent.records.get(number)
        if found is not None:
            return found
        return self._log.read_record(number)

    def _fold(self, head: LogState) -> KnownFiles:
        """Return the files known at the head, from the last known files or a columns file, and the plans after it."""
        if self._known is not None and head.log_start - 1 <= self._known[0] <= head.version:
            version, known = self._known
        else:
            version, known = self._columns_of(head)
        for number in range(version + 1, head.version + 1):
            record = self._record(number)
            if record is None:
                raise CorruptData(layout.record_path(number), "a plan", "nothing", _RESTORE)
            known = known.apply(plan_of(record))
        return known

    def _columns_of(self, head: LogState) -> tuple[int, KnownFiles]:
        """Return the newest readable columns. A log that still has its first plan needs no columns file."""
        error = CorruptData(layout.COLUMNS, "a columns file", "none", _RESTORE)
        for file in columns_files(head):
            try:
                return file.name.version, KnownFiles.from_bytes(read_columns(self._log.fs, file))
            except CorruptData as damaged:
                error = damaged
                _log.warning(
                    "the known files are rebuilt from an older columns file and the plans after it: %s", damaged
                )
        if head.log_start > 0:
            raise error
        return -1, KnownFiles()

    def _require_same(self, position: PlanPosition, nonce: str | None) -> None:
        if nonce != position.nonce:
            raise StateLost(f"plan {position.plan} of {self._told()} is not the plan that the query has read. {_ANEW}")

    def _told(self) -> str:
        return f"the state {self.id!r} in stateLocation"


def plan_of(record: Record) -> SourcePlan:
    """Return the plan of a record.

    Raises:
        CorruptData: the record does not contain a plan.
    """
    with Decoding(layout.record_path(record.version), "a plan", _RESTORE):
        return SourcePlan.from_json(record.payload)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"an option is {value!r:.80}")
    return value
