"""A directory of files, and a store, with a file of every kind below `_ftfile`. One file at a time is damaged."""

from __future__ import annotations

import base64
import os
import tempfile
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from unittest import mock

import ftfile
from ftfile import kv
from ftfile.core.arguments import Access
from ftfile.filters.keys import forget_keys
from ftfile.log.checkpoints import list_checkpoints, write_checkpoint
from ftfile.log.commit_log import CommitLog
from ftfile.log.directory import write_marker
from ftfile.log.format import layout, record
from ftfile.log.opening import open_log
from ftfile.log.read.compacted_records import list_compacted
from ftfile.log.read.compacted_writer import write_due_compacted
from ftfile.log.read.snapshot import take_snapshot
from ftfile.log.records import storage_now_ms
from ftfile.log.sealed import SealedFileSystem
from ftfile.operate.repair_actions import set_aside
from ftfile.testing.fs.memory import MemoryFileSystem, mounted
from ftfile.testing.micro_batch import MicroBatch, StoreBatch
from ftfile.writing.files.file_writer import forget_caches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ftfile.storage.api import FileSystem

    Maker: TypeAlias = Callable[[str, Mapping[str, str]], None]
    Find: TypeAlias = Callable[[FileSystem], str]

__all__ = ("ELSEWHERE", "KINDS", "Kind", "harmed")

_KEYS = {"FTFILE_EVERY_KEYS": f"every {base64.b64encode(bytes(range(32))).decode()}"}
_ENCRYPTED = {"encryption": "aes-gcm", "keyProvider": "env:FTFILE_EVERY_KEYS"}
_MIGRATED = f"{layout.MIGRATED}/_delta_log/_00000000000000000000.json.migrated"
_QUERY = "00000000-0000-0000-0000-000000000001"
_NUMBERS = count(1_000)  # with the same number of digits


class Kind(NamedTuple):
    """A kind of file: the names of its place in `layout`, and a function that finds the file to damage."""

    places: tuple[str, ...]
    find: Find
    in_store: bool = False


def _first(directory: str, ending: str = "") -> Find:
    """Return a function that finds the first file with this ending below a directory."""
    return lambda fs: min(path for path in _files(fs, directory) if path.endswith(ending))


def _segment(fs: FileSystem) -> str:
    return next(add.path for add in take_snapshot(CommitLog(fs)).adds.values() if add.kind == "segment")


def _used_segment(fs: FileSystem) -> str:
    live = {add.path for add in take_snapshot(CommitLog(fs)).adds.values()}
    return min(path for path in _files(fs, layout.STAGED) if path.endswith(".spool") and path not in live)


def _staged_part(fs: FileSystem) -> str:
    """Return the staged path of a committed part, as if its committer had died before the part was published."""
    add = next(add for add in take_snapshot(CommitLog(fs)).adds.values() if add.kind == "part")
    assert add.final_path is not None
    fs.make_directories(layout.parent(add.path))
    fs.rename(add.final_path, add.path)
    return add.path


def _part(fs: FileSystem) -> str:
    return next(add.final_path or "" for add in take_snapshot(CommitLog(fs)).adds.values() if add.kind == "part")


KINDS = {
    "`directory/_format`": Kind(("META", "DIRECTORY", "FORMAT_FILE"), lambda _: layout.FORMAT_FILE),
    "`directory/_marker`": Kind(("MARKER",), lambda _: layout.MARKER),
    "record": Kind(("LOG", "record_path"), lambda _: layout.record_path(3)),
    "newest record": Kind(("LOG", "record_path"), lambda fs: layout.record_path(CommitLog(fs).refresh().version)),
    "companion of a record": Kind(("LOG", "companion_path"), _first(layout.LOG, ".changes")),
    "log checkpoint": Kind(
        ("CHECKPOINTS", "log_checkpoint_path"), lambda fs: layout.log_checkpoint_path(max(list_checkpoints(fs)))
    ),
    "compacted log": Kind(("COMPACTED", "compacted_path"), lambda fs: layout.compacted_path(max(list_compacted(fs)))),
    "`hints/_published`": Kind(("HINTS", "PUBLISHED_HINT"), lambda _: layout.PUBLISHED_HINT),
    "`hints/_clock`": Kind(("HINTS", "CLOCK_HINT"), lambda _: layout.CLOCK_HINT),
    "published part": Kind((), _part),
    "committed part, not published": Kind(("STAGED",), _staged_part),
    "spool of an open file": Kind(("STAGED",), _segment),
    "spool that is used up": Kind(("STAGED",), _used_segment),
    "file of a lost attempt": Kind(("STAGED",), _first(f"{layout.STAGED}/{_QUERY}", ".staged")),
    "note of such a file": Kind(("STAGED", "note_path", "noted_path"), _first(layout.STAGED, ".finalPath")),
    "retired part": Kind(("RETIRED", "retired_path"), _first(layout.RETIRED)),
    "dead letters": Kind(("DEAD_LETTERS", "dead_letter_path"), _first(layout.DEAD_LETTERS)),
    "file in quarantine": Kind(("QUARANTINE",), _first(layout.QUARANTINE, ".quarantined")),
    "note in quarantine": Kind(("QUARANTINE",), _first(layout.QUARANTINE, ".origin")),
    "log of a migrated table": Kind(("MIGRATED",), lambda _: _MIGRATED),
    "run of a store": Kind(("STAGED",), _segment, in_store=True),
    "run of a store that is merged": Kind(("STAGED",), _used_segment, in_store=True),
    "windows of a store": Kind(("WAL", "wal_path"), _first(layout.WAL), in_store=True),
    "newest windows of a store": Kind(("WAL", "wal_path"), lambda fs: max(_files(fs, layout.WAL)), in_store=True),
}
# Names in `layout` that only logs of plans use; tests/unit/source damages these files.
ELSEWHERE = frozenset({"COLUMNS", "columns_path"})


