"""A random history of one log: two committers, vacuums and readers with pauses, kills, lost files and restores.

The oracle is simple: the live adds after each version, derived from the records in the order of their creation.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from unittest import mock

from ftfile.core.errors import CorruptData, FtfileError, NotFound
from ftfile.log import publish
from ftfile.log.checkpoints import CHECKPOINTS_KEPT, list_checkpoints
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout, version_blocks
from ftfile.log.format.model import Add, MaintenanceAuthor, Origin, Record, Remove, StreamAuthor
from ftfile.log.read import compacted_writer
from ftfile.log.read.compacted_records import CompactedFiles, find_contained, list_compacted
from ftfile.log.read.snapshot import removals, snapshot_at, take_snapshot
from ftfile.testing.fs.memory import MemoryFileSystem
from tests.crash.log_processes import PausingProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ftfile.storage.api import FileInfo, FileSystem

PROCESSES_MAX = 4
VACUUM_TRIES = 20
VERSIONS_CHECKED = 8
CHECK_EVERY = 20


@dataclass
class Oracle:
    """The content of the records: by version, the ids of the live adds, and whether the version ended adds."""

    live: list[frozenset[str]] = field(default_factory=lambda: [frozenset()])  # after each version, from -1
    ended: list[bool] = field(default_factory=list)
    start: int = 0

    @property
    def head(self) -> int:
        """Return the newest version."""
        return len(self.ended) - 1

    def apply(self, record: Record) -> None:
        """Apply a created record."""
        if record.version <= self.head:
            assert record.version < self.start, "a version was created twice"
            return  # a committer that was overtaken wrote to a position that vacuum has emptied
        assert record.version == self.head + 1
        removed = {remove.id for remove in record.removes}
        assert removed <= self.live[-1]
        self.live.append((self.live[-1] - removed) | {add.id for add in record.adds})
        self.ended.append(bool(removed))
        self.start = max(self.start, record.log_start or 0)

    def copy(self) -> Oracle:
        """Return a copy that later records do not change."""
        return Oracle(list(self.live), list(self.ended), self.start)


class LogHistory:
    """One history, which is the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._name = f"log-history-{seed}"
        MemoryFileSystem.drop(self._name)
        self._fs = MemoryFileSystem(self._name)
        self._oracle = Oracle()
        self._processes: list[PausingProcess] = []
        self._step = 0
        self._names = 0
        self._share = self._draw.choice((0.2, 0.6, 1.0))
        self._is_restored = False
        self._copy: tuple[dict[str, bytes], Oracle] | None = None
        self.counts: Counter[str] = Counter()

    def play(self, steps: int) -> None:
        """Play a number of steps, and compare the rows of readers with the oracle every few steps.

        Raises:
            AssertionError: a version differs from its records.
        """
        with self._limits():
            for self._step in range(steps):
                self._play_step()
                if self._step % CHECK_EVERY == 0:
                    self._check()
            for process in self._processes:
                process.kill()
            self._check()
        MemoryFileSystem.drop(self._name)

    @contextlib.contextmanager
    def _limits(self) -> Iterator[None]:
        """Set small limits within the block. All processes have the same block size."""
        limits: list[tuple[object, str, tuple[int, ...]]] = [
            (publish, "COMPACTED_EVERY", (1, 2, 4, 4, 4, 8)),
            (publish, "COMPACTED_BYTES", (800, 3000, 1 << 20)),
            (compacted_writer, "GAP_RECORDS", (1, 3, 16, 256)),
            (compacted_writer, "MERGED_BYTES", (1500, 4000, 1 << 20)),
            (version_blocks, "BLOCK_VERSIONS", (1, 2, 4, 64)),
        ]
        with contextlib.ExitStack() as stack:
            for module, name, values in limits:
                stack.enter_context(mock.patch.object(module, name, self._draw.choice(values)))
            yield

    def _play_step(self) -> None:
        draw = self._draw.random()
        if len(self._processes) < PROCESSES_MAX and draw < 0.3:
            self._begin_process()
        elif draw < 0.32:
            # A vacuum that has read ranges and checkpoints, but has not yet written its record, relies on them.
            if not any(process.kind == "vacuum" for process in self._processes):
                self._draw.choice((self._lose_ranges, self._damage_ranges, self._lose_checkpoints))()
        elif draw < 0.325:
            self._copy_or_restore()
        elif self._processes:
            self._take_turns()

    def _begin_process(self) -> None:
        kind = self._draw.choice(("a", "a", "b", "b", "vacuum", "reader"))
        works: dict[str, Callable[[FileSystem], None]] = {"vacuum": self._vacuum, "reader": self._read}
        query = kind if self._draw.random() < 0.9 else f"{kind}{self._next_name()}"
        process = PausingProcess(
            kind=kind,
            work=works.get(kind, lambda fs: self._commit(fs, query)),
            fs=self._fs,
            draw=self._draw,
            share=self._share,
            on_record=self._oracle.apply,
        )
        self._processes.append(process)

    def _take_turns(self) -> None:
        """Let a process run for a short or long time. Some processes pause for long, and some are killed."""
        awake = [process for process in self._processes if process.sleeps_until <= self._step]
        process = self._draw.choice(awake or self._processes)
        if self._draw.random() < 0.15:
            process.sleeps_until = self._step + self._draw.choice((5, 20, 80))
        if self._draw.random() < 0.01:
            self.counts["deaths"] += 1
            process.kill()
        for _ in range(self._draw.choice((1, 1, 3, 30))):
            if not process.is_over:
                process.take_turn()
        if process.is_over:
            self._processes.remove(process)
            if process.error is not None:
                raise process.error

    # The work of processes.

    def _commit(self, fs: FileSystem, query: str) -> None:
        log = CommitLog(fs)
        log.prepare_directory()
        log.recent.is_kept = self._draw.random() < 0.5
        for _ in range(self._draw.choice((2, 8, 40))):
            head = log.refresh(durable=True)
            share = self._draw.choice((0, 0, 0.2, 0.5, 1))
            live = self._oracle.live[head.version + 1] if head.version <= self._oracle.head else frozenset()
            last = head.queries.get(query)
            record = Record(
                version=head.version + 1,
                nonce=fs.context.ids.unique(),
                author=StreamAuthor(query, "r", 0 if last is None else last.last_batch + 1),
                time_ms=0,
                adds=tuple(self._add() for _ in range(self._draw.choice((0, 1, 1, 2, 8)))),
                removes=tuple(
                    Remove(id=add_id, kind="segment", final_path=None)
                    for add_id in sorted(live)
                    if self._draw.random() < share
                ),
                lineage_start=0 if last is None else None,
                schema=self._draw.choice((None, "s")),
                definitions={"s": "{}", "e": {"a": 1}},
                previous_nonce=head.nonce,
            )
            created = log.create(record)
            if created is not None:
                self.counts["commits"] += 1
                publish.post_commit(log, created)
                if self._draw.random() < 0.15:
                    publish.renew_checkpoint(log, created)

    def _add(self) -> Add:
        add_id = f"{self._next_name():032x}"
        return Add(
            id=add_id,
            kind="segment",
            path=f"s/{add_id}",
            final_path=None,
            length=1,
            logical_length=1,
            checksum="crc32:00000000",
            rows=1,
            directory_key="",
            encoding="e",
            origin=Origin("q", 0, 0),
        )

    def _vacuum(self, fs: FileSystem) -> None:
        """Record a later start of the log, delete the records before it, merge ranges, and delete some ranges."""
        log = CommitLog(fs)
        for _ in range(VACUUM_TRIES):
            head = log.refresh(durable=True)
            if head.version < 1:
                return
            try:
                compacted_to = snapshot_at(log, head, since=head.log_start).compacted_to
            except CorruptData:
                if log.refresh().version == head.version:
                    raise
                continue
            names = [name for name in log.checkpoints.names() if name.version <= head.version][-CHECKPOINTS_KEPT:]
            readable = [name for name in names if log.checkpoints.read(name) is not None]
            start = head.log_start
            if len(readable) == CHECKPOINTS_KEPT:
                wanted = head.version if self._draw.random() < 0.6 else self._draw.randint(start, head.version)
                start = max(start, min(readable[0].version, compacted_to + 1, wanted))
            record = Record(
                version=head.version + 1,
                nonce=fs.context.ids.unique(),
                author=MaintenanceAuthor("vacuum", f"v{self._next_name()}"),
                time_ms=0,
                log_start=start,
                previous_nonce=head.nonce,
            )
            created = log.create(record)
            if created is None:
                continue
            self.counts["vacuums"] += 1
            publish.post_commit(log, created)
            self._delete_old(log, is_merging=start > head.log_start or compacted_to < head.version)
            return

    def _delete_old(self, log: CommitLog, *, is_merging: bool) -> None:
        head = log.refresh(durable=True)
        for info in sorted(log.fs.list(layout.LOG), key=lambda info: info.path):
            name = layout.parse_log_name(info.path)
            if name is not None and name.version < head.log_start:
                with contextlib.suppress(NotFound):
                    log.fs.delete(info.path)
        if is_merging or self._draw.random() < 0.3:
            # Other processes continue meanwhile. If a vacuum cannot merge a range, the next vacuum merges it.
            with contextlib.suppress(FtfileError):
                compacted_writer.write_fewest_compacted(log, head)
        log_files = CompactedFiles(log, head, list_compacted(log.fs)).cover()
        for compacted in find_contained(list_compacted(log.fs), log_files):
            with contextlib.suppress(NotFound):
                log.fs.delete(layout.compacted_path(compacted))

    def _read(self, fs: FileSystem) -> None:
        """Read any version that the log still guarantees, while other processes write."""
        log = CommitLog(fs)
        for _ in range(3):
            if self._oracle.head < self._oracle.start:
                return
            version = self._draw.randint(self._oracle.start, self._oracle.head)
            try:
                adds = take_snapshot(log, version).adds
            except FtfileError:
                if version < self._oracle.start or self._is_restored:
                    continue
                raise
            if not self._is_restored:
                assert set(adds) == self._oracle.live[version + 1], f"a reader of version {version}"
                self.counts["reads"] += 1

    # Events of the storage.

    def _lose_ranges(self) -> None:
        """Delete ranges if all their records are kept."""
        for name in sorted(list_compacted(self._fs)):
            if name.first >= self._oracle.start and self._draw.random() < 0.5:
                self._fs.delete(layout.compacted_path(name))
                self.counts["ranges lost"] += 1

    def _damage_ranges(self) -> None:
        for name in sorted(list_compacted(self._fs)):
            if name.first >= self._oracle.start and self._draw.random() < 0.3:
                path = layout.compacted_path(name)
                self._fs.put(path, self._draw.choice((b"", b"damaged", self._fs.read(path)[:-3])))
                self.counts["ranges damaged"] += 1

    def _lose_checkpoints(self) -> None:
        """Delete checkpoints, except the only checkpoint that the log can start with."""
        log = CommitLog(self._fs)
        names = sorted(list_checkpoints(self._fs))
        useful = [name for name in names if name.version >= self._oracle.start and log.checkpoints.read(name)]
        for name in names:
            if name not in useful or len(useful) > 1 or self._oracle.start == 0:
                self._fs.delete(layout.log_checkpoint_path(name))
                useful = [other for other in useful if other != name]
                self.counts["checkpoints lost"] += 1

    def _copy_or_restore(self) -> None:
        """Copy the log with its ranges and checkpoints. Later, kill all processes and restore the copy."""
        if self._copy is None:
            directories = (layout.LOG, layout.COMPACTED, layout.CHECKPOINTS)
            paths = [info.path for directory in directories for info in self._listed(directory)]
            self._copy = {path: self._fs.read(path) for path in paths}, self._oracle.copy()
            return
        (files, oracle), self._copy = self._copy, None
        if oracle.head < 0 or oracle.head == self._oracle.head:
            return
        for process in self._processes:
            process.kill()
        self._processes = []
        for info in self._listed(layout.LOG):
            if info.path not in files:
                self._fs.delete(info.path)
        for path, content in files.items():
            self._fs.put(path, content)
        with contextlib.suppress(NotFound):
            self._fs.delete(layout.PUBLISHED_HINT)
        self._oracle = oracle
        self._is_restored = True
        self.counts["restores"] += 1

    def _listed(self, directory: str) -> Sequence[FileInfo]:
        return self._fs.list(directory) if self._fs.exists(directory) else []

    # Invariants.

    def _check(self) -> None:
        """Compare the guaranteed versions, the adds live since earlier versions, and the versions that ended adds."""
        oracle = self._oracle
        if oracle.head < 0:
            return
        log = CommitLog(self._fs)
        head = log.refresh()
        assert (head.version, head.log_start) == (oracle.head, oracle.start)
        versions = range(oracle.start, oracle.head + 1)
        some = {*self._draw.sample(versions, min(len(versions), VERSIONS_CHECKED)), versions[0], versions[-1]}
        for version in sorted(some):
            assert set(snapshot_at(log, head, version).adds) == oracle.live[version + 1], f"version {version}"
            since = self._draw.randint(oracle.start, version)
            expected = frozenset[str]().union(*(oracle.live[at + 1] for at in range(since, version + 1)))
            assert set(snapshot_at(log, head, version, since).adds) == expected, f"versions {since} to {version}"
            ending = {at for at in range(since + 1, version + 1) if oracle.ended[at]}
            assert set(removals(log, head, since, version)) == ending, f"ended in {since} to {version}"
            self.counts["versions"] += 1
        for info in self._listed(layout.COMPACTED):
            assert layout.parse_compacted_name(info.path) is not None, info.path

    def _next_name(self) -> int:
        self._names += 1
        return self._names
