"""How many modules of ftfile each step of a batch passes, and how often it calls the storage; what writers import."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import ftfile
from benchmarks.report import Table
from ftfile.storage.local import LocalFileSystem
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
OPERATIONS = {
    method.__code__
    for name, method in vars(LocalFileSystem).items()
    if inspect.isfunction(method) and not name.startswith("_")
}
ALL_STEPS = "all of a batch"
COLUMNS = ("step", "modules", "entries", "calls", "storage calls", "openings")
SIZE_COLUMNS = ("folder", "modules", "lines")
CLOSURE_COLUMNS = ("imported", "modules of ftfile")
# The classes that Spark is given, and what they are made of.
WRITERS = (
    "ftfile.writing.files.file_writer",
    "ftfile.spark.file_writers",
    "ftfile.kv.writer",
    "ftfile.spark.store_writers",
)
BATCHES = 4  # before the one that is traced
NOTE = (
    "Modules whose functions run; entries into one from another; calls of functions; calls into public methods of the "
    "local file system; openings of a file system. The fifth batch of a query in one process, json, one task, one row."
)
CLOSURE_NOTE = "Modules of ftfile in a new Python once it has imported one of them, before a row is written."


@dataclass
class Trace:
    """The calls of a step.

    Attributes:
        modules: files of the package whose functions ran.
        entries: calls from one of them, or from elsewhere, into another.
        calls: of their functions.
        storage_calls: from elsewhere into public methods of the local file system.
        openings: of file systems.
    """

    modules: set[str] = field(default_factory=set)
    entries: int = 0
    calls: int = 0
    storage_calls: int = 0
    openings: int = 0

    def cells(self) -> tuple[Cell, ...]:
        """Return the numbers in the order of COLUMNS."""
        return len(self.modules), self.entries, self.calls, self.storage_calls, self.openings

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Count a call; for `sys.setprofile`."""
        path = frame.f_code.co_filename
        if event != "call" or not path.startswith(PACKAGE) or path.startswith(KIT):
            return
        is_entry = frame.f_back is None or frame.f_back.f_code.co_filename != path
        self.modules.add(path)
        self.calls += 1
        self.entries += is_entry
        self.storage_calls += is_entry and frame.f_code in OPERATIONS
        self.openings += frame.f_code.co_name == "open_filesystem"

    def of(self, step: Callable[[], Result]) -> Result:
        """Trace a step and return what it returns."""
        sys.setprofile(self)
        try:
            return step()
        finally:
            sys.setprofile(None)


def running_query(directory: Path) -> MicroBatch:
    """Return a query, with a checkpoint, that has written `BATCHES` batches of one json row."""
    query = MicroBatch(
        str(directory / "out"), {"id": "long"}, {"fileFormat": "json"}, checkpoint=str(directory / "checkpoint")
    )
    for batch in range(BATCHES):
        query.run(batch, [[{"id": batch}]])
    return query


def run(settings: Settings) -> list[Table]:
    """Trace the steps of a batch and of a read; count what writers import, and the lines of each folder."""
    query = running_query(settings.directory)
    traces = {"options to config": Trace()}
    traces["options to config"].of(query.config)
    traces |= trace_batch(query)
    traces["open and read"] = Trace()
    table = traces["open and read"].of(lambda: ftfile.open(query.path).to_arrow())
    assert table.num_rows == BATCHES + 1
    query.restart()
    traces["plan after a restart, with its config"] = Trace()
    traces["plan after a restart, with its config"].of(query.pickled_plan)
    rows = [(step, *trace.cells()) for step, trace in traces.items()]
    return [
        Table("modules on the way", COLUMNS, tuple(rows), NOTE),
        Table("import closure", CLOSURE_COLUMNS, tuple((name, closure(name)) for name in WRITERS), CLOSURE_NOTE),
        Table("sizes", SIZE_COLUMNS, _sizes()),
    ]


def trace_batch(query: MicroBatch) -> dict[str, Trace]:
    """Run the batch after those of `running_query`; return the trace of each step, and the sum of them, `ALL_STEPS`."""
    plan, write, commit = Trace(), Trace(), Trace()
    query.write_offsets(BATCHES)
    planned = plan.of(query.pickled_plan)
    message = write.of(lambda: query.run_task(planned, query.identity(BATCHES), 0, [{"id": BATCHES}]))
    messages = [pickle.loads(pickle.dumps(message))]
    commit.of(lambda: query.commit(BATCHES, messages))
    whole = Trace(
        plan.modules | write.modules | commit.modules,
        plan.entries + write.entries + commit.entries,
        plan.calls + write.calls + commit.calls,
        plan.storage_calls + write.storage_calls + commit.storage_calls,
        plan.openings + write.openings + commit.openings,
    )
    return {
        "plan, with its config": plan,
        "one batch to a staged file": write,
        "messages to a record": commit,
        ALL_STEPS: whole,
    }


def closure(module: str) -> int:
    """Return how many modules of ftfile a Python has loaded once it has imported one of them."""
    code = f"import sys, {module}; print(sum(name.partition('.')[0] == 'ftfile' for name in sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(run.stdout)


def _sizes() -> tuple[tuple[Cell, ...], ...]:
    """Return modules and lines of each folder, and of all."""
    sizes: dict[str, tuple[int, int]] = {}
    for path in sorted(Path(PACKAGE).rglob("*.py")):
        folder = str(path.parent.relative_to(PACKAGE))
        modules, lines = sizes.get(folder, (0, 0))
        sizes[folder] = modules + 1, lines + len(path.read_text(encoding="utf-8").splitlines())
    total = (sum(modules for modules, _ in sizes.values()), sum(lines for _, lines in sizes.values()))
    return (*((folder, *size) for folder, size in sizes.items()), ("all", *total))
