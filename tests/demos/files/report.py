"""The output of the demonstration: progress while it runs, each kill as it happens, and a table at the end."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING, TextIO

from tests.demos.files.kill import Moment, Victim

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tests.demos.files.check import Verdict
    from tests.demos.files.kill import Hit
    from tests.demos.files.run import SinkRun, Workspace

__all__ = ("TITLES", "Console", "count_kills", "print_summary")

SPARSE_INTERVAL_S = 10.0
GREEN, RED, PLAIN, CLEAR_LINE = "\x1b[32m", "\x1b[31m", "\x1b[0m", "\r\x1b[K"
TITLES = {"ftfile": "ftfile", "spark": "Spark's sink"}
PLAIN_READER, SPARK_READER = "plain reader (DuckDB)", "Spark, by the sink's log"
HEADINGS = (
    "sink",
    "format",
    "read by",
    "files",
    "MB",
    "rows",
    "missing",
    "duplicated",
    "foreign",
    "broken files",
)


class Console:
    """Writes lines, and a progress line that is updated in place on a terminal and is written seldom elsewhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._has_colour = self._is_terminal and not os.environ.get("NO_COLOR")
        self._progress_at_s = time.monotonic()

    def line(self, text: str = "") -> None:
        """Write one line."""
        self._write((CLEAR_LINE if self._is_terminal else "") + text + "\n")

    def progress(self, text: str) -> None:
        """Show the progress: replaces the last progress on a terminal, otherwise writes a line every ten seconds."""
        if self._is_terminal:
            columns = shutil.get_terminal_size().columns
            self._write(f"{CLEAR_LINE}  {text}"[: len(CLEAR_LINE) + columns - 1])
        elif time.monotonic() - self._progress_at_s > SPARSE_INTERVAL_S:
            self._progress_at_s = time.monotonic()
            self._write(f"  ... {text}\n")

    def table(self, rows: Sequence[Sequence[str]], texts: int, indent: str = "") -> None:
        """Write a table whose first row has the headings, with text columns aligned left and numbers right.

        Args:
            rows: of equal length.
            texts: number of text columns, which come first.
            indent: before each line.
        """
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = [cell.ljust(width) for cell, width in zip(row[:texts], widths, strict=False)]
            cells += [cell.rjust(width) for cell, width in zip(row[texts:], widths[texts:], strict=True)]
            self.line(indent + "  ".join(cells).rstrip())

    def hit(self, hit: Hit, elapsed_s: float) -> None:
        """Write one kill, and the state of the directories after every process had ended."""
        victim = hit.kill.victim
        whom = f"{hit.processes} processes" if victim is Victim.APPLICATION else victim.value
        caught = f"{hit.kill.target} was {hit.kill.moment.value}"
        tries = f" (caught at try {hit.thawed + 1})" if hit.thawed else ""
        self.line(f"  {elapsed_s:5.1f} s  SIGKILL to {whom}: {caught}{tries}")
        for name, state in hit.states.items():
            waiting = hit.unpublished if name == hit.kill.target else 0
            hidden = f", {waiting} of its files not yet in place" if waiting else ""
            self.line(f"{'':11}{name}: {state.describe()}{hidden}")
        if not hit.counts:
            self.line(f"{'':11}too late: this kill does not count and is repeated")

    def paint(self, text: str, *, good: bool) -> str:
        """Colour a text, if the terminal has colours."""
        return f"{GREEN if good else RED}{text}{PLAIN}" if self._has_colour else text

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def count_kills(hits: Sequence[Hit]) -> str:
    """Return the number of kills, and of kills where a batch could be duplicated or lost, as a text."""
    in_window = sum(hit.counts and hit.kill.moment is Moment.WINDOW for hit in hits)
    return f"{len(hits)} kills, {in_window} of them {Moment.WINDOW.value}"


def print_summary(console: Console, workspace: Workspace, runs: Sequence[SinkRun]) -> None:
    """Print the rows that both readers found in every stream, and a verdict on each sink."""
    rows: list[tuple[str, ...]] = [HEADINGS]
    for run in runs:
        for name, verdict in run.plain.items():
            size = (f"{verdict.files:,}", f"{verdict.size_bytes / 1e6:.1f}")
            rows.append((TITLES[run.sink], name, PLAIN_READER, *size, *_counts(verdict)))
            rows.append(("", "", SPARK_READER, "", "", *_counts(run.by_spark[name])))
    console.line()
    console.table(rows, texts=3)
    for run in runs:
        console.line(f"\n{TITLES[run.sink]}: {count_kills(run.hits)}; {run.stream_s:.0f} s")
        for reader, verdicts in ((PLAIN_READER, run.plain), (SPARK_READER, run.by_spark)):
            good = all(verdict.exact for verdict in verdicts.values())
            finding = _finding(verdicts.values(), workspace.rows)
            console.line(f"  {reader}: {console.paint(finding, good=good)}")
        if not run.log_is_complete:
            console.line("  " + console.paint("the sink's log does not hold each of Spark's batches once", good=False))


def _counts(verdict: Verdict) -> tuple[str, ...]:
    counts = (verdict.rows, verdict.missing, verdict.duplicated, verdict.foreign, len(verdict.unreadable))
    return tuple(f"{count:,}" for count in counts)


def _finding(verdicts: Collection[Verdict], rows: int) -> str:
    """Return the rows that one reader found in all streams of a sink as a text."""
    if all(verdict.exact for verdict in verdicts):
        return f"each of the {rows:,} flights exactly once"
    kinds = {
        "missing": sum(verdict.missing for verdict in verdicts),
        "more than once": sum(verdict.duplicated for verdict in verdicts),
        "not in the source": sum(verdict.foreign for verdict in verdicts),
    }
    findings = [f"{count:,} rows {kind}" for kind, count in kinds.items() if count]
    broken = [file for verdict in verdicts for file in verdict.unreadable]
    if broken:
        findings.append(f"{len(broken)} unreadable (such as {broken[0]})")
    return ", ".join(findings)
