"""Where the log ends: a missing record is the end only if nothing shows that there were later ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.commit.format import layout
from ftfile.commit.log.hints import read_published
from ftfile.core.errors import CorruptData, NotFound
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from ftfile.commit.log.log_reader import LogReader

__all__ = ("is_end",)

ADVICE = (
    "Restore what is missing from a copy of the directory, with all of _ftfile; if there is none, accept the loss with "
    "ftfile.repair(path, accept_lost_records=True, dry_run=False); without the last it only tells what it would do"
)

_log = get_logger(__name__)


def is_end(log: LogReader, version: int, *, lists: bool, acts: bool) -> bool:
    """Return True if the log ends at a version; False if it goes on by now.

    Args:
        log: read up to that version.
        version: after which no record was found.
        lists: whether to look for later records in the directory of the log, and not only at the hint.
        acts: whether the caller is going to write: then a hint that names a version beyond the end is an error.

    Raises:
        CorruptData: records are missing.
    """
    hint = read_published(log.fs)
    told = hint.version if hint is not None else -1
    listed = _newest_listed(log, version) if lists else -1
    if max(told, listed) <= version:
        return True
    if log.read_record(version + 1) is not None:
        return False
    newest = log.bases.newest()
    if newest is not None and newest.version > version:
        return True  # records behind a base may be gone: whoever reads on starts over from it
    path = layout.record_path(version + 1)
    if listed > version or log.read_record(told) is not None:
        raise CorruptData(path, "a record", f"none, although there is version {max(listed, told)}", ADVICE)
    if acts:
        found = f"none, although version {told} was published: the log has lost its newest records"
        raise CorruptData(path, "a record", found, ADVICE)
    _log.warning("the log ends at version %d, and version %d was published: its newest records are lost", version, told)
    return True


def _newest_listed(log: LogReader, version: int) -> int:
    """Return the newest version whose record is listed, -1 for none after `version`."""
    try:
        names = log.fs.names_after(layout.LOG, layout.record_path(version + 1).rpartition("/")[2])
    except NotFound:
        return -1
    parsed = (layout.parse_log_name(f"{layout.LOG}/{name}") for name in names)
    return max((name.version for name in parsed if name is not None and name.nonce is None), default=-1)
