"""Each row of the output-stream contract is seen when a storage system breaks it."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from typing import TYPE_CHECKING, Any, cast

import pytest

from ftfile.core.errors import OutOfSpace, PermissionDenied, StorageError
from ftfile.storage.api import CopyingStream, FileSystem, OutputStream, RangeFile
from ftfile.testing.fs import volume
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.tree import Tree
from ftfile.testing.fs.volume import Volume
from tests.kit.parameters import parametrize
from tests.unit.testing.test_crashing import CrashingContract

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

    from ftfile.storage.api import FileInfo
    from ftfile.testing.fs.volume import Storage

PLAIN, BUFFERING, OBJECT = (volume.STREAMS[storage] for storage in ("disk", "hdfs", "s3"))


class Contract(CrashingContract):
    race_rounds = rename_rounds = 4

    @contextlib.contextmanager
    def full(self, filesystem: FileSystem) -> Iterator[FileSystem]:
        def refuse(stream: OutputStream, _: memoryview) -> None:
            raise OutOfSpace("write", stream.path, "full")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PLAIN, "_write", refuse)
            yield filesystem


def nothing(*_: Any, **__: Any) -> None:
    """Do nothing."""


def claims(**more: Any) -> property:
    """Return capabilities with others among them."""
    real = cast("property", CrashingFileSystem.capabilities)

    def capabilities(fs: CrashingFileSystem) -> Any:
        return dataclasses.replace(real.__get__(fs), **more)

    return property(capabilities)


def infos(change: Callable[[FileInfo], FileInfo]) -> Any:
    """Return a method that changes the metadata of files."""
    real = CrashingFileSystem._info  # noqa: SLF001

    def info(fs: CrashingFileSystem, path: str, number: int) -> FileInfo:
        found = real(fs, path, number)
        return found if found.is_directory else change(found)

    return info


def put_in_place(fs: CrashingFileSystem, path: str, content: bytes) -> None:
    old = fs.read(path) if fs.exists(path) else b""
    real_put(fs, path, content + old[len(content) :])


def create_over(fs: CrashingFileSystem, path: str) -> OutputStream:
    if fs.exists(path):
        fs.delete(path)
    return real_create(fs, path)


def close_each_time(stream: OutputStream) -> None:
    stream._close()  # noqa: SLF001
    stream._state = "closed"  # noqa: SLF001


def close_as_if_well(stream: OutputStream) -> None:
    if stream._state == "open":  # noqa: SLF001
        real_close(stream)


def close_over(stream: Any) -> None:
    stream._volume.make_object(stream.path, bytes(stream._buffer))  # noqa: SLF001


def abort_that_boasts(stream: OutputStream) -> bool:
    stream._state = "aborted"  # noqa: SLF001
    return True


def abort_that_forgets(stream: OutputStream) -> bool:
    return stream._abort()  # noqa: SLF001


def write_unless_full(stream: OutputStream, data: bytes) -> int:
    try:
        return real_write(stream, data)
    except OutOfSpace:
        stream._state = "open"  # noqa: SLF001
        return len(data)


def write_text(stream: OutputStream, data: Any) -> int:
    return real_write(stream, data.encode() if isinstance(data, str) else data)


def write_later(stream: Any, data: memoryview) -> None:
    """Keep the caller's own bytes until close."""
    stream.__dict__.setdefault("kept", []).append(data)


def close_with_what_was_kept(stream: Any) -> None:
    for data in stream.__dict__.get("kept", []):
        stream._volume.append(stream.path, stream._number, bytes(data))  # noqa: SLF001


def weak_sync(stream: OutputStream, kind: str) -> None:
    if stream.has_capability(kind):
        getattr(stream, f"_{kind}")()


def flush_half(stream: Any) -> None:
    """Send only whole chunks of four bytes."""
    whole = len(stream._buffer) // 4 * 4  # noqa: SLF001
    stream._volume.append(stream.path, stream._number, bytes(stream._buffer[:whole]))  # noqa: SLF001
    del stream._buffer[:whole]  # noqa: SLF001


def show_early(stream: Any, data: memoryview) -> None:
    stream._buffer += data  # noqa: SLF001
    stream._volume.make_object(stream.path, bytes(stream._buffer))  # noqa: SLF001


def capability_while_open(stream: OutputStream, name: str) -> bool:
    return not stream.closed and real_has_capability(stream, name)


def refuse(_: FileSystem, path: str, *__: str) -> None:
    raise PermissionDenied("rename", path, "somebody has a lease")


def rename_over(fs: CrashingFileSystem, source: str, target: str) -> None:
    if fs.exists(target):
        fs.delete(target)
    real_rename(fs, source, target)


def delete_another(fs: CrashingFileSystem, path: str) -> None:
    for info in fs.list(""):
        real_delete(fs, info.path)
    del path


def exclusive_over(fs: CrashingFileSystem, path: str, content: bytes) -> None:
    if fs.exists(path):
        fs.delete(path)
    real_exclusive(fs, path, content)


def read_from_the_start(file: Any, offset: int, length: int) -> bytes:
    content: bytes = file._read(0, file.size_bytes)  # noqa: SLF001
    return content[: max(0, length - offset)][:5]


