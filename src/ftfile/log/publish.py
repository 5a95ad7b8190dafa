"""Publishing moves added parts to their final names and hides removed parts.

Only publishing moves parts, and it never replaces a file. After a crash, the next committer repeats it. The batch is
committed before, so failures do not affect it; they are logged.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from ftfile.core.errors import CommitError, ConfigError, FtfileError, MissingPart, NotPublished, StorageError
from ftfile.core.logs import get_logger
from ftfile.core.progress import Tracker
from ftfile.core.retries import RetryPolicy, call_with_retries
from ftfile.log import checkpoints
from ftfile.log.format import layout
from ftfile.log.format.adds import ids_of
from ftfile.log.format.model import StreamAuthor
from ftfile.log.format.record import FILE_BYTES_MAX
from ftfile.log.places import clear_stage, place, retire, sync_hidden, sync_names
from ftfile.log.read.compacted_writer import write_due_compacted
from ftfile.log.read.snapshot import snapshot_at
from ftfile.log.records import PublishedHint, read_published, write_published

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.core.errors import NameCollision
    from ftfile.core.progress import OnProgress
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Add, Author, Record
    from ftfile.log.policy import Policy
    from ftfile.log.state import LogState, Unpublished


FIRST_WAIT_S = 0.05
# How long a commit retries to publish the records of its author after temporary failures.
PUBLISH_TIMEOUT_S = 60.0

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Problem:
    """Adds of a record that could not be published."""

    entry: Unpublished
    adds: Sequence[Add]
    error: FtfileError


def roll_forward(  # noqa: PLR0913 - the last by name
    log: CommitLog,
    head: LogState,
    policy: Policy,
    author: Author,
    tried: Sequence[Problem] = (),
    created: int | None = None,
    *,
    progress: OnProgress | None = None,
) -> list[Problem]:
    """Publish the records up to the head that are not known to be published, oldest first; return the failures.

    Records of the author's query, and the one just `created`, are retried for `PUBLISH_TIMEOUT_S`, others once; records
    that were `tried` just before are skipped. Failures stay in the state, and so in the next checkpoint.
    """
    if created is None:  # otherwise all others were published or tried just before
        skip_published(log, head)
    if not head.unpublished:
        return []
    if created is None:
        log.prepare_directory()  # no file is moved in a layout that this version does not support
    problems = []
    done = {problem.entry.version for problem in tried}
    while waiting := head.unpublished.keys() - done:
        version = min(waiting)
        done.add(version)
        entry = head.unpublished[version]
        is_own = version == created or _is_own(entry, author)
        problem = publish(log, entry, PUBLISH_TIMEOUT_S if is_own else 0, progress, first=version == created)
        if problem is not None and isinstance(problem.error, MissingPart) and policy.on_missing_part == "warn":
            _log.warning("%s", problem.error)
        elif problem is not None:
            problems.append(problem)
            continue
        head.unpublished.pop(version, None)
        log.commit_metrics.recoveries += version != created
    if not head.unpublished and created is None:  # otherwise `post_commit` writes it
        _write_hint(log, head)
    return problems


def skip_published(log: CommitLog, head: LogState) -> None:
    """Use the hint if the state contains its record: another record can be dead, and an older one saves little."""
    hint = None
    if head.unpublished:
        hint = read_published(log.fs)
    if hint is not None and head.includes(hint.version, hint.nonce):
        for version in [version for version in head.unpublished if version <= hint.version]:
            del head.unpublished[version]


def raise_own_or_warn(problems: Sequence[Problem], author: Author, version: int | None = None) -> None:
    """Raise the first problem of the author's query, or of the version just created; log all others as warnings."""
    for problem in problems:
        at = problem.entry.version
        if at == version or _is_own(problem.entry, author):
            raise problem.error
        _log.warning("version %d, of another writer, is not completely published: %s", at, problem.error)


def check_removes_published(problems: Sequence[Problem], record: Record) -> None:
    """Refuse a record that removes an unpublished part, since publishing it later would restore it."""
    removed = ids_of(record.removes)
    for problem in problems:
        if not removed.isdisjoint(ids_of(problem.adds)):
            raise problem.error


def publish(
    log: CommitLog, entry: Unpublished, timeout_s: float, progress: OnProgress | None = None, *, first: bool = False
) -> Problem | None:
    """Retire the parts that a record removed, place the parts that it added, and make the names durable.

    Temporary failures are retried for `timeout_s`. With `first`, the caller has just created the record, and no process
    has published it before.
    """
    # Batches log no progress.
    total = len(entry.removes) + len(entry.adds)
    if progress is None:
        tracker = None
    else:
        tracker = Tracker("publish", log.clock, progress, total)

    def attempt() -> list[Add]:
        retire(log.fs, entry.removes, tracker, first=first, is_reserved=partial(_is_reserved, log, entry.version))
        sync_hidden(log.fs, entry)
        unplaced = place(log.fs, entry.adds, tracker)
        sync_names(log.fs, entry)
        return _missing_parts(log, unplaced, entry.version)

    policy = RetryPolicy(attempts=None, delay_s=FIRST_WAIT_S, total_s=timeout_s)
    try:
        task = f"to publish version {entry.version}"
        missing = call_with_retries(attempt, policy, log.clock, is_repeatable=True, task=task)
    except FtfileError as error:
        return Problem(entry, entry.adds, _as_committed(entry, error))
    clear_stage(log.fs, entry)
    if missing:
        return Problem(entry, missing, _missing_error(entry, missing))
    return None


