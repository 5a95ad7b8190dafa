"""Rewrite of the files that an operation selects, with a check of the new files and a record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ftfile.core.errors import CommitError, FtfileError
from ftfile.core.logs import get_logger
from ftfile.core.progress import Tracker
from ftfile.log.checks import Accepted, accept_rewrites, still_known
from ftfile.log.format.adds import ids_of, total_bytes, total_rows
from ftfile.log.format.model import Body, Remove
from ftfile.log.opening import written_settings
from ftfile.log.protocol import catch_up, commit
from ftfile.log.read.snapshot import snapshot_at, take_snapshot
from ftfile.operate.rewriter.pieces import Outcome
from ftfile.operate.rewriter.row_rewriter import RowRewriter
from ftfile.writing.options import durability_of
from ftfile.writing.workers import removing_unrecorded, rounds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence
    from typing import TypeAlias

    from ftfile.core.progress import OnProgress
    from ftfile.log.checks import Rewrite
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Add, MaintenanceAuthor
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.log.state import LogState
    from ftfile.operate.rewriter.pieces import RewritePiece
    from ftfile.writing.workers import Workers

    # The snapshot of a head, read at the first call.
    Live: TypeAlias = Callable[[], Snapshot]

# For an operation that must record its whole choice or nothing, if other processes replace some of the files.
TRIES = 5

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
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

    def select_removed(self, head: LogState, live: Live) -> Sequence[Add]:
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
    operation = _Rewriting(log=log, author=author, workers=workers, choice=choice, progress=progress)
    if dry_run:
        return operation.plan()
    pending: tuple[Rewrite, ...] = ()
    with removing_unrecorded(log.fs, author.operation_id) as named:
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
        removed = self.choice.select_removed(head, live)
        report = replace(_report_of(removed, ()), where=self.choice.text, dry_run=True)
        for number, outcome in self._outcomes(head, live, pieces, dry_run=True):
            for error in outcome.errors:
                raise error
            piece = pieces[number]
            if piece.without is not None and not outcome.rows_removed:
                continue
            rows = piece.row_count - outcome.rows_removed
            ended = replace(_report_of(piece.inputs, ()), files_written=piece.files_expected if rows else 0, rows=rows)
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
        rounds = [*rounds_of(pieces, self.choice.commit_every, attrgetter("files_expected"))] or [()]
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
            ended = () if is_overtaken() else (*accepted.inputs, *self.choice.select_removed(head, live))
            report = _report_of(ended, accepted.adds if ended else ())
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


def _report_of(ended: Sequence[Add], written: Sequence[Add]) -> RewriteReport:
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