def later_each_time(info: FileInfo) -> FileInfo:
    return info._replace(modified_ms=next(times))


def copy_early(stream: Any, path: str, offset: int, length: int) -> None:
    held, stream._buffer = stream._buffer, bytearray()  # noqa: SLF001
    real_copy(stream, path, offset, length)
    stream._buffer += held  # noqa: SLF001


def copy_uncounted(stream: Any, path: str, offset: int, length: int) -> None:
    stream._copy_from(path, offset, length)  # noqa: SLF001


def copy_what_is_there(stream: Any, path: str, offset: int, length: int) -> None:
    number = stream._volume.live.tree.find(path)  # noqa: SLF001
    if number:
        stream._buffer += stream._volume.live.inodes[number].content[offset : offset + length]  # noqa: SLF001


class NoLock:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def without_lock(stream: OutputStream, path: str, capabilities: frozenset[str]) -> None:
    real_init(stream, path, capabilities)
    stream._lock = cast("threading.RLock", NoLock())  # noqa: SLF001


real_put, real_create, real_rename = CrashingFileSystem.put, CrashingFileSystem.create, CrashingFileSystem.rename
real_delete, real_exclusive = CrashingFileSystem.delete, CrashingFileSystem.create_exclusive
real_close, real_write, real_init = OutputStream.close, OutputStream.write, OutputStream.__init__
real_has_capability = OutputStream.has_capability
real_copy = cast("Any", OBJECT)._copy_from  # noqa: SLF001
times = itertools.count(10**15)

# The test that detects it, the storage, and its defect.
MISTAKES: list[tuple[str, Storage, dict[tuple[Any, str], Any]]] = [
    ("os1_create_shows", "s3", {(CrashingFileSystem, "capabilities"): claims(visible_at="at_create")}),
    ("os2_create_never", "disk", {(CrashingFileSystem, "create"): create_over}),
    ("os2_what_is_put", "disk", {(CrashingFileSystem, "put"): put_in_place}),
    ("os3_", "disk", {(OutputStream, "has_capability"): lambda _, name: name == "append"}),
    ("os4_", "hdfs", {(BUFFERING, "_close"): nothing}),
    ("os5_", "s3", {(OutputStream, "close"): close_each_time, (OBJECT, "_close"): close_over}),
    ("os6_", "disk", {(OutputStream, "_check_open"): nothing}),
    ("os7_", "disk", {(OutputStream, "flush"): OutputStream.hflush}),
    ("os7_", "disk", {(OutputStream, "_check_open"): nothing}),
    ("os8_", "disk", {(CrashingFileSystem, "rename"): refuse}),
    ("os9_a_file", "disk", {(OutputStream, "close"): close_as_if_well}),
    ("os9_a_file", "disk", {(PLAIN, "_abort"): lambda _: True}),
    ("os9_a_close", "disk", {(OutputStream, "abort"): abort_that_boasts}),
    ("os9_abort", "disk", {(OutputStream, "abort"): abort_that_boasts}),
    ("os10_arguments", "disk", {(OutputStream, "write"): write_text}),
    ("os10_buffers", "disk", {(PLAIN, "_write"): write_later, (PLAIN, "_close"): close_with_what_was_kept}),
    ("os11_", "disk", {(OutputStream, "write"): write_unless_full}),
    ("os11_", "disk", {(OutputStream, "_failing_for_good"): contextlib.nullcontext}),
    ("os12_", "disk", {(OutputStream, "flush"): OutputStream.hsync}),
    ("os12_", "disk", {(OutputStream, "flush"): lambda stream: stream._volume.hsync("file", stream._number)}),  # noqa: SLF001
    ("os12_", "s3", {(OutputStream, "flush"): close_over}),
    ("os13_writes", "hdfs", {(BUFFERING, "_hflush"): nothing, (BUFFERING, "_close"): nothing}),
    ("os13_close_beside", "hdfs", {(BUFFERING, "_close"): nothing}),
    ("os13_close_waits", "disk", {(OutputStream, "__init__"): without_lock}),
    ("os14_", "hdfs", {(BUFFERING, "_hflush"): nothing}),
    ("os15_", "hdfs", {(BUFFERING, "_hsync"): BUFFERING._hflush}),  # noqa: SLF001
    ("os15_", "disk", {(PLAIN, "_hsync"): nothing}),
    ("os16_", "webhdfs", {(OutputStream, "_sync"): weak_sync}),
    ("os17_", "webhdfs", {(OutputStream, "has_capability"): lambda *_: True}),
    ("os18_", "webhdfs", {(OutputStream, "has_capability"): lambda *_: True}),
    ("os18_", "disk", {(OutputStream, "has_capability"): capability_while_open}),
    ("os18_", "disk", {(CrashingFileSystem, "capabilities"): claims(durability="close")}),
    ("os19_", "disk", {(PLAIN, "_hsync"): nothing}),
    ("os20_", "disk", {(PLAIN, "_hsync"): nothing}),
    ("os21_", "hdfs", {(BUFFERING, "_hflush"): flush_half}),
    ("os22_", "hdfs", {(CrashingFileSystem, "_info"): infos(lambda info: info._replace(size_bytes=9))}),
    ("os23_", "disk", {(RangeFile, "read_at"): read_from_the_start}),
    (
        "os24_",
        "disk",
        {(CrashingFileSystem, "_info"): infos(lambda i: i._replace(modified_ms=next(times)))},
    ),
    ("os25_", "disk", {(CrashingFileSystem, "_info"): infos(lambda info: info._replace(modified_ms=0))}),
    ("os26_", "disk", {(CrashingFileSystem, "create"): create_over}),
    ("os27_", "disk", {(CrashingFileSystem, "delete"): delete_another}),
    ("os28_", "disk", {(CrashingFileSystem, "capabilities"): claims(stream_capabilities={"hsync", "fast"})}),
    ("os28_", "disk", {(OutputStream, "has_capability"): lambda _, name: name.rpartition(":")[2] == "hsync"}),
    ("os40_", "s3", {(OBJECT, "_close"): close_over}),
    ("os40_", "disk", {(CrashingFileSystem, "create"): create_over}),
    ("os41_what", "disk", {(CrashingFileSystem, "delete"): nothing}),
    ("os41_a_file", "disk", {(CrashingFileSystem, "delete"): nothing}),
    ("os42_", "s3", {(OBJECT, "_write"): show_early}),
    ("os42_", "disk", {(Volume, "content_of"): lambda *_: bytes(9)}),
    ("os43_abort_discards", "disk", {(Volume, "discard"): nothing}),
    ("os43_abort_discards", "s3", {(OutputStream, "abort"): abort_that_forgets}),
    ("os43_abort_after", "disk", {(OutputStream, "abort"): abort_that_forgets}),
    ("a_failure_inside_with", "disk", {(OutputStream, "__exit__"): lambda stream, *_: stream.close()}),
    ("copies_without", "disk", {(OutputStream, "has_capability"): lambda _, name: name == "copy"}),
    ("copied_ranges", "s3", {(OBJECT, "_copy_from"): copy_early}),
    ("copied_ranges", "s3", {(CopyingStream, "copy_from"): copy_uncounted}),
    ("what_was_copied_stays", "s3", {(CrashingFileSystem, "delete"): delete_another}),
    ("what_is_not_there", "s3", {(OBJECT, "_copy_from"): copy_what_is_there}),
    ("copies_end", "s3", {(OutputStream, "_check_open"): nothing}),
    ("rename_never_overwrites", "disk", {(CrashingFileSystem, "rename"): rename_over}),
    ("create_exclusive_never_overwrites", "disk", {(CrashingFileSystem, "create_exclusive"): exclusive_over}),
    ("of_many_exclusive_creations", "disk", {(CrashingFileSystem, "create_exclusive"): exclusive_over}),
    ("of_many_renames", "disk", {(CrashingFileSystem, "rename"): rename_over}),
    ("of_many_exclusive_creations", "disk", {(Tree, "find"): lambda *_: 1}),
]


