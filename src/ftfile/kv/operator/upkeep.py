"""Upkeep beside an operator: due jobs and vacuum after each commit, in a thread of its own or at once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ftfile.core.logs import get_logger
from ftfile.kv.upkeep.automatic import vacuum_if_due
from ftfile.kv.upkeep.due import merge_due

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.commit.log.log import CommitLog
    from ftfile.kv.config import StoreConfig

_log = get_logger(__name__)


def keep_up(log: CommitLog, config: StoreConfig) -> None:
    """Merge the runs that are due, and begin a vacuum if it is time for one.

    Raises:
        FtfileError: merges failed; they stay due.
    """
    merges = merge_due(log)
    vacuum_if_due(
        config.path,
        log,
        grace_s=config.grace_s,
        interval_s=config.vacuum_interval_s,
        key_provider=config.encryption.keys.reference if config.encryption is not None else None,
        storage=dict(config.storage.settings),
    )
    if merges.errors:
        raise merges.errors[0]


class Upkeep:
    """Runs some work after each commit, never two runs at a time. What a run raises is kept for `raise_error`."""

    def __init__(self, work: Callable[[], None] | None, *, in_background: bool) -> None:
        """Keep the work; None for none."""
        self._work = work
        self._in_background = in_background
        self._thread: threading.Thread | None = None
        self._is_wanted = threading.Event()
        self._error: BaseException | None = None

    def after_commit(self) -> None:
        """Do the work, or have it done; a run that is under way is followed by another one."""
        if self._work is None:
            return
        self._is_wanted.set()
        if not self._in_background:
            self._run()
        elif self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="ftkv-upkeep", daemon=True)
            self._thread.start()

    def raise_error(self) -> None:
        """Raise what a run has raised since the last call."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def stop(self) -> None:
        """Wait for the run that is under way, and begin no other."""
        self._work = None
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            _log.warning("upkeep failed, the next process does it again: %s", self._error)

    def _run(self) -> None:
        while self._is_wanted.is_set() and (work := self._work) is not None:
            self._is_wanted.clear()
            try:
                work()
            except Exception as error:
                self._error = error
                return
