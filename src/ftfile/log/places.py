"""The current place of the file of a part, and its moves.

All processes can repeat a move at any time. Only the recorded file is moved or deleted, and no file is replaced.
"""

from __future__ import annotations

import contextlib
import enum
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from ftfile.core.checksum import Crc32, check_known_checksum
from ftfile.core.errors import (
    AlreadyExists,
    CorruptData,
    MissingParent,
    NameCollision,
    NotADirectory,
    NotFound,
    StorageError,
    Unavailable,
)
from ftfile.core.logs import get_logger
from ftfile.log.format import layout
from ftfile.log.format.record import SMALL_BYTES_MAX
from ftfile.log.sealed import SealedFileSystem
from ftfile.storage.api import InputFile
from ftfile.storage.calls import parallel
from ftfile.storage.paths import shape_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence
    from collections.abc import Set as AbstractSet

    from ftfile.core.progress import Tracker
    from ftfile.log.format.model import Add, Remove
    from ftfile.log.state import Unpublished
    from ftfile.storage.api import FileInfo, FileSystem

# The number of bytes of a file that are in memory at once while its checksum is computed.
PIECE_BYTES = 4 << 20
_log = get_logger(__name__)
_Opened = TypeVar("_Opened", bytes, "FileInfo", InputFile)
_Step = Literal["done", "nowhere", "foreign"]


def stat_or_none(fs: FileSystem, path: str) -> FileInfo | None:
    """Return the file or directory at a path; None if it does not exist, also if a parent is a file."""
    try:
        return fs.stat(path)
    except (NotFound, NotADirectory):
        return None


def list_or_empty(fs: FileSystem, directory: str) -> list[FileInfo]:
    """Return the files and directories directly in a directory; empty if it does not exist."""
    try:
        return list_own(fs, directory)
    except NotADirectory:
        return []


def names_in(fs: FileSystem, directory: str) -> list[str]:
    """Return the names of the files and directories directly in a directory; empty if it does not exist."""
    names = []
    for info in list_or_empty(fs, directory):
        names.append(info.path.rpartition("/")[2])
    return names


def sizes_in(fs: FileSystem, directory: str) -> dict[str, int]:
    """Return the sizes of the files directly in a directory by path; empty if it does not exist."""
    sizes: dict[str, int] = {}
    for info in list_or_empty(fs, directory):
        sizes[info.path] = info.size_bytes
    return sizes


def list_own(fs: FileSystem, directory: str) -> list[FileInfo]:
    """List a directory below `_ftfile`, which can be missing; NotADirectory names a file in its place."""
    try:
        return fs.list(directory)
    except NotFound:
        return []


def list_files(fs: FileSystem, directory: str) -> list[FileInfo]:
    """List the files in a directory below `_ftfile`, like `list_own`, without directories and links."""
    files = []
    for info in list_own(fs, directory):
        if not (info.is_directory or info.is_link):
            files.append(info)
    return files


def walk(fs: FileSystem, directory: str) -> dict[str, FileInfo]:
    """Return all files below a directory, by path; a link to a directory counts as a file, so that loops end."""
    files: dict[str, FileInfo] = {}
    waiting = [directory]
    while waiting:
        for info in list_or_empty(fs, waiting.pop()):
            if info.is_directory and not info.is_link:
                waiting.append(info.path)
            else:
                files[info.path] = info
    return files


def read_note(fs: FileSystem, note: str) -> str | None:
    """Return the final path in a note; None if the note was deleted, and None with a warning if it is damaged.

    Notes are not authenticated, and files of an encrypted directory are never written under their final names. So notes
    in encrypted directories are ignored.
    """
    try:
        if isinstance(fs, SealedFileSystem):
            path = None
        else:
            path = layout.noted_path(note, fs.read(note, SMALL_BYTES_MAX))
    except NotFound:
        return None  # a vacuum deleted it first
    if path is None:
        _log.warning("the note %r is ignored: it does not name its file", note)
    return path


def delete_file(fs: FileSystem, path: str) -> None:
    """Delete a file that another process can have deleted already."""
    with contextlib.suppress(NotFound):
        fs.delete(path)


def write_file(fs: FileSystem, write: Callable[[str, bytes], object], path: str, content: bytes) -> None:
    """Write a complete file by `fs.create_exclusive` or `fs.put`; create its directory if it is missing."""
    try:
        write(path, content)
    except NotFound:
        directory = layout.parent(path)
        fs.make_directories(directory)
        fs.sync_directory(layout.parent(directory))
        write(path, content)