def test_of(part: str) -> str:
    (found,) = [name for name in dir(Contract) if name.startswith(f"test_{part}")]
    return found


test_of.__test__ = False  # type: ignore[attr-defined] # pytest looks for it


def play(name: str, fs: FileSystem) -> None:
    """Run a test of the contract."""
    with pytest.MonkeyPatch.context() as patch:
        more = {"os12": (patch,), "os13_close_waits": ("hsync", patch)}
        arguments = next((found for start, found in more.items() if name.startswith(f"test_{start}")), ())
        more_by_name = {"os43_abort_discards": {"is_large": False}, "what_is_not_there": {"is_gone": False}}
        keywords: dict[str, bool] = next((found for part, found in more_by_name.items() if part in name), {})
        getattr(Contract(), name)(fs, *arguments, **keywords)


@parametrize(
    ("part", "storage", "changes"),
    MISTAKES,
    ids=[f"{number}-{part}" for number, (part, *_) in enumerate(MISTAKES)],
    quick=8,
)
def test_each_mistake_is_seen(
    part: str, storage: Storage, changes: dict[tuple[Any, str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = test_of(part)
    play(name, CrashingFileSystem(storage=storage))
    for (owner, attribute), what in changes.items():
        monkeypatch.setattr(owner, attribute, what)
    with pytest.raises((AssertionError, pytest.fail.Exception, StorageError, BufferError)):
        play(name, CrashingFileSystem(storage=storage))


def test_no_row_is_left_out() -> None:
    rows = {name.partition("_")[2].partition("_")[0] for name in dir(Contract) if name.startswith("test_os")}
    assert rows == {f"os{number}" for number in (*range(1, 29), *range(40, 44))}
    assert rows <= {part.partition("_")[0] for part, *_ in MISTAKES}


@pytest.mark.slow
def test_storage_that_makes_no_exclusive_file_fails_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CrashingFileSystem, "create_exclusive", refuse)
    with pytest.raises(PermissionDenied):
        play(test_of("an_exclusive_file_is_never"), CrashingFileSystem())
