"""Names of compactions in records, and holds: runs that could not be merged, which the rest does not wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.kv.planning.rules import Hold
from ftfile.log.format.model import AssemblyTask

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ftfile.kv.planning.picker import Compaction


# A retry that failed as often is left out for a number of versions.
_TRIES, _VERSIONS_HELD = 3, 64


def job_of(compaction: Compaction, tasks: int) -> AssemblyTask:
    """Return the job by which a record names a compaction that is due."""
    payload: dict[str, object] = {"bucket": compaction.runs[0].add.directory_key, "taskCount": tasks}
    if (hold := compaction.hold) is None:
        return AssemblyTask(compaction.name, compaction.kind, (), payload=payload)
    payload |= {"last": hold.last} | ({"notBefore": hold.not_before} if hold.not_before else {})
    return AssemblyTask(compaction.name, "retry", (), hold.attempts, payload)


def holds_of(jobs: Iterable[AssemblyTask]) -> list[Hold]:
    """Return the holds of a record."""
    retries = (job for job in jobs if "last" in job.payload)
    return [Hold(job.id, job.payload["last"], job.attempts, job.payload.get("notBefore", 0)) for job in retries]


def is_held(job: AssemblyTask, version: int) -> bool:
    """Return True if a job has failed so often that no task is to try it at this version of the log."""
    return bool(version < job.payload.get("notBefore", 0))


def failed_ids(compaction: Compaction, error: Exception) -> tuple[str, ...]:
    """Return the ids that a message has of a failed compaction: of the run in the file that the error names, or of all.

    Of a retry, it has its name.
    """
    if compaction.hold is not None:
        return (compaction.name,)
    path, adds = getattr(error, "path", None), [run.add for run in compaction.runs]
    return tuple(add.id for add in adds if add.path == path) or tuple(add.id for add in adds)


def holds_after(
    holds: Iterable[Hold], due: Iterable[Compaction], failed: Collection[str], live: Collection[str], version: int
) -> list[Hold]:
    """Return the holds of a version, given those before it, what was due then, and the ids of runs that are live.

    `failed` has what `failed_ids` returned.
    """
    after = [_tried_again(hold, version) if hold.run in failed else hold for hold in holds if hold.run in live]
    for compaction in due:
        if compaction.hold is None and all(run.add.id in live for run in compaction.runs):
            runs = [run for run in compaction.runs if run.add.id in failed]
            after += [Hold(runs[0].add.id, max(run.marks.at[1] for run in runs))] if runs else []
    return after


def _tried_again(hold: Hold, version: int) -> Hold:
    attempts = hold.attempts + 1
    return hold._replace(
        attempts=attempts, not_before=version + _VERSIONS_HELD if attempts % _TRIES == 0 else hold.not_before
    )