class Place(enum.Enum):
    """The place of the file of a part."""

    PUBLISHED = "published"
    STAGED = "staged"
    RETIRED = "retired"
    NOWHERE = "nowhere"
    TAKEN = "taken"  # staged, and another file has its final name, or the name of one of its directories
    IMPOSSIBLE = "impossible"  # staged, and the storage does not support its final name
    DAMAGED = "damaged"  # its length differs from the record


class PartPlace(NamedTuple):
    """The place of a part, with details."""

    place: Place
    info: FileInfo | None = None  # the file there, or the file that has its name
    fault: str | None = None  # why its final name is impossible, as in "it …"


def find_part(fs: FileSystem, add: Add) -> PartPlace:
    """Return the place of a part, which can move from staged to final and from there to retired during the check."""
    assert add.final_path is not None, f"part {add.id} has no final name"
    fault = shape_fault(add.final_path) or fs.capabilities.fault_of(add.final_path)
    if fault is not None:
        staged = stat_or_none(fs, add.path)
        if staged is None:
            return _check_retired(fs, add)
        return PartPlace(Place.IMPOSSIBLE, staged, fault)
    final = stat_or_none(fs, add.final_path)
    staged = None
    if add.path != add.final_path:
        staged = stat_or_none(fs, add.path)
    if final is None and staged is None:
        final = stat_or_none(fs, add.final_path)
    if final is not None:
        is_other = staged is not None and not _is_same_file(final, staged) and not is_recorded(fs, final, add)
        if final.is_directory or is_other:
            return PartPlace(Place.TAKEN, final)
        return PartPlace(Place.PUBLISHED if final.size_bytes == add.length else Place.DAMAGED, final)
    if staged is None:
        return _check_retired(fs, add)
    return _check_staged(fs, add, staged)


def _check_retired(fs: FileSystem, add: Add) -> PartPlace:
    hidden = stat_or_none(fs, layout.retired_path(add.id))
    return PartPlace(Place.NOWHERE if hidden is None else Place.RETIRED, hidden)


def _check_staged(fs: FileSystem, add: Add, staged: FileInfo) -> PartPlace:
    if staged.size_bytes != add.length:
        return PartPlace(Place.DAMAGED, staged)
    for directory in layout.ancestors(layout.parent(add.final_path or ""))[:-1]:
        above = stat_or_none(fs, directory)
        if above is not None and not above.is_directory:
            return PartPlace(Place.TAKEN, above)
    return PartPlace(Place.STAGED, staged)


def has_content(fs: FileSystem, path: str, recorded: Add | Remove) -> bool:
    """Return True if the file at a path has the recorded length and checksum; False if it does not exist."""
    info = stat_or_none(fs, path)
    return info is not None and is_recorded(fs, info, recorded)


def check_segment(fs: FileSystem, add: Add) -> None:
    """Raise `CorruptData` unless the bytes of a segment have the committed checksum."""
    check_known_checksum(add.checksum)
    crc = Crc32()
    with fs.open(add.path) as file:
        for offset in range(0, add.length, PIECE_BYTES):
            piece = file.read_at(add.offset + offset, min(PIECE_BYTES, add.length - offset))
            if not piece:
                raise CorruptData(add.path, f"{add.length} bytes at {add.offset}", "a shorter file")
            crc.update(piece)
    if crc.text() != add.checksum:
        raise CorruptData(add.path, f"{add.checksum} at {add.offset}", crc.text())


def open_add(add: Add, opener: Callable[[str], _Opened], *, is_old: bool = False) -> _Opened:
    """Open an add at its current place: it can move from staged to final and from there to retired meanwhile.

    A file of another program can have the final name of a removed part, so a part of another length is also searched at
    other places. `opener` raises NotFound to try the next place. If the add `is_old`, a later version can have removed
    it, and retired parts are searched first, since another file can have its name and length.
    """
    other: str | None = None
    final: list[str] = [add.final_path] if add.final_path is not None else []
    retired: str = layout.retired_path(add.id)
    for place in (*([retired] if is_old and final else []), *final, add.path, *final, retired):
        try:
            opened = opener(place)
        except NotFound:
            continue
        if add.kind == "segment" or _length(opened) == add.length:
            return opened
        if isinstance(opened, InputFile):
            opened.close()
        other = place
    if other is not None:
        return opener(other)
    raise CorruptData(
        add.final_path or add.path,
        f"a file of {add.length} bytes",
        "no file: it is neither staged nor published nor retired",
        "If the version is old, vacuum has deleted its files: read a newer version. If a restore is moving the file, "
        "read again later. Otherwise another program moved or deleted it: restore it from a copy. `verify` lists all "
        "missing files, and `repair` restores or abandons them",
    )