def _is_reserved(log: CommitLog, version: int, path: str) -> bool:
    """Return True if the log, which is read again, reserves a name for the part that a version removed.

    A vacuum releases the name. Afterwards, no file of this name is the removed part.
    """
    return log.refresh(confirm=False).reserved.get(path) == version


def still_live(log: CommitLog, adds: Sequence[Add], read_version: int) -> list[Add]:
    """Return the adds that no later record removed, by reading the log again; very old ones count as removed."""
    if not adds:
        return []
    head = log.refresh(durable=True)
    return [add for add in adds if head.is_live(add, read_version)]


def _missing_parts(log: CommitLog, unplaced: Sequence[tuple[Add, NameCollision | None]], version: int) -> list[Add]:
    """Return the missing live parts; users may delete dead letters, and removed parts have no name any more."""
    letters = {add.id for add, _ in unplaced if (add.final_path or "").startswith(f"{layout.DEAD_LETTERS}/")}
    if any(error is not None for _, error in unplaced):
        live = snapshot_at(log, log.refresh(durable=True)).adds
        for add, error in unplaced:
            if error is not None and (add.id in live or add.id in letters):
                raise error
    return still_live(log, [add for add, error in unplaced if error is None and add.id not in letters], version)


def _as_committed(entry: Unpublished, error: FtfileError) -> CommitError:
    """Return the error as one that states that the batch is committed, so that it is not written again."""
    kind = type(error) if isinstance(error, CommitError) else NotPublished
    raised = kind(
        f"version {entry.version} is committed but not completely published: {error}. Do not write its rows again, "
        "they would be doubled. After the cause is fixed, the next commit to the directory publishes the remaining "
        "files"
    )
    raised.__cause__ = error
    return raised


def _missing_error(entry: Unpublished, adds: Sequence[Add]) -> MissingPart:
    names = ", ".join(map(repr, map(attrgetter("final_path"), adds[:5])))
    return MissingPart(
        f"{len(adds)} committed part(s) of version {entry.version} are neither staged nor at their final names, the "
        f"first: {names}. They were published, and then moved or deleted. Restore them, or continue without them with "
        "onMissingPart=warn"
    )


def _is_own(entry: Unpublished, author: Author) -> bool:
    return isinstance(author, StreamAuthor) and entry.query_id == author.query_id


# Compacted logs are due at every 64th version, and as soon as this committer holds 256 KiB of records.
COMPACTED_EVERY = 64
COMPACTED_BYTES = 256 << 10
# After consecutive failures, compacted logs are retried after twice as many versions each time, at most after 64 times
# 64.
PAUSES_MAX = 6


# On object stores, where a hint costs a request, a process writes it with its first commit, and then at every 16th
# version. Each record contains the published version.
HINT_EVERY = 16


def _write_hint(log: CommitLog, head: LogState) -> None:
    write_published(log.fs, PublishedHint(head.version, head.nonce))
    log.hinted = head.version


def _needs_hint(log: CommitLog, version: int) -> bool:
    if not log.fs.capabilities.implied_directories or log.hinted is None:
        return True
    return version >= log.hinted + HINT_EVERY


def post_commit(log: CommitLog, head: LogState) -> None:
    """Write a hint, a compacted log and a checkpoint if they are due."""
    if not head.unpublished and _needs_hint(log, head.version):
        # Only the hint shows later that the newest record is lost.
        _write_hint(log, head)
    recent = log.recent
    if (head.version + 1) % COMPACTED_EVERY == 0 or recent.size_bytes >= COMPACTED_BYTES:
        if head.version >= recent.paused_to:
            try:
                write_due_compacted(log, head)
                recent.failures = 0
            except FtfileError as error:
                recent.paused_to = head.version + (COMPACTED_EVERY << min(recent.failures, PAUSES_MAX))
                recent.failures += 1
                _log.warning(
                    "could not write a compacted log up to version %d, readers read the records instead: %s",
                    head.version,
                    error,
                )
        # Records without a compacted log are read again.
        recent.clear()
    write_checkpoint_if_due(log, head)


def write_checkpoint_if_due(log: CommitLog, state: LogState) -> None:
    """Write a checkpoint if it is due."""
    if log.delta_bytes > max(checkpoints.CHECKPOINT_MIN_BYTES, log.checkpoint_bytes // 2):
        renew_checkpoint(log, state)
        return
    read_bytes = log.checkpoint_bytes + log.delta_bytes
    has_halved = 2 * len(state.segments) < log.segments_max and read_bytes > checkpoints.SHRUNK_MIN_BYTES
    if has_halved and log.delta_bytes > log.checkpoint_bytes // checkpoints.ENCODED_SHARE:
        renew_checkpoint(log, state, read_bytes // 2)


def renew_checkpoint(log: CommitLog, state: LogState, bytes_max: int = FILE_BYTES_MAX) -> None:
    """Write a checkpoint, if it is not longer than `bytes_max`."""
    log.segments_max = len(state.segments)
    try:
        size_bytes = checkpoints.write_checkpoint(
            log.fs, log.ids, state=state, useless=log.checkpoints.useless, bytes_max=bytes_max
        )
    except (StorageError, ConfigError) as error:
        log.delta_bytes = 0
        _log.warning(
            "could not write a log checkpoint of version %d, a restart will read more records: %s", state.version, error
        )
        return
    if size_bytes is not None:
        log.checkpoint_bytes, log.delta_bytes = size_bytes, 0
