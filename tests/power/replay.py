"""Records a workload, builds the disks that a power cut can leave, and checks and recovers each of them."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import pkgutil
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import ftfile.formats
import ftfile.kv
import ftfile.log
import ftfile.operate
import ftfile.read
import ftfile.writing
from tests.power.disks import FILE_SYSTEMS, WITHOUT_ORDER, Unmountable, make_image, mounted
from tests.power.model import NOTE as MODEL_NOTE
from tests.power.model import journal_of, violations
from tests.power.recorder import FLUSH, NOTE, WRITE, read_events, recorded_disk
from tests.power.workload import forget_all
from tests.power.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ftfile.testing.fs.disk import Operation
    from tests.power.recorder import Event
    from tests.power.workload import Workload

__all__ = ("Case", "Result", "case_of", "remove", "replay")

ROOT = Path(__file__).parents[2]
SECTOR_BYTES = 512
# The share of cuts directly after a step, whose rows must be there.
ACKNOWLEDGED = 0.3
# Steps of a recovery that is recorded, too.
RECOVERY_STEPS = 4
# Limits for hangs.
WORKLOAD_S, CHECK_S = 600, 300
Mode = Literal["prefix", "subset", "torn", "flush"]
MODES: tuple[Mode, ...] = ("prefix", "subset", "torn", "flush")


@dataclass(frozen=True)
class Case:
    """A workload on a file system.

    Attributes:
        options: of the mount.
        mistake: planted in the process of the workload; empty for none.
    """

    workload: str
    seed: int
    file_system: str
    options: str
    mistake: str = ""

    def __str__(self) -> str:
        return f"seed {self.seed}, {self.workload} on {self.file_system} ({self.options or 'defaults'})"


@dataclass
class Result:
    """The outcome of the states of a recording.

    Attributes:
        right: the number of states without a finding.
        wrong: a line for each other state.
        unmountable: the number of states that the kernel refuses to mount.
        first_wrong: the number of states up to the first wrong one; None if there is none.
        modes: the number of states of each kind.
        compared: the number of states that were compared with the model of the disk.
        seconds: for all states, without the recording.
    """

    right: int = 0
    wrong: list[str] = field(default_factory=list)
    unmountable: int = 0
    first_wrong: int | None = None
    modes: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    seconds: float = 0.0

    @property
    def states(self) -> int:
        """Return the number of all states."""
        return self.right + len(self.wrong) + self.unmountable


@dataclass(frozen=True)
class Cut:
    """A power cut: the events before `flushed` are durable, of the later ones up to `moment` a part."""

    moment: int
    mode: Mode
    flushed: int


@dataclass
class Recording:
    """The events of a workload that began after some steps, and the disk before them."""

    base: Path
    events: list[Event]
    done: int = 0
    tried: bool = False

    def cuts(self, count: int, drawn: random.Random) -> list[Cut]:
        """Draw power cuts, in the order of their moments."""
        flushes = [number for number, event in enumerate(self.events) if event.kind == FLUSH]
        notes = [number for number, event in enumerate(self.events) if event.kind == NOTE]
        ends = [number for number in notes if self.events[number].data.startswith(b"end")]
        # A recovery begins with its mount, other workloads with their first step.
        first, last = (0 if self.done or self.tried else notes[0]), notes[-1]
        cuts = []
        for _ in range(count):
            mode = drawn.choice(MODES)
            moment = drawn.choice(ends) if ends and drawn.random() < ACKNOWLEDGED else drawn.randint(first, last)
            before = bisect_right(flushes, moment)
            cuts.append(Cut(moment, mode, flushes[before - 1] + 1 if before else 0))
        return sorted(cuts, key=lambda cut: cut.moment)

    def progress(self, moment: int) -> tuple[int, bool]:
        """Return the number of acknowledged steps at a moment, and whether the next one had begun."""
        done, tried = self.done, self.tried
        for event in self.events[: moment + 1]:
            if event.kind == NOTE:
                word, _, number = event.data.partition(b" ")
                if word == b"begin":
                    done, tried = int(number), True
                elif word == b"end":
                    done, tried = int(number) + 1, False
        return done, tried

    def steps_of_model(self, moment: int) -> tuple[int, int]:
        """Return how many steps the model has executed at a moment, at least and at most."""
        least = most = 0
        for number, event in enumerate(self.events):
            if event.kind != NOTE or not event.data.startswith(MODEL_NOTE):
                continue
            most = int(event.data.removeprefix(MODEL_NOTE))
            if number > moment:
                break
            least = most
        return least, most

    def images(self, cuts: Sequence[Cut], target: Path, drawn: random.Random) -> Iterator[Cut]:
        """Write the image of each cut to a file, and yield the cut."""
        durable, applied = bytearray(self.base.read_bytes()), 0
        for cut in cuts:
            for event in self.events[applied : cut.flushed]:
                if event.kind == WRITE:
                    durable[event.offset : event.offset + len(event.data)] = event.data
            applied = max(applied, cut.flushed)
            with target.open("wb") as file:
                file.write(durable)
                for offset, data in surviving(self.events[cut.flushed : cut.moment + 1], cut.mode, drawn):
                    file.seek(offset)
                    file.write(data)
            yield cut


def surviving(events: Sequence[Event], mode: Mode, drawn: random.Random) -> Iterator[tuple[int, bytes]]:
    """Yield the writes since the last flush that survive."""
    writes = [event for event in events if event.kind == WRITE]
    if mode == "flush":
        return
    if mode == "subset" or (mode == "torn" and drawn.random() < 0.5):
        share = drawn.choice([0.2, 0.5, 0.8])
        writes = [event for event in writes if drawn.random() < share]
    for number, event in enumerate(writes):
        data = event.data
        if mode == "torn" and number == len(writes) - 1:
            data = data[: drawn.randrange(len(data) // SECTOR_BYTES + 1) * SECTOR_BYTES]
        yield event.offset, data


@dataclass
class Replay:
    """The recordings of a case, in a folder."""

    case: Case
    home: Path
    drawn: random.Random
    result: Result = field(default_factory=Result)

    @property
    def place(self) -> Path:
        """Return where disks are mounted: always at the same path, which logs of other programs contain."""
        return self.home / "disk"

    def record(self, base: Path, done: int, count: int, disk_is: Literal["new", "crashed"]) -> list[Event]:
        """Run the workload on a recorded copy of an image."""
        case, log = self.case, self.home / "log"
        command = [sys.executable, "-m", "tests.power.workloads", case.workload, str(self.place)]
        numbers = [str(case.seed), str(done), str(count)]
        folder = self.home / "recorder"
        disk = mounted(folder / "disk", self.place, case.file_system, case.options)
        words = [*command, str(folder / "mark"), *numbers, disk_is, *filter(None, [case.mistake])]
        with recorded_disk(folder, log, base), disk:
            ran = subprocess.run(words, cwd=ROOT, check=False, capture_output=True, timeout=WORKLOAD_S)
        if ran.returncode and not case.mistake:
            raise RuntimeError(f"{case}: the workload failed: {ran.stderr.decode()[-3000:]}")
        return read_events(log)

    def first_recording(self) -> Recording:
        """Run the whole workload on a new disk."""
        base = self.home / "base"
        make_image(base, self.case.file_system)
        with mounted(base, self.place, self.case.file_system):
            WORKLOADS[self.case.workload](self.place, self.case.seed).prepare()
        return Recording(base, self.record(base, 0, 1000, "new"))

    def second_recording(self, recording: Recording) -> Recording:
        """Cut the power once, and run the recovery and a few steps on a recorded copy of that disk."""
        cut = self.drawn.choice(recording.cuts(20, self.drawn))
        base = self.home / "crashed"
        for _ in recording.images([cut], base, self.drawn):
            pass
        done, tried = recording.progress(cut.moment)
        return Recording(base, self.record(base, done, RECOVERY_STEPS, "crashed"), done, tried)

    def check(self, recording: Recording, count: int) -> None:
        """Check and recover the disks of power cuts."""
        began_s, image = time.monotonic(), self.home / "image"
        cuts = recording.cuts(count, self.drawn)
        is_first = not recording.done and not recording.tried
        journal = journal_of(self.home / "journal") if is_first and (self.home / "journal").exists() else None
        for cut in recording.images(cuts, image, self.drawn):
            self.result.modes[cut.mode] += 1
            steps = None if journal is None else (journal, *recording.steps_of_model(cut.moment))
            at = recording.progress(cut.moment)
            self.result.compared += journal is not None
            try:
                with mounted(image, self.place, self.case.file_system):
                    wrong = in_process(partial(self.check_disk, *at, steps))
            except Unmountable:
                self.result.unmountable += 1
                continue
            if not wrong:
                self.result.right += 1
                continue
            place = f"{cut.mode} at event {cut.moment} of {len(recording.events)}, after {at[0]} steps"
            self.result.wrong.append(f"{self.case}, {place}: {wrong}")
            if self.result.first_wrong is None:
                self.result.first_wrong = self.result.states
            if self.case.mistake:
                break
        self.result.seconds += time.monotonic() - began_s

    def check_disk(self, done: int, tried: bool, steps: tuple[Sequence[Operation], int, int] | None) -> None:
        """Check a disk, complete the step that had begun or run the next one, and check the disk again.

        Args:
            done: the number of acknowledged steps.
            tried: the next step had begun.
            steps: of the model of the disk, which must admit it, and how many it had executed at least and at most.
        """
        if steps is not None:
            found = violations(*steps, self.place, in_order=self.case.file_system not in WITHOUT_ORDER)
            assert not found, f"the model does not admit this disk: {found[:3]}"
        with contextlib.closing(self.workload()) as workload:
            workload.check(done, tried=tried)
        with contextlib.closing(self.workload()) as workload:
            if done < workload.steps:
                workload.perform(done)
                done += 1
            workload.check(done, tried=False)

    def workload(self) -> Workload:
        """Return the workload as a new process has it."""
        forget_all()
        workload = WORKLOADS[self.case.workload](self.place, self.case.seed)
        workload.keeps_old_names = self.case.file_system in WITHOUT_ORDER
        return workload


def in_process(call: Callable[[], None]) -> str:
    """Return the failure of a call in a forked process, empty for none; its open files are closed when it returns.

    A hung call is killed, and a fault of memory, such as of a mapped file that is too short, ends only this process.
    """
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        failure = ""
        try:
            os.close(reads)
            signal.alarm(CHECK_S)
            call()
        except BaseException as error:
            failure = f"{type(error).__name__}: {error}\n" + "".join(traceback.format_exception(error)[-12:])
        finally:
            with os.fdopen(writes, "w") as file:
                file.write(failure)
            os._exit(0)
    os.close(writes)
    try:
        with os.fdopen(reads) as file:
            failure = file.read()
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return failure if not status else f"the process ended with {status}: {failure}"


def replay(case: Case, folder: Path, states: int, again: int = 0) -> Result:
    """Record a case in a folder, check power cuts of it, and others of a recovery that is recorded, too.

    Args:
        case: the workload, its seed and the file system.
        folder: for images, which is deleted; in memory if possible.
        states: the number of power cuts.
        again: the number of power cuts during one recovery.
    """
    remove(folder)
    folder.mkdir(parents=True)
    logging.disable(logging.CRITICAL)
    import_all()
    try:
        run = Replay(case, folder, random.Random(f"{case} {states}"))
        recording = run.first_recording()
        run.check(recording, states)
        if again:
            run.check(run.second_recording(recording), again)
        return run.result
    finally:
        logging.disable(logging.NOTSET)
        remove(folder)


def case_of(seed: int, file_system: str, workload: str = "", mistake: str = "") -> Case:
    """Return the case of a seed."""
    options = random.Random(seed).choice(FILE_SYSTEMS[file_system][2])
    name = workload or [*WORKLOADS][seed % len(WORKLOADS)]
    return Case(name, seed, file_system, options, mistake)


def remove(folder: Path) -> None:
    """Remove the folder of a case, also after its process was killed."""
    for name in ("disk", "recorder"):
        subprocess.run(["umount", "--lazy", str(folder / name)], check=False, capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)


def import_all() -> None:
    """Import the modules that checks use, so that not each forked process imports them."""
    for package in (ftfile.operate, ftfile.kv, ftfile.read, ftfile.log, ftfile.formats, ftfile.writing):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)
    for name in ("numpy", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "ftfile.tools.migrate.undo"):
        importlib.import_module(name)
