"""Compares the disks of power cuts with the model of a disk in `ftfile.testing`, which must admit each of them.

The process of a workload repeats each call of a local file system on the model, and notes how many elementary steps
the model has executed. For a disk of a power cut, the names in each directory must be those after a prefix of the
changes that were not durable; on Btrfs, the same of each name. Each file must have at least its durable content and at
most what was written.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from ftfile.storage import local
from ftfile.storage.local import LocalFileSystem
from ftfile.storage.paths import parent_of
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.disk import Disk, Operation, Replay
from ftfile.testing.fs.tree import DIRECTORY, Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ftfile.storage.api import OutputStream

__all__ = ("NOTE", "journal_of", "mirrored", "violations")

NOTE = b"model "
STREAM: Any = local._LocalStream  # noqa: SLF001 - the class whose calls are repeated
_SYNCED = "sync_directory"
# Of one call of `create_exclusive`, in the driver and in the model.
_TEMPORARY = (".", ".tmp")


@contextlib.contextmanager
def mirrored(place: Path, journal: Path, note: Callable[[bytes], object]) -> Iterator[None]:
    """Repeat the calls below `place` on the model, and write its journal to a file at the end."""
    mirror = _Mirror(place, note)
    with contextlib.ExitStack() as stack:
        for owner, name, repeat in mirror.calls():
            stack.enter_context(mock.patch.object(owner, name, mirror.wrapped(getattr(owner, name), repeat)))
        yield
    journal.write_bytes(pickle.dumps(mirror.disk.journal))


def journal_of(path: Path) -> list[Operation]:
    """Return the steps of the model."""
    steps: list[Operation] = pickle.loads(path.read_bytes())
    return steps


class _Mirror:
    """The model of the disk at a place."""

    def __init__(self, place: Path, note: Callable[[bytes], object]) -> None:
        self.disk = CrashingFileSystem()
        self._place, self._note = str(place), note
        self._lock = threading.RLock()
        self._streams: dict[int, OutputStream] = {}

    def calls(self) -> list[tuple[Any, str, Callable[..., object]]]:
        """Return the methods to wrap: the class, the name, and what repeats a call on the model."""
        of_paths = ("create_exclusive", "put", "delete", "remove_directory", "sync_directory", "rename")
        calls: list[tuple[Any, str, Callable[..., object]]] = [
            (LocalFileSystem, name, self._repeating(name)) for name in of_paths
        ]
        calls += [(LocalFileSystem, "create", self._create), (LocalFileSystem, "make_directories", self._make)]
        return [*calls, (STREAM, "_write", self._write), (STREAM, "_hsync", self._hsync)]

    def wrapped(self, original: Callable[..., Any], repeat: Callable[..., object]) -> Callable[..., Any]:
        """Return a method that runs the original one, repeats it on the model, and notes the steps of the model."""

        def method(owner: Any, *arguments: Any) -> Any:
            with self._lock:
                result = original(owner, *arguments)
                repeat(result, owner, *arguments)
                self._note(NOTE + b"%d" % len(self.disk.journal))
                return result

        return method

    def _path(self, fs: LocalFileSystem, path: str) -> str | None:
        """Return the path below the place; None for another place."""
        whole = os.path.normpath(f"{fs.root}/{path}")
        if whole == self._place:
            return ""
        return whole.removeprefix(f"{self._place}/") if whole.startswith(f"{self._place}/") else None

    def _repeating(self, name: str) -> Callable[..., object]:
        def repeat(_: object, fs: LocalFileSystem, *arguments: Any) -> None:
            count = 2 if name == "rename" else 1
            paths = [self._path(fs, path) for path in arguments[:count]]
            if None not in paths:
                getattr(self.disk, name)(*paths, *arguments[count:])

        return repeat

    def _make(self, _: object, fs: LocalFileSystem, path: str) -> None:
        whole = self._path(fs, path)
        if whole is None:
            return
        self.disk.make_directories(whole)
        while not path and whole:  # the names of the root and its parents are synced
            whole = parent_of(whole)
            self.disk.sync_directory(whole)

    def _create(self, stream: Any, fs: LocalFileSystem, path: str) -> None:
        whole = self._path(fs, path)
        if whole is not None:
            self._streams[id(stream)] = self.disk.create(whole)
            stream.of_model = self._streams[id(stream)]  # its number is not reused while the stream exists

    def _write(self, _: object, stream: Any, data: memoryview) -> None:
        if hasattr(stream, "of_model"):
            stream.of_model.write(data)

    def _hsync(self, _: object, stream: Any) -> None:
        if hasattr(stream, "of_model"):
            stream.of_model.hsync()


@dataclass(frozen=True)
class _Change:
    """A change of the names of a directory that may be lost: its number, the name and the new value."""

    number: int
    name: str
    value: int | None  # of a file, or `DIRECTORY`; None for a name that is gone


def violations(journal: Sequence[Operation], least: int, most: int, place: Path, *, in_order: bool = True) -> list[str]:
    """Return what a disk has that the model does not admit after `least` to `most` steps.

    If `in_order`, the changes of each directory survive in their order; otherwise those of each name.
    """
    replay = Replay(Disk(Tree(), {}), directory_sync=True)
    for operation in journal[:least]:
        replay.step(operation)
    pending = [change.operation for change in replay._pending]  # noqa: SLF001 - the model's own names
    rest = [operation for operation in journal[least:most] if operation.kind != _SYNCED]
    changes = _changes([*pending, *rest])
    contents = _contents(replay, rest)
    found = []
    # The disk can begin with files at its root.
    of_root = {operation.path.partition("/")[0] for operation in journal}
    for directory, _, _ in os.walk(place):
        path = os.path.relpath(directory, place).removeprefix(".")
        if path.partition("/")[0] not in {"", *of_root}:
            continue
        names = _names(Path(directory))
        if not path:
            names &= of_root
        durable = replay._tree.directories.get(path, {})  # noqa: SLF001
        if in_order:
            states = _states(durable, changes.get(path, ()))
        else:
            old = _old_names(replay, path)
            states = list(_mixed(durable, [*old, *changes.get(path, ())], names))
        matching = [state for state in states if _plain(state).keys() == names]
        if not matching:
            found.append(f"{path!r} has the names {sorted(names)}, and the model {[sorted(state) for state in states]}")
            continue
        for name in names:
            numbers = {state[name] for state in matching}
            if numbers == {DIRECTORY}:
                continue
            content = Path(directory, name).read_bytes()
            if not any(_is_between(content, *contents(number)) for number in numbers):
                known = [contents(number) for number in numbers]
                found.append(f"{path}/{name} has {len(content)} bytes, {content[:90]!r}, and the model {known!r:.500}")
    return found


def _names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if not _is_temporary(path.name) and path.name != "lost+found"}


def _plain(state: Mapping[str, int]) -> dict[str, int]:
    return {name: number for name, number in state.items() if not _is_temporary(name)}


def _is_temporary(name: str) -> bool:
    start, end = _TEMPORARY
    return name.startswith(start) and name.endswith(end)


def _changes(operations: Sequence[Operation]) -> dict[str, list[_Change]]:
    """Return the changes of the names of each directory, in their order."""
    changes: dict[str, list[_Change]] = {}

    def add(number: int, path: str, value: int | None) -> None:
        changes.setdefault(parent_of(path), []).append(_Change(number, path.rpartition("/")[2], value))

    for number, operation in enumerate(operations):
        match operation.kind:
            case "create":
                add(number, operation.path, operation.number)
            case "link":
                add(number, operation.target, operation.number)
            case "rename":
                add(number, operation.path, None)
                add(number, operation.target, operation.number)
            case "unlink" | "rmdir":
                add(number, operation.path, None)
            case "mkdir":
                add(number, operation.path, DIRECTORY)
            case _:
                pass
    return changes


def _states(names: Mapping[str, int], changes: Sequence[_Change]) -> list[dict[str, int]]:
    """Return the names of a directory after each prefix of changes that may be lost. A step has all of its changes."""
    now = dict(names)
    states = [dict(now)]
    for place, change in enumerate(changes):
        if change.value is None:
            now.pop(change.name, None)
        else:
            now[change.name] = change.value
        if place + 1 == len(changes) or changes[place + 1].number != change.number:
            states.append(dict(now))
    return states


def _old_names(replay: Replay, directory: str) -> list[_Change]:
    """Return the names of a directory that renamed files can still have, as changes."""
    names = []
    for path, number in replay._old_names.items():  # noqa: SLF001 - the model's own names
        if parent_of(path) == directory:
            names.append(_Change(-1, path.rpartition("/")[2], number))
    return names


def _mixed(names: Mapping[str, int], changes: Sequence[_Change], found: set[str]) -> Iterator[dict[str, int]]:
    """Yield the states of a directory with the names that were found, if each name can have a value of any time."""
    values: dict[str, set[int | None]] = {name: {value} for name, value in names.items()}
    for change in changes:
        values.setdefault(change.name, {None}).add(change.value)
    known = {name for name, possible in values.items() if possible != {None}}
    certain = {name for name, possible in values.items() if None not in possible}
    if found <= known and {name for name in certain if not _is_temporary(name)} <= found:
        rounds = max((len(values[name] - {None}) for name in found), default=0)
        for number in range(max(rounds, 1)):
            state = {}
            for name in found:
                possible = sorted(value for value in values[name] if value is not None)
                state[name] = possible[min(number, len(possible) - 1)]
            yield state


def _contents(replay: Replay, rest: Sequence[Operation]) -> Callable[[int], tuple[bytes, list[bytes]]]:
    """Return a function of a file: its durable content, and later contents that may be lost."""
    later: dict[int, list[bytes]] = {}
    for number, unsynced in replay._unsynced.items():  # noqa: SLF001 - the model's own names
        later[number] = [*unsynced.results, *unsynced.more]
    created: dict[int, bytes] = {}
    for operation in rest:
        if operation.inode is not None:
            if operation.kind == "create":
                created[operation.number] = operation.inode.content
            later.setdefault(operation.number, []).append(operation.inode.content)

    def contents(number: int) -> tuple[bytes, list[bytes]]:
        inode = replay._inodes.get(number)  # noqa: SLF001
        return created.get(number, b"") if inode is None else inode.content, later.get(number, [])

    return contents


def _is_between(content: bytes, durable: bytes, later: Sequence[bytes]) -> bool:
    """Return True if each byte is of the durable content or of a later one, or a zero after the durable content."""
    known = [durable, *later]
    known += [durable + bytes(len(each) - len(durable)) for each in later if len(each) > len(durable)]
    if not min(map(len, known)) <= len(content) <= max(map(len, known)):
        return False
    if any(each.startswith(content) for each in known):
        return True
    return all(
        content[place : place + 1] in {each[place : place + 1] for each in known} for place in range(len(content))
    )
