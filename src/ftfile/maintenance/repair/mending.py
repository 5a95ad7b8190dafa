"""How each finding is mended, in an order in which nothing is hidden or lost meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ftfile.commit.files import stat_or_none
from ftfile.commit.format import layout
from ftfile.commit.format.model import Body, MaintenanceAuthor
from ftfile.commit.log.bases import write_base
from ftfile.commit.log.hints import PublishedHint, write_published
from ftfile.commit.log.state import Unpublished
from ftfile.commit.protocol import commit
from ftfile.commit.publish import publish, skip_published
from ftfile.core.errors import CorruptData, FtfileError
from ftfile.core.logs import get_logger
from ftfile.maintenance.horizon import lower_horizon
from ftfile.maintenance.open_log import own_log
from ftfile.maintenance.ranges import merge_all
from ftfile.maintenance.repair.cutting import cut_log
from ftfile.maintenance.repair.quarantine import set_aside
from ftfile.maintenance.repair.rewriting import OPERATION, copy_to, record_changes, renamed
from ftfile.maintenance.verify.findings import (
    BringBack,
    CutLog,
    GiveUp,
    LowerHorizon,
    MakeDirectory,
    MoveAside,
    Publish,
    Rebuild,
    Rename,
    RetireAgain,
    StartLog,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ftfile.commit.format.model import Add
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState
    from ftfile.fs.api import FileSystem
    from ftfile.maintenance.verify.findings import Action, VerifyReport

__all__ = ("Mender", "Opening")

# What the log is read by comes first, then what stands in the way of files, then files, then what is derived.
_ORDER: tuple[type[Action], ...] = (
    *(MakeDirectory, MoveAside, CutLog, LowerHorizon, BringBack, Rename, GiveUp, Publish, RetireAgain, StartLog),
    Rebuild,
)
_Asked = TypeVar("_Asked")
_log = get_logger(__name__)


class Opening(NamedTuple):
    """How the caller opened the directory."""

    path: str | os.PathLike[str]
    key_provider: str | None
    storage: Mapping[str, str] | None


class Mender:
    """Mends a directory.

    Args:
        opening: how to open its log for writing.
        fs: of the directory.
        job_id: of the repair, for its records.
    """

    def __init__(self, opening: Opening, fs: FileSystem, job_id: str) -> None:
        self._opening = opening
        self._fs = fs
        self._job_id = job_id
        self._author = MaintenanceAuthor(OPERATION, job_id)

    def mend(self, actions: Sequence[Action]) -> list[str]:
        """Do what is asked; return for each action why it failed, empty where it did not."""
        errors = [""] * len(actions)
        for kind in _ORDER:
            asked = [(at, action) for at, action in enumerate(actions) if isinstance(action, kind)]
            # One record gives up all that is lost.
            given_up = [action for _, action in asked if isinstance(action, GiveUp)]
            error = self._tried(self._give_up, given_up) if given_up else ""
            for at, action in asked:
                errors[at] = error if given_up else self._tried(self._do, action)
        return errors

    def settle(self, report: VerifyReport) -> None:
        """Write down what was found to be published, so that nobody looks for what was renamed or given up."""
        if not report.complete:
            return
        log = self._log()
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

    def _tried(self, act: Callable[[_Asked], None], asked: _Asked) -> str:
        try:
            act(asked)
        except FtfileError as error:
            _log.warning("repair: %s", error)
            return str(error)
        return ""

    def _do(self, action: Action) -> None:
        match action:
            case MakeDirectory(path):
                self._fs.make_directories(path)
                self._fs.sync_directory(layout.parent(path))
            case MoveAside(path):
                set_aside(self._fs, self._fs.context.ids, path, "it was in the way, or misled readers")
            case CutLog(version):
                cut_log(self._fs, self._fs.context.ids, version)
            case StartLog(version):
                commit(self._log(), self._author, lambda *_: Body(log_start=version))
            case LowerHorizon():
                lower_horizon(self._log(), self._job_id)
            case Rebuild(kind):
                self._rebuild(kind)
            case _:
                self._mend_file(action)

    def _mend_file(self, action: Action) -> None:
        match action:
            case Publish(add):
                self._publish(self._log(), add)
            case RetireAgain(remove):
                self._retire(remove.final_path or "", layout.retired_path(remove.id))
            case BringBack(add, source):
                self._bring_back(add, source)
            case Rename(add, source):
                self._rename(add, source)

    def _log(self) -> CommitLog:
        """Return a log that writes as the newest writer did."""
        return own_log(*self._opening, self._fs.context)

    def _publish(self, log: CommitLog, add: Add) -> None:
        problem = publish(log, Unpublished(log.read_on(durable=True).version, None, (add,), ()), 0)
        if problem is not None:
            raise problem.error

    def _retire(self, final_path: str, hidden: str) -> None:
        self._fs.make_directories(layout.RETIRED)
        if stat_or_none(self._fs, hidden) is not None:
            set_aside(self._fs, self._fs.context.ids, final_path, f"a copy of {hidden!r}, which is hidden")
            return
        self._fs.rename(final_path, hidden)
        for directory in (layout.parent(final_path), layout.RETIRED):
            self._fs.sync_directory(directory)

    def _bring_back(self, add: Add, source: str) -> None:
        log = self._log()
        if source == layout.retired_path(add.id):
            log.fs.make_directories(layout.parent(add.path))
            log.fs.rename(source, add.path)
        else:
            # It may also be the file of another part, with the same content.
            copy_to(log.fs, add, source, log.ids)
        self._publish(log, add)

    def _rename(self, add: Add, source: str) -> None:
        log = self._log()
        new = renamed(add, log.ids)
        copy_to(log.fs, new, source, log.ids)
        record_changes(log, self._job_id, (), [(add, new)])
        # Nobody must publish it under the old name.
        if source == add.path:
            set_aside(log.fs, log.ids, source, f"its rows are in {new.final_path!r} now")
        self._publish(log, new)

    def _give_up(self, lost: Sequence[GiveUp]) -> None:
        for action in lost:
            if action.damaged is not None:
                reason = f"it is not what was recorded of {action.add.final_path!r}"
                set_aside(self._fs, self._fs.context.ids, action.damaged, reason)
        record_changes(self._log(), self._job_id, [action.add for action in lost], ())

    def _rebuild(self, kind: str) -> None:
        log = self._log()
        head = log.read_on(durable=True)
        if kind == "ranges":
            merge_all(log, head)
        elif kind == "base":
            write_base(log.fs, log.ids, head)


def _left(head: LogState, entry: Unpublished, paths: Collection[str]) -> Unpublished | None:
    """Return what publishing a record has to do still; None where none of its files is at one of the paths."""
    names = {add.final_path for add in entry.adds} | {remove.final_path for remove in entry.removes}
    if names.isdisjoint(paths):
        return None
    return replace(entry, adds=tuple(add for add in entry.adds if head.is_live(add, entry.version)))