def _length(opened: bytes | FileInfo | InputFile) -> int:
    if isinstance(opened, bytes):
        return len(opened)
    return opened.size_bytes


def retire(
    fs: FileSystem,
    removes: Sequence[Remove],
    tracker: Tracker | None = None,
    *,
    first: bool = False,
    is_reserved: Callable[[str], bool],
) -> None:
    """Retire removed parts. Another file with the name of a part is kept, with a warning.

    With `first`, the caller has just created the record. So if a name contains the unique part of an id, a file of the
    recorded length is the part. Otherwise the content is compared, because another program can have written the file.

    If a name can repeat, the content is not sufficient: after a vacuum, a newer part can have this name, and the same
    content. `is_reserved` is called immediately before such a file is moved or deleted. It returns False if the log
    does not reserve a name for the removed part any more; then another process has retired the part.
    """
    unique: list[Remove] = []
    repeating: list[Remove] = []
    for remove in removes:
        (unique if layout.is_unique_name(remove.id, remove.final_path or "") else repeating).append(remove)
    steps = parallel(fs, partial(_retire_one, fs, first=first), unique, tracker)
    for remove in repeating:  # in this thread, which can hold the lock of the log
        steps.append(_retire_one(fs, remove, first=first, is_reserved=is_reserved))
        if tracker is not None:
            tracker.add(1)
    for step, clause in (
        ("foreign", "were replaced by other files, which stay. Another program wrote files at the names of"),
        ("nowhere", "did not exist any more. Another process deleted or moved"),
    ):
        paths = []
        for remove, outcome in zip((*unique, *repeating), steps, strict=True):
            if outcome == step:
                paths.append(remove.final_path)
        if paths:
            names = ", ".join(map(repr, paths[:5]))
            _log.warning("%d of %d removed parts %s %s", len(paths), len(removes), clause, names)


def place(
    fs: FileSystem, adds: Sequence[Add], tracker: Tracker | None = None
) -> list[tuple[Add, NameCollision | None]]:
    """Move staged parts to their final names; return the parts that are not at their final names after the call.

    The error of a part is a NameCollision if another file has its name; it is None if the part is at neither place.
    """

    def attempt(add: Add) -> tuple[Add, NameCollision | None] | None:
        try:
            step = _place_one(fs, add)
        except NameCollision as error:
            return add, error
        if step == "nowhere":
            return add, None
        return None

    return [unplaced for unplaced in parallel(fs, attempt, adds, tracker) if unplaced is not None]


def sync_hidden(fs: FileSystem, entry: Unpublished) -> None:
    """Make it durable that removed parts are hidden, in the directories that parts are added to.

    Otherwise a power cut could leave removed parts visible beside the parts that replace them: Btrfs does not keep the
    order of changes of different names.
    """
    if not entry.removes or not fs.capabilities.directory_sync:
        return
    hidden = {layout.parent(remove.final_path or "") for remove in entry.removes}
    for directory in sorted(hidden & {layout.parent(add.final_path or "") for add in entry.adds}):
        _sync(fs, directory)


def sync_names(fs: FileSystem, entry: Unpublished) -> None:
    """Make the new names durable, and the names of their directories, which another committer can have created."""
    if not fs.capabilities.directory_sync:
        return
    directories = set()
    for remove in entry.removes:
        directories.add(layout.parent(remove.final_path or ""))
    moves = bool(entry.removes)
    for add in entry.adds:
        directories.update(layout.ancestors(layout.parent(add.final_path or "")))
        moves = moves or add.path.startswith(f"{layout.RETIRED}/")
    if moves:
        directories |= {layout.META, layout.RETIRED}
    # Parents first: a durable move into a directory whose name is not durable would lose the part.
    for directory in sorted(directories):
        _sync(fs, directory)


def sync_stage(fs: FileSystem, durable: set[str], directories: AbstractSet[str], queries: Container[str]) -> None:
    """Make names in directories durable, and names of directories that are not yet in `durable`."""
    unsynced: set[str] = set()
    for directory in directories:
        unsynced.add(directory)
        if directory not in durable:
            unsynced.update(layout.ancestors(directory))
    unsynced.difference_update(layout.ancestors(layout.META))
    for directory in sorted(unsynced, reverse=True):
        fs.sync_directory(directory)
    # Vacuum does not remove the directories of queries.
    for directory in directories:
        if layout.is_staged(directory) and directory.rpartition("/")[2] in queries:
            durable.add(directory)


def clear_stage(fs: FileSystem, entry: Unpublished) -> None:
    """Remove the empty directory of a job; files of other attempts, or a failure, are harmless.

    The next batch of a query uses its directory again.
    """
    if fs.capabilities.implied_directories or entry.query_id is not None:
        return
    for directory in {layout.parent(add.path) for add in entry.adds if layout.is_staged(add.path)}:
        try:
            fs.remove_directory(directory)
        except StorageError as error:
            _log.debug("the directory %s was not removed: %s", directory, error)


