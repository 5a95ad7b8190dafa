"""Due jobs, done by tasks beside their own rows: runs become fewer, in memory that does not grow with them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ftfile.attempt.message import Rewritten
from ftfile.commit.format.model import Origin
from ftfile.commit.rewrites import Rewrite
from ftfile.core.logs import get_logger
from ftfile.core.retry import is_away
from ftfile.kv.columns import SET
from ftfile.kv.files.opening import CoalescingFiles, OpenFiles
from ftfile.kv.fold import fold, windows_of
from ftfile.kv.planning.jobs import groups_of
from ftfile.kv.planning.plan import is_held
from ftfile.kv.task.inputs import Inputs, cut_of
from ftfile.kv.task.outputs import FoldedRows, Outputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from ftfile.attempt.stage import Stage
    from ftfile.commit.format.model import Add, AssemblyJob
    from ftfile.commit.log.state import LogState
    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.files.spool import RunSpool
    from ftfile.kv.planning.jobs import Group, Left, Output, Share

# Seconds after which no job is begun: rows that come late cost more than merges that come late.
BUDGET_S = 10.0
# Rows in memory while they are folded, which takes some times as much.
_WINDOW_BYTES = 16 << 20

_log = get_logger(__name__)


def run_jobs(
    stage: Stage, head: LogState, definition: StoreDefinition, encoding: str, open_spool: Callable[[], RunSpool]
) -> tuple[tuple[Rewritten, ...], tuple[str, ...]]:
    """Do the due jobs that fall to the stage's partition; return the results, and the ids of jobs that failed.

    At each version other jobs fall to a task, so that none waits for a task that is no longer there. Those that failed
    come last. Raises nothing: what fails is logged, with the path, and stays due; other jobs go on.

    Args:
        stage: of the task; also gives the file system, the clock and the ids.
        head: the log as the task found it; the state of a view is enough.
        definition: of the store, which new runs follow.
        encoding: key of the definition that says how new runs are written.
        open_spool: starts a file for new runs.
    """
    jobs = head.assembly_jobs
    tasks = jobs[-1].payload["taskCount"] if jobs else 0
    own = [
        job
        for number, job in enumerate(jobs)
        if (number + head.version) % tasks == stage.partition and not is_held(job, head.version + 1)
    ]
    clock = stage.fs.context.clock
    merger = Merger(stage, definition, encoding, open_spool, head.version)
    began_s = clock.monotonic_s()
    done, failed = [], []
    for number, job in enumerate(sorted(own, key=lambda job: job.attempts)):
        if number and clock.monotonic_s() - began_s > BUDGET_S:
            break
        rewrite, errors = merger.merge(job)
        if errors:
            reasons = "; ".join(dict.fromkeys(map(str, errors)))
            _log.warning("merging %d runs failed, it will be tried again: %s", len(job.inputs), reasons)
            failed.append(job.id)
        if rewrite is not None:
            done.append(Rewritten(job.id, rewrite))
    return tuple(done), tuple(failed)


@dataclass(frozen=True, slots=True)
class Merger:
    """Does jobs; for the attributes see `run_jobs`."""

    stage: Stage
    definition: StoreDefinition
    encoding: str
    open_spool: Callable[[], RunSpool]
    read_version: int  # at which the inputs of the jobs are live
    window_bytes: int = _WINDOW_BYTES

    def merge(self, job: AssemblyJob) -> tuple[Rewrite | None, list[Exception]]:
        """Return the rewrite of a job, None if nothing was merged, and the errors of runs that stay.

        A bucket whose runs cannot be merged leaves the others of the job alone, unless the store is away.
        """
        groups = groups_of(job)
        try:
            return self._merged(job, groups), []
        except Exception as error:
            if len(groups) == 1 or is_away(error):
                return None, [error]
        found: list[Rewrite] = []
        errors: list[Exception] = []
        for group in groups:
            try:
                found.append(self._merged(job, [group]))
            except Exception as error:
                errors.append(error)
                if is_away(error):
                    break
        if not found:
            return None, errors
        inputs, adds = ([add for each in found for add in getattr(each, name)] for name in ("inputs", "adds"))
        return replace(found[0], inputs=tuple(inputs), adds=tuple(adds)), errors

    def _merged(self, job: AssemblyJob, groups: Sequence[Group]) -> Rewrite:
        """Return the rewrite of groups of a job; if one fails, all that was written is removed."""
        inputs: list[Add] = []
        adds: list[Add] = []
        outputs = Outputs(self.open_spool, self.encoding, job.payload["maxBytesPerFile"])
        # Neighbouring buckets of a batch lie side by side in its spools.
        files = CoalescingFiles(OpenFiles(self.stage.fs), (run.add for group in groups for run in group.runs))
        try:
            for group in groups:
                runs = Inputs(files, self.definition)
                share = group.below(cut_of(group, runs, job.payload["jobBytes"]))
                replaced, new = share.replacement(*self._written(share, runs, outputs), self.stage.fs.context.ids)
                inputs += replaced
                adds += new
            outputs.end()
        except BaseException:
            outputs.discard()
            raise
        return Rewrite(tuple(inputs), tuple(adds), self.read_version, job.reason)

    def _written(self, share: Share, runs: Inputs, outputs: Outputs) -> tuple[list[Output], dict[str, Left]]:
        """Write the folded rows of a share; return their runs, and the rests of its inputs."""
        runs.open(share.folded)
        inputs = [runs.rows(run, share.cut) for run in share.folded]
        tables = (self._folded(window, share) for window in windows_of(inputs, self.window_bytes))
        # Another run must not lie between the keys of one.
        walls = [run.marks.keys[0] for run in share.relabelled if run.marks.keys is not None]
        rows = FoldedRows(self._alike(tables, share), walls, len(self.definition.keys), outputs.piece_bytes)
        bucket, origin = share.group.runs[0].add.bucket, _origin(share)
        made = []
        while rows.has_more():
            made.append(outputs.write(bucket, rows, origin))
        if not made and not share.relabelled and share.purges:
            made.append(outputs.write(bucket, rows, origin))
        left = {}
        for run, taken in zip(share.folded, inputs, strict=True):
            rest = runs.left(run, share.cut, taken.taken)
            if rest is not None:
                left[run.add.id] = rest
        return made, left

    def _folded(self, window: Sequence[pa.Table], share: Share) -> pa.Table:
        terms = share.group.terms
        purges = [run.marks.purges for run in share.folded]
        return fold(window, self.definition, bottom=terms.is_bottom, purges=purges, expired_ms=terms.expired_ms)

    def _alike(self, tables: Iterator[pa.Table], share: Share) -> Iterator[pa.Table]:
        """Yield tables with the same columns: those that the only one has, or that one of several may have."""
        head = list(itertools.islice(tables, 2))
        if len(head) <= 1:
            yield from head
            return
        ops = 0
        for run in share.folded:
            ops |= run.marks.ops
        if share.group.terms.is_bottom and self.definition.sequence is None:
            ops = 1 << SET
        columns = self.definition.names_with(ops)
        for table in itertools.chain(head, tables):
            yield self.definition.aligned(table).select(columns)


def _origin(share: Share) -> Origin:
    """Return the origin of the rows: the query of the oldest, and the batches of all."""
    origins = [run.add.origin for run in (*share.folded, *share.relabelled)]
    first, last = min(each.first_batch for each in origins), max(each.last_batch for each in origins)
    return Origin(origins[0].query_id, first, last)
