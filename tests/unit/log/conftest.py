"""A directory in memory and a driver that can be restarted, for the tests of the commit protocol."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from ftfile.core.checksum import checksum
from ftfile.core.context import SYSTEM
from ftfile.log.checks import Accepted, Rewrite, accept_rewrites
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import Add, Body, Fingerprint, Origin, Record, Remove, StreamAuthor
from ftfile.log.policy import DEFAULT_POLICY, Policy
from ftfile.log.protocol import Committed, commit
from ftfile.storage.local import LocalFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.log.format.model import Author
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem

_NUMBERS = itertools.count(1)


def rows(digest: str = "same") -> Fingerprint:
    return Fingerprint("content/1", digest, covers_content=True)


class Saying:
    """The content of a test's record; rewrites are accepted, and overwrites found out, as of each head.

    Args:
        log: of the directory.
        rewrites: offered.
        fields: others of the body.
    """

    def __init__(self, log: CommitLog, rewrites: tuple[Rewrite, ...] = (), **fields: Any) -> None:
        self.log = log
        self.rewrites = rewrites
        self.fields = fields
        self.accepted = Accepted()

    def prepare(self, head: LogState, snapshot: Callable[[], Snapshot]) -> Body | None:
        body = Body(**self.fields)
        self.accepted = accept_rewrites(self.log, head, self.rewrites, (*body.adds, *body.dead_letters))
        if self.rewrites and not (self.accepted.rewrites or self.fields):
            return None
        replaced = tuple(map(Remove.of, snapshot().adds.values())) if body.overwrite else ()
        return structs.replace(
            body, adds=(*body.adds, *self.accepted.adds), removes=(*replaced, *self.accepted.removes)
        )


@dataclass
class Driver:
    """Commits batches of one query; `restart` forgets everything that is not on storage."""

    fs: FileSystem
    query_id: str = "query-1"
    policy: Policy = DEFAULT_POLICY
    log: CommitLog = field(init=False)
    accepted: Accepted = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    @property
    def root(self) -> str:
        """The directory on the disk."""
        assert isinstance(self.fs, LocalFileSystem)
        return self.fs.root

    def restart(self) -> None:
        self.log = CommitLog(self.fs)

    def stage(self, batch: int, content: bytes = b"row\n", name: str | None = None) -> Add:
        """Write a staged part, as a task would; `{id}` in its name makes that unique."""
        number = next(_NUMBERS)
        directory = layout.staged_directory(self.query_id)
        self.fs.make_directories(directory)
        path = f"{directory}/{number}.staged"
        with self.fs.create(path) as stream:
            stream.write(content)
        return Add(
            id=f"id{number}",
            kind="part",
            path=path,
            final_path=(name or f"part-{batch}-{{id}}.txt").replace("{id}", f"id{number}"),
            length=len(content),
            logical_length=len(content),
            checksum=checksum(content),
            rows=content.count(b"\n"),
            directory_key="",
            encoding="text",
            origin=Origin(self.query_id, batch, batch),
        )

    def author(self, batch: int, offsets_hash: str | None = None, run_id: str = "run-1") -> StreamAuthor:
        return StreamAuthor(self.query_id, run_id, batch, offsets_hash, None)

    def commit(
        self,
        batch: int,
        *adds: Add,
        digest: str = "same",
        offsets_hash: str | None = None,
        log: CommitLog | None = None,
        **more: Any,
    ) -> Committed:
        """Commit a batch; `Saying` lists the possible content."""
        settings: dict[str, Any] = {
            "author": self.author(batch, offsets_hash),
            "adds": adds,
            "fingerprint": rows(digest),
            "tasks": 1,
        }
        return self.commit_as(log=log, **(settings | more))

    def commit_as(
        self,
        author: Author,
        *,
        log: CommitLog | None = None,
        fingerprint: Fingerprint | None = None,
        task_found_batch: bool = False,
        **saying: Any,
    ) -> Committed:
        """Commit as any author; `Saying` lists the possible content, and `accepted` contains the accepted rewrites."""
        log = self.log if log is None else log
        said = Saying(log, **saying)
        try:
            return commit(
                log, author, said.prepare, self.policy, fingerprint=fingerprint, task_found_batch=task_found_batch
            )
        finally:
            self.accepted = said.accepted

    def commit_new(self, batch: int, **more: Any) -> Add:
        """Stage and commit one part; return its add."""
        add = self.stage(batch)
        self.commit(batch, add, **more)
        return add

    def with_policy(self, **settings: Any) -> Driver:
        self.policy = replace(self.policy, **settings)
        return self

    def create_record(self, log: CommitLog | None = None, **fields: Any) -> Record:
        """Create the next record as some other committer, a new one unless it is given, without publishing it."""
        log = CommitLog(self.fs) if log is None else log
        log.prepare_directory()
        head = log.refresh()
        defaults: dict[str, Any] = {
            "version": head.version + 1,
            "nonce": f"nonce{next(_NUMBERS)}",
            "author": self.author(next(_NUMBERS)),
            "time_ms": 0,
            "previous_nonce": head.nonce,
        }
        record = Record(**(defaults | fields))
        assert log.create(record)
        return record

    def visible(self) -> set[str]:
        """Return the view of a plain lister."""
        return {info.path for info in self.fs.list("") if not info.path.startswith("_")}

    def text(self, path: str) -> bytes:
        return self.fs.read(path)


@pytest.fixture
def fs(tmp_path: Any) -> FileSystem:
    return LocalFileSystem(str(tmp_path / "out"), SYSTEM)


@pytest.fixture
def driver(fs: FileSystem) -> Driver:
    return Driver(fs)
