"""Random histories of logs: writers that rotate them in many ways, a stream that dies, and the lines that it must read.

Cases that no reader can detect are left out: half a line that stays unfinished for longer than `closeInactive`; half a
file that stays unchanged for longer than `minFileAge`, or that is listed first by a process whose storage's clock is
behind; `availableNow` if times stand still or are behind; copies of little content.
"""

from __future__ import annotations

import gzip
import random
import zlib
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import FilesOptions
from ftfile.source.contents import CONTENT_BYTES_MIN
from ftfile.source.decode import rows_of_share
from ftfile.source.known_files import KnownFiles
from ftfile.source.plan import SourcePlan
from ftfile.source.planner import Planner
from ftfile.source.settings import SourceSettings
from ftfile.testing.context import ManualClock, repeatable
from tests.histories.source_storage import Inode, SourceStorage, Times

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.source.listing import Listing

LINE = pa.schema([("value", pa.string())])
STEPS = 40
PLANS_MAX = 5000
_HALF_RESTS_S = 150.0  # the line is then ended before the next plan; less than `closeInactive`
# Pauses after the last step, for files that wait for `minFileAge` or `closeInactive`, and for clocks that are behind.
_PAUSES_S = (2, 2, 12, 12, 70, 301, 301, 301, 1000, 4000, 4000, 90_000, 2, 12, 301, 301)
_NEVER_S = 100 * 86_400.0
_EQUAL = 0.8  # share of the lines
_REMOUNTED = 0.5  # share of the restarts at which the disk gets another device number


@dataclass(frozen=True)
class Conditions:
    """The kind of a history.

    `letters` are the actions of writers in addition to writing and renaming, of "delete", "swap", "link", "again",
    "copy", "compress", "refuse".
    """

    identity: Literal["native", "content"]
    letters: frozenset[str] = frozenset()
    times: Times = "honest"
    skew_s: int = 0  # of the storage's clock
    meddling: float = 0.0  # share of the storage's calls that are preceded by a writer's step
    available_now: bool = False
    at_once: int = 1  # number of concurrent calls of the storage
    alike: bool = False  # files begin with equal lines, and many lines are equal

    @property
    def is_behind(self) -> bool:
        """Return True if the storage may date a file before it is written."""
        return self.times == "still" or self.skew_s < 0


@dataclass
class Log:
    """One log and its rotated files."""

    name: str
    file: Inode  # the file that its writer has open
    rotated: list[str] = field(default_factory=list)  # names, the newest first
    half: bytes = b""  # the unwritten rest of a line that was begun
    half_since_s: float = 0.0
    open_line: bytes = b""  # the written part of this line
    cut_off: tuple[float, bytes] | None = None  # when it was truncated, and the content, which is written again


