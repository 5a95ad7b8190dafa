"""How many modules of ftfile each step of a batch passes, and how often it opens the file system."""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import ftfile
from benchmarks.report import Table
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from benchmarks.report import Cell
    from benchmarks.settings import Settings

__all__ = ("run",)

Result = TypeVar("Result")
PACKAGE = f"{Path(ftfile.__file__).parent}/"
KIT = f"{PACKAGE}testing/"
COLUMNS = ("step", "modules", "entries", "calls", "openings")
SIZE_COLUMNS = ("folder", "modules", "lines")
NOTE = (
    "Modules whose functions run; entries into one from another; calls of functions; openings of a file system. The "
    "second batch of a query in one process, json, one task, one row."
)


@dataclass
class Trace:
    """The calls of a step.

    Attributes:
        modules: files of the package whose functions ran.
        entries: calls from one of them, or from elsewhere, into another.
        calls: of their functions.
        openings: of file systems.
    """

    modules: set[str] = field(default_factory=set)
    entries: int = 0
    calls: int = 0
    openings: int = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Count a call; for `sys.setprofile`."""
        path = frame.f_code.co_filename
        if event != "call" or not path.startswith(PACKAGE) or path.startswith(KIT):
            return
        self.modules.add(path)
        self.calls += 1
        self.entries += frame.f_back is None or frame.f_back.f_code.co_filename != path
        self.openings += frame.f_code.co_name == "open_filesystem"

    def of(self, step: Callable[[], Result]) -> Result:
        """Trace a step and return what it returns."""
        sys.setprofile(self)
        try:
            return step()
        finally:
            sys.setprofile(None)


def run(settings: Settings) -> list[Table]:
    """Trace the steps of a batch and of a read, and count the lines of each folder."""
    out, checkpoint = str(settings.directory / "out"), str(settings.directory / "checkpoint")
    query = MicroBatch(out, {"id": "long"}, {"fileFormat": "json"}, checkpoint=checkpoint)
    query.run(0, [[{"id": 0}]])
    query.restart()
    rows: list[tuple[Cell, ...]] = []

    def traced(label: str, step: Callable[[], Any]) -> Any:  # noqa: ANN401 - what the step returns
        trace = Trace()
        result = trace.of(step)
        rows.append((label, len(trace.modules), trace.entries, trace.calls, trace.openings))
        return result

    traced("options to config", query.config)
    traced("plan after a restart, with its config", query.plan)
    planned = traced("plan, with its config", query.plan)
    message = traced("one batch to a staged file", lambda: query.run_task(planned, query.identity(1), 0, [{"id": 1}]))
    traced("messages to a record", lambda: query.commit(1, [pickle.loads(pickle.dumps(message))]))
    table = traced("open and read", lambda: ftfile.open(query.path).to_arrow())
    assert table.num_rows == 1 + 1
    return [Table("modules on the way", COLUMNS, tuple(rows), NOTE), Table("sizes", SIZE_COLUMNS, _sizes())]


def _sizes() -> tuple[tuple[Cell, ...], ...]:
    """Return modules and lines of each folder, and of all."""
    sizes: dict[str, tuple[int, int]] = {}
    for path in sorted(Path(PACKAGE).rglob("*.py")):
        folder = str(path.parent.relative_to(PACKAGE))
        modules, lines = sizes.get(folder, (0, 0))
        sizes[folder] = modules + 1, lines + len(path.read_text(encoding="utf-8").splitlines())
    total = (sum(modules for modules, _ in sizes.values()), sum(lines for _, lines in sizes.values()))
    return (*((folder, *size) for folder, size in sizes.items()), ("all", *total))
