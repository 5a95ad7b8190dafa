"""Which merges a record can take: those whose inputs are live, and whose outputs have a place among the other runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.logs import get_logger
from ftfile.kv.planning.runs import Run, apart, run_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ftfile.commit.format.model import Add
    from ftfile.commit.rewrites import Rewrite

_log = get_logger(__name__)


def acceptable(live: Mapping[str, Add], rewrites: Sequence[Rewrite]) -> list[Rewrite]:
    """Return the merges that may replace their inputs, in order of precedence, each as if those before it were done.

    One whose job was given up long ago may come when others have merged the runs around its inputs. It is left out, for
    the order of its rows and of theirs would not be known.
    """
    concerned = {add.bucket for rewrite in rewrites for add in rewrite.inputs}
    runs: dict[str, dict[str, Run]] = {bucket: {} for bucket in concerned}
    for add in live.values():
        if add.bucket in runs:
            runs[add.bucket][add.id] = run_of(add)
    accepted = []
    for rewrite in rewrites:
        if not all(add.id in runs[add.bucket] for add in rewrite.inputs):
            _log.info("dropping a merge of %d runs: some are no longer live", len(rewrite.inputs))
            continue
        ended = {add.id for add in rewrite.inputs}
        new = [run_of(add) for add in rewrite.adds]
        others = {bucket: [run for run in runs[bucket].values() if run.add.id not in ended] for bucket in runs}
        if not all(apart(run, other) for run in new for other in others[run.add.bucket]):
            _log.warning("dropping a merge of %d runs: others have merged what is around them", len(rewrite.inputs))
            continue
        for add in rewrite.inputs:
            del runs[add.bucket][add.id]
        for run in new:
            runs[run.add.bucket][run.add.id] = run
        accepted.append(rewrite)
    return accepted
