"""Files and logs moved out of the way of plain readers once the files are recorded, and put back by an undo."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

from ftfile.commit.files import delete_file, list_or_empty, walk
from ftfile.commit.format import layout
from ftfile.commit.places import checksum_of
from ftfile.core.errors import AlreadyExists, CorruptData, NameCollision, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ftfile.fs.api import FileSystem

# Begins the reason of each file in the quarantine that an undo puts back.
REASON = "migrated without it: "
_ENDING = ".migrated"


def move_log(fs: FileSystem, log: str) -> None:
    """Move the other program's log below `_ftfile`, its newest entry first; repeatable.

    Until the last one is moved, that program's readers see an older version. Directories are not renamed: not every
    store can, and the files are few and small.
    """
    moved = walk(fs, log)
    _make_directories(fs, {f"{layout.MIGRATED}/{layout.parent(path)}" for path in moved})
    # Without its commits a table is none, and a second call would not find it: the first commit is moved last of all.
    last = min((path for path in moved if path.endswith(".json")), default=None)
    for path in sorted(moved, key=lambda path: (path != last, path), reverse=True):
        _move(fs, path, f"{layout.MIGRATED}/{path}{_ENDING}")
    remove_empty(fs, log)
    _sync(fs, {layout.parent(path) for path in moved} | {f"{layout.MIGRATED}/{log}", layout.MIGRATED, layout.META, ""})


def put_back(fs: FileSystem) -> tuple[str, ...]:
    """Move all of this back, and return the paths; repeatable. NameCollision if another file is at the place of one."""
    back: list[str] = []
    moved = {path: path.removeprefix(f"{layout.MIGRATED}/").removesuffix(_ENDING) for path in walk(fs, layout.MIGRATED)}
    _make_directories(fs, set(map(layout.parent, moved.values())))
    for path, target in sorted(moved.items()):
        _move(fs, path, target)
        back.append(target)
    for note, target in _notes(fs).items():
        hidden = note.removesuffix(".origin") + ".quarantined"
        with contextlib.suppress(NotFound):  # a note without its file: the move was tried again
            _move(fs, hidden, target)
            back.append(target)
    _sync(fs, {above for path in back for above in layout.ancestors(layout.parent(path))})
    return tuple(back)


def foreign_in_quarantine(fs: FileSystem) -> list[str]:
    """Return the files in the quarantine that no migration has put there."""
    own = {note.removesuffix(".origin") for note in _notes(fs)}
    found = (info.path for info in list_or_empty(fs, layout.QUARANTINE))
    return [path for path in found if path.endswith(".quarantined") and path.removesuffix(".quarantined") not in own]


def _notes(fs: FileSystem) -> dict[str, str]:
    """Return the notes of files that a migration moved, each with the file's former path."""
    found: dict[str, str] = {}
    for info in list_or_empty(fs, layout.QUARANTINE):
        if info.path.endswith(".origin"):
            try:
                note = json.loads(fs.read(info.path))
                if note["reason"].startswith(REASON):
                    found[info.path] = note["path"]
            except (ValueError, KeyError, TypeError) as error:
                raise CorruptData(info.path, "a note of a file's place", repr(error)) from error
    return found


def _move(fs: FileSystem, source: str, target: str) -> None:
    try:
        fs.rename(source, target)
    except AlreadyExists as error:
        if _is_copy(fs, source, target):
            # A store without a rename copied it, and the process died.
            delete_file(fs, source)
            return
        raise NameCollision(
            f"{source!r} cannot be moved to {target!r}: a file is there. The other program went on here: move that "
            "file away, and try again"
        ) from error


def _make_directories(fs: FileSystem, directories: Iterable[str]) -> None:
    """Make directories with durable names: a file whose move is durable is lost if its directory's name is not."""
    for directory in sorted(directories):
        fs.make_directories(directory)
        _sync(fs, layout.ancestors(directory)[1:])


def _is_copy(fs: FileSystem, source: str, target: str) -> bool:
    with fs.open(source) as one, fs.open(target) as other:
        return one.size_bytes == other.size_bytes and checksum_of(one) == checksum_of(other)


def remove_empty(fs: FileSystem, directory: str) -> None:
    """Remove a directory and those in it, unless a file is there."""
    for info in list_or_empty(fs, directory):
        if info.is_directory:
            remove_empty(fs, info.path)
    with contextlib.suppress(NotFound):
        fs.remove_directory(directory)


def _sync(fs: FileSystem, directories: Iterable[str]) -> None:
    for directory in sorted(directories):
        with contextlib.suppress(NotFound):
            fs.sync_directory(directory)