def is_recorded(fs: FileSystem, info: FileInfo, recorded: Add | Remove, *, read: bool = True) -> bool:
    """Return True if a file is the recorded part, by its length and, if `read`, by its checksum."""
    if info.is_directory or info.size_bytes != recorded.length:
        return False
    if not read:
        return True
    check_known_checksum(recorded.checksum)
    try:
        with fs.open(info.path) as file:
            return checksum_of(file) == (recorded.length, recorded.checksum)
    except NotFound:
        return False


def checksum_of(file: InputFile) -> tuple[int, str]:
    """Return the length and the checksum of a file, which is read in pieces."""
    crc, offset = Crc32(), 0
    while piece := file.read_at(offset, PIECE_BYTES):
        crc.update(piece)
        offset += len(piece)
    return offset, crc.text()


def _is_same_file(one: FileInfo, other: FileInfo | None) -> bool:
    """Return True if both names are known to be the same file."""
    return other is not None and one.identity is not None and one.identity == other.identity


def _retire_one(
    fs: FileSystem, remove: Remove, *, first: bool, is_reserved: Callable[[str], bool] | None = None
) -> _Step:
    """Retire one part; `is_reserved` is given if its name can repeat."""
    assert remove.final_path is not None, f"{remove.id} is not a part"
    hidden = layout.retired_path(remove.id)
    info = stat_or_none(fs, remove.final_path)
    if info is None:
        if first and stat_or_none(fs, hidden) is None:
            return "nowhere"
        return "done"
    if not is_recorded(fs, info, remove, read=not first or is_reserved is not None):
        return "foreign"
    if is_reserved is not None and not is_reserved(remove.final_path):
        _log.debug("%s can be the name of a newer part: another publisher has retired %s", remove.final_path, remove.id)
        return "done"
    try:
        _move(fs, remove.final_path, hidden)
    except NotFound:
        _log.debug("another publisher has retired %s", remove.final_path)
    except AlreadyExists:
        # A late copy restored the file at its final name: the retired one is complete, so this one is deleted.
        if first and not _is_same_file(info, stat_or_none(fs, hidden)) and not is_recorded(fs, info, remove):
            return "foreign"
        if is_reserved is None or is_reserved(remove.final_path):
            delete_file(fs, remove.final_path)
    return "done"


def _place_one(fs: FileSystem, add: Add) -> _Step:
    assert add.final_path is not None, f"part {add.id} has no final name"
    if add.path == add.final_path:
        return "done"
    try:
        _move(fs, add.path, add.final_path)
    except AlreadyExists:
        _resolve_collision(fs, add, add.final_path)
    except NotFound:
        target = stat_or_none(fs, add.final_path)
        if target is None:
            return "nowhere"
        if target.size_bytes != add.length:
            raise NameCollision(
                f"{add.final_path!r} should be the part {add.id} of {add.length} bytes, but has {target.size_bytes} "
                "bytes: another program wrote or changed it. Move it away and start again"
            ) from None
    return "done"


def _resolve_collision(fs: FileSystem, add: Add, final_path: str) -> None:
    """Accept two names of the same file, or a final name with the recorded content."""
    source, target = stat_or_none(fs, add.path), stat_or_none(fs, final_path)
    if target is None:
        raise Unavailable(
            "rename",
            add.path,
            f"{final_path!r} existed and then disappeared: another program moves files",
        )
    if source is None:
        return
    if not _is_same_file(source, target) and not is_recorded(fs, target, add):
        raise NameCollision(
            f"the part staged at {add.path!r} ({source.size_bytes} bytes) cannot be published: another file of "
            f"{target.size_bytes} bytes exists at its final name {final_path!r}. Neither file was changed; move the "
            "other file away"
        )
    delete_file(fs, add.path)


def _move(fs: FileSystem, source: str, target: str) -> None:
    try:
        fs.rename(source, target)
    except MissingParent:
        fs.make_directories(layout.parent(target))
        try:
            fs.rename(source, target)
        except MissingParent as error:
            detail = f"the directory of {target!r} was deleted as soon as it was created"
            raise Unavailable("rename", source, detail) from error


def _sync(fs: FileSystem, directory: str) -> None:
    """Make the names in a directory durable; for a deleted directory, its deletion."""
    try:
        fs.sync_directory(directory)
    except (NotFound, NotADirectory):
        if not directory:
            raise
        _sync(fs, layout.parent(directory))
