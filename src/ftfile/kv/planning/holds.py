"""Holds: runs that could not be merged, which the rest of their bucket does not wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.kv.planning.plan import compactions_of
from ftfile.kv.planning.rules import Hold

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from ftfile.log.format.model import Add, AssemblyTask


# A retry that failed as often is left out for a number of versions.
_TRIES, _VERSIONS_HELD = 3, 64


def hold_of(job: AssemblyTask) -> Hold | None:
    """Return the hold of a job that is a retry; None for another."""
    if (entry := job.payload.get("hold")) is None:
        return None
    return Hold(entry["run"], entry["last"], job.attempts, job.payload.get("notBefore", 0))


def is_held(job: AssemblyTask, version: int) -> bool:
    """Return True if a job has failed so often that no task is to try it at this version of the log."""
    return bool(version < job.payload.get("notBefore", 0))


def failed_ids(job: AssemblyTask, errors: Iterable[Exception]) -> tuple[str, ...]:
    """Return the ids that a message has of a failed job: its own, and those of runs in files that were not read."""
    paths = {getattr(error, "path", None) for error in errors}
    return job.id, *(add.id for add in job.inputs if add.path in paths)


def holds_after(
    jobs: Iterable[AssemblyTask], failed: Collection[str], live: Mapping[str, Add], version: int
) -> list[Hold]:
    """Return the holds of a version, given the jobs of the record before it, and the runs live after it, by id.

    `failed` has what `failed_ids` returned. Buckets of a failed job that were merged all the same are not held.
    """
    holds = []
    for job in jobs:
        if (hold := hold_of(job)) is not None:
            if hold.run in live:
                holds.append(_tried_again(hold, version) if job.id in failed else hold)
        elif job.id in failed:
            for compaction in compactions_of(job):
                if all(run.add.id in live for run in compaction.runs):
                    runs = [run for run in compaction.runs if run.add.id in failed] or [*compaction.runs]
                    holds.append(Hold(runs[0].add.id, max(run.marks.at[1] for run in runs)))
    return holds


def _tried_again(hold: Hold, version: int) -> Hold:
    attempts = hold.attempts + 1
    return hold._replace(
        attempts=attempts, not_before=version + _VERSIONS_HELD if attempts % _TRIES == 0 else hold.not_before
    )
