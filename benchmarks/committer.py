"""The cost of one large commit in the driver: many tasks, many files, on the disk and on HDFS."""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.kv_puts import remove
from benchmarks.report import Cell, Table
from benchmarks.spark_session import ROOT
from tests.hdfs.minicluster import MiniCluster

if TYPE_CHECKING:
    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)


class Work(NamedTuple):
    """One commit."""

    storage: str
    tasks: int
    files: int
    staged: bool


SMOKE = (Work("disk", 2, 6, staged=True), Work("disk", 2, 6, staged=False))
FULL = (
    Work("disk", 8, 8, staged=True),
    Work("disk", 100, 1_000, staged=True),
    Work("disk", 10_000, 10_000, staged=True),
    Work("disk", 1_000, 100_000, staged=True),
    Work("disk", 1_000, 100_000, staged=False),
    Work("disk", 10_000, 1_000_000, staged=False),
    Work("hdfs://", 1_000, 10_000, staged=True),
    Work("webhdfs://", 1_000, 10_000, staged=True),
)
COLUMNS = (
    "storage",
    "tasks",
    "files",
    "files are",
    "largest message kB",
    "messages MB",
    "commit s",
    "processor s",
    "processor us a file",
    "more memory MB",
    "record MB",
    "next plan ms",
)
NOTE = (
    "The committer of the sink, in a separate process, with the messages of tasks that did not run. The memory is "
    "that of unpickled messages and of the commit. Files under their final names need no rename."
)


def run(settings: Settings) -> list[Table]:
    """Commit each amount of work once."""
    works: tuple[Work, ...] = SMOKE if settings.smoke else FULL
    if settings.files is not None:
        works = tuple(work for work in works if work.files <= settings.files)
    rows = []
    with contextlib.ExitStack() as stack:
        roots = {"disk": str(settings.directory)}
        if any(work.storage != "disk" for work in works):
            cluster = stack.enter_context(MiniCluster())
            roots |= {"hdfs://": cluster.url, "webhdfs://": cluster.web_url}
        for number, work in enumerate(works):
            figures = _figures(settings, work, f"{roots[work.storage]}/committer-{number}")
            rows.append(_row(work, figures))
            LOGGER.info("committer: %s", rows[-1])
    return [Table("committer: one commit of many files", COLUMNS, tuple(rows), NOTE)]


def _figures(settings: Settings, work: Work, url: str) -> dict[str, Any]:
    home = settings.directory / "work"
    home.mkdir()
    figures = home / "figures.json"
    asked = work._asdict() | {"url": url, "checkpoint": str(home / "checkpoint"), "figures": str(figures)}
    subprocess.run([sys.executable, "-m", "benchmarks.committer_run", json.dumps(asked)], check=True, cwd=ROOT)
    loaded: dict[str, Any] = json.loads(figures.read_text())
    remove(home)
    if work.storage == "disk":
        remove(settings.directory / url.rpartition("/")[2])
    return loaded


def _row(work: Work, figures: dict[str, Any]) -> tuple[Cell, ...]:
    return (
        work.storage,
        work.tasks,
        work.files,
        "staged" if work.staged else "in place",
        figures["message_bytes"] / 1000,
        figures["messages_mb"],
        figures["wall_s"],
        figures["cpu_s"],
        figures["cpu_s"] * 1e6 / work.files,
        figures["more_mb"],
        figures["record_mb"],
        figures["plan_ms"],
    )