def _files(fs: FileSystem, directory: str) -> Iterator[str]:
    for info in fs.list(directory):
        if info.is_directory:
            yield from _files(fs, info.path)
        else:
            yield info.path


def _row(kind: str = "a") -> dict[str, object]:
    return {"id": next(_NUMBERS), "kind": kind}


def _make_files(path: str, options: Mapping[str, str]) -> None:
    columns = {"id": "long", "kind": "string"}
    more = {"partitionBy": "kind", "badRecords": "deadLetter", "maxRecordBytes": "30", "onNewQuery": "continue"}
    query = MicroBatch(path, columns, {"fileFormat": "json", "maxBatchesPerFile": "3", **more, **options}, _QUERY)
    parts = MicroBatch(path, columns, {"fileFormat": "json", **more, **options}, _QUERY[:-1] + "2")
    with mock.patch.object(record, "COMPANION_FROM_BYTES", 2_000):
        for batch in range(3):
            parts.run(batch, [[_row(), _row("b" * (40 if batch == 0 else 1))]])
            query.run(batch, [[_row(), _row("b")]])
            log = open_log(path, Access())
            if batch == 1:
                write_checkpoint(log.fs, log.ids, log.refresh())
    ftfile.compact(path, where={"kind": "a"})
    parts.run(3, [[_row()]])
    query.run(3, [[_row()]])
    log = open_log(path, Access())
    fs, head = log.fs, log.refresh()
    write_checkpoint(fs, log.ids, head)
    write_due_compacted(log, head)
    storage_now_ms(fs)
    write_marker(fs)
    fs.put("in the way", b"somebody's %d\n" % next(_NUMBERS))
    set_aside(fs, "in the way", "it has the name of a part")
    stage = layout.staged_directory(_QUERY)
    fs.make_directories(stage)
    fs.create_exclusive(f"{stage}/_00000-0-{'3' * 32}.staged", b'{"id":%d}\n' % next(_NUMBERS))
    fs.create_exclusive(layout.note_path(f"{stage}/_", "00001"), b"kind=a/part-%d.json" % next(_NUMBERS))
    fs.make_directories(layout.parent(_MIGRATED))
    fs.create_exclusive(_MIGRATED, b'{"commitInfo":%d}\n' % next(_NUMBERS))


def _make_store(path: str, options: Mapping[str, str]) -> None:
    shape = {"keyColumns": "word", "merge": "n:sum", "buckets": "1", "flushIntervalCount": "2", **options}
    query = StoreBatch(path, {"word": "string", "n": "long"}, shape, _QUERY)
    for batch in range(4):
        query.run(batch, [[{"word": "a", "n": next(_NUMBERS)}]])
    with kv.KeyValueStore(path, writer="w", maintenance="none", options=dict(options)) as store:
        for window in range(4):
            store.begin_window(window)
            store.merge("a", next(_NUMBERS))
            store.end_window()
        store.committed(1)


@cache
def _contents(*, in_store: bool, encrypted: bool, number: int) -> dict[str, bytes]:
    """Return the files of a directory. Each number is another directory."""
    assert number >= 0
    make: Maker = _make_store if in_store else _make_files
    with tempfile.TemporaryDirectory() as directory:
        forget_caches()
        make(f"{directory}/out", _ENCRYPTED if encrypted else {})
        forget_caches()
        root = Path(directory, "out")
        return {file.relative_to(root).as_posix(): file.read_bytes() for file in root.rglob("*") if file.is_file()}


def write_directory(path: Path, *, in_store: bool = False) -> None:
    """Write undamaged and unencrypted files of every kind."""
    for name, content in _contents(in_store=in_store, encrypted=False, number=0).items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


@contextmanager
def _mounted(contents: Mapping[str, bytes]) -> Iterator[str]:
    """Mount a directory with these files, and return its URL."""
    name = f"every-file-{next(_NUMBERS)}"
    fs = MemoryFileSystem(name)
    for directory in layout.DIRECTORIES:
        fs.make_directories(directory)
    for path, content in contents.items():
        fs.make_directories(layout.parent(path))
        fs.create_exclusive(path, content)
    with mounted(fs) as url:
        yield url
    MemoryFileSystem.drop(name)


def _plain(fs: FileSystem) -> FileSystem:
    """Return the file system below the seal of an encrypted directory."""
    return fs.inner if isinstance(fs, SealedFileSystem) else fs


@contextmanager
def harmed(kind: Kind, harm: str | None, *, encrypted: bool) -> Iterator[str]:
    """Mount a directory with one damaged file, and return its URL."""
    forget_keys()
    with mock.patch.dict(os.environ, _KEYS):
        first = _contents(in_store=kind.in_store, encrypted=encrypted, number=0)
        with _mounted(first) as url:
            fs = open_log(url, Access()).fs
            path = kind.find(fs)
            inner = _plain(fs)
            content = inner.read(path)
            if harm is not None:
                inner.delete(path)
            if harm == "emptied":
                inner.create_exclusive(path, b"")
            elif harm == "a wrong bit":
                inner.create_exclusive(path, bytes([content[0] ^ 1]) + content[1:])
            elif harm == "another directory's":
                second = _contents(in_store=kind.in_store, encrypted=encrypted, number=1)
                with _mounted(second) as other:
                    other_fs = open_log(other, Access()).fs
                    other_path = kind.find(other_fs)
                    other_content = _plain(other_fs).read(other_path)
                inner.create_exclusive(path, other_content)
            yield url
