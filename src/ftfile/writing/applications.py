"""Applications that write a directory by `ftfile.writer`, and the position of each in its source, in the log."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from ftfile.core.errors import CorruptData, Fenced
from ftfile.core.units import time_text
from ftfile.log.format import layout
from ftfile.log.format.model import (
    APPLICATIONS,
    UNREPORTED_BATCHES,
    UNREPORTED_FLUSHES,
    Application,
    StreamAuthor,
    convert,
)
from ftfile.log.format.record import compact_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.log.format.model import Body
    from ftfile.log.protocol import Prepare
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.log.state import LogState


def application_of(head: LogState, app_id: str) -> Application | None:
    """Return the newest opening of an application; None if it has never opened the directory."""
    table = head.tables.get(APPLICATIONS)
    if table is None or app_id not in table:
        return None
    application: Application = convert(table[app_id][1], Application, f"the application {app_id!r:.40}")
    return application


@dataclass(frozen=True)
class ApplicationBatch:
    """The next batch of an application by one process, with the position in its source after the batch."""

    app_id: str
    batch_id: int
    application: Application
    reported: tuple[int, ...] = ()  # versions whose parts were reported to the user's function

    @property
    def author(self) -> StreamAuthor:
        """Return the author of the record. A repeated commit of the same process and position has the same author."""
        position = compact_json([self.application.run_id, self.application.position])
        digest = "sha256:" + hashlib.sha256(position).hexdigest()
        return StreamAuthor(self.app_id, self.application.run_id, self.batch_id, offsets_hash=digest)

    def body(self, prepare: Prepare, head: LogState, snapshot: Callable[[], Snapshot]) -> Body | None:
        """Return the body of `prepare` with the opening and the position, and without the reported versions."""
        body = prepare(head, snapshot)
        if body is None:
            return None
        tables = {**body.tables, **self.table_change}
        for name in (UNREPORTED_BATCHES, UNREPORTED_FLUSHES):
            unreported = head.tables.get(name, ())
            dropped = [str(version) for version in self.reported if str(version) in unreported]
            if dropped:
                tables[name] = {**tables.get(name, {}), "drop": dropped}
        return structs.replace(body, tables=tables)

    @property
    def table_change(self) -> dict[str, Any]:
        """Return the change of the log's tables that records the opening and the position."""
        return {APPLICATIONS: {"set": {self.app_id: msgspec.to_builtins(self.application)}}}

    def check(self, head: LogState) -> None:
        """Check that the newest opening of the application is the opening of this process.

        Raises:
            Fenced: another process has opened the directory as this application since.
            CorruptData: the log has lost the opening.
        """
        newest = application_of(head, self.app_id)
        if newest is not None and newest.run_id == self.application.run_id:
            return
        if newest is None or newest.epoch <= self.application.epoch:
            raise CorruptData(
                layout.LOG,
                f"opening {self.application.epoch} of the application {self.app_id!r}, which this process recorded",
                "an older opening, or none: the log was lost or replaced while the writer was open",
                "End this process, restore the log from a copy, with all of _ftfile, and open the writer again",
            )
        raise Fenced(
            f"another process, {newest.process or 'of an unknown user'}, has opened the directory as app_id="
            f"{self.app_id!r} at {time_text(newest.opened_ms)}, and replaces this process, which opened it at "
            f"{time_text(self.application.opened_ms)}. Nothing of this call is committed. End this process. Two "
            "programs that write at the same time need different app_ids"
        )
