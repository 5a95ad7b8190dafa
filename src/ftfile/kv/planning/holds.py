"""Holds: runs that could not be merged, which the rest of their bucket does not wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from ftfile.kv.planning.jobs import groups_of, job_of, terms_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from ftfile.core.context import IdSource
    from ftfile.kv.planning.jobs import PlanSettings
    from ftfile.kv.planning.runs import Stretch
    from ftfile.log.format.model import Add, AssemblyTask


# A retry that failed as often is left out for a number of versions.
_TRIES, _VERSIONS_HELD = 3, 64
# A retry that ended at a cut would begin anew at the next one, and never come behind it.
_UNCUT_BYTES = 1 << 62


class Hold(NamedTuple):
    """Neighbouring runs of a bucket that could not be merged, such as a damaged one, or values without a sum.

    They are tried again with all newer runs of the bucket, since one of these may have ended or replaced the rows that
    fail. Meanwhile other runs are merged without them.
    """

    run: str  # id of the oldest; the hold ends with it
    last: int  # position of the newest row
    attempts: int = 1  # that failed
    not_before: int = 0  # version before which no task tries again

    def bars(self, stretches: Sequence[Stretch]) -> range:
        """Return the places of the stretches that it holds; none where its run is in none of them."""
        for start, stretch in enumerate(stretches):
            if any(run.add.id == self.run for run in stretch.runs):
                ends = (place for place in range(start, len(stretches)) if stretches[place].at[0] > self.last)
                return range(start, next(ends, len(stretches)))
        return range(0)


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
            for group in groups_of(job):
                if all(run.add.id in live for run in group.runs):
                    runs = [run for run in group.runs if run.add.id in failed] or [*group.runs]
                    holds.append(Hold(runs[0].add.id, max(run.marks.at[1] for run in runs)))
    return holds


def retries(
    stretches: Sequence[Stretch],
    holds: Iterable[Hold],
    settings: PlanSettings,
    ids: IdSource,
    *,
    now_ms: int,
    tasks: int,
) -> Iterator[AssemblyTask]:
    """Yield the retry of each hold of a bucket: its runs and all newer ones, up to those of another hold, at once."""
    settings = structs.replace(settings, job_bytes=_UNCUT_BYTES)
    places = {bars.start: hold for hold in holds if (bars := hold.bars(stretches))}
    bucket_runs = [run for stretch in stretches for run in stretch.runs]
    for start, hold in places.items():
        end = min((other for other in places if other > start), default=len(stretches))
        runs = tuple(run for stretch in stretches[start:end] for run in stretch.runs)
        terms = terms_of((stretches[start].at[0], stretches[end - 1].at[1]), bucket_runs, settings, now_ms)
        job = job_of("retry", [(runs, terms)], settings, ids, tasks)
        payload = job.payload | {"hold": {"run": hold.run, "last": hold.last}}
        payload |= {"notBefore": hold.not_before} if hold.not_before else {}
        yield structs.replace(job, id=hold.run, attempts=hold.attempts, payload=payload)


def _tried_again(hold: Hold, version: int) -> Hold:
    attempts = hold.attempts + 1
    return hold._replace(
        attempts=attempts, not_before=version + _VERSIONS_HELD if attempts % _TRIES == 0 else hold.not_before
    )