class Writers:
    """Two programs that write logs, and a program that rotates them.

    Attributes:
        lines: the lines that were ended, and how often.
        rows: the lines that were read; lines that were not read are not deleted.
        is_packing: half a compressed file exists.
        planned_s: start of the last listing whose plan is durable or that planned nothing new.
    """

    def __init__(self, storage: SourceStorage, clock: ManualClock, draw: random.Random, conditions: Conditions) -> None:
        self.lines: Counter[bytes] = Counter()
        self.rows: Counter[bytes] = Counter()
        self.trace: list[str] = []
        self.is_packing = False
        self.planned_s = 0.0
        self._storage, self._clock, self._draw, self._conditions = storage, clock, draw, conditions
        self._banner = draw.choice([0, 0, 200, 900])
        self._number = 0
        self._rotation: Iterator[None] | None = None  # the steps of the current rotation
        self.logs = [self._new_log(name) for name in ("a.log", "b.log")]

    @property
    def is_rotating(self) -> bool:
        """Return True while a rotation is between two of its steps."""
        return self._rotation is not None

    def note(self, *event: object) -> None:
        """Add an event to the trace."""
        self.trace.append(f"{self._clock.monotonic_s() % 1e6:.2f} {' '.join(map(str, event))}")

    def step(self) -> None:
        """Write, continue a rotation, or begin a rotation."""
        if self._rotation is not None:
            if next(self._rotation, "over") == "over":
                self._rotation = None
            return
        self.end_lines(older_than_s=_HALF_RESTS_S)
        log, letters = self._draw.choice(self.logs), self._conditions.letters
        if log.cut_off is not None:
            self._write_again(log)
            return
        deeds = ["append"] * 5 + ["end"] + ["rotate"] * 2 + sorted(letters & {"swap", "link", "again", "refuse"})
        deed = self._draw.choice(deeds)
        if deed == "append":
            self._append(log)
        elif deed == "end":
            self._end_line(log)
        elif deed == "rotate":
            self._rotation = self._rotate(log)
        elif deed == "swap":
            self._rotation = self._swap()
        elif deed == "link":
            self._link(log)
        elif deed == "refuse":
            self._refuse()
        else:
            self._cut_off(log)

    def end_lines(self, *, older_than_s: float = -1.0) -> None:
        """End lines that were begun at least this long ago."""
        for log in self.logs:
            if self._clock.monotonic_s() - log.half_since_s > older_than_s:
                self._end_line(log)

    def _new_log(self, name: str) -> Log:
        log = Log(name, self._storage.create_file(name))
        self._write_banner(log)
        return log

    def _write_banner(self, log: Log) -> None:
        if self._banner:
            text = f"{'#' * self._banner} {log.name} {self._draw.random()}{'.' * self._draw.randrange(60)}\n"
            self._write(log, b"started\n" if self._conditions.alike else text.encode())

    def _write(self, log: Log, data: bytes) -> None:
        *lines, log.open_line = (log.open_line + data).split(b"\n")
        self.lines.update(lines)
        self._storage.write(log.file, data)

    def _append(self, log: Log) -> None:
        data, log.half = log.half, b""
        for _ in range(self._draw.choice([1, 3, 20])):
            self._number += 1
            text = f"{self._number:05} {self._draw.random()} {'x' * self._draw.choice([0, 5, 300])}\n"
            is_equal = self._conditions.alike and self._draw.random() < _EQUAL
            data += b"alive\n" if is_equal else text.encode()
        if self._draw.random() < 0.4:
            cut = self._draw.randrange(1, 8)
            data, log.half = data[:-cut], data[-cut:]
            log.half_since_s = self._clock.monotonic_s()
        self._write(log, data)
        self.note("append", log.name, len(data), "and half a line" if log.half else "")

    def _end_line(self, log: Log) -> None:
        if log.half:
            half, log.half = log.half, b""
            self._write(log, half)
            self.note("end line", log.name)

    def _rotate(self, log: Log) -> Iterator[None]:
        self._end_line(log)
        letters, is_long = self._conditions.letters, len(log.file.data) >= CONTENT_BYTES_MIN
        hows = ["rename", "rename lazily"]
        if "copy" in letters and is_long:
            hows += ["copy", "copy"]
        if "compress" in letters and is_long:
            hows += ["compress", "delaycompress"]
        if {"copy", "compress"} <= letters and is_long:
            hows.append("copy and compress")
        how = self._draw.choice(hows)
        self.note("rotate", log.name, how, len(log.file.data))
        if "delete" in letters and len(log.rotated) > 2:
            self._delete_oldest(log)
        if how == "delaycompress" and log.rotated and self._is_long_text(log.rotated[0]):
            yield from self._compress(log.rotated[0])
            log.rotated[0] += ".gz"
        yield from self._shift(log)
        first = f"{log.name}.1"
        if how.startswith("copy"):
            yield from self._copy(log, first)
        else:
            yield from self._rename(log, first, is_lazy=how == "rename lazily")
        yield
        if how in {"compress", "copy and compress"} and self._is_long_text(first):
            yield from self._compress(first)
            log.rotated[0] += ".gz"

    def _is_long_text(self, name: str) -> bool:
        inode = self._storage.names.get(name)
        return inode is not None and not name.endswith(".gz") and len(inode.data) >= CONTENT_BYTES_MIN

    def _shift(self, log: Log) -> Iterator[None]:
        """Rename rotated files to their next numbers, in sequence."""
        for number in range(len(log.rotated), 0, -1):
            name = log.rotated[number - 1]
            target = f"{log.name}.{number + 1}{'.gz' if name.endswith('.gz') else ''}"
            if target != name and name in self._storage.names:
                self.note("rename", name, target)
                self._storage.move(name, target)
            log.rotated[number - 1] = target
            yield

    def _rename(self, log: Log, target: str, *, is_lazy: bool) -> Iterator[None]:
        self._storage.move(log.name, target)
        log.rotated.insert(0, target)
        self.note("rename", log.name, target)
        if is_lazy and self._draw.random() < 0.5:
            yield
            if self._draw.random() < 0.5:  # its writer still has the renamed file open
                self._append(log)
                yield
                self._end_line(log)
        self._storage.touch(log.file)
        log.file = self._storage.create_file(log.name)
        self.note("create", log.name, log.file.number)
        self._write_banner(log)

    def _copy(self, log: Log, target: str) -> Iterator[None]:
        """Copy a log in pieces and truncate it. No line is added meanwhile."""
        content, inode = bytes(log.file.data), self._storage.create_file(target)
        step = max(1, len(content) // self._draw.randrange(1, 4))
        for at in range(0, len(content), step):
            self._storage.write(inode, content[at : at + step])
            yield
        self._storage.truncate(log.file)
        log.rotated.insert(0, target)
        self.note("copied and truncated", log.name)
        self._write_banner(log)

    def _compress(self, name: str) -> Iterator[None]:
        source, target = self._storage.names[name], self._storage.create_file(f"{name}.gz")
        packed = gzip.compress(bytes(source.data), mtime=0)
        half = len(packed) // 2
        self._storage.write(target, packed[:half])
        self.is_packing = True
        yield
        self.is_packing = False
        self._storage.write(target, packed[half:])
        target.modified_ms = source.modified_ms if self._draw.random() < 0.5 else self._storage.now_ms()
        self.note("compressed", name)
        yield
        self._storage.unlink(name)
        yield

    def _is_read(self, content: bytes) -> bool:
        return all(self.rows[line] >= self.lines[line] for line in content.split(b"\n")[:-1])

    def _delete_oldest(self, log: Log) -> None:
        inode = self._storage.names.get(log.rotated[-1])
        if inode is None:
            return
        try:
            content = gzip.decompress(inode.data) if log.rotated[-1].endswith(".gz") else bytes(inode.data)
        except (EOFError, zlib.error):
            return
        if self._is_read(content) and (not content or content.endswith(b"\n")):
            self.note("delete", log.rotated[-1])
            self._storage.unlink(log.rotated.pop())

    def _swap(self) -> Iterator[None]:
        """Exchange rotated files of the two logs, through a name that streams do not list."""
        one, other = (self._draw.choice(log.rotated or [""]) for log in self.logs)
        is_possible = {one, other} <= self._storage.names.keys() and one.endswith(".gz") == other.endswith(".gz")
        for name, target in ((one, "_hidden"), (other, one), ("_hidden", other)) if is_possible else ():
            self.note("rename", name, target)
            self._storage.move(name, target)
            yield

    def _refuse(self) -> None:
        """Deny opening a name, or allow it again."""
        storage = self._storage
        storage.refused = set() if storage.refused else {self._draw.choice(sorted(storage.names))}
        self.note("refused", *storage.refused)

    def _link(self, log: Log) -> None:
        """Link a second name to the newest rotated file, or remove that link."""
        name, newest = f"{log.name}.link", log.rotated[0] if log.rotated else ""
        inode = self._storage.names.get(newest)
        if name in self._storage.names:
            self.note("unlink", name)
            self._storage.unlink(name)
        elif inode is not None and not newest.endswith(".gz") and self._may_be_linked(inode):
            self.note("link", newest, name)
            self._storage.link(name, inode)

    def _may_be_linked(self, inode: Inode) -> bool:
        """Return True if a link may be created: identity is native, or the linked content was already read."""
        return self._conditions.identity == "native" or self._is_read(bytes(inode.data))

    def _cut_off(self, log: Log) -> None:
        """Run `> log` after all of it is read; with identity by content, only if it is too short for an identity."""
        content = bytes(log.file.data)
        is_told = self._conditions.identity == "content" and len(content) >= CONTENT_BYTES_MIN
        if content and not log.half and not is_told and self._is_read(content):
            self._storage.truncate(log.file)
            log.cut_off = self._clock.monotonic_s(), content
            self.note("cut off", log.name)

    def _write_again(self, log: Log) -> None:
        """Write the same lines again after a plan has seen the truncation, if names identify files."""
        assert log.cut_off is not None
        since_s, content = log.cut_off
        if self.planned_s > since_s:
            log.cut_off = None
            if self._conditions.identity == "native":
                self._write(log, content)
                self.note("again", log.name, len(content))


class History:
    """Writers, and a stream that reads their files."""

    def __init__(self, seed: int, conditions: Conditions) -> None:
        self._draw = draw = random.Random(f"{seed} {conditions.identity}")
        self._clock = clock = ManualClock()
        self._conditions = conditions
        self._storage = SourceStorage(clock, draw, conditions.times, conditions.skew_s, conditions.at_once)
        self.writers = Writers(self._storage, clock, draw, conditions)
        limits: list[dict[str, str]] = [
            {},
            {"maxFilesPerTrigger": str(draw.randrange(1, 4))},
            {"maxBytesPerTrigger": str(draw.choice([100, 700, 3000]))},
        ]
        options = {"path": "memory://nothing/", "fileFormat": "text", "fileIdentity": conditions.identity}
        parsed = parse_options({**options, **draw.choice(limits)}, FilesOptions)
        self._settings = replace(SourceSettings.from_options(parsed), pattern="")
        if conditions.available_now and conditions.is_behind:
            self._settings = replace(self._settings, close_inactive=_NEVER_S)
        with repeatable(clock) as self._context:
            pass
        self._known = KnownFiles()
        self._planner = Planner(self._storage, self._settings, self._context)
        self._may_die = True

    def play(self) -> tuple[list[bytes], list[bytes]]:
        """Return the lines that were lost, and the lines that were read too often. Both are empty if the product is
        correct.
        """
        writers = self.writers
        for _ in range(STEPS):
            writers.step()
            if self._draw.random() < 0.5:
                self._look()
                if writers.is_packing:
                    writers.step()
        while writers.is_rotating:
            writers.step()
        writers.end_lines()
        self._storage.refused = set()
        self._conditions, self._may_die = replace(self._conditions, meddling=0.0), False
        writers.note("settle")
        for pause_s in (*_PAUSES_S, *([_NEVER_S + 1, 12, 12] if self._settings.close_inactive == _NEVER_S else [])):
            self._drain(pause_s)
        return list((writers.lines - writers.rows).elements()), list((writers.rows - writers.lines).elements())

    def _drain(self, pause_s: float) -> None:
        for _ in range(PLANS_MAX):
            self._clock.advance(pause_s)
            if not self._plan():
                return
        raise AssertionError("the plans do not end")

    @property
    def _must_live(self) -> bool:
        """Return True while a new process would read half a file as a complete file."""
        return self.writers.is_packing and self._conditions.is_behind

    def _look(self) -> None:
        """Let the stream plan after some time, or run `availableNow`; sometimes in a new process."""
        self.writers.end_lines(older_than_s=_HALF_RESTS_S)
        if self._draw.random() < 0.1 and not self._must_live:
            self._restart()
        self._clock.advance(self._draw.choice([0.5, 1, 2] if self.writers.is_packing else [1, 2, 12, 60]))
        if self._conditions.available_now and self._draw.random() < 0.3 and not self._must_live:
            self._run_available_now()
        elif self._plan() and self._draw.random() < 0.5:
            for _ in range(self._draw.randrange(1, 8)):
                self._clock.advance(0.01)
                if not self._plan():
                    break

    def _run_available_now(self) -> None:
        self._restart()
        self.writers.note("available now")
        with_writer = not self._conditions.is_behind
        self._storage.on_call = self._meddle
        listing = self._planner.list()
        self._storage.on_call = None
        for _ in range(30):
            if not self._plan(listing):
                break
            if with_writer and self._draw.random() < 0.3:
                self.writers.step()
        self._restart()

    def _meddle(self) -> None:
        if self._draw.random() < self._conditions.meddling:
            self.writers.step()

    def _plan(self, listing: Listing | None = None) -> bool:
        """Plan and read the planned ranges, unless the process dies. Return True if there may be more."""
        self._storage.on_call = self._meddle
        plan = self._planner.plan(self._known, listing)
        self._storage.on_call = None
        if plan is None:
            self.writers.planned_s = self._storage.listed_s
            return False
        if self._may_die and self._draw.random() < 0.1 and not self._must_live:
            self.writers.note("died before a plan was durable")
            self._restart()
            return listing is None
        self.writers.planned_s = self._storage.listed_s
        self._read(plan)
        return True

    def _restart(self) -> None:
        self.writers.note("restart")
        self._storage.device += self._draw.random() < _REMOUNTED
        self._known = KnownFiles.from_bytes(self._known.to_bytes())
        self._planner = Planner(self._storage, self._settings, self._context)

    def _read(self, plan: SourcePlan) -> None:
        assert SourcePlan.from_json(plan.to_json()) == plan
        self.writers.note("plan", _summary(plan))
        self._known = self._known.apply(plan)
        refused, self._storage.refused = self._storage.refused, set()
        for share in plan.shares(self._settings.decoding.max_partition_bytes):
            for batch in rows_of_share(self._storage, share, LINE, self._settings.decoding):
                self.writers.rows.update(value.encode() for value in batch.column(0).to_pylist())
        self._storage.refused = refused


def _summary(plan: SourcePlan) -> str:
    """Return a plan as one line of a trace."""
    words = [f"{one.path}[{one.start}:{one.end}]{one.compression}{'!' * one.whole}" for one in plan.ranges]
    words += [f"{one.path}@{one.position}:{one.rule}{' parked' * bool(one.parked)}" for one in plan.files]
    words += [f"refused={[one.path for one in plan.refused]}"] if plan.refused else []
    words += [f"late={[one.path for one in plan.late]}"] if plan.late else []
    return " ".join(words)
