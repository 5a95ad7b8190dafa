"""Rewrites: the same rows in other files. One that comes too late is left out and never fails a record."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftfile.commit.checks import FinalPaths, check_file, find_files
from ftfile.commit.format.model import Remove
from ftfile.core.errors import ConfigError, CorruptData, NameCollision, StaleFiles
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ftfile.commit.format.model import Add
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState
    from ftfile.core.errors import FtfileError

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The same rows in other files: accepted as a whole or dropped, never in part."""

    inputs: tuple[Add, ...]  # the adds it replaces
    adds: tuple[Add, ...]  # what replaces them
    read_version: int  # at which the inputs were live
    reason: str = ""  # code of why it was made, which records count by parts; empty for none


@dataclass(frozen=True, slots=True)
class Refused:
    """A rewrite whose parts cannot get their names: the rows stay where they are."""

    rewrite: Rewrite
    error: FtfileError


@dataclass(frozen=True, slots=True)
class Accepted:
    """The rewrites that a record can have, and those refused for their names; others came too late."""

    rewrites: tuple[Rewrite, ...] = ()
    refused: tuple[Refused, ...] = ()

    @property
    def adds(self) -> tuple[Add, ...]:
        """Return the adds of the accepted rewrites."""
        return tuple(add for rewrite in self.rewrites for add in rewrite.adds)

    @property
    def removes(self) -> tuple[Remove, ...]:
        """Return the removes of the inputs of the accepted rewrites."""
        return tuple(Remove.of(add) for rewrite in self.rewrites for add in rewrite.inputs)

    def metrics(self, others: Mapping[str, int] | None = None) -> dict[str, Any]:
        """Return the number of parts by the reason why they ended; others are added."""
        counts = Counter(others or {})
        counts.update(each.reason for each in self.rewrites if each.reason for add in each.adds if add.kind == "part")
        return {"partsByReason": dict(counts)} if counts else {}


def accept_rewrites(
    log: CommitLog,
    head: LogState,
    rewrites: Sequence[Rewrite],
    own: Sequence[Add] = (),
    refused: Sequence[Refused] = (),
) -> Accepted:
    """Return the rewrites whose inputs are live, files safe and names free; others are left out, and not deleted.

    Rewrites come in order of precedence and with final names, after the record's `own` other adds; `refused` ones could
    not get names. The error of an own add is raised: see `FinalPaths.claim`.
    """
    accepted: list[Rewrite] = []
    left_out = list(refused)
    claimed: set[str] = set()
    adds = [add for rewrite in rewrites for add in rewrite.adds]
    if rewrites:
        paths = FinalPaths(log, head, (*own, *adds))
        paths.claim(own)
        found = find_files(log.fs, adds)
    for rewrite in rewrites:
        inputs = {add.id for add in rewrite.inputs}
        if inputs & claimed or not all(head.is_live(add, rewrite.read_version) for add in rewrite.inputs):
            _log.info("dropping a rewrite of %d adds: some are no longer live, or taken", len(inputs))
            continue
        # The rest of a segment lies in the same spool, which is safe as long as one segment of it is live.
        kept = {add.path for add in rewrite.inputs}
        try:
            for add in (add for add in rewrite.adds if add.path not in kept):
                check_file(add, found.get(add.path), head.horizon_ms)
            paths.claim(rewrite.adds)
        except (StaleFiles, CorruptData) as error:
            _log.warning("dropping a rewrite, it will be made again: %s", error)
        except (ConfigError, NameCollision) as error:
            left_out.append(Refused(rewrite, error))
        else:
            claimed |= inputs
            accepted.append(rewrite)
    for each in left_out:
        _log.warning("rows stay where they are: %s", each.error)
    return Accepted(tuple(accepted), tuple(left_out))
