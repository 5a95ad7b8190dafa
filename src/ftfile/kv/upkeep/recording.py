"""A record of merges that were done without a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.attempt.stage import durability_of
from ftfile.commit.format.model import Body
from ftfile.commit.rewrites import Accepted, accept_rewrites
from ftfile.kv.marks import open_state, seal_jobs, seal_marks
from ftfile.kv.planning.accept import acceptable
from ftfile.kv.planning.plan import plan_jobs, still_due

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState
    from ftfile.commit.rewrites import Rewrite
    from ftfile.kv.upkeep.maintained import HowWritten

__all__ = ("MergedRuns",)


@dataclass(frozen=True, slots=True)
class MergedRuns:
    """Merges to be recorded."""

    log: CommitLog
    how: HowWritten
    rewrites: Sequence[Rewrite]

    def prepare(self, head: LogState, _: object) -> Body | None:
        """Return the record of those that the head can take; None without any."""
        log = self.log
        state = open_state(log.fs, head)
        found = accept_rewrites(log, state, self.rewrites).rewrites
        accepted = Accepted(tuple(acceptable(state.segments, found)))
        if not accepted.rewrites:
            return None
        ended = {remove.id for remove in accepted.removes}
        live = {add.id: add for add in state.segments.values() if add.id not in ended}
        live |= {add.id: add for add in accepted.adds}
        due = still_due(state.assembly_jobs, live, (), state.version + 1)
        tasks = max((job.payload["taskCount"] for job in state.assembly_jobs), default=1)
        more = plan_jobs(live.values(), due, self.how.plan, log.ids, now_ms=log.clock.now_ms(), tasks=tasks)
        return Body(
            adds=seal_marks(log.fs, accepted.adds),
            removes=accepted.removes,
            assembly_jobs=seal_jobs(log.fs, (*due, *more)),
            metrics={"durability": durability_of(self.how.storage.durability, log.fs.capabilities)},
        )
