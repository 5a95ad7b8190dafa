"""The repair for each kind of finding, in an order that loses no rows if a repair is interrupted."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from msgspec import structs

from ftfile.core.errors import AlreadyExists, CommitError, CorruptData, FtfileError, NotFound
from ftfile.core.logs import get_logger
from ftfile.log.checkpoints import list_checkpoints, write_checkpoint
from ftfile.log.commit_log import LAYOUT_VERSION, CommitLog
from ftfile.log.directory import write_marker
from ftfile.log.format import layout
from ftfile.log.format.adds import ids_of, total_rows
from ftfile.log.format.model import Body, Remove
from ftfile.log.format.record import to_checked_text
from ftfile.log.places import has_content, list_or_empty, stat_or_none
from ftfile.log.protocol import commit, record_of
from ftfile.log.publish import publish, skip_published
from ftfile.log.read.compacted_records import list_compacted
from ftfile.log.read.compacted_writer import write_fewest_compacted
from ftfile.log.records import PublishedHint, write_published
from ftfile.log.state import Unpublished
from ftfile.log.vacuum import lower_horizon
from ftfile.operate.file_kind import kind_of
from ftfile.operate.findings import ACTIONS
from ftfile.operate.verify.log_scan import LogScan

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from ftfile.core.context import IdSource
    from ftfile.core.progress import Tracker
    from ftfile.log.format.model import Add, MaintenanceAuthor
    from ftfile.log.state import LogState
    from ftfile.operate.findings import Action
    from ftfile.operate.verify.verify_directory import VerifyReport
    from ftfile.storage.api import FileSystem

    Repair: TypeAlias = Callable[["Repairer", Action], object]


OPERATION = "repair"
TRIES = 100
# Number of bytes of a copied file that are in memory at once.
PIECE_BYTES = 4 << 20
# The ending of a file name: one for the format, and one for the compression.
_ENDINGS = re.compile(r"(?:\.[A-Za-z0-9]{1,12}){1,2}$")

_log = get_logger(__name__)


class Repairer:
    """Carries out repairs of a directory. `open_log` opens a readable log with the settings of the newest writer."""

    def __init__(self, fs: FileSystem, open_log: Callable[[], CommitLog], author: MaintenanceAuthor) -> None:
        self.fs = fs
        self.open_log = open_log
        self.author = author

    def carry_out(self, actions: Sequence[Action], tracker: Tracker) -> list[str]:
        """Carry out the actions; return the error text of each action, empty if it succeeded."""
        errors = [""] * len(actions)
        for kind in ACTIONS:
            same_kind: dict[int, Action] = {}
            for number, action in enumerate(actions):
                if action.kind == kind:
                    same_kind[number] = action
            if kind == "give-up" and same_kind:
                # All lost files are given up in one record.
                error = _try_action(partial(self._give_up, list(same_kind.values())))
                for number in same_kind:
                    errors[number] = error
                tracker.add(len(same_kind))
                continue
            for number, action in same_kind.items():
                errors[number] = _try_action(partial(REPAIRS[kind], self, action))
                tracker.add()
        return errors

    def save_published(self, report: VerifyReport) -> None:
        """Write a checkpoint, and possibly the hint, with only the versions whose files are still not published.

        Readers then do not check the published, renamed and given-up files of other versions. The files of findings
        count as not published.
        """
        if not report.complete:
            return
        log = self.open_log()
        try:
            head = log.refresh(durable=True)
        except CorruptData:
            return  # the report contains the damage
        skip_published(log, head)
        if head.version != report.version or head.version < 0:
            return
        paths = set()
        for finding in report.findings:
            if finding.severity != "info":
                paths.add(finding.path)
        unpublished: dict[int, Unpublished] = {}
        for version, entry in head.unpublished.items():
            rest = _still_unpublished(head, entry, paths)
            if rest is not None:
                unpublished[version] = rest
        if unpublished != head.unpublished:
            write_checkpoint(log.fs, log.ids, replace(head, unpublished=unpublished))
        if not unpublished:
            write_published(log.fs, PublishedHint(head.version, head.nonce))

    def _give_up(self, lost: Sequence[Action]) -> None:
        adds = list(map(_add_of, lost))
        for action, add in zip(lost, adds, strict=True):
            if action.source:
                set_aside(self.fs, action.source, f"its content differs from the record of {add.final_path!r}")
        log = self.open_log()
        replacements = kind_of(log.refresh()).keep_effects(log, self.author, adds)
        replaced_ids = {old.id for old, _ in replacements}
        given_up = []
        for add in adds:
            if add.id not in replaced_ids:
                given_up.append(add)
        record_changes(log, self.author, given_up, replacements)


def _try_action(act: Callable[[], object]) -> str:
    """Call a function; return the text of its FtfileError, or an empty text."""
    try:
        act()
    except FtfileError as error:
        _log.warning("repair: %s", error)
        return str(error)
    return ""


def _still_unpublished(head: LogState, entry: Unpublished, paths: Collection[str]) -> Unpublished | None:
    """Return the entry with only its live adds; None if none of its files is at one of the paths."""
    names = {add.final_path for add in entry.adds} | {remove.final_path for remove in entry.removes}
    if names.isdisjoint(paths):
        return None
    return structs.replace(entry, adds=tuple(_live_of(head, entry.adds, entry.version)))


def _live_of(head: LogState, adds: Iterable[Add], version: int) -> list[Add]:
    """Return the adds of a version that are live at the head."""
    live = []
    for add in adds:
        if head.is_live(add, version):
            live.append(add)
    return live


def set_aside(fs: FileSystem, path: str, reason: str) -> None:
    """Write a note with the path of a file and the reason, then move the file to the quarantine.

    Do nothing if the file does not exist.
    """
    try:
        info = fs.stat(path)
    except NotFound:
        return
    fs.make_directories(layout.QUARANTINE)
    # If the name of the new directory is not durable, a file moved into it can be lost in a crash.
    fs.sync_directory(layout.META)
    name = f"{layout.QUARANTINE}/_{fs.context.ids.unique()[:16]}"
    note = {"path": path, "reason": reason, "sizeBytes": info.size_bytes, "modifiedMs": info.modified_ms}
    with contextlib.suppress(AlreadyExists):
        fs.create_exclusive(f"{name}.origin", json.dumps(note, indent=1).encode() + b"\n")
    try:
        fs.rename(path, f"{name}.quarantined")
    except NotFound:
        return
    for directory in (layout.parent(path), layout.QUARANTINE, layout.META):
        with contextlib.suppress(NotFound):
            fs.sync_directory(directory)


def _cut_log(fs: FileSystem, version: int) -> None:
    """Quarantine the records from a version on, newest first. The files that a record added are moved before it.

    Idempotent: after an interruption, a second call quarantines the remaining files.
    """
    for path in _derived_files(fs, version):
        set_aside(fs, path, f"it was derived from records from version {version} on, which cannot be read")
    entries: list[tuple[int, str, str]] = []  # version, nonce of a proposal or empty for a record, and path
    for info in list_or_empty(fs, layout.LOG):
        name = layout.parse_log_name(info.path)
        if name is not None and name.version >= version:
            entries.append((name.version, name.nonce or "", info.path))
    reason = f"the log cannot be read from version {version} on"
    for entry_version, nonce, path in sorted(entries, key=_newest_first):
        if not nonce:
            _set_aside_added(fs, entry_version, reason)
        set_aside(fs, path, reason)


def _newest_first(entry: tuple[int, str, str]) -> tuple[int, str, str]:
    version, nonce, path = entry
    return -version, nonce, path


def _set_aside_added(fs: FileSystem, version: int, reason: str) -> None:
    """Quarantine the files that a record added, if the record can be read."""
    record = LogScan(CommitLog(fs)).readable(version)
    if record is None:
        return
    for add in record.adds:
        if add.final_path is not None:
            set_aside(fs, add.final_path, f"version {version}, which added it, is quarantined: {reason}")


def _derived_files(fs: FileSystem, version: int) -> Iterator[str]:
    """Yield the paths of the hint, and of checkpoints and compacted logs that contain records from a version on."""
    for checkpoint in list_checkpoints(fs):
        if checkpoint.version >= version:
            yield layout.log_checkpoint_path(checkpoint)
    for name in list_compacted(fs):
        if name.last >= version:
            yield layout.compacted_path(name)
    yield layout.PUBLISHED_HINT


def _rename_add(add: Add, ids: IdSource) -> Add:
    """Return a part with a new id, staged path and final path; its encrypted content stays readable."""
    # Encrypted content is bound to the part of the id that is in file names.
    unique = layout.unique_part(add.id)
    new_id = unique + ids.unique()[len(unique) :]
    endings = _ENDINGS.search((add.final_path or "").rpartition("/")[2])
    directory = layout.directory_of(add.directory_key)
    final = f"part-{add.origin.last_batch:010d}-repaired-{layout.unique_part(new_id)}"
    if endings is not None:
        final += endings[0]
    if directory:
        final = f"{directory}/{final}"
    staged = f"{layout.parent(add.path)}/repaired-{new_id}.staged"
    return structs.replace(add, id=new_id, path=staged, final_path=final)


def copy_to(fs: FileSystem, add: Add, source: str) -> None:
    """Stage a copy of `source` for an add, unless its file is already staged. CorruptData if the content differs."""
    if has_content(fs, add.path, add):
        return
    directory = layout.staged_directory(OPERATION)
    fs.make_directories(directory)
    fs.make_directories(layout.parent(add.path))
    copy = f"{directory}/{fs.context.ids.unique()}.staged"
    with fs.open(source) as file, fs.create(copy) as stream:
        for offset in range(0, file.size_bytes, PIECE_BYTES):
            stream.write(file.read_at(offset, PIECE_BYTES))
        if stream.has_capability("hsync"):
            stream.hsync()
    if not has_content(fs, copy, add):
        raise CorruptData(source, f"{add.length} bytes with {add.checksum}", "other bytes", "Restore it from a copy")
    fs.rename(copy, add.path)
    for above in layout.ancestors(layout.parent(add.path)):
        fs.sync_directory(above)


def record_changes(
    log: CommitLog, author: MaintenanceAuthor, given_up: Sequence[Add], renames: Sequence[tuple[Add, Add]]
) -> None:
    """Create one record that removes the given-up adds, and replaces the old add of each rename by the new add.

    Other files may have the final names of the removed adds, and publishing must not hide these files. The record
    therefore removes each add under a name that was never used. Raise a CommitError if other processes changed the log
    at every attempt.
    """
    read_version = log.refresh(durable=True).version
    nonce = log.ids.unique()
    for _ in range(TRIES):
        head = log.refresh(durable=True)
        lost = _live_of(head, given_up, read_version)
        live = list(lost)
        new_adds = []
        for old, new in renames:
            if head.is_live(old, read_version):
                live.append(old)
                new_adds.append(new)
        ended = ids_of(live)
        jobs = []
        for job in head.jobs:
            if ended.isdisjoint(ids_of(job.inputs)):
                jobs.append(job)
        body = Body(
            adds=tuple(new_adds),
            removes=tuple(map(_removal, live)),
            rows_removed=total_rows(lost),
            jobs=tuple(jobs),
        )
        if not live or log.create(record_of(log, head, body=body, author=author, nonce=nonce)) is not None:
            return
    raise CommitError("other processes changed the log at every attempt: repair again later")


def _removal(add: Add) -> Remove:
    if add.kind == "segment":
        return Remove.of(add)
    return structs.replace(Remove.of(add), final_path=f"{layout.RETIRED}/_{add.id}.given-up")


def _make_directory(repairer: Repairer, action: Action) -> None:
    repairer.fs.make_directories(action.path)
    repairer.fs.sync_directory(layout.parent(action.path))


def _write_format(repairer: Repairer, action: Action) -> None:
    with contextlib.suppress(AlreadyExists):  # another commit has created the file
        repairer.fs.create_exclusive(action.path, to_checked_text([LAYOUT_VERSION]))
    repairer.fs.sync_directory(layout.META)


def _write_marker(repairer: Repairer, _: Action) -> None:
    write_marker(repairer.fs)


def _move_aside(repairer: Repairer, action: Action) -> None:
    set_aside(repairer.fs, action.path, "it was in the way, or misled readers")


def _cut_line(repairer: Repairer, action: Action) -> None:
    _cut_log(repairer.fs, action.version)


def _lower_horizon(repairer: Repairer, _: Action) -> None:
    lower_horizon(repairer.open_log(), repairer.author.operation_id)


def _publish_part(repairer: Repairer, action: Action) -> None:
    _publish(repairer.open_log(), _add_of(action))


def _start_log(repairer: Repairer, action: Action) -> None:
    def prepare(*_: object) -> Body:
        return Body(log_start=action.version)

    commit(repairer.open_log(), repairer.author, prepare)


def _rebuild_hint(_mender: Repairer, _action: Action) -> None:
    """Do nothing: the next publisher writes the hint, as does `save_published`."""


def _publish(log: CommitLog, add: Add) -> None:
    problem = publish(log, Unpublished(log.refresh(durable=True).version, None, (add,), ()), 0)
    if problem is not None:
        raise problem.error


def _retire(repairer: Repairer, action: Action) -> None:
    assert action.remove is not None, action
    fs, visible, hidden = repairer.fs, action.path, layout.retired_path(action.remove.id)
    fs.make_directories(layout.RETIRED)
    if stat_or_none(fs, hidden) is not None:
        set_aside(fs, visible, f"a copy of {hidden!r}, which is hidden")
        return
    fs.rename(visible, hidden)
    for directory in (layout.parent(visible), layout.RETIRED):
        fs.sync_directory(directory)


def _bring_back(repairer: Repairer, action: Action) -> None:
    log, add = repairer.open_log(), _add_of(action)
    if action.source == layout.retired_path(add.id):
        log.fs.make_directories(layout.parent(add.path))
        log.fs.rename(action.source, add.path)
    else:
        # The source may also be the file of another part with the same content.
        copy_to(log.fs, add, action.source)
    _publish(log, add)


def _rename(repairer: Repairer, action: Action) -> None:
    log, add = repairer.open_log(), _add_of(action)
    new = _rename_add(add, log.ids)
    copy_to(log.fs, new, action.source)
    record_changes(log, repairer.author, (), [(add, new)])
    # A publisher must not find the file under the old name.
    if action.source == add.path:
        set_aside(log.fs, action.source, f"its rows are in {new.final_path!r} now")
    _publish(log, new)


def _rebuild_checkpoint(repairer: Repairer, _: Action) -> None:
    log = repairer.open_log()
    write_checkpoint(log.fs, log.ids, log.refresh(durable=True))


def _rebuild_compacted(repairer: Repairer, _: Action) -> None:
    log = repairer.open_log()
    write_fewest_compacted(log, log.refresh(durable=True))


def _add_of(action: Action) -> Add:
    assert action.add is not None, action
    return action.add


REPAIRS: dict[str, Repair] = {
    "make-directory": _make_directory,
    "write-format": _write_format,
    "write-marker": _write_marker,
    "move-aside": _move_aside,
    "cut-log": _cut_line,
    "lower-horizon": _lower_horizon,
    "bring-back": _bring_back,
    "rename": _rename,
    "publish": _publish_part,
    "retire": _retire,
    "start-log": _start_log,
    "rebuild-checkpoint": _rebuild_checkpoint,
    "rebuild-compacted-logs": _rebuild_compacted,
    "rebuild-hint": _rebuild_hint,
}
