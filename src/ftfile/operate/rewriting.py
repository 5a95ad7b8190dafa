"""Rewrite of the files that an operation selects, with a check of the new files and a record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from msgspec import structs

from ftfile.core.errors import CommitError, ConfigError, CorruptData, FtfileError
from ftfile.core.logs import get_logger
from ftfile.core.progress import Tracker
from ftfile.formats.api import format_from_definition
from ftfile.formats.parts import UnreadablePart, chain_of, extension_of, read_part, rows_of_parts
from ftfile.log.checks import Accepted, Rewrite, accept_rewrites, still_known
from ftfile.log.format.adds import ids_of, total_bytes, total_rows
from ftfile.log.format.layout import name_of
from ftfile.log.format.model import Add, Body, Remove
from ftfile.log.opening import written_settings
from ftfile.log.protocol import catch_up, commit
from ftfile.log.read.snapshot import snapshot_at, take_snapshot
from ftfile.log.sealed import keys_of
from ftfile.rows.spark_types import recorded_schema
from ftfile.write.files.namer import rewritten_path
from ftfile.write.fingerprint import strong_digest
from ftfile.write.messages import add_of, common_origin
from ftfile.write.options import durability_of
from ftfile.write.stage import staging
from ftfile.write.workers import Work, removing_unrecorded, rounds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    import pyarrow as pa

    from ftfile.core.progress import OnProgress
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import MaintenanceAuthor
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.log.state import LogState
    from ftfile.read.selection import Without
    from ftfile.storage.api import FileSystem
    from ftfile.write.messages import TaskIdentity
    from ftfile.write.workers import Workers

    # The snapshot of a head, read at the first call.
    Live: TypeAlias = Callable[[], Snapshot]

# For an operation that must record its whole choice or nothing, if other processes replace some of the files.
TRIES = 5

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RewriteReport:
    """The result of a compaction, a drop or a delete."""

    version: int | None = None  # of the last record; None if there was nothing to do, and in a dry run
    records: int = 0  # created records
    files_removed: int = 0  # removed finished files, replaced or not, and removed segments of open files
    files_written: int = 0  # new files in place of removed files
    rows: int = 0  # in the written files
    rows_removed: int = 0
    bytes_removed: int = 0  # of the removed files, on storage
    bytes_written: int = 0  # of the written files; unknown in a dry run
    files_lost: int = 0  # files that other processes replaced or dropped during the operation; they were not changed
    where: str | None = None  # a condition given as a text, as recorded: with clock functions replaced by literals
    dry_run: bool = False  # True if nothing was changed

    def plus(self, other: RewriteReport) -> RewriteReport:
        """Return the combined result of this operation and of a later one."""
        return replace(
            self,
            version=self.version if other.version is None else other.version,
            records=self.records + other.records,
            files_removed=self.files_removed + other.files_removed,
            files_written=self.files_written + other.files_written,
            rows=self.rows + other.rows,
            rows_removed=self.rows_removed + other.rows_removed,
            bytes_removed=self.bytes_removed + other.bytes_removed,
            bytes_written=self.bytes_written + other.bytes_written,
            files_lost=self.files_lost + other.files_lost,
        )


class RewritePiece(NamedTuple):
    """Files that are rewritten into one file, or removed."""

    inputs: tuple[Add, ...]  # in row order, of one directory and encoding
    place: int  # number of the first input among all rewritten files
    least_name: str | None  # the lowest name of the files of the directory that stay; None if there are none
    without: Without | None  # the rows to remove; None to keep all rows

    @property
    def row_count(self) -> int:
        """Return the number of rows."""
        return total_rows(self.inputs)

    def rows_removed(self, fs: FileSystem, definitions: Mapping[str, Any]) -> int:
        """Return the number of rows to remove, which reads the files. For the errors see `Selection.rows`."""
        without = self.without
        if without is None:
            return 0
        rows = 0
        for add in self.inputs:
            rows += without.matches(fs, add, definitions[add.encoding])
        return rows

    def is_live(self, head: LogState, version: int) -> bool:
        """Return True if all inputs, which were live at a version, are live at the head."""
        return all(head.is_live(add, version) for add in self.inputs)

    @property
    def length(self) -> int:
        """Return the bytes on storage."""
        return total_bytes(self.inputs)


class Outcome(NamedTuple):
    """The result of a piece; the files before and after an unreadable file are rewritten separately."""

    rewrites: tuple[Rewrite, ...] = ()  # each has one new file, or no file if no row stays
    errors: tuple[FtfileError, ...] = ()  # about files that are unchanged
    rows_removed: int = 0


class RewriteChoice:
    """The choice of an operation at a head: the pieces, and the adds to remove completely; by default none."""

    takes_all: ClassVar[bool] = False  # True if the whole choice must be in one record, or nothing
    commit_every: int | None = None  # new files after which a record is created; None for one record

    @property
    def text(self) -> str | None:
        """Return the text of the choice for the record; None if there is none."""
        return None

    def pieces(self, head: LogState, live: Live, excluded_ids: Container[str]) -> Sequence[RewritePiece]:
        """Return the pieces, without the files in `excluded_ids`, which are already done or cannot be used now."""
        del head, live, excluded_ids
        return ()

    def removed(self, head: LogState, live: Live) -> Sequence[Add]:
        """Return the adds that are removed with all of their rows, without reading them."""
        del head, live
        return ()


class Recorded(NamedTuple):
    """Result of a run that recorded all possible changes."""

    report: RewriteReport
    errors: tuple[FtfileError, ...]  # about files that are unchanged


class Overtaken(NamedTuple):
    """Result of a run that recorded nothing, because other processes replaced some of the files."""

    pending: tuple[Rewrite, ...]  # to be recorded in the next run


def pieces_of(
    adds: Iterable[Add], lists: Sequence[Sequence[Add]], withouts: Sequence[Without] | None = None
) -> list[RewritePiece]:
    """Return one piece for each list of inputs, given all live adds, and the rows to remove from each list."""
    input_ids: set[str] = set()
    keys: set[str] = set()
    for inputs in lists:
        input_ids |= ids_of(inputs)
        keys.add(inputs[0].directory_key)
    least: dict[str, str] = {}
    for add in adds:
        if add.final_path is not None and add.directory_key in keys and add.id not in input_ids:
            name = name_of(add.final_path)
            least[add.directory_key] = min(name, least.get(add.directory_key, name))
    pieces: list[RewritePiece] = []
    place = 0
    for number, inputs in enumerate(lists):
        without = None
        if withouts is not None:
            without = withouts[number]
        stripped = tuple(add.without_statistics() for add in inputs)
        pieces.append(RewritePiece(stripped, place, least.get(inputs[0].directory_key), without))
        place += len(inputs)
    return pieces


def rewrite(
    log: CommitLog,
    author: MaintenanceAuthor,
    workers: Workers,
    choice: RewriteChoice,
    *,
    dry_run: bool = False,
    progress: OnProgress | None = None,
) -> RewriteReport:
    """Rewrite the chosen files with the given workers, and record the result.

    Files that other processes replaced during the operation are left out. If a choice takes all, it is selected again
    at the new head instead. With `dry_run`, nothing is written.

    Raises:
        CommitError: as for a batch write; or other processes replaced some of the chosen files at each of `TRIES`
            attempts.
        FtfileError: some files could not be rewritten. All others were, except if the choice takes all: then nothing
            was changed.
    """
    operation = _Rewriting(log, author, workers=workers, choice=choice, progress=progress)
    if dry_run:
        return operation.plan()
    pending: tuple[Rewrite, ...] = ()
    with removing_unrecorded(log.fs, author.job_id) as named:
        for _ in range(TRIES):
            result = operation.run(pending, named)
            if isinstance(result, Recorded):
                break
            pending = result.pending
        else:
            raise CommitError(
                f"other processes replaced files at each of {TRIES} attempts, and nothing was recorded: "
                f"{author.operation} again"
            )
    _log.info("%s: %s", author.operation, result.report)
    for error in result.errors:
        raise error
    return result.report


@dataclass(frozen=True, slots=True)
class _Rewriting:
    """One call of `rewrite`."""

    log: CommitLog
    author: MaintenanceAuthor
    workers: Workers
    choice: RewriteChoice
    progress: OnProgress | None

    def plan(self) -> RewriteReport:
        """Return the report of a run, and write nothing."""
        head = self.log.refresh()
        live = cache(partial(take_snapshot, self.log))
        pieces = self.choice.pieces(head, live, ())
        removed = self.choice.removed(head, live)
        report = replace(_reported(removed, ()), where=self.choice.text, dry_run=True)
        for number, outcome in self._outcomes(head, live, pieces, dry_run=True):
            for error in outcome.errors:
                raise error
            piece = pieces[number]
            if piece.without is not None and not outcome.rows_removed:
                continue
            rows = piece.row_count - outcome.rows_removed
            ended = replace(_reported(piece.inputs, ()), files_written=int(rows > 0), rows=rows)
            report = report.plus(replace(ended, rows_removed=outcome.rows_removed))
        return report

    def run(self, pending: Sequence[Rewrite], named: set[str]) -> Recorded | Overtaken:
        """Rewrite and record the current choice, and record `pending`; add paths of recordable files to `named`."""
        head, problems = catch_up(self.log, self.author)
        live = cache(partial(snapshot_at, self.log, head))
        excluded_ids = ids_of(chain.from_iterable(rewrite.inputs for rewrite in pending))
        # A choice that takes all includes files that cannot be published, so the refused commit reports the reason.
        if not self.choice.takes_all:
            for problem in problems:
                excluded_ids |= ids_of(problem.adds)
        pieces = self.choice.pieces(head, live, excluded_ids)
        rounds = [*rounds_of(pieces, self.choice.commit_every)] or [()]
        assert len(rounds) == 1 or not self.choice.takes_all, "all of it in several records"
        tracker = Tracker(
            self.author.operation,
            self.log.clock,
            on_progress=self.progress,
            total=sum(len(piece.inputs) for piece in pieces),
            total_bytes=sum(map(attrgetter("length"), pieces)),
        )
        report, errors = RewriteReport(where=self.choice.text), list[FtfileError]()
        for some in rounds:
            outcomes = dict[int, Outcome]()
            for number, outcome in self._outcomes(head, live, some):
                outcomes[number] = outcome
                tracker.add(len(some[number].inputs), some[number].length)
            rewrites = list(pending)
            for number in sorted(outcomes):
                errors += outcomes[number].errors
                rewrites += outcomes[number].rewrites
            for recordable in rewrites:
                named.update(map(attrgetter("path"), recordable.adds))
            if self.choice.takes_all and errors:
                now = self.log.refresh(durable=True)
                if all(piece.is_live(now, head.version) for piece in some):
                    raise errors[0]
                return Overtaken(tuple(rewrites))  # an unreadable file was replaced
            result = self._record(rewrites)
            if isinstance(result, Overtaken):
                return result
            report, errors = report.plus(result.report), [*errors, *result.errors]
        return Recorded(report, tuple(errors))

    def _outcomes(
        self, head: LogState, live: Live, pieces: Sequence[RewritePiece], *, dry_run: bool = False
    ) -> Iterator[tuple[int, Outcome]]:
        """Yield the results of pieces with their numbers, in the order of completion."""
        if pieces:
            snapshot = live()
            definitions: dict[str, Any] = {}
            for piece in pieces:
                encoding = piece.inputs[0].encoding
                definitions[encoding] = snapshot.definitions[encoding]
            work = RowRewriter(snapshot.version, definitions, dry_run)
            yield from self.workers.do(work, pieces, self.log.fs, dict(written_settings(head)))

    def _record(self, rewrites: Sequence[Rewrite]) -> Recorded | Overtaken:
        """Record rewrites with live inputs, and removed adds at the head; all or nothing if the choice takes all."""
        accepted, report = Accepted(), RewriteReport()

        def is_overtaken() -> bool:
            return self.choice.takes_all and len(accepted.rewrites) < len(rewrites)

        def prepare(head: LogState, live: Live) -> Body | None:
            nonlocal accepted, report
            accepted = accept_rewrites(self.log, head, still_known(head, live, rewrites))
            ended = () if is_overtaken() else (*accepted.inputs, *self.choice.removed(head, live))
            report = _reported(ended, accepted.adds if ended else ())
            if not ended:
                return None
            return Body(
                adds=accepted.adds,
                removes=tuple(map(Remove.of, ended)),
                replaces=self.choice.text,
                rows_removed=report.rows_removed,
                metrics={"durability": durability_of("auto", self.log.fs.capabilities)} if accepted.adds else {},
            )

        # If files are written, the progress counts written files instead of hidden files.
        committed = commit(self.log, self.author, prepare, progress=None if rewrites else self.progress)
        errors = tuple(refused.error for refused in accepted.refused)
        if self.choice.takes_all and errors:
            raise errors[0]
        if is_overtaken():
            return Overtaken(accepted.rewrites)
        report = replace(report, files_lost=accepted.lost(rewrites))
        if committed.record is not None:
            report = replace(report, version=committed.version, records=1)
        return Recorded(report, errors)


def _reported(ended: Sequence[Add], written: Sequence[Add]) -> RewriteReport:
    """Return the report of one record, or of a plan."""
    rows = total_rows(written)
    return RewriteReport(
        files_removed=len(ended),
        files_written=len(written),
        rows=rows,
        rows_removed=total_rows(ended) - rows,
        bytes_removed=total_bytes(ended),
        bytes_written=total_bytes(written),
    )


@dataclass(frozen=True, slots=True)
class RowRewriter(Work[RewritePiece, Outcome]):
    """Rewrites files that were live at a version; uses memory for some row groups."""

    read_version: int
    definitions: Mapping[str, Any]  # of the encodings of the files, by key
    dry_run: bool  # only count the rows to remove, and write nothing

    def size_of(self, piece: RewritePiece) -> int:
        """Return the bytes of the files."""
        return piece.length

    def do(self, fs: FileSystem, task: TaskIdentity, pieces: Sequence[RewritePiece]) -> Iterator[Outcome]:
        """Yield the result of each piece.

        Raises:
            StorageError: the store failed; files of completed pieces remain, for the caller or a vacuum to delete.
        """
        for piece in pieces:
            yield self._outcome(fs, task, piece)

    def _outcome(self, fs: FileSystem, task: TaskIdentity, whole: RewritePiece) -> Outcome:
        outcome, waiting = Outcome(), [whole]

        def note(error: FtfileError, what: str) -> Outcome:
            _log.error("%s: %s", what, error)
            return outcome._replace(errors=(*outcome.errors, error))

        while waiting:
            piece = waiting.pop()
            inputs = piece.inputs
            try:
                rows_removed = piece.rows_removed(fs, self.definitions)
                outcome = outcome._replace(rows_removed=outcome.rows_removed + rows_removed)
                if self.dry_run or (piece.without is not None and not rows_removed):
                    continue
                adds = () if rows_removed == piece.row_count else (self._rewrite(fs, task, piece, rows_removed),)
                outcome = outcome._replace(rewrites=(*outcome.rewrites, Rewrite(inputs, adds, self.read_version)))
            except UnreadablePart as unreadable:
                number, cause = unreadable.args
                outcome = note(cause, f"{inputs[number].final_path!r} is not changed")
                after = piece._replace(inputs=inputs[number + 1 :], place=piece.place + number + 1)
                before = piece._replace(inputs=inputs[:number])
                for rest in (after, before):
                    if len(rest.inputs) > 1:
                        waiting.append(rest)
            except (ConfigError, CorruptData) as error:
                outcome = note(error, f"{len(inputs)} parts from {inputs[0].final_path!r} on are not changed")
        return outcome

    def _rewrite(self, fs: FileSystem, task: TaskIdentity, piece: RewritePiece, rows_removed: int) -> Add:
        """Write the remaining rows to one file, and check its content before the file replaces its inputs."""
        first, keys, advice = piece.inputs[0], keys_of(fs), "It replaced no part"
        encoding = self.definitions[first.encoding]
        file_format = format_from_definition(encoding["format"], keys)
        schema = recorded_schema(encoding["schema"])
        rows = rows_of_parts(fs, piece.inputs, file_format, schema)
        batches: Iterator[pa.RecordBatch]
        if piece.without is None:
            batches = (batch for _, batch in rows)
        else:
            batches = piece.without.apply(rows, encoding)
        with staging(fs, task) as stage:
            columns = encoding.get("statistics", ())
            part = stage.open(
                first.directory_key, file_format, schema, chain=chain_of(encoding, keys), statistics=columns
            )
            before = strong_digest(part.write_all(batches))
            stage.finish(part)
            stage.wait_closed()
            add = add_of(stage.finished[-1], first.encoding, common_origin(piece.inputs, task.origin()))
            if strong_digest(read_part(fs, add, file_format=file_format, schema=schema, keys=keys)) != before:
                raise CorruptData(add.path, "the rows of the merged parts", "other rows", advice)
            if add.rows != piece.row_count - rows_removed:
                expected = f"{piece.row_count - rows_removed} rows, without the removed rows"
                raise CorruptData(add.path, expected, f"{add.rows} rows", advice)
        place = f"{self.read_version:010d}{piece.place:07d}"
        path = rewritten_path(
            first,
            piece.least_name,
            part_id=add.id,
            extension=extension_of(encoding),
            place=place,
            store=fs.capabilities,
        )
        return structs.replace(add, final_path=path)
