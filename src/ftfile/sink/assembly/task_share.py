"""A task's share of the due jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftfile.core.logs import get_logger
from ftfile.sink.assembly.assembler import Assembler

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.attempt.message import Assembled
    from ftfile.attempt.stage import Stage
    from ftfile.commit.log.state import LogState
    from ftfile.fs.api import FileSystem

__all__ = ("run_task_jobs",)

# Seconds after which no job and no part is begun: rows that come late cost more than files that come late.
BUDGET_S = 10.0

_log = get_logger(__name__)


def run_task_jobs(
    fs: FileSystem, stage: Stage, head: LogState, definitions: Mapping[str, Any]
) -> tuple[tuple[Assembled, ...], tuple[str, ...]]:
    """Do every job of the stage's query that falls to its partition; return what came of it, and the ids of failures.

    Of the tasks that wrote the query's last record, each takes an equal share; what nobody takes stays due. Jobs of
    other queries are left to those, who know what their files are called and who hears of them. Raises nothing.
    """
    jobs = [job for job in head.assembly_jobs if job.inputs[0].origin.query_id == stage.owner]
    tasks = max((job.payload["taskCount"] for job in jobs), default=0)
    if stage.partition >= tasks:
        return (), ()
    began_s = fs.context.clock.monotonic_s()

    def has_time(_parts: int = 0) -> bool:
        return fs.context.clock.monotonic_s() - began_s <= BUDGET_S

    assembler = Assembler(fs, stage, definitions, head.version)
    done, failed = [], []
    for number, job in enumerate(jobs[stage.partition :: tasks]):
        if number and not has_time():
            break
        if not assembler.can_do(job):
            continue
        try:
            assembled, damaged = assembler.assemble_readable(job, has_time)
        except Exception as error:  # it must not fail the batch, whatever it is
            assembled, damaged = None, {job.id: error}
        if assembled is None:
            reasons = "; ".join(dict.fromkeys(map(str, damaged.values())))
            _log.warning("making a file of %d segments failed, it will be tried again: %s", len(job.inputs), reasons)
            failed.append(job.id)
            continue
        done.append(assembled)
        failed += damaged
        for reason in damaged.values():
            _log.warning("a file was made without a segment that cannot be read: %s", reason)
    return tuple(done), tuple(failed)
