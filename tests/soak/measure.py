"""Resources of an application, sampled each second from ``/proc``, and a table of its first and last quarter."""

from __future__ import annotations

import csv
import os
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.demos.files.sinks import NOTHING, batches_in
from tests.soak.place import DIRECTORIES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.demos.files.process import SessionApp
    from tests.soak.place import Place

__all__ = ("Sampler", "table")

INTERVAL_S = 1.0
FIELDS = (
    "time",
    "place",
    "round",
    "life",
    "batches",
    "role",
    "processes",
    "rss_mb",
    "descriptors",
    "threads",
    "staged",
)
MEASURED = ("processes", "rss_mb", "descriptors", "threads", "staged")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# A life with fewer samples has no quarters that can be compared.
SAMPLES_MIN = 40


class Sampler:
    """Appends the resources of one life of an application to a CSV file, in a thread; a `with` block ends it.

    Args:
        path: of the CSV file.
        place: of the application.
        number: of the round.
        app: the application.
    """

    def __init__(self, path: Path, place: Place, number: int, app: SessionApp) -> None:
        self._path = path
        self._where = (place.name, number, app.session)
        self._app = app
        self._place = place
        self._before = self._committed()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sampler:  # noqa: PYI034 - typing.Self comes with Python 3.11
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def count(self) -> int:
        """Return the number of batches of all queries that were committed in this life so far."""
        return self._committed() - self._before

    def _run(self) -> None:
        is_new = not self._path.exists()
        with self._path.open("a", newline="", encoding="utf-8", buffering=1) as file:
            writer = csv.writer(file)
            if is_new:
                writer.writerow(FIELDS)
            while not self._ended.wait(INTERVAL_S):
                self._sample(writer)

    def _sample(self, writer: Any) -> None:
        staged = sum(_count_files(self._place.home / name / "_ftfile" / "staged") for name in DIRECTORIES)
        now = round(time.time(), 1)
        for role, processes in self._place.roles(self._app).items():
            measured = [found for process in processes if (found := _measure(process))]
            sums = [sum(column) for column in zip(*measured, strict=True)] or [0, 0, 0]
            rss_mb = round(sums[0] / 1e6, 1)
            writer.writerow([now, *self._where, self.count(), role, len(measured), rss_mb, *sums[1:], staged])

    def _committed(self) -> int:
        newest = [batches_in(self._place.checkpoint(name) / "commits") for name in DIRECTORIES]
        return sum(max(found, default=NOTHING) + 1 for found in newest)


def table(path: Path) -> str:
    """Return the means of the first and the last quarter of the longest life at each place, and their difference.

    The first tenth of a life is left out: a JVM and an allocator grow until they have reached their working size.
    """
    lives: dict[tuple[str, str, str], dict[str, list[dict[str, str]]]] = defaultdict(lambda: defaultdict(list))
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            lives[row["place"], row["round"], row["life"]][row["role"]].append(row)
    longest: dict[str, tuple[str, str, str]] = {}
    for life, roles in sorted(lives.items(), key=lambda each: len(_first(each[1]))):
        if len(_first(roles)) >= SAMPLES_MIN:
            longest[life[0]] = life
    if not longest:
        return f"no application has lived for {SAMPLES_MIN} samples yet"
    lines = []
    for place, life in sorted(longest.items()):
        rows = _first(lives[life])
        seconds = float(rows[-1]["time"]) - float(rows[0]["time"])
        lines.append(f"{place}, round {life[1]}: {int(rows[-1]['batches']):,} batches in {seconds:,.0f} s")
        lines.append(f"  {'role':8} {'measured':12} {'first quarter':>14} {'last quarter':>14} {'change':>8}")
        for role, samples in lives[life].items():
            # The number of staged files belongs to no process.
            names = MEASURED if samples is rows else MEASURED[:-1]
            lines += [_line("" if name == "staged" else role, name, samples) for name in names]
    return "\n".join(lines)


def _first(roles: Mapping[str, list[dict[str, str]]]) -> list[dict[str, str]]:
    """Return the samples of the role that starts the others."""
    return next(iter(roles.values()))


def _line(role: str, name: str, samples: Sequence[dict[str, str]]) -> str:
    values = [float(each[name]) for each in samples[len(samples) // 10 :]]
    quarter = max(len(values) // 4, 1)
    first, last = sum(values[:quarter]) / quarter, sum(values[-quarter:]) / quarter
    change = f"{(last - first) / first:+.1%}" if first else "-"
    return f"  {role:8} {name:12} {first:14.1f} {last:14.1f} {change:>8}"


def _measure(process: int) -> tuple[int, int, int] | None:
    """Return the resident bytes, the descriptors and the threads of a process; None if it has ended."""
    root = Path("/proc", str(process))
    try:
        resident = int((root / "statm").read_text().split()[1]) * PAGE_BYTES
        return resident, sum(1 for _ in (root / "fd").iterdir()), sum(1 for _ in (root / "task").iterdir())
    except OSError:
        return None


def _count_files(directory: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(directory))
