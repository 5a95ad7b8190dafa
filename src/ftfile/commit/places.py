"""Where the file of a part is at this moment: staged, published, retired or nowhere; and what is in its way."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ftfile.commit.files import stat_or_none
from ftfile.commit.format import layout
from ftfile.commit.moving import is_recorded, is_same_file
from ftfile.core.errors import CorruptData, NotFound
from ftfile.fs.api import InputFile
from ftfile.fs.paths import shape_fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.commit.format.model import Add, Remove
    from ftfile.fs.api import FileInfo, FileSystem

__all__ = ("Place", "Whereabouts", "find_part", "has_content", "open_add")

_Opened = TypeVar("_Opened", bytes, "FileInfo", InputFile)


class Place(enum.Enum):
    """Where the file of a part is."""

    PUBLISHED = "published"
    STAGED = "staged"
    RETIRED = "retired"
    NOWHERE = "nowhere"
    TAKEN = "taken"  # staged, and another file is at its final name, or where a directory of that name should be
    IMPOSSIBLE = "impossible"  # staged, and the store does not keep its final name
    DAMAGED = "damaged"  # of another length than was recorded


class Whereabouts(NamedTuple):
    """Where the file of a part is."""

    place: Place
    found: FileInfo | None = None  # the file that is there, or the one that is in its way
    fault: str | None = None  # why its final name is impossible, as in "it …"


def find_part(fs: FileSystem, add: Add) -> Whereabouts:
    """Return where a part is. It may move from staged to final and from there to retired while one looks."""
    assert add.final_path is not None, f"part {add.id} has no final name"
    fault = shape_fault(add.final_path) or fs.capabilities.fault_of(add.final_path)
    if fault is not None:
        staged = stat_or_none(fs, add.path)
        return _retired(fs, add) if staged is None else Whereabouts(Place.IMPOSSIBLE, staged, fault)
    final = stat_or_none(fs, add.final_path)
    staged = stat_or_none(fs, add.path) if add.path != add.final_path else None
    if final is None and staged is None:
        final = stat_or_none(fs, add.final_path)
    if final is not None:
        is_other = staged is not None and not is_same_file(final, staged) and not is_recorded(fs, final, add)
        if final.is_directory or is_other:
            return Whereabouts(Place.TAKEN, final)
        return Whereabouts(Place.PUBLISHED if final.size_bytes == add.length else Place.DAMAGED, final)
    return _retired(fs, add) if staged is None else _staged(fs, add, staged)


def _retired(fs: FileSystem, add: Add) -> Whereabouts:
    hidden = stat_or_none(fs, layout.retired_path(add.id))
    return Whereabouts(Place.NOWHERE if hidden is None else Place.RETIRED, hidden)


def _staged(fs: FileSystem, add: Add, staged: FileInfo) -> Whereabouts:
    if staged.size_bytes != add.length:
        return Whereabouts(Place.DAMAGED, staged)
    for directory in layout.ancestors(layout.parent(add.final_path or ""))[:-1]:
        above = stat_or_none(fs, directory)
        if above is not None and not above.is_directory:
            return Whereabouts(Place.TAKEN, above)
    return Whereabouts(Place.STAGED, staged)


def has_content(fs: FileSystem, path: str, recorded: Add | Remove) -> bool:
    """Return True if the file at a path has the recorded length and checksum; False also for one that is gone."""
    found = stat_or_none(fs, path)
    return found is not None and is_recorded(fs, found, recorded)


def open_add(add: Add, opener: Callable[[str], _Opened], *, is_old: bool = False) -> _Opened:
    """Open an add where it lies now: it may move from staged to final and from there to retired while we look.

    Another program's file may have the final name of a removed part: a part of another length is looked for elsewhere,
    too. `opener` raises NotFound to have the next place tried. If the add `is_old`, a later version may have removed
    it, and it is looked for among retired parts first, since a file of its name and length may be another.

    Raises:
        CorruptData: it is nowhere.
        NotFound: a file of another length, the only one there was, goes meanwhile.
    """
    other: str | None = None
    final: list[str] = [add.final_path] if add.final_path is not None else []
    retired: str = layout.retired_path(add.id)
    for place in (*([retired] if is_old and final else []), *final, add.path, *final, retired):
        try:
            opened = opener(place)
        except NotFound:
            continue
        length = len(opened) if isinstance(opened, bytes) else opened.size_bytes
        if add.kind == "segment" or length == add.length:
            return opened
        if isinstance(opened, InputFile):
            opened.close()
        other = place
    if other is not None:
        return opener(other)
    raise CorruptData(
        add.final_path or add.path,
        f"a file of {add.length} bytes",
        "nothing, neither staged nor published nor retired",
        "Of an old version, it was vacuumed, and a newer one can be read; or another program moved or deleted it: "
        "restore it from a copy",
    )
