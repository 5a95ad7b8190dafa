"""The commit protocol, from start to end.

Creating version v+1 exclusively is the commit. If the process dies before this call, its files are garbage. Every later
step is idempotent and can be repeated by any process. docs/internals/protocol.md explains the order of the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from ftfile.core.errors import FtfileError, InvalidMessages, UserCodeError
from ftfile.core.logs import get_logger
from ftfile.log.checks import FinalPaths, check_staged
from ftfile.log.commit_log import CommitTimer
from ftfile.log.format.adds import ids_of, parts_of
from ftfile.log.format.model import Body, Record
from ftfile.log.policy import DEFAULT_POLICY, check_replay, fingerprint_mac, lineage_start
from ftfile.log.publish import check_removes_published, post_commit, raise_own_or_warn, roll_forward
from ftfile.log.read.snapshot import Snapshot, snapshot_at

if TYPE_CHECKING:
    from ftfile.core.progress import OnProgress
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Author, Fingerprint
    from ftfile.log.policy import Policy
    from ftfile.log.publish import Problem
    from ftfile.log.state import LogState


_log = get_logger(__name__)

NOTHING_CONFIRMED: Mapping[str, int] = MappingProxyType({})
# Returns the body of the record after this head; None if there is nothing to record. It is called for every attempted
# head; calling `snapshot` reads all live adds of the head. Its errors end the commit.
Prepare = Callable[["LogState", Callable[[], Snapshot]], Body | None]
# Checks every attempted head, before the author is looked up in it. Its errors end the commit.
CheckHead = Callable[["LogState"], None]


def accept_any_head(_: LogState) -> None:
    """Raise no error."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The result of a commit."""

    version: int  # of the log after the commit
    replayed: bool  # the batch was committed before
    record: Record | None = field(default=None, compare=False, repr=False)  # None if no record was created


def commit(  # noqa: PLR0913 - the last by name
    log: CommitLog,
    author: Author,
    prepare: Prepare,
    policy: Policy = DEFAULT_POLICY,
    *,
    fingerprint: Fingerprint | None = None,
    task_found_batch: bool = False,
    stored_ms: Mapping[str, int] = NOTHING_CONFIRMED,
    progress: OnProgress | None = None,
    check_head: CheckHead = accept_any_head,
) -> Committed:
    """Commit the work of an author exactly once, and publish it; idempotent for the same batch.

    With `task_found_batch`, a task found the batch in the log and wrote nothing, so a record must exist. `stored_ms`
    contains modification times of staged files, by path, that the storage has confirmed to be complete. `progress` is
    called with a `Progress` after each published file; its error leaves the other files to the next commit.

    Raises:
        CommitError: see its subclasses; no file that could be committed was deleted.
        ConfigError, NameCollision: see `FinalPaths.claim`.
        StorageError: the storage failed before the record was created; later failures are CommitErrors.
    """
    nonce, timer = log.ids.unique(), CommitTimer(log)

    def next_record(head: LogState) -> NextRecord | Committed:
        problems = roll_forward(log, head, policy, author)
        raise_own_or_warn(problems, author)
        check_head(head)
        if head.has(author):
            check_replay(log, head, author=author, fingerprint=fingerprint, policy=policy)
            return Committed(head.version, replayed=True)
        if task_found_batch:
            raise InvalidMessages(
                "a task wrote nothing because this batch was in the log, but the log has no record of the batch"
            )
        starts = lineage_start(head, author, policy)
        if (body := _prepare_body(log, head, prepare, stored_ms)) is None:
            return Committed(head.version, replayed=False)
        mac = fingerprint_mac(log.fs, fingerprint, author)
        record = record_of(log, head, body=body, author=author, nonce=nonce)
        record = structs.replace(record, lineage_start=starts, fingerprint=mac)
        check_removes_published(problems, record)
        return NextRecord(structs.replace(record, metrics=body.metrics | timer.metrics()), problems)

    assumed = _record_at_assumed_head(log, next_record)
    while True:
        following = assumed or next_record(log.refresh(durable=True, confirm=False))
        assumed = None
        if isinstance(following, Committed):
            log.commit_metrics.replays += following.replayed
            return following
        record, problems = following
        if (after := log.create(record)) is not None:
            break
    # Committed. If the process dies from here on, the next committer rolls forward.
    timer.note_created()
    problems = roll_forward(log, after, policy, author, tried=problems, created=record.version, progress=progress)
    timer.note_published(record.version)
    raise_own_or_warn(problems, author, record.version)
    post_commit(log, after)
    return Committed(record.version, replayed=False, record=record)


