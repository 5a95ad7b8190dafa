"""Publishing: make a record's parts visible and hide those it removed. Every step may be repeated.

A part is staged, final or retired; only publishing moves it, and never over another file. Whoever dies
in the middle is followed by somebody who does it all again: see `roll_forward`.
"""

from __future__ import annotations

import contextlib
import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.commit import layout
from ftfile.commit.hints import PublishedHint, read_published, write_published
from ftfile.commit.model import StreamAuthor
from ftfile.commit.side_by_side import side_by_side
from ftfile.core.checksum import matches
from ftfile.core.errors import (
    AlreadyExists,
    CommitError,
    FtfileError,
    MissingPart,
    NameCollision,
    NotFound,
    NotPublished,
    Retry,
    StorageError,
    Unavailable,
)
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.commit.log import CommitLog
    from ftfile.commit.model import Add, Author, Record, Remove
    from ftfile.commit.policy import Policy
    from ftfile.commit.state import LogState, Unpublished
    from ftfile.fs.api import FileInfo, FileSystem

__all__ = (
    "Problem",
    "clear_stage",
    "place",
    "publish",
    "raise_own",
    "retire",
    "roll_forward",
    "skip_published",
    "still_live",
    "sync_names",
    "wait_for_removed",
)

FIRST_WAIT_S = 0.05
LONGEST_WAIT_S = 5.0

_log = get_logger(__name__)


class _Step(enum.Enum):
    DONE = "done"
    NOWHERE = "nowhere"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something of a record that could not be published."""

    version: int
    query_id: str | None
    add_ids: frozenset[str]
    error: FtfileError


def roll_forward(
    log: CommitLog,
    head: LogState,
    policy: Policy,
    author: Author,
    tried: Sequence[Problem] = (),
    created: int | None = None,
) -> list[Problem]:
    """Publish everything up to the head that is not known to be published, oldest first.

    What is the author's own, or was just `created`, is tried until `publishTimeout`, what is another's once; what was
    `tried` a moment ago is passed over.

    Returns:
        What could not be published; it stays on the list of the state, and so of the next base.
    """
    skip_published(log, head)
    if not head.unpublished:
        return []
    problems = []
    done = {problem.version for problem in tried}
    # Looking after a part that is nowhere reads on, and the head may have moved: what came goes the same way.
    while waiting := head.unpublished.keys() - done:
        version = min(waiting)
        done.add(version)
        entry = head.unpublished[version]
        own = version == created or _is_own(entry, author)
        problem = publish(log, entry, policy.publish_timeout_s if own else 0)
        if problem is not None and isinstance(problem.error, MissingPart) and policy.on_missing_part == "warn":
            _log.warning("%s", problem.error)
        elif problem is not None:
            problems.append(problem)
            continue
        del head.unpublished[version]
    if not head.unpublished:
        write_published(log.fs, PublishedHint(head.version, head.nonce))
    return problems


def skip_published(log: CommitLog, head: LogState) -> None:
    """Believe the hint if the record it names is part of the log; one behind the newest base may be a dead one.

    The state tells of the last records only: an older hint saves little work.
    """
    hint = read_published(log.fs) if head.unpublished else None
    if hint is not None and head.includes(hint.version, hint.nonce):
        for version in [version for version in head.unpublished if version <= hint.version]:
            del head.unpublished[version]


def raise_own(problems: Sequence[Problem], author: Author, version: int | None = None) -> None:
    """Raise the first problem of the author's own query, or of the version just created; warn of all others."""
    for problem in problems:
        if problem.version == version or _is_own(problem, author):
            raise problem.error
        _log.warning("version %d, of another writer, is not wholly published: %s", problem.version, problem.error)


def wait_for_removed(problems: Sequence[Problem], record: Record) -> None:
    """Refuse a record that removes what is not published yet: publishing it later would bring it back."""
    removed = {remove.id for remove in record.removes}
    for problem in problems:
        if problem.add_ids & removed:
            raise problem.error


def publish(log: CommitLog, entry: Unpublished, timeout_s: float) -> Problem | None:
    """Retire what the record removed, place what it added, make the names durable; repeat what may pass."""
    deadline = log.clock.monotonic_s() + timeout_s
    wait_s = FIRST_WAIT_S
    while True:
        try:
            retire(log.fs, entry.removes)
            nowhere = place(log.fs, entry.adds)
            sync_names(log.fs, entry)
            missing = still_live(log, nowhere, entry.version)
        except FtfileError as error:
            if error.retry is Retry.NEVER or log.clock.monotonic_s() + wait_s > deadline:
                return _problem(entry, _as_committed(entry, error))
            _log.warning("publishing version %d again in %g s: %s", entry.version, wait_s, error)
            log.clock.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)
        else:
            clear_stage(log.fs, entry)
            return _problem(entry, _missing(entry, missing), missing) if missing else None


def retire(fs: FileSystem, removes: Sequence[Remove]) -> None:
    """Move removed parts out of sight; one that is there already, or nowhere, is done."""
    side_by_side(fs, lambda remove: _retire_one(fs, remove), removes)


def place(fs: FileSystem, adds: Sequence[Add]) -> list[Add]:
    """Move staged parts to their final names and return those that are at neither place."""
    for directory in sorted({layout.parent(add.final_path or "") for add in adds} - {""}):
        fs.make_directories(directory)
    steps = side_by_side(fs, lambda add: _place_one(fs, add), adds)
    return [add for add, step in zip(adds, steps, strict=True) if step is _Step.NOWHERE]


