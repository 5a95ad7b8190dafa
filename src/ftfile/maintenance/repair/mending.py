"""How each finding is mended: one function for each kind of action, in an order in which nothing is lost meanwhile."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ftfile.commit.files import list_or_empty, stat_or_none
from ftfile.commit.format import layout
from ftfile.commit.format.model import Body
from ftfile.commit.log.bases import list_bases, write_base
from ftfile.commit.log.hints import PublishedHint, write_published
from ftfile.commit.log.log import CommitLog
from ftfile.commit.log.state import Unpublished
from ftfile.commit.protocol import commit
from ftfile.commit.publish import publish, skip_published
from ftfile.commit.read.ranges import list_ranges
from ftfile.core.errors import AlreadyExists, CorruptData, FtfileError, NotFound
from ftfile.core.logs import get_logger
from ftfile.maintenance.horizon import lower_horizon
from ftfile.maintenance.ranges import merge_all
from ftfile.maintenance.repair.rewriting import copy_to, record_changes, renamed
from ftfile.maintenance.verify.findings import ACTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from ftfile.commit.format.model import Add, MaintenanceAuthor
    from ftfile.commit.log.state import LogState
    from ftfile.fs.api import FileSystem
    from ftfile.maintenance.verify.findings import Action, VerifyReport

    Mend: TypeAlias = Callable[["Mender", Action], object]

__all__ = ("MENDS", "Mender")

_log = get_logger(__name__)


class Mender:
    """Mends a directory; `open_log` opens its log as the newest writer did, once it can be read."""

    def __init__(self, fs: FileSystem, open_log: Callable[[], CommitLog], author: MaintenanceAuthor) -> None:
        self.fs = fs
        self.open_log = open_log
        self.author = author

    def mend(self, actions: Sequence[Action]) -> list[str]:
        """Carry out the actions; return for each why it failed, empty where it did not."""
        errors = [""] * len(actions)
        for kind in ACTIONS:
            asked = [number for number, action in enumerate(actions) if action.kind == kind]
            if kind == "give-up" and asked:
                # One record gives up all that is lost.
                error = _tried(partial(self._give_up, [actions[number] for number in asked]))
                errors = [error if number in asked else told for number, told in enumerate(errors)]
                continue
            for number in asked:
                errors[number] = _tried(partial(MENDS[kind], self, actions[number]))
        return errors

    def save_published(self, report: VerifyReport) -> None:
        """Write a base and a hint without what was found to be published, renamed or given up: nobody looks for it."""
        if not report.complete:
            return
        log = self.open_log()
        try:
            head = log.read_on(durable=True)
        except CorruptData:
            return  # the report says what is wrong
        skip_published(log, head)
        if head.version != report.version or head.version < 0:
            return
        paths = {finding.path for finding in report.findings if finding.severity != "info"}
        left = {version: found for version, entry in head.unpublished.items() if (found := _left(head, entry, paths))}
        if left != head.unpublished:
            write_base(log.fs, log.ids, replace(head, unpublished=left))
        if not left:
            write_published(log.fs, PublishedHint(head.version, head.nonce))

    def _give_up(self, lost: Sequence[Action]) -> None:
        adds = [action.add for action in lost if action.add is not None]
        for action, add in zip(lost, adds, strict=True):
            if action.source:
                _set_aside(self.fs, action.source, f"it is not what was recorded of {add.final_path!r}")
        record_changes(self.open_log(), self.author, adds, ())


def _tried(act: Callable[[], object]) -> str:
    try:
        act()
    except FtfileError as error:
        _log.warning("repair: %s", error)
        return str(error)
    return ""


def _left(head: LogState, entry: Unpublished, paths: Collection[str]) -> Unpublished | None:
    """Return the entry without adds that are no longer live; None if none of its files is at one of the paths."""
    names = {add.final_path for add in entry.adds} | {remove.final_path for remove in entry.removes}
    if names.isdisjoint(paths):
        return None
    return replace(entry, adds=tuple(add for add in entry.adds if head.is_live(add, entry.version)))


def _set_aside(fs: FileSystem, path: str, reason: str) -> None:
    """Move a file to the quarantine, after a note that says where it was and why; nothing where there is none."""
    try:
        info = fs.stat(path)
    except NotFound:
        return
    fs.make_directories(layout.QUARANTINE)
    name = f"{layout.QUARANTINE}/{fs.context.ids.unique()[:16]}"
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
    """Put the records from a version on aside, newest first, and before each the files that it made visible.

    Repeatable: what is left of a cut that was interrupted is found and put aside like all the rest.
    """
    for path in list(_derived(fs, version)):
        _set_aside(fs, path, f"it stands for records from version {version} on, which cannot be read")
    infos = list_or_empty(fs, layout.LOG)
    names = [(name, info.path) for info in infos if (name := layout.parse_log_name(info.path)) is not None]
    reason = f"the log cannot be read from version {version} on"
    for name, path in sorted(names, key=lambda pair: (-pair[0].version, pair[0].nonce or "", pair[1])):
        if name.version < version:
            break
        if name.nonce is None:
            for visible in _made_visible(fs, name.version):
                _set_aside(fs, visible, f"version {name.version} brought it, and is put aside: {reason}")
        _set_aside(fs, path, reason)


def _derived(fs: FileSystem, version: int) -> Iterator[str]:
    yield from (layout.base_path(name) for name in list_bases(fs) if name.version >= version)
    yield from (layout.range_path(name) for name in list_ranges(fs) if name.last >= version)
    yield layout.PUBLISHED_HINT


def _made_visible(fs: FileSystem, version: int) -> list[str]:
    try:
        record = CommitLog(fs).read_record(version)
    except CorruptData:
        return []
    return [add.final_path for add in record.adds if add.final_path is not None] if record is not None else []


def _make_directory(mender: Mender, action: Action) -> None:
    mender.fs.make_directories(action.path)
    mender.fs.sync_directory(layout.parent(action.path))


def _publish(log: CommitLog, add: Add) -> None:
    problem = publish(log, Unpublished(log.read_on(durable=True).version, None, (add,), ()), 0)
    if problem is not None:
        raise problem.error


def _retire(mender: Mender, action: Action) -> None:
    assert action.remove is not None, action
    fs, visible, hidden = mender.fs, action.remove.final_path or "", layout.retired_path(action.remove.id)
    fs.make_directories(layout.RETIRED)
    if stat_or_none(fs, hidden) is not None:
        _set_aside(fs, visible, f"a copy of {hidden!r}, which is hidden")
        return
    fs.rename(visible, hidden)
    for directory in (layout.parent(visible), layout.RETIRED):
        fs.sync_directory(directory)


def _bring_back(mender: Mender, action: Action) -> None:
    log, add = mender.open_log(), _add_of(action)
    if action.source == layout.retired_path(add.id):
        log.fs.make_directories(layout.parent(add.path))
        log.fs.rename(action.source, add.path)
    else:
        # It may also be the file of another part, with the same content.
        copy_to(log.fs, add, action.source)
    _publish(log, add)


def _rename(mender: Mender, action: Action) -> None:
    log, add = mender.open_log(), _add_of(action)
    new = renamed(add, log.ids)
    copy_to(log.fs, new, action.source)
    record_changes(log, mender.author, (), [(add, new)])
    # Nobody must publish it under the old name.
    if action.source == add.path:
        _set_aside(log.fs, action.source, f"its rows are in {new.final_path!r} now")
    _publish(log, new)


def _rebuild_base(mender: Mender, _: Action) -> None:
    log = mender.open_log()
    write_base(log.fs, log.ids, log.read_on(durable=True))


def _rebuild_ranges(mender: Mender, _: Action) -> None:
    log = mender.open_log()
    merge_all(log, log.read_on(durable=True))


def _add_of(action: Action) -> Add:
    assert action.add is not None, action
    return action.add


MENDS: dict[str, Mend] = {
    "make-directory": _make_directory,
    "move-aside": lambda mender, action: _set_aside(mender.fs, action.path, "it was in the way, or misled readers"),
    "cut-log": lambda mender, action: _cut_log(mender.fs, action.version),
    "lower-horizon": lambda mender, _: lower_horizon(mender.open_log(), mender.author.job_id),
    "bring-back": _bring_back,
    "rename": _rename,
    "publish": lambda mender, action: _publish(mender.open_log(), _add_of(action)),
    "retire": _retire,
    "start-log": lambda mender, action: commit(
        mender.open_log(), mender.author, lambda *_: Body(log_start=action.version)
    ),
    "rebuild-base": _rebuild_base,
    "rebuild-ranges": _rebuild_ranges,
    # The next publisher writes the hint, and so does `save_published`.
    "rebuild-hint": lambda _mender, _action: None,
}
