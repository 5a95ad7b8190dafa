"""A directory of files in memory, with its planner. The ranges of a plan are read directly after the plan."""

from __future__ import annotations

import gzip
import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import FilesOptions
from ftfile.filters.chain import Chain
from ftfile.source.contents import fingerprints
from ftfile.source.known_files import KnownFiles
from ftfile.source.plan import Range, SourcePlan
from ftfile.source.planner import Planner
from ftfile.source.settings import SourceSettings
from ftfile.storage.api import RangeFile
from ftfile.testing.context import ManualClock, open_filesystem, repeatable
from ftfile.testing.fs.memory import MemoryFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.source.listing import Listing
    from ftfile.source.plan import FileEntry
    from ftfile.storage.api import FileSystem


def _slice(content: bytes, offset: int, length: int) -> bytes:
    return content[offset : offset + length]


_numbers = itertools.count()


def parked(plan: SourcePlan) -> list[FileEntry]:
    """Return the files that a plan parks: they are skipped until they change."""
    return [entry for entry in plan.files if entry.parked]


class Tailing:
    """Files below `in/` and their planner. Each step advances the clock of the files by 2 s.

    Attributes:
        plans: all plans.
        reads: for each range, the path and the bytes.
        idle_wait_s: how long processes that start from now on wait while there are no new files.
    """

    def __init__(self, path: str = "in", *, file_format: str = "text", **options: str) -> None:
        self.name = f"tailing-{next(_numbers)}"
        self.clock = ManualClock()
        given = {"path": f"memory://{self.name}/{path}", "fileFormat": file_format, **options}
        self.settings = SourceSettings.from_options(parse_options(given, FilesOptions))
        self.known = KnownFiles()
        self.plans: list[SourcePlan] = []
        self.reads: list[tuple[str, bytes]] = []
        with repeatable(self.clock) as self.context:
            self.storage: FileSystem = MemoryFileSystem(self.name, clock=self.clock)
            self.fs = open_filesystem(self.settings.root, clock=self.clock)
        self.idle_wait_s = 0.0
        self.planner = Planner(self.fs, self.settings, self.context)

    def restart(self) -> None:
        """Start a new process, which has only the durable state of the old process."""
        self.known = KnownFiles.from_bytes(self.known.to_bytes())
        self.planner = Planner(self.fs, self.settings, self.context, self.idle_wait_s)

    def replace(self, method: str, function: Callable[..., object]) -> None:
        """Replace a method of the file system."""
        setattr(self.fs, method, function)

    def write(self, path: str, content: str | bytes) -> None:
        """Rewrite a file; an existing file keeps its identity."""
        data = content.encode() if isinstance(content, str) else content
        self.storage.make_directories(f"in/{path}".rpartition("/")[0])
        self.storage.put(f"in/{path}", data)

    def append(self, path: str, content: str | bytes) -> None:
        data = content.encode() if isinstance(content, str) else content
        self.write(path, (self.storage.read(f"in/{path}") if self.storage.exists(f"in/{path}") else b"") + data)

    def rename(self, path: str, target: str) -> None:
        self.storage.rename(f"in/{path}", f"in/{target}")

    def copy(self, path: str, target: str) -> None:
        self.write(target, self.storage.read(f"in/{path}"))

    def compress(self, path: str, target: str) -> None:
        self.write(target, gzip.compress(self.storage.read(f"in/{path}"), mtime=0))

    def delete(self, path: str) -> None:
        self.storage.delete(f"in/{path}")

    def scan(self, listing: Listing | None = None, *, seconds: float = 2.0, limited: bool = True) -> SourcePlan | None:
        """Advance the clock, plan once, and read the planned ranges."""
        self.clock.advance(seconds)
        plan = self.planner.plan(self.known, listing, limited=limited)
        if plan is None:
            return None
        assert SourcePlan.from_json(plan.to_json()) == plan
        assert not plan.is_empty or plan.refused or self.settings.starting_offsets == "latest"
        self.known = self.known.apply(plan)
        self.plans.append(plan)
        for each in plan.ranges:
            content = self._content_of(each)
            self.reads.append((each.path.removeprefix("in/"), content[each.start : each.end]))
        return plan

    def _content_of(self, planned: Range) -> bytes:
        """Return the plain content of a planned range. If content identifies files, another path may have it now."""
        is_by_content = self.settings.file_identity == "content"
        beside = [info.path for info in self.storage.list("in")] if is_by_content else []
        for path in (planned.path, *beside):
            content = self.fs.read(path)
            if planned.compression and not planned.whole:
                content = Chain.for_reading((planned.compression,)).decode(content, "")
            marks = fingerprints(RangeFile(path, len(content), partial(_slice, content)).read_at, planned.end)
            if marks == (planned.head, planned.tail) and not (planned.whole and planned.end != len(content)):
                return content
        raise AssertionError(f"the content of {planned} is missing")

    def drain(self, *, seconds: float = 2.0, plans_max: int = 1000) -> int:
        """Plan until a plan finds nothing new, and return the number of plans."""
        for number in range(plans_max):
            if self.scan(seconds=seconds) is None:
                return number
        raise AssertionError("the plans do not end")

    def settle(self) -> None:
        """Plan until no file waits."""
        self.drain()
        self.drain(seconds=301)

    @property
    def text(self) -> str:
        """Return the content of all ranges, in the order of the reads."""
        return b"".join(data for _, data in self.reads).decode()

    @property
    def last(self) -> list[tuple[str, Any]]:
        """Return path and content of the ranges of the last plan."""
        count = len(self.plans[-1].ranges)
        return [(path, data.decode()) for path, data in self.reads[len(self.reads) - count :]]
