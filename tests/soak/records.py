"""The newest record in the log of a sink, also if a listing of its storage can block."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.demos.files.hdfs_path import HdfsPath

__all__ = ("Records",)

POLL_S = 0.02
# The thread ends after this time without a question.
IDLE_S = 2.0


class Records:
    """The log of a sink. A log that is not on a local disk is listed in a thread.

    Args:
        log: directory of the records.
    """

    def __init__(self, log: Path | HdfsPath) -> None:
        self._log = log
        self._newest: str | None = None
        self._asked_s = 0.0
        self._thread: threading.Thread | None = None

    def newest(self) -> str | None:
        """Return the name of the newest known record, empty if there is none; None before the first listing."""
        if isinstance(self._log, Path):
            return _newest_in(self._log)
        self._asked_s = time.monotonic()
        if self._thread is None or not self._thread.is_alive():
            self._newest = None
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        return self._newest

    def _run(self) -> None:
        while time.monotonic() < self._asked_s + IDLE_S:
            # A server can be killed.
            with contextlib.suppress(OSError, http.client.HTTPException):
                self._newest = _newest_in(self._log)
            time.sleep(POLL_S)


def _newest_in(log: Path | HdfsPath) -> str:
    try:
        return max((each.name for each in log.iterdir() if each.name.endswith(".record")), default="")
    except FileNotFoundError:
        return ""
