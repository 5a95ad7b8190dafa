"""Before the record: check what is staged, make it durable, and write down what the next version says."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ftfile.commit.final_paths import FinalPaths
from ftfile.commit.format import layout
from ftfile.commit.format.model import Add, MaintenanceAuthor, Record, Remove
from ftfile.commit.log.times import time_text
from ftfile.commit.proposal import Refused
from ftfile.commit.read.snapshot import snapshot_at
from ftfile.commit.sealed.fingerprint import as_recorded
from ftfile.core.errors import ConfigError, CorruptData, NameCollision, NotFound, StaleFiles
from ftfile.core.logs import get_logger
from ftfile.fs.calls.parallel import side_by_side

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ftfile.commit.format.model import DueJob
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState
    from ftfile.commit.proposal import Proposal, Rewrite
    from ftfile.fs.api import FileInfo, FileSystem

__all__ = ("Prepared", "check_staged", "prepare")

_log = get_logger(__name__)


def check_staged(fs: FileSystem, adds: Iterable[Add], horizon_ms: int) -> None:
    """Check that every file is there, whole, and younger than the vacuum horizon; then make their names durable.

    Raises:
        CorruptData: a file is missing or has another length than its writer counted.
        StaleFiles: vacuum may delete a file at any moment.
    """
    adds = tuple(adds)
    found = _find(fs, adds)
    for add in adds:
        _check_file(add, found.get(add.path), horizon_ms)
    _sync_names(fs, adds)


@dataclass(frozen=True, slots=True)
class Prepared:
    """The record to create; None if a maintenance operation has nothing to record. And which rewrites it leaves out."""

    record: Record | None
    refused: tuple[Refused, ...]


def prepare(log: CommitLog, head: LogState, proposal: Proposal, nonce: str, lineage_start: int | None) -> Prepared:
    """Return the record that follows the head: everything in it holds at that very version, and can be published.

    Raises:
        ConfigError: the store does not keep the path of a part of the batch's own rows.
        NameCollision: such a path is taken, or needs a directory where a file is.
    """
    rewrites = () if proposal.overwrite else proposal.rewrites
    own = (*proposal.adds, *proposal.letters)
    rewritten = (add for rewrite in rewrites for add in rewrite.adds)
    paths = FinalPaths(log, head, (*own, *rewritten), names_repeat=proposal.names_repeat)
    paths.claim(own)
    accepted, nameless = _accepted(log.fs, head, rewrites, paths)
    removed = [*_replaced(log, head, proposal), *(add for rewrite in accepted for add in rewrite.inputs)]
    adds = (*proposal.adds, *(add for rewrite in accepted for add in rewrite.adds))
    _check_files((*adds, *proposal.letters))
    record = Record(
        version=head.version + 1,
        nonce=nonce,
        after=head.nonce,
        author=proposal.author,
        time_ms=log.clock.now_ms(),
        adds=adds,
        removes=tuple(Remove.of(add) for add in removed),
        overwrite=proposal.overwrite,
        letters=proposal.letters,
        tasks=proposal.tasks,
        lineage_start=lineage_start,
        horizon_ms=_horizon_ms(head, proposal),
        log_start=proposal.log_start,
        schema=proposal.schema,
        encoding=proposal.encoding,
        settings=proposal.settings,
        definitions={key: text for key, text in proposal.definitions.items() if key not in head.definitions},
        fingerprint=as_recorded(log.fs, proposal.fingerprint, proposal.author),
        metrics=proposal.metrics | _rolled(proposal, accepted),
        memory=proposal.memory,
        payload=proposal.payload,
    )
    refused = (*proposal.refused, *nameless)
    if _is_empty(proposal, record):
        return Prepared(None, refused)
    return Prepared(replace(record, due=_due(head, proposal, record)), refused)


def _is_empty(proposal: Proposal, record: Record) -> bool:
    """Return True if a maintenance operation comes to nothing: others have done it, or it cannot be done."""
    rewrites = bool(proposal.rewrites or proposal.refused or proposal.drops)
    return isinstance(record.author, MaintenanceAuthor) and rewrites and not record.removes


def _horizon_ms(head: LogState, proposal: Proposal) -> int | None:
    """Return the horizon that the record sets: no vacuum takes an earlier one's back."""
    if proposal.horizon_ms is None or proposal.lowers_horizon:
        return proposal.horizon_ms
    return max(head.horizon_ms, proposal.horizon_ms)


def _rolled(proposal: Proposal, accepted: Iterable[Rewrite]) -> dict[str, Any]:
    """Return how many parts ended for which reason."""
    counts = Counter(proposal.metrics.get("rolled", {}))
    counts.update(each.reason for each in accepted if each.reason for add in each.adds if add.kind == "part")
    return {"rolled": dict(counts)} if counts else {}


