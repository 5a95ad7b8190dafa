"""Live parts that are not where they belong: why, and what can be done about each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.commit.files import list_or_empty
from ftfile.commit.format import layout
from ftfile.commit.places import Place, Whereabouts, has_content
from ftfile.maintenance.verify.findings import BringBack, Finding, GiveUp, MoveAside, Publish, Rename
from ftfile.maintenance.verify.log_scan import REPAIR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.commit.format.model import Add
    from ftfile.maintenance.verify.listing import Files

__all__ = ("lost", "misplaced_part", "repeated_name")


def misplaced_part(files: Files, add: Add, where: Whereabouts) -> Finding:
    """Return what is wrong with a live part that is not at its final name."""
    if where.place in {Place.STAGED, Place.TAKEN, Place.IMPOSSIBLE}:
        return _pending(files, add, where)
    return _gone(files, add, where)


def _pending(files: Files, add: Add, where: Whereabouts) -> Finding:
    """Return what keeps a staged part from its final name."""
    final, place = add.final_path or "", where.place
    if place is Place.STAGED:
        found = f"the file at {add.path!r}: committed, not published yet"
        remedy = f"The next commit publishes it, and so does a repair: {REPAIR}"
        return Finding("not-published", final, "a file", found, "warning", remedy, "yes", (Publish(add),))
    if place is Place.TAKEN:
        assert where.found is not None, "something is in the way"
        found = f"a foreign file of {where.found.size_bytes} bytes at {where.found.path!r}; the part waits in the stage"
        actions = (MoveAside(where.found.path), Publish(add))
        if where.found.is_directory or files.visible.pop(where.found.path, None) == -1:
            remedy = "Move it away by hand: it is a directory, or another live file"
            return Finding("taken-name", final, "the committed file", found, "error", remedy)
        remedy = f"Move the foreign file away, or: {REPAIR}: it puts that aside"
        return Finding("taken-name", final, "the committed file", found, "error", remedy, "yes", actions)
    found = f"a name that {where.fault}"
    other = (Rename(add, add.path),)
    return Finding("impossible-name", final, "a name that the store keeps", found, "error", REPAIR, "yes", other)


def repeated_name(files: Files, final: str, adds: list[Add]) -> Iterator[Finding]:
    """Yield those of several parts with one final name whose file is not there."""
    owner = next((add for add in adds if has_content(files.fs, final, add)), None)
    if owner is not None:
        files.visible[final] = -1
    expected = "a name for each live file"
    for add in adds:
        if add is owner:
            continue
        source = add.path if add.path in files.staged else _hidden_copy(files, add)
        if source is None:
            found = f"another live file; that of {add.rows} rows is gone"
            yield lost(add, "repeated-name", expected, found)
            continue
        found = f"{len(adds)} live files of one name; this one is at {source!r}"
        actions = (Rename(add, source),)
        yield Finding("repeated-name", final, expected, found, "error", REPAIR, "yes", actions)


def lost(add: Add, code: str, expected: str, found: str, damaged: str | None = None) -> Finding:
    """Return the finding of an add whose rows cannot be read."""
    path = add.final_path or add.path
    return Finding(code, path, expected, found, "error", _give_up_words(add), "on request", (GiveUp(add, damaged),))


def _give_up_words(add: Add) -> str:
    """Return what to do about an add whose file is lost."""
    path = add.final_path or add.path
    return (
        f"Restore the file from a copy; if there is none, ftfile.repair(path, give_up=[{path!r}]) records that its "
        f"{add.rows} rows of {_batches(add)} are gone"
    )


def _gone(files: Files, add: Add, where: Whereabouts) -> Finding:
    """Return what is known of a part whose file is gone, hidden or damaged."""
    final, place = add.final_path or "", where.place
    expected = f"a file of {add.length} bytes with {add.checksum}"
    source = where.found.path if place is Place.RETIRED and where.found is not None else _hidden_copy(files, add)
    if source is not None:
        aside = (MoveAside(where.found.path),) if place is Place.DAMAGED and where.found is not None else ()
        actions = (*aside, BringBack(add, source))
        return Finding("hidden-part", final, expected, f"its content at {source!r}", "error", REPAIR, "yes", actions)
    if place is Place.DAMAGED and where.found is not None:
        return lost(add, "damaged-part", expected, f"{where.found.size_bytes} bytes", where.found.path)
    return lost(add, "missing-part", expected, "nothing, neither staged nor published nor retired")


def _hidden_copy(files: Files, add: Add) -> str | None:
    """Return the retired or quarantined file that has the content of a part, if there is one."""
    quarantined = {info.path: info.size_bytes for info in list_or_empty(files.fs, layout.QUARANTINE)}
    candidates = (path for path, size in (files.retired | quarantined).items() if size == add.length)
    return next((path for path in candidates if has_content(files.fs, path, add)), None)


def _batches(add: Add) -> str:
    origin = add.origin
    if origin.first_batch == origin.last_batch:
        return f"batch {origin.first_batch} of {origin.query_id}"
    return f"batches {origin.first_batch} to {origin.last_batch} of {origin.query_id}"
