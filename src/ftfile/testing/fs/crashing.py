"""A file system in memory that loses power on paper: it records each step, and tells what may be left.

Run a scenario on a `CrashingFileSystem`, then let `crash_states` enumerate, for each moment of it, every disk that a
power cut may leave, and `kill_states` what a killed process leaves. Recover on the file system that a state gives,
and check. That file system is a crashing one again, so recovery itself can be crashed the same way.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ftfile.core.context import SYSTEM
from ftfile.storage.api import Capabilities
from ftfile.testing.context import SeededIds
from ftfile.testing.fs.disk import Disk, Operation, Replay
from ftfile.testing.fs.tree import PickledByReference, Tree
from ftfile.testing.fs.volume import STREAMS, Volume, VolumeFileSystem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ftfile.core.context import Clock
    from ftfile.testing.fs.disk import Loss
    from ftfile.testing.fs.volume import Store


__all__ = ("CrashState", "CrashingFileSystem", "KillState", "crash_states", "kill_states")


class CrashingFileSystem(PickledByReference, VolumeFileSystem):
    """Files in memory with a journal of steps; a pickled copy is the object itself, in the same process.

    A `disk` is POSIX. In `hdfs` each change of a name is durable when the call returns, content is so by `hsync` alone,
    what a writer buffers dies with it, and nothing tells two files apart. In `webhdfs`, besides, content leaves the
    writer when the file is closed, in pieces, durable at the end: one whose writer dies in between is short, and looks
    complete. In `s3` a file is there as a whole, and durable, in one step, directories are there with what is in them,
    a rename is a copy and a deletion, and ranges of any length are copied.

    The clock gives modification times. The `disk` is durable at the start; the steps of its `history` since need not
    be, see `first_point`; `notes` belong to the time before.
    """

    def __init__(
        self,
        *,
        clock: Clock = SYSTEM.clock,
        store: Store = "disk",
        disk: Disk | None = None,
        history: Iterable[Operation] = (),
        notes: tuple[str, ...] = (),
    ) -> None:
        capabilities = Capabilities(
            driver="crashing",
            shared_between_processes=False,
            durability="hsync" if "hsync" in STREAMS[store].offered else "close",
            directory_sync=store == "disk",
            atomic_rename=store != "s3",
            stream_capabilities=STREAMS[store].offered,
            shared_between_hosts=store == "s3",
            visible_at="at_close" if store == "s3" else "at_create",
            implied_directories=store == "s3",
            copy_bytes_min=int(store == "s3"),
        )
        super().__init__(Volume(Disk(Tree(), {}) if disk is None else disk, clock), store, capabilities)
        self._notes = notes
        for operation in history:
            self._volume.do(operation)
        self.first_point = len(self.journal)

    @property
    def journal(self) -> list[Operation]:
        """Return the steps done so far, oldest first."""
        return self._volume.journal

    def note(self, text: str) -> None:
        """Write into the journal what the outside world has been told: all later states carry it."""
        self._volume.do(Operation("note", text))

    def digest(self) -> bytes:
        """Return 16 bytes that are equal for file systems of equal names and contents."""
        with self._volume.lock:
            return self._volume.live.digest()

    def states(self) -> Iterator[_Moment]:
        """Yield each moment since `first_point`."""
        replay = Replay(self._volume.base, directory_sync=self._capabilities.directory_sync)
        notes = self._notes
        for point, operation in enumerate([None, *self.journal]):
            if operation is not None:
                replay.step(operation)
                notes += (operation.path,) * (operation.kind == "note")
            if point >= self.first_point:
                yield _Moment(point, notes, replay)

    def after_power_cut(self, disk: Disk, notes: tuple[str, ...]) -> CrashingFileSystem:
        """Return a file system like this one on `disk`, which it copies."""
        return CrashingFileSystem(clock=self._volume.clock, store=self._store, disk=disk.reachable(), notes=notes)

    def after_kill(self, point: int) -> CrashingFileSystem:
        """Return the disk that a process killed after `point` steps leaves: complete, no more durable than it was."""
        clock, base = self._volume.clock, self._volume.base
        done = self.journal[:point]
        return CrashingFileSystem(clock=clock, store=self._store, disk=base, history=done, notes=self._notes)


class _Moment(NamedTuple):
    """A moment of a run."""

    point: int  # number of steps of the journal that had been done
    notes: tuple[str, ...]  # what the outside world had been told
    replay: Replay  # of these steps


@dataclass(frozen=True, slots=True)
class CrashState:
    """A disk that one power cut may leave."""

    point: int  # number of steps of the journal that had been done
    step: Operation | None  # the last of them
    notes: tuple[str, ...]  # what the outside world had been told
    loss: Loss  # what the power cut took
    disk: Disk  # what is left; states share parts of it, so work on `filesystem()`
    origin: CrashingFileSystem  # that lost power

    def __str__(self) -> str:
        return f"power cut after step {self.point} ({self.step or 'nothing done'}): {self.loss}"

    def digest(self) -> bytes:
        """Return 16 bytes that are equal for states of equal names and contents."""
        return self.disk.digest()

    def filesystem(self) -> CrashingFileSystem:
        """Return a fresh file system on which all that was left is durable."""
        return self.origin.after_power_cut(self.disk, self.notes)


@dataclass(frozen=True, slots=True)
class KillState:
    """The disk that a killed process leaves while the machine goes on: complete, as durable as it was."""

    point: int  # number of steps of the journal that had been done
    notes: tuple[str, ...]  # what the outside world had been told
    origin: CrashingFileSystem  # in use

    def __str__(self) -> str:
        return f"process killed after step {self.point}"

    def filesystem(self) -> CrashingFileSystem:
        """Return a fresh file system with the journal so far: a power cut may yet take what is not synced."""
        return self.origin.after_kill(self.point)


def crash_states(
    file_system: CrashingFileSystem,
    *,
    limit_per_point: int | None = None,
    seen: set[tuple[bytes, tuple[str, ...]]] | None = None,
) -> Iterator[CrashState]:
    """Yield what a power cut may leave, for each moment since `first_point`.

    Args:
        file_system: after the run; it is not changed.
        limit_per_point: greatest number of states of one moment: if there are more, half of them are the
            first of the enumeration and half are drawn at random, the same in each run.
        seen: digests with notes of states to skip; those yielded are added. The notes belong to it because
            what is a loss after an acknowledgement is none before.
    """
    ids = SeededIds()
    for point, notes, replay in file_system.states():
        step = file_system.journal[point - 1] if point else None
        for disk, loss in _outcomes(replay, limit_per_point, ids):
            if seen is not None:
                key = (disk.digest(), notes)
                if key in seen:
                    continue
                seen.add(key)
            yield CrashState(point, step, notes, loss, disk, file_system)


def kill_states(file_system: CrashingFileSystem) -> Iterator[KillState]:
    """Yield what a killed process leaves, for each moment since `first_point`."""
    for point, notes, _ in file_system.states():
        yield KillState(point, notes, file_system)


def _outcomes(replay: Replay, limit: int | None, ids: SeededIds) -> Iterable[tuple[Disk, Loss]]:
    if limit is None:
        return replay.outcomes()
    outcomes = list(itertools.islice(replay.outcomes(), limit + 1))
    if len(outcomes) <= limit:
        return outcomes
    return outcomes[: limit // 2] + list(itertools.islice(replay.sample(ids), limit - limit // 2))