def _due(head: LogState, proposal: Proposal, record: Record) -> tuple[DueJob, ...]:
    """Return the jobs that the record leaves due: those nobody did yet, and what the use case adds."""
    ended = {remove.id for remove in record.removes}
    left = tuple(job for job in head.due if not ended & {add.id for add in job.inputs})
    return left if proposal.plan_due is None else proposal.plan_due(head, record, left)


def _replaced(log: CommitLog, head: LogState, proposal: Proposal) -> list[Add]:
    """Return what an overwrite or a drop ends, found out anew for the head it is to follow."""
    if head.version < 0 or not (proposal.overwrite or proposal.drops):
        return []
    snapshot = snapshot_at(log, head)
    return [*snapshot.adds.values()] if proposal.drops is None else [*proposal.drops(head, snapshot)]


def _accepted(
    fs: FileSystem, head: LogState, rewrites: Sequence[Rewrite], paths: FinalPaths
) -> tuple[list[Rewrite], list[Refused]]:
    """Drop, deleting nothing, what replaces adds that are gone or taken, whose files may be gone, or gets no names."""
    found = _find(fs, [add for rewrite in rewrites for add in rewrite.adds])
    accepted: list[Rewrite] = []
    refused: list[Refused] = []
    claimed: set[str] = set()
    for rewrite in rewrites:
        inputs = {add.id for add in rewrite.inputs}
        if inputs & claimed or not all(head.is_live(add, rewrite.known_at) for add in rewrite.inputs):
            _log.info("dropping a rewrite of %d adds: some are no longer live, or taken", len(inputs))
            continue
        # What is left of a segment lies where that lies, which is safe as long as one of them is live.
        kept = {add.path for add in rewrite.inputs}
        try:
            for add in (add for add in rewrite.adds if add.path not in kept):
                _check_file(add, found.get(add.path), head.horizon_ms)
        except (StaleFiles, CorruptData) as error:
            _log.warning("dropping a rewrite, it will be made again: %s", error)
            continue
        try:
            paths.claim(rewrite.adds)
        except (ConfigError, NameCollision) as error:
            refused.append(Refused(rewrite, error))
            continue
        claimed |= inputs
        accepted.append(rewrite)
    _sync_names(fs, [add for rewrite in accepted for add in rewrite.adds])
    return accepted, refused


def _check_file(add: Add, info: FileInfo | None, horizon_ms: int) -> None:
    expected = f"{add.length} bytes" if add.kind == "part" else f"{add.offset + add.length} bytes or more"
    advice = (
        "The attempt that wrote it failed, the file was changed, or its host wrote to a disk of its own: start the "
        "query again, with a path that all hosts share"
    )
    if info is None:
        raise CorruptData(add.path, expected, "no such file", advice)
    end = add.offset + add.length
    if info.size_bytes != end if add.kind == "part" else info.size_bytes < end:
        raise CorruptData(add.path, expected, f"{info.size_bytes} bytes", advice)
    if info.modified_ms <= horizon_ms:
        raise StaleFiles(
            f"{add.path!r} was last written at {time_text(info.modified_ms)}, and a vacuum may delete everything "
            f"unrecorded that was written up to {time_text(horizon_ms)}. Either the batch took longer than the "
            "vacuum's grace: start the query again, and vacuum with a longer grace. Or the store's clock was ahead "
            "when the vacuum ran, and the horizon lies in the future: ftfile.vacuum(path, dry_run=False) takes it back"
        )


def _check_files(adds: Iterable[Add]) -> None:
    """Assert that no two adds share an id or a file: none is ever used twice."""
    parts = [add for add in adds if add.kind == "part"]
    assert len({add.id for add in adds}) == len(tuple(adds)), "two adds with one id"
    assert len({add.path for add in parts}) == len(parts), "two parts in one file"


def _find(fs: FileSystem, adds: Iterable[Add]) -> dict[str, FileInfo]:
    """Return what is in the stage's directories of the files, by path, and what was never staged."""
    paths = [add.path for add in adds]
    directories = {layout.parent(path) for path in paths if layout.is_staged(path)}
    # Directories of data are never listed: they grow.
    direct = side_by_side(fs, lambda path: _look(fs, path), [path for path in paths if not layout.is_staged(path)])
    listed = [info for directory in directories for info in _list(fs, directory)]
    return {info.path: info for info in (*listed, *direct) if info is not None}


def _sync_names(fs: FileSystem, adds: Iterable[Add]) -> None:
    if fs.capabilities.directory_sync:
        directories = {layout.parent(add.path) for add in adds}
        chain = {above for directory in directories for above in layout.ancestors(directory)}
        for directory in sorted(chain - set(layout.ancestors(layout.META)), reverse=True):
            fs.sync_directory(directory)


def _look(fs: FileSystem, path: str) -> FileInfo | None:
    try:
        return fs.stat(path)
    except NotFound:
        return None


def _list(fs: FileSystem, directory: str) -> list[FileInfo]:
    try:
        return fs.list(directory)
    except NotFound:
        return []
