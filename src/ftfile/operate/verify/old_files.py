"""Files that no live row is in, and that somebody may still read: of removed adds, and of dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.errors import CorruptData, NotFound
from ftfile.kv.reading.verify import check_bytes
from ftfile.kv.run_files import OpenFiles
from ftfile.log.format import layout
from ftfile.log.places import has_content, open_add, stat_or_none
from ftfile.log.read.snapshot import oldest_readable, snapshot_at
from ftfile.operate.findings import Finding, find
from ftfile.storage.calls import parallel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Add
    from ftfile.log.state import LogState
    from ftfile.operate.verify.files import Files
    from ftfile.operate.verify.history import History
    from ftfile.storage.api import FileSystem


def compare_old_files(
    log: CommitLog, head: LogState, files: Files, history: History, *, full: bool
) -> Iterator[Finding]:
    """Yield a finding for each file of removed rows that a version which can be read has, and that is not whole.

    What vacuums may have deleted is passed over, and what a repair has given up. With `full`, content is read.
    """
    live = snapshot_at(log, head).adds
    readable = snapshot_at(log, head, since=max(oldest_readable(log, head), history.lowered)).adds
    restored: dict[str, int] = {}
    for add in readable.values():
        original = layout.original_id(add.id)
        restored[original] = max(restored.get(original, -1), layout.restored_version(add.id))
    removed = [
        add
        for add in readable.values()
        if add.id not in live
        and add.id not in history.given_up
        # The file of a part that came back is that of the newest add.
        and layout.restored_version(add.id) == restored[layout.original_id(add.id)]
    ]
    seen: set[str] = set()
    for add, actual in zip(removed, parallel(log.fs, lambda add: _fault(files, add, full=full), removed), strict=True):
        path = _place(add)
        if actual is not None and path not in seen:
            seen.add(path)
            yield find("damaged-old-file", path, f"{add.rows} rows of older versions", actual)


def _place(add: Add) -> str:
    return layout.retired_path(add.id) if add.kind == "part" else add.path


def _fault(files: Files, add: Add, *, full: bool) -> str | None:
    """Return the state of the file of a removed add, in words; None if it is whole."""
    try:
        if add.kind == "segment":
            return _segment_fault(files.fs, add, full=full)
        if files.retired.get(layout.retired_path(add.id)) == add.length:
            path = layout.retired_path(add.id)
        else:
            info = open_add(add, files.fs.stat, is_old=True)
            if info.size_bytes != add.length:
                return f"{info.size_bytes} bytes"
            path = info.path
        return "other bytes" if full and not has_content(files.fs, path, add) else None
    except CorruptData as error:
        return error.found


def _segment_fault(fs: FileSystem, add: Add, *, full: bool) -> str | None:
    info = stat_or_none(fs, add.path)
    if info is None or info.size_bytes < add.offset + add.length:
        return "no such file" if info is None else f"{info.size_bytes} bytes"
    if full:
        try:
            check_bytes(add, OpenFiles(fs, maps=False))
        except NotFound:
            return "no such file"
    return None


def compare_letters(fs: FileSystem, letters: Mapping[str, Add]) -> Iterator[Finding]:
    """Yield a finding for each file of dead letters, by path, that has other bytes than were recorded.

    One that is gone is none: users delete what they have read.
    """
    paths = sorted(letters)
    whole = parallel(fs, lambda path: has_content(fs, path, letters[path]) or stat_or_none(fs, path) is None, paths)
    for path, is_whole in zip(paths, whole, strict=True):
        if not is_whole:
            letter = letters[path]
            yield find("damaged-letters", path, f"{letter.length} bytes with {letter.checksum}", "other bytes")