def _prepare_body(log: CommitLog, head: LogState, prepare: Prepare, stored_ms: Mapping[str, int]) -> Body | None:
    """Return the body of the record after this head, with publishable files; None if nothing is to be recorded."""
    # a refused batch must not create a new directory for a lost log, which would hide the loss
    log.prepare_directory()
    body = prepare(head, partial(snapshot_at, log, head))
    if body is not None:
        _check_publishable(log, head, body, stored_ms)
    return body


class NextRecord(NamedTuple):
    """A record that can be created, and the files of earlier records that could not be published."""

    record: Record
    problems: list[Problem]


def _record_at_assumed_head(
    log: CommitLog, next_record: Callable[[LogState], NextRecord | Committed]
) -> NextRecord | None:
    """Return the record that follows the assumed head; None if there is no such head, or if it allows no record.

    Creating the record shows if the assumption is right. Every other result must be about the real head, except for an
    error of the user's code.
    """
    head = log.assumed_head()
    if head is None:
        return None
    try:
        following = next_record(head)
    except UserCodeError:
        raise
    except FtfileError as error:
        _log.debug("reading the log to its end, because version %d allows no commit: %s", head.version, error)
        return None
    if isinstance(following, Committed):
        return None
    return following


def catch_up(log: CommitLog, author: Author) -> tuple[LogState, list[Problem]]:
    """Publish all records, as every commit does first; return the head, and the files that could not be published."""
    head = log.refresh(durable=True)
    problems = roll_forward(log, head, DEFAULT_POLICY, author)
    raise_own_or_warn(problems, author)
    return head, problems


def record_of(log: CommitLog, head: LogState, body: Body, author: Author, nonce: str) -> Record:
    """Return the record that follows a head."""
    fields = structs.asdict(body)
    if body.jobs is None:
        fields["jobs"] = head.remaining_jobs(body.removes)
    fields["definitions"] = {key: text for key, text in body.definitions.items() if key not in head.definitions}
    context = log.fs.context
    now_ms = context.clock.now_ms()
    return Record(
        version=head.version + 1,
        nonce=nonce,
        author=author,
        time_ms=now_ms,
        storage_ms=None if log.storage_clock is None else log.storage_clock.time_at(now_ms),
        previous_nonce=head.nonce,
        writer=context.writer,
        published=_published_to(head),
        **fields,
    )


def _published_to(head: LogState) -> int | None:
    """Return the last version up to which all records are known to be published; None for no version."""
    published_to = min(head.unpublished, default=head.version + 1) - 1
    return None if published_to < 0 else published_to


def _check_publishable(log: CommitLog, head: LogState, body: Body, stored_ms: Mapping[str, int]) -> None:
    """Check the files and final paths of all adds, so that every committed file can be published.

    A restore adds old files, and has checked itself that no vacuum can delete them.
    """
    adds = (*body.adds, *body.dead_letters)
    parts = parts_of(adds)
    assert len(ids_of(adds)) == len(adds), "two adds with one id"
    assert len({add.path for add in parts}) == len(parts), "two parts in one file"
    if body.restored is None:
        _check_staged_adds(log, head, body, stored_ms)
    FinalPaths(log, head, adds).claim(adds)


def _check_staged_adds(log: CommitLog, head: LogState, body: Body, stored_ms: Mapping[str, int]) -> None:
    # The remaining rows of a segment are in the same spool, which is safe while one of its segments is live.
    shared_spools: set[str] = set()
    for remove in body.removes:
        segment = head.segments.get(remove.id)
        if segment is not None:
            shared_spools.add(segment.path)
    adds = [add for add in (*body.adds, *body.dead_letters) if add.path not in shared_spools]
    check_staged(log, head, adds, stored_ms)
