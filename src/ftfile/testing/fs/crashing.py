"""A file system in memory that simulates power cuts.

Run a scenario on a `CrashingFileSystem`. Then `crash_states` enumerates, for each moment of the run, every disk that a
power cut can leave, and `kill_states` every disk that a killed process leaves. Recover on the file system of a state,
and check it. That file system also records its steps, so the recovery itself can be crashed in the same way.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ftfile.core.context import SYSTEM
from ftfile.storage.api import Capabilities
from ftfile.testing.context import SeededIds
from ftfile.testing.fs.disk import Disk, Operation, Replay
from ftfile.testing.fs.pickled_by_reference import PickledByReference
from ftfile.testing.fs.tree import DIRECTORY, Tree
from ftfile.testing.fs.volume import STREAMS, Volume, VolumeFileSystem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ftfile.core.clock import Clock
    from ftfile.testing.fs.disk import Loss
    from ftfile.testing.fs.volume import Storage


__all__ = ("CrashState", "CrashingFileSystem", "KillState", "crash_states", "kill_states")


class CrashingFileSystem(PickledByReference, VolumeFileSystem):
    """Files in memory with a journal of steps. A pickled copy in the same process is the object itself.

    The storage systems differ as follows:

    - `disk` has POSIX semantics.
    - `hdfs`: a change of a name is durable when the call returns, and content only after `hsync`. A writer's buffer is
      lost with the writer, and files have no identity.
    - `webhdfs` is like `hdfs`, but a writer sends the content when the file is closed, in pieces that are durable at
      the end. If the writer dies during `close`, the file is short and looks complete.
    - `s3`: a file appears completely and durably in one step, directories exist while they contain files, a rename is a
      copy and a deletion, and ranges of any length are copied.

    The clock sets modification times. The `disk` is durable at the start. Later steps, in `history`, need not be
    durable, see `first_point`. `notes` were written before the start.
    """

    def __init__(
        self,
        *,
        clock: Clock = SYSTEM.clock,
        storage: Storage = "disk",
        disk: Disk | None = None,
        history: Iterable[Operation] = (),
        notes: tuple[str, ...] = (),
    ) -> None:
        capabilities = Capabilities(
            driver="crashing",
            shared_between_processes=False,
            durability="hsync" if "hsync" in STREAMS[storage].offered else "close",
            directory_sync=storage == "disk",
            atomic_rename=storage != "s3",
            stream_capabilities=STREAMS[storage].offered,
            shared_between_hosts=storage == "s3",
            visible_at="at_close" if storage == "s3" else "at_create",
            implied_directories=storage == "s3",
            copy_bytes_min=int(storage == "s3"),
        )
        super().__init__(Volume(Disk(Tree(), {}) if disk is None else disk, clock), storage, capabilities)
        self._notes = notes
        for operation in history:
            self._volume.do(operation)
        self.first_point = len(self.journal)

    @property
    def journal(self) -> list[Operation]:
        """Return the executed steps, oldest first."""
        return self._volume.journal

    def note(self, text: str) -> None:
        """Record an acknowledgement to the outside world in the journal; all later states contain it."""
        self._volume.do(Operation("note", text))

    def sync_all(self) -> None:
        """Make all names and contents durable, as the command `sync` does."""
        with self._volume.lock:
            for path, number in [("", DIRECTORY), *self._volume.live.tree.walk()]:
                if number != DIRECTORY:
                    self._volume.hsync(path, number)
                elif self._storage != "s3":
                    self.sync_directory(path)

    def digest(self) -> bytes:
        """Return 16 bytes that are equal for file systems with equal names and contents."""
        with self._volume.lock:
            return self._volume.live.digest()

    def states(self) -> Iterator[_StopPoint]:
        """Yield each moment since `first_point`."""
        replay = Replay(self._volume.base, directory_sync=self._capabilities.directory_sync)
        notes = self._notes
        for point, operation in enumerate([None, *self.journal]):
            if operation is not None:
                replay.step(operation)
                notes += (operation.path,) * (operation.kind == "note")
            if point >= self.first_point:
                yield _StopPoint(point, notes, replay)

    def after_power_cut(self, disk: Disk, notes: tuple[str, ...]) -> CrashingFileSystem:
        """Return a file system of the same kind on a copy of `disk`."""
        return CrashingFileSystem(clock=self._volume.clock, storage=self._storage, disk=disk.reachable(), notes=notes)

    def after_kill(self, point: int) -> CrashingFileSystem:
        """Return the disk of a process that is killed after `point` steps: all steps are complete, but not durable."""
        clock, base = self._volume.clock, self._volume.base
        done = self.journal[:point]
        return CrashingFileSystem(clock=clock, storage=self._storage, disk=base, history=done, notes=self._notes)


class _StopPoint(NamedTuple):
    """A moment of a run."""

    point: int  # number of executed steps of the journal
    notes: tuple[str, ...]  # acknowledgements to the outside world
    replay: Replay  # of these steps


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashState:
    """A disk that one power cut can leave."""

    point: int  # number of executed steps of the journal
    step: Operation | None  # the last executed step
    notes: tuple[str, ...]  # acknowledgements to the outside world
    loss: Loss  # the lost changes and contents
    disk: Disk  # the remaining disk; states share parts of it, so change only `filesystem()`
    origin: CrashingFileSystem  # the file system that lost power

    def __str__(self) -> str:
        return f"power cut after step {self.point} ({self.step or 'nothing done'}): {self.loss}"

    def digest(self) -> bytes:
        """Return 16 bytes that are equal for states with equal names and contents."""
        return self.disk.digest()

    def filesystem(self) -> CrashingFileSystem:
        """Return a new file system with this disk, on which everything is durable."""
        return self.origin.after_power_cut(self.disk, self.notes)


@dataclass(frozen=True, slots=True)
class KillState:
    """The disk after a process is killed while the machine runs: complete, and as durable as before."""

    point: int  # number of executed steps of the journal
    notes: tuple[str, ...]  # acknowledgements to the outside world
    origin: CrashingFileSystem  # the file system in use

    def __str__(self) -> str:
        return f"process killed after step {self.point}"

    def filesystem(self) -> CrashingFileSystem:
        """Return a new file system with the journal so far; a later power cut can lose content that is not synced."""
        return self.origin.after_kill(self.point)


def crash_states(
    file_system: CrashingFileSystem,
    *,
    limit_per_point: int | None = None,
    seen: set[tuple[bytes, tuple[str, ...]]] | None = None,
    in_order: bool = False,
) -> Iterator[CrashState]:
    """Yield the disks that a power cut can leave, for each moment since `first_point`.

    Args:
        file_system: after the run; it is not changed.
        limit_per_point: greatest number of states of one moment. If there are more, half of them are the first states
            of the enumeration, and the other half is drawn at random, equally in each run.
        seen: digests with notes of states to skip; yielded states are added. The key contains the notes, because a loss
            is only an error after an acknowledgement.
        in_order: only disks on which the changes of each directory survive in their order, as on ext4 and XFS; by
            default also some on which only the changes of each name do, as on Btrfs.
    """
    ids = SeededIds()
    for point, notes, replay in file_system.states():
        step = None
        if point:
            step = file_system.journal[point - 1]
        for disk, loss in _outcomes(replay, limit_per_point, ids, in_order=in_order):
            if seen is not None:
                key = (disk.digest(), notes)
                if key in seen:
                    continue
                seen.add(key)
            yield CrashState(point=point, step=step, notes=notes, loss=loss, disk=disk, origin=file_system)


def kill_states(file_system: CrashingFileSystem) -> Iterator[KillState]:
    """Yield the disk that a killed process leaves, for each moment since `first_point`."""
    for point, notes, _ in file_system.states():
        yield KillState(point, notes, file_system)


def _outcomes(replay: Replay, limit: int | None, ids: SeededIds, *, in_order: bool) -> Iterable[tuple[Disk, Loss]]:
    every = replay.outcomes()
    if not in_order:
        every = itertools.chain(every, replay.replay_reordered())
    if limit is None:
        return every
    outcomes = list(itertools.islice(every, limit + 1))
    if len(outcomes) <= limit:
        return outcomes
    return outcomes[: limit // 2] + list(itertools.islice(replay.sample(ids), limit - limit // 2))
