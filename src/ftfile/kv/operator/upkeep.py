"""Maintenance of a store after the commits of its operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.logs import get_logger
from ftfile.kv.upkeep.automatic import start_thread, vacuum_if_due
from ftfile.kv.upkeep.compact import CompactionRounds
from ftfile.log.format.model import MaintenanceAuthor
from ftfile.writing.workers import Threads

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from ftfile.kv.config import StoreConfig
    from ftfile.log.commit_log import CommitLog


_log = get_logger(__name__)


def keep_up(log: CommitLog, config: StoreConfig) -> None:
    """Start a vacuum if one is due, and run due compactions; raises the same errors as `CompactionRounds.compact`."""
    vacuum_if_due(config, log)
    author = MaintenanceAuthor("compact", log.ids.unique())
    workers = Threads(author.operation_id, 1)  # the writer needs cores, too
    CompactionRounds(log=log, author=author, workers=workers, code=config.definition.code).compact(skip_held=True)


class Upkeep:
    """Runs maintenance work after each commit, one run at a time. Errors of a run are kept for `raise_error`."""

    def __init__(self, work: Callable[[], None] | None, *, in_background: bool) -> None:
        self._work = work  # None: no maintenance
        self._in_background = in_background
        self._thread: threading.Thread | None = None
        self._is_wanted = False
        self._error: BaseException | None = None

    def after_commit(self) -> None:
        """Run the work, directly or in a thread; if a run is in progress, another run follows it."""
        if self._work is None:
            return
        self._is_wanted = True
        if not self._in_background:
            self._run()
        elif self._thread is None or not self._thread.is_alive():
            self._thread = start_thread("ftkv-upkeep", self._run)

    def raise_error(self) -> None:
        """Raise the error of a run since the last call."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def stop(self) -> None:
        """Wait for the run in progress, and start no other."""
        self._work = None
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            _log.warning("maintenance failed, the next process repeats it: %s", self._error)

    def _run(self) -> None:
        while self._is_wanted and (work := self._work) is not None:
            self._is_wanted = False
            try:
                work()
            except Exception as error:
                self._error = error
                return
