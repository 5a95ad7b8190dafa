"""A model of a disk after a power cut, which separates the content of files from the names in directories.

It only assumes the guarantees of POSIX that all current file systems give:

- *Content.* A file has at least its content at its last `hsync`. Bytes that were written later are lost, half written
  (torn), complete, or zeros. A file that is overwritten in place, such as a hint, can also have each of its contents
  since then.
- *Names.* `sync_directory` makes all changes of a directory durable. Before, a prefix of them survives. On Btrfs, a
  prefix of the changes of each name survives, because a sync of a file can make its name durable without earlier
  changes of the directory. Changes of different directories are independent.
- A *rename* is one change of both directories: it survives in both or in neither. A sync of either directory makes the
  rename durable, and all earlier changes of both directories. On Btrfs, a file that is renamed to another directory
  can have both names until the old directory is synced.
- Content and names are independent: a durable name can refer to an empty file.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from ftfile.storage.paths import parent_of
from ftfile.testing.fs.tree import DIRECTORY, Tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ftfile.core.context import IdSource


__all__ = ("Disk", "Inode", "Loss", "Operation", "Replay", "apply")


_DIGEST_BYTES = 16

Kind = Literal[
    "create", "link", "unlink", "rename", "mkdir", "rmdir", "write", "put", "hsync", "sync_directory", "note"
]


@dataclass(frozen=True, slots=True)
class Inode:
    """A file without a name."""

    content: bytes
    modified_ms: int
    identity: int | None = None  # number of the file that it is a copy of; None in storage systems without copies


@dataclass(frozen=True, slots=True)
class Disk:
    """The names on a disk, and the files by number."""

    tree: Tree
    inodes: dict[int, Inode]

    def copy(self) -> Disk:
        """Return an independent disk with equal content."""
        return Disk(self.tree.copy(), self.inodes.copy())

    def reachable(self) -> Disk:
        """Return an independent disk with only the files that have a name below the root."""
        directories = {"": self.tree.directories[""].copy()}
        inodes = {}
        for path, number in self.tree.walk():
            if number == DIRECTORY:
                directories[path] = self.tree.directories[path].copy()
            else:
                inodes[number] = self.inodes[number]
        return Disk(Tree(directories), inodes)

    def digest(self) -> bytes:
        """Return 16 bytes that are equal for disks with equal names and contents; times and numbers are ignored."""
        entries = []
        for path, number in self.tree.walk():
            name = path.encode("utf-8", "surrogateescape")
            if number == DIRECTORY:
                entries.append(name + b"/")
            else:
                entries.append(name + b"\0" + _digest(self.inodes[number].content))
        return _digest(b"\n".join(sorted(entries)))


@dataclass(frozen=True, slots=True)
class Operation:
    """One elementary step in the journal."""

    kind: Kind
    path: str  # the changed path, or the text of a note
    target: str = ""  # the new name of a link or rename
    number: int = 0  # of the changed file
    inode: Inode | None = None  # the file after a `create`, `write` or `put`

    def __str__(self) -> str:
        if self.target:
            return f"{self.kind} {self.path} -> {self.target}"
        return f"{self.kind} {self.path}"


@dataclass(frozen=True, slots=True)
class Loss:
    """The losses of a power cut."""

    changes: tuple[Operation, ...]
    contents: tuple[tuple[str, str], ...]  # path and result: `lost`, `torn`, `kept` or `as before`

    @property
    def is_empty(self) -> bool:
        """Nothing is lost."""
        return not self.changes and all(result == "kept" for _, result in self.contents)

    @property
    def old_names(self) -> set[str]:
        """The paths whose removal is lost: files can still have them beside their new paths."""
        return {change.path for change in self.changes if change.kind == "unlink"}

    def __str__(self) -> str:
        losses = [f"not {change}" for change in self.changes]
        for path, result in self.contents:
            if result != "kept":
                losses.append(f"{path} {result}")
        return ", ".join(losses) or "all kept"


@functools.lru_cache(maxsize=1 << 16)
def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


def apply(disk: Disk, operation: Operation) -> None:
    """Apply an operation to a disk, without any loss."""
    _change_names(disk.tree, operation)
    if operation.inode is not None:
        disk.inodes[operation.number] = operation.inode


def _change_names(tree: Tree, operation: Operation) -> None:
    match operation.kind:
        case "create":
            tree.bind(operation.path, operation.number)
        case "link":
            tree.bind(operation.target, operation.number)
        case "unlink":
            tree.unbind(operation.path)
        case "rename":
            tree.bind(operation.target, tree.unbind(operation.path))
        case "mkdir":
            tree.add_directory(operation.path)
        case "rmdir":
            tree.remove_directory(operation.path)
        case _:
            pass


@dataclass(frozen=True, slots=True)
class _PendingChange:
    """A change of a directory that is not durable yet."""

    operation: Operation
    ordered: frozenset[str]  # directories that contain this change in the order of their changes
    created_directory: str | None = None  # a new directory, whose changes are lost if this change is lost

    @property
    def names(self) -> frozenset[str]:
        """The names that change."""
        if self.operation.kind == "link":
            return frozenset({self.operation.target})
        return frozenset({self.operation.path, self.operation.target} - {""})

    @property
    def leaves_directory(self) -> bool:
        """A file is renamed to another directory."""
        return self.operation.kind == "rename" and len(self.ordered) > 1

    @property
    def dependents(self) -> frozenset[str]:
        """The directories whose later changes are lost if this change is lost."""
        if self.created_directory is None:
            return self.ordered
        return self.ordered | {self.created_directory}


def _change_of(operation: Operation) -> _PendingChange | None:
    parent = parent_of(operation.path)
    match operation.kind:
        case "create" | "unlink":
            return _PendingChange(operation, frozenset({parent}))
        case "link":
            return _PendingChange(operation, frozenset({parent_of(operation.target)}))
        case "rename":
            return _PendingChange(operation, frozenset({parent, parent_of(operation.target)}))
        case "mkdir":
            return _PendingChange(operation, frozenset({parent}), created_directory=operation.path)
        case "rmdir":
            return _PendingChange(operation, frozenset({parent, operation.path}))
        case _:
            return None


@dataclass(frozen=True, slots=True)
class _UnsyncedFile:
    """A file with bytes that are not durable."""

    inode: Inode
    path: str  # the name of the file when it was written
    results: dict[bytes, str]  # the contents that `outcomes` enumerates, with their names in `Loss.contents`
    more: dict[bytes, str]  # contents that `sample` draws, too


class Replay:
    """Replays a journal from a durable disk, and enumerates the possible disks after a power cut at any step.

    `directory_sync` is False for storage systems whose names are durable at once.
    """

    def __init__(self, base: Disk, *, directory_sync: bool) -> None:
        self._tree = base.tree.copy()
        self._inodes = dict(base.inodes)
        self._directory_sync = directory_sync
        self._pending: list[_PendingChange] = []
        self._old_names: dict[str, int] = {}  # of files with a durable new name, in directories not synced since then
        self._unsynced: dict[int, _UnsyncedFile] = {}

    def step(self, operation: Operation) -> None:
        """Apply one operation."""
        change = _change_of(operation)
        if change is not None:
            self._pending.append(change)
        if operation.kind == "create" and operation.inode is not None:
            self._inodes[operation.number] = operation.inode
        elif operation.kind in {"write", "put"} and operation.inode is not None:
            self._write_unsynced(operation, operation.inode)
        elif operation.kind == "hsync" and operation.number in self._unsynced:
            self._inodes[operation.number] = self._unsynced.pop(operation.number).inode
        if operation.kind == "sync_directory":
            self._sync(operation.path)
        elif not self._directory_sync and change is not None:
            self._tree = self._tree_with(self._pending)
            self._pending = []

    def outcomes(self) -> Iterator[tuple[Disk, Loss]]:
        """Yield all disks that a power cut can leave now if the changes of each directory survive in their order.

        The first disk has lost nothing.
        """
        for survivors, lost in _survivals(self._pending):
            tree = self._tree_with(survivors)
            unsynced = self._list_unsynced_in(tree)
            for contents in itertools.product(*(self._unsynced[number].results for number in unsynced)):
                yield self._outcome(tree, lost, dict(zip(unsynced, contents, strict=True)))

    def replay_reordered(self) -> Iterator[tuple[Disk, Loss]]:
        """Yield disks of a file system that keeps only the order of changes of each name.

        Of the changes that are not durable, one is lost alone, or one survives alone, each with the changes that
        depend on it; or a file that was renamed to another directory also has its old name. No content is lost.
        Disks of `outcomes` are left out.
        """
        every = range(len(self._pending))
        for cuts in itertools.chain(({number} for number in every), (set(every) - {number} for number in every)):
            survivors, lost = _survival_by_name(self._pending, cuts)
            if survivors != _survival(self._pending, cuts).survivors:
                yield self._with_all_content(self._tree_with(survivors), lost)
        for path, number in self._old_names_with(self._pending).items():
            tree = self._tree_with(self._pending)
            if lost := _keep_names(tree, {path: number}):
                yield self._with_all_content(tree, lost)

    def sample(self, ids: IdSource) -> Iterator[tuple[Disk, Loss]]:
        """Yield random outcomes without end: each loses up to four changes and their dependents, and any contents.

        In a third of them, only the changes of each name survive in their order, and renamed files can keep their old
        names. A file can also have each content that it had since it was synced, or zeros in place of new bytes.
        """
        while True:
            cuts = set()
            for _ in range(_draw_below(5, ids)):
                cuts.add(_draw_below(len(self._pending) + 1, ids))
            by_name = _draw_below(3, ids) == 0
            survivors, lost = (_survival_by_name if by_name else _survival)(self._pending, cuts)
            tree = self._tree_with(survivors)
            if by_name:
                names = self._old_names_with(survivors)
                lost += _keep_names(tree, {path: names[path] for path in names if _draw_below(4, ids) == 0})
            contents = {}
            for number in self._list_unsynced_in(tree):
                unsynced = self._unsynced[number]
                choice = tuple(dict.fromkeys([*unsynced.results, *unsynced.more]))
                contents[number] = choice[_draw_below(len(choice), ids)]
            yield self._outcome(tree, lost, contents)

    def _old_names_with(self, survivors: Sequence[_PendingChange]) -> dict[str, int]:
        """Return the old names that renamed files can still have, with the numbers of the files."""
        names = self._old_names.copy()
        for change in survivors:
            if change.leaves_directory:
                names[change.operation.path] = change.operation.number
        return names

    def _list_unsynced_in(self, tree: Tree) -> list[int]:
        """Return the numbers of the unsynced files that have a name."""
        unsynced: set[int] = set()
        if self._unsynced:
            for _, number in tree.walk():
                if number in self._unsynced:
                    unsynced.add(number)
        return sorted(unsynced)

    def _with_all_content(self, tree: Tree, lost: list[Operation]) -> tuple[Disk, Loss]:
        contents = {number: self._unsynced[number].inode.content for number in self._list_unsynced_in(tree)}
        return self._outcome(tree, lost, contents)

    def _outcome(self, tree: Tree, lost: list[Operation], contents: dict[int, bytes]) -> tuple[Disk, Loss]:
        inodes = self._inodes.copy()
        results = []
        for number, content in contents.items():
            unsynced = self._unsynced[number]
            inodes[number] = Inode(content, unsynced.inode.modified_ms)
            results.append((unsynced.path, (unsynced.more | unsynced.results)[content]))
        return Disk(tree, inodes), Loss(tuple(lost), tuple(results))

    def _write_unsynced(self, operation: Operation, inode: Inode) -> None:
        """Remember a file with unsynced bytes, and its possible contents after a power cut."""
        durable = self._inodes[operation.number].content
        unsynced = self._unsynced.get(operation.number)
        old = durable
        # A file can have its new size before its new bytes.
        more = {durable + bytes(max(0, len(inode.content) - len(durable))): "zeros"}
        if unsynced is not None:
            old = unsynced.inode.content
            if operation.kind == "put":
                more |= unsynced.more | {old: "as before"}
        new = inode.content
        half = len(new) // 2
        results = {new: "kept"}
        if operation.kind == "put":
            # Written in place: old bytes remain where the new bytes are not written.
            results.setdefault(new[:half] + old[half:], "torn")
            results.setdefault(old, "as before")
        else:
            torn_end = (len(durable) + len(new)) // 2
            results.setdefault(new[:torn_end], "torn")
        results.setdefault(durable, "lost")
        self._unsynced[operation.number] = _UnsyncedFile(inode, operation.path, results, more)

    def _sync(self, directory: str) -> None:
        """Make the pending changes of a directory durable, and the earlier changes that they need."""
        durable, waiting = [], []
        needed = {directory}
        # If a directory was removed and created again, its new name is durable before the changes in it.
        removed = set()
        for change in self._pending:
            if change.operation.kind == "rmdir":
                removed.add(change.operation.path)
        for change in reversed(self._pending):
            creates_needed = change.created_directory in needed & removed
            if needed.isdisjoint(change.ordered) and not creates_needed:
                waiting.append(change)
            else:
                durable.append(change)
                needed |= change.ordered
        self._tree = self._tree_with(durable[::-1])
        self._pending = waiting[::-1]
        self._note_old_names(durable[::-1], directory)

    def _note_old_names(self, durable: Sequence[_PendingChange], synced: str) -> None:
        """Note the old names of durable renames, except for those in a directory that is synced or removed."""
        gone = {synced}
        for change in durable:
            for path in change.names:
                self._old_names.pop(path, None)
            if change.leaves_directory:
                self._old_names[change.operation.path] = change.operation.number
            if change.operation.kind == "rmdir":
                gone.add(change.operation.path)
        for path in [path for path in self._old_names if parent_of(path) in gone]:
            del self._old_names[path]

    def _tree_with(self, changes: Sequence[_PendingChange]) -> Tree:
        """Return a copy of the durable tree with these changes; unchanged directories are shared."""
        tree = Tree(self._tree.directories.copy())
        copied_directories: set[str] = set()
        for change in changes:
            for directory in change.ordered - copied_directories:
                tree.directories[directory] = dict(tree.directories.get(directory, ()))
            copied_directories |= change.ordered
            _change_names(tree, change.operation)
        return tree


class _Survival(NamedTuple):
    """The changes that survive a power cut, and the lost operations."""

    survivors: list[_PendingChange]
    lost: list[Operation]


def _survivals(pending: Sequence[_PendingChange]) -> Iterator[_Survival]:
    """Yield every set of changes that can survive together; the first set contains all changes."""
    # The first undecided change, the decisions about the changes before it, and the directories with a lost change.
    waiting = [(0, _Survival([], []), frozenset[str]())]
    while waiting:
        start, (survivors, lost), lost_directories = waiting.pop()
        for number in range(start, len(pending)):
            change = pending[number]
            if lost_directories.isdisjoint(change.ordered):
                # The change can survive or be lost. Continue with its survival, and with its loss later.
                without_change = _Survival(survivors.copy(), [*lost, change.operation])
                waiting.append((number + 1, without_change, lost_directories | change.dependents))
                survivors.append(change)
            else:
                lost.append(change.operation)
                lost_directories |= change.dependents
        yield _Survival(survivors, lost)


def _survival(pending: Sequence[_PendingChange], cuts: set[int]) -> _Survival:
    """Lose the changes with the numbers `cuts`, and all later changes of a directory with a lost change."""
    survivors: list[_PendingChange] = []
    lost: list[Operation] = []
    lost_directories: set[str] = set()
    for number, change in enumerate(pending):
        if number in cuts or not lost_directories.isdisjoint(change.ordered):
            lost_directories |= change.dependents
            lost.append(change.operation)
        else:
            survivors.append(change)
    return _Survival(survivors, lost)


def _survival_by_name(pending: Sequence[_PendingChange], cuts: set[int]) -> _Survival:
    """Lose the changes with the numbers `cuts`, and the later changes that cannot survive without them.

    These are changes of the same names, changes in a directory that was never created, and the removal of a directory
    that is not empty then.
    """
    survivors: list[_PendingChange] = []
    lost: list[Operation] = []
    lost_names: set[str] = set()
    missing: set[str] = set()
    not_empty: set[str] = set()
    for number, change in enumerate(pending):
        parents = set(map(parent_of, change.names))
        needed = not lost_names.isdisjoint(change.names) or not missing.isdisjoint(parents)
        is_removal = change.operation.kind == "rmdir"
        if number in cuts or needed or (is_removal and change.operation.path in not_empty):
            lost.append(change.operation)
            lost_names |= change.names
            not_empty |= parents
            if change.created_directory is not None:
                missing.add(change.created_directory)
        else:
            survivors.append(change)
    return _Survival(survivors, lost)


def _keep_names(tree: Tree, names: Mapping[str, int]) -> list[Operation]:
    """Give files these names, too, where the directory exists and has no such name; return the lost removals."""
    lost = []
    for path, number in names.items():
        parent, _, name = path.rpartition("/")
        if name not in tree.directories.get(parent, {name: DIRECTORY}):
            tree.directories[parent] = tree.directories[parent] | {name: number}
            lost.append(Operation("unlink", path, number=number))
    return lost


def _draw_below(limit: int, ids: IdSource) -> int:
    """Return a random number from 0 to `limit` - 1."""
    return int(ids.unique(), 16) % limit