def sync_names(fs: FileSystem, entry: Unpublished) -> None:
    """Make the new names durable, with those of their directories, which another committer may have made."""
    if not fs.capabilities.directory_sync:
        return
    directories = {d for add in entry.adds for d in layout.ancestors(layout.parent(add.final_path or ""))}
    directories |= {layout.parent(remove.final_path or "") for remove in entry.removes}
    directories |= {layout.RETIRED} if entry.removes else set()
    # Parents first: a part whose move is durable is lost if the name of the directory it moved to is not.
    for directory in sorted(directories):
        fs.sync_directory(directory)


def clear_stage(fs: FileSystem, entry: Unpublished) -> None:
    """Remove the emptied directories of the batch; leftovers of other attempts, or a failure, harm nothing."""
    if fs.capabilities.implied_directories:
        return
    for directory in {layout.parent(add.path) for add in entry.adds}:
        try:
            if fs.remove_directory(directory) and entry.query_id is None:
                fs.remove_directory(layout.parent(directory))  # a job has one batch, a query will have more
        except StorageError as error:
            _log.debug("left %s behind: %s", directory, error)


def still_live(log: CommitLog, adds: Sequence[Add], known_at: int) -> list[Add]:
    """Return those of the adds that no record has removed since: read the log again before calling one missing.

    One of a version so long ago that the log's state does not tell is taken for removed.
    """
    if not adds:
        return []
    head = log.read_on(durable=True)
    return [add for add in adds if head.is_live(add, known_at)]


def _retire_one(fs: FileSystem, remove: Remove) -> None:
    assert remove.final_path is not None, f"{remove.id} is no part"
    try:
        fs.rename(remove.final_path, layout.retired_path(remove.id))
    except NotFound:
        _log.debug("%s is retired already", remove.final_path)
    except AlreadyExists:
        # A copy came late and brought it back: the retired one is complete, so this one goes.
        _delete(fs, remove.final_path)


def _place_one(fs: FileSystem, add: Add) -> _Step:
    assert add.final_path is not None, f"part {add.id} has no final name"
    if add.path == add.final_path:
        return _Step.DONE
    try:
        fs.rename(add.path, add.final_path)
    except AlreadyExists:
        return _settle_both(fs, add, add.final_path)
    except NotFound:
        target = _look(fs, add.final_path)
        if target is None:
            if _look(fs, add.path) is None:
                return _Step.NOWHERE
            raise Unavailable("rename", add.path, f"the directory of {add.final_path!r} has gone meanwhile") from None
        if target.size_bytes != add.length:
            raise NameCollision(
                f"{add.final_path!r} should be the part {add.id} of {add.length} bytes and has {target.size_bytes}: "
                "another program wrote or changed it. Move it away and start again"
            ) from None
    return _Step.DONE


def _settle_both(fs: FileSystem, add: Add, final_path: str) -> _Step:
    """Both names exist: fine when they are one file, or when the final one has the recorded content."""
    source, target = _look(fs, add.path), _look(fs, final_path)
    if target is None:
        raise Unavailable("rename", add.path, f"{final_path!r} was there and is gone: another program moves files")
    if source is None:
        return _Step.DONE
    same = source.identity is not None and source.identity == target.identity
    if not same and not (target.size_bytes == add.length and matches(fs.read(final_path), add.checksum)):
        raise NameCollision(
            f"the part staged at {add.path!r} ({source.size_bytes} bytes) cannot be published: another file of "
            f"{target.size_bytes} bytes is at its name {final_path!r}. Neither was touched; move the foreign file away"
        )
    _delete(fs, add.path)
    return _Step.DONE


def _delete(fs: FileSystem, path: str) -> None:
    """Delete what another publisher may have deleted already."""
    with contextlib.suppress(NotFound):
        fs.delete(path)


def _look(fs: FileSystem, path: str) -> FileInfo | None:
    try:
        return fs.stat(path)
    except NotFound:
        return None


def _as_committed(entry: Unpublished, error: FtfileError) -> CommitError:
    """Say of whatever went wrong that the batch is committed, so that nobody writes it again."""
    kind = type(error) if isinstance(error, CommitError) else NotPublished
    found = kind(
        f"version {entry.version} is committed, and writing it again would double it; but not all of it is published: "
        f"{error}. Once the cause is gone, the next commit into the directory finishes it"
    )
    found.__cause__ = error
    return found


def _missing(entry: Unpublished, adds: Sequence[Add]) -> MissingPart:
    names = ", ".join(repr(add.final_path) for add in adds[:5])
    return MissingPart(
        f"{len(adds)} committed part(s) of version {entry.version} are neither staged nor at their final name, the "
        f"first: {names}. They were published, and something moved or deleted them since: bring them back, or go on "
        "without them with onMissingPart=warn"
    )


def _is_own(thing: Unpublished | Problem, author: Author) -> bool:
    return isinstance(author, StreamAuthor) and thing.query_id == author.query_id


def _problem(entry: Unpublished, error: FtfileError, adds: Sequence[Add] | None = None) -> Problem:
    ids = frozenset(add.id for add in (adds if adds is not None else entry.adds))
    return Problem(entry.version, entry.query_id, ids, error)
