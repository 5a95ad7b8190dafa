"""A directory in memory and a driver that can be started anew: what the protocol's tests play with."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.commit.format import layout
from ftfile.commit.format.model import Add, Fingerprint, Origin, Record, StreamAuthor
from ftfile.commit.log.log import CommitLog
from ftfile.commit.policy import Policy
from ftfile.commit.proposal import Proposal
from ftfile.commit.protocol import Committed, commit
from ftfile.core.checksum import checksum
from ftfile.fs.local.filesystem import LocalFileSystem

if TYPE_CHECKING:
    from ftfile.fs.api import FileSystem

_NUMBERS = itertools.count(1)


@dataclass
class Driver:
    """Commits batches of one query; `restart` forgets everything that is not on storage."""

    fs: FileSystem
    query_id: str = "query-1"
    policy: Policy = field(default_factory=Policy)
    log: CommitLog = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.log = CommitLog(self.fs)

    def stage(self, batch: int, content: bytes = b"row\n", name: str | None = None) -> Add:
        """Write a staged part, as a task would."""
        number = next(_NUMBERS)
        directory = layout.staged_directory(self.query_id, batch)
        self.fs.make_directories(directory)
        path = f"{directory}/{number}.staged"
        with self.fs.create(path) as stream:
            stream.write(content)
        return Add(
            id=f"id{number}",
            kind="part",
            path=path,
            final_path=name or f"part-{batch}-{number}.txt",
            length=len(content),
            logical_length=len(content),
            checksum=checksum(content),
            rows=content.count(b"\n"),
            bucket="",
            encoding="text",
            origin=Origin(self.query_id, batch, batch),
        )

    def author(self, batch: int, offsets_hash: str | None = None, run_id: str = "run-1") -> StreamAuthor:
        return StreamAuthor(self.query_id, run_id, batch, offsets_hash, None)

    def propose(
        self, batch: int, *adds: Add, digest: str = "same", offsets_hash: str | None = None, **more: Any
    ) -> Proposal:
        fingerprint = Fingerprint("content/1", digest, covers_content=True)
        author = self.author(batch, offsets_hash)
        settings: dict[str, Any] = {"author": author, "adds": adds, "fingerprint": fingerprint, "tasks": 1}
        return Proposal(**(settings | more))

    def commit(self, batch: int, *adds: Add, **more: Any) -> Committed:
        return commit(self.log, self.propose(batch, *adds, **more), self.policy)

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
        head = log.read_on()
        defaults: dict[str, Any] = {
            "version": head.version + 1,
            "nonce": f"nonce{next(_NUMBERS)}",
            "author": self.author(next(_NUMBERS)),
            "time_ms": 0,
            "after": head.nonce,
        }
        record = Record(**(defaults | fields))
        assert log.create(record)
        return record

    def visible(self) -> set[str]:
        """Return what a plain lister sees."""
        return {info.path for info in self.fs.list("") if not info.path.startswith("_")}

    def text(self, path: str) -> bytes:
        return self.fs.read(path)


@pytest.fixture
def fs(tmp_path: Any) -> FileSystem:
    return LocalFileSystem(str(tmp_path / "out"))


@pytest.fixture
def driver(fs: FileSystem) -> Driver:
    return Driver(fs)
