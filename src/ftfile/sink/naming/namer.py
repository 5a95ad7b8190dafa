"""Final names for the parts of a commit, as they are at the head that it follows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ftfile.commit import layout
from ftfile.core.errors import ConfigError, FtfileError, NameCollision, NotFound, UserCodeError
from ftfile.core.logs import get_logger
from ftfile.sink.filtered import extension_of
from ftfile.sink.naming.facts import PartFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.commit.log import CommitLog
    from ftfile.commit.model import Add
    from ftfile.commit.proposal import Proposal, Rewrite
    from ftfile.commit.state import LogState
    from ftfile.fs.api import FileSystem
    from ftfile.sink.naming.settings import Naming

__all__ = ("NUMBERS", "Namer")

NUMBERS = "numbers"  # what the log remembers: by bucket, the number of its next part

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Namer:
    """Names the parts of one commit.

    Attributes:
        batch: the middle of the names; sorts as commits do.
        time_ms: when the batch was planned.
        query_id: the streaming query, or the id of the batch write.
        first_index: of the parts of each bucket.
    """

    naming: Naming
    batch: str
    time_ms: int
    query_id: str
    first_index: int = 0

    def settle(self, proposal: Proposal, log: CommitLog, head: LogState) -> Proposal:
        """Return the proposal with a final name for each part that has none; parts of older rows come first.

        A rewrite that gets no names is left out of a batch: its rows are where they were, and it never fails one.

        Raises:
            NameCollision: with `ifExists=fail`, a name is taken; nothing was written.
            ConfigError: see `Naming.name`.
            UserCodeError: see `Naming.name`.
        """
        definitions = {**head.definitions, **proposal.definitions}
        round_ = _Round(self, head, definitions, log.fs)
        rewrites = []
        for rewrite in proposal.rewrites:
            try:
                rewrites.append(round_.with_names(rewrite))
            except (NameCollision, ConfigError, UserCodeError) as error:
                if not proposal.tasks:
                    raise
                _log.warning("rows stay in an open file: %s", error)
        adds = round_.named(proposal.adds)
        memory = proposal.memory
        if self.naming.uses_numbers and round_.numbers:
            memory = memory | {NUMBERS: {"set": round_.numbers, "ttlMs": self.naming.ttl_ms}}
        return replace(proposal, rewrites=tuple(rewrites), adds=adds, memory=memory)


class _Round:
    """One attempt at naming, at one head."""

    def __init__(self, namer: Namer, head: LogState, definitions: Mapping[str, Any], fs: FileSystem) -> None:
        self._namer = namer
        self._definitions = definitions
        self._store = fs.capabilities
        self._remembered: Mapping[str, list[Any]] = head.memory.get(NUMBERS, {})
        self._names = _Names(head, fs) if namer.naming.if_exists == "fail" else None
        self._extensions: dict[str, str] = {}
        self._indexes: Counter[str] = Counter()
        self.numbers: dict[str, int] = {}

    def with_names(self, rewrite: Rewrite) -> Rewrite:
        """Return the rewrite with names.

        Raises:
            FtfileError: there are none; its numbers are not used up.
        """
        before = {add.bucket: self._number(add.bucket) for add in rewrite.adds}
        try:
            return replace(rewrite, adds=self.named(rewrite.adds))
        except FtfileError:
            self.numbers.update(before)
            raise

    def named(self, adds: tuple[Add, ...]) -> tuple[Add, ...]:
        return tuple(self._named(add) if add.kind == "part" and add.final_path is None else add for add in adds)

    def _named(self, add: Add) -> Add:
        namer, bucket = self._namer, add.bucket
        directory = layout.bucket_directory(bucket)
        number = self._number(bucket)
        name = namer.naming.name(
            PartFacts(
                name=layout.bucket_stem(bucket) or namer.naming.prefix,
                directory=directory,
                batch=namer.batch,
                index=namer.first_index + self._indexes[bucket],
                number=number,
                unique=layout.unique_part(add.id),
                extension=self._extension(add.encoding),
                time_ms=namer.time_ms,
                rows=add.rows,
                size_bytes=add.length,
                query_id=namer.query_id,
            )
        )
        self._indexes[bucket] += 1
        self.numbers[bucket] = number + 1
        path = f"{directory}/{name}" if directory else name
        # Before the record: what cannot get its name then never can.
        if fault := self._store.fault_of(path):
            raise ConfigError(f"a file would be called {path!r}, which {fault}")
        if self._names is not None:
            self._names.take(path)
        return replace(add, final_path=path)

    def _extension(self, encoding: str) -> str:
        """Return that of the format in which the part was written, which need not be today's."""
        if encoding not in self._extensions:
            self._extensions[encoding] = extension_of(self._definitions[encoding])
        return self._extensions[encoding]

    def _number(self, bucket: str) -> int:
        if bucket in self.numbers:
            return self.numbers[bucket]
        set_ms, number = self._remembered.get(bucket, (0, 0))
        return int(number) if set_ms >= self._namer.time_ms - self._namer.naming.ttl_ms else 0


class _Names:
    """Names that are not unique: each must be new to the directory, and to the others."""

    def __init__(self, head: LogState, fs: FileSystem) -> None:
        self._fs = fs
        self._reserved = head.reserved
        self._waiting = {add.final_path for entry in head.unpublished.values() for add in entry.adds}
        self._paths: set[str] = set()
        self._directories: set[str] = {""}

    def take(self, path: str) -> None:
        """Note that a part of this commit has the name.

        Raises:
            NameCollision: something else has it.
        """
        above = [directory for directory in layout.ancestors(layout.parent(path)) if directory]
        for directory in reversed(above):
            if directory in self._paths or (directory not in self._directories and self._is_file(directory)):
                _refuse(directory, "a file of that name is there, where a directory is needed")
        if path in self._paths:
            _refuse(path, "another part of this batch has it")
        if path in self._directories:
            _refuse(path, "it is also a directory of this batch")
        if path in self._reserved:
            _refuse(path, f"a part that version {self._reserved[path]} removed had it")
        if path in self._waiting or self._fs.exists(path):
            _refuse(path, "a file of that name is there")
        self._paths.add(path)
        self._directories.update(above)

    def _is_file(self, path: str) -> bool:
        try:
            return not self._fs.stat(path).is_directory
        except NotFound:
            return False


def _refuse(path: str, why: str) -> None:
    raise NameCollision(
        f"{path!r} is taken: {why}. Nothing was committed and nothing was touched: move the file away, or choose names "
        "that differ from batch to batch with partFileName, or ifExists=newName"
    )
