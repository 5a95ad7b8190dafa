"""Findings of a report: of silence, of small files, of history; each with its remedy in commands."""

from __future__ import annotations

from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING

import numpy as np

from ftfile.core.units import bytes_text, count_text, duration_text, names_text
from ftfile.log.format import layout
from ftfile.operate.findings import find
from ftfile.tools.report.charts import SECONDS
from ftfile.tools.report.remedies import in_commands

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ftfile.operate.findings import Finding
    from ftfile.operate.status import DirectoryStatus, QueryStatus
    from ftfile.tools.report.history import Commits, LiveFiles


__all__ = ("of_commits", "of_files", "of_findings", "of_silence", "of_stage")


SMALL_BYTES = 16 << 20  # a mean size below costs readers more time to open files than to read them
SMALL_FILES = 100  # fewer are no burden
RECENT = 1_000  # versions that tell how things are now
SLOWER = 3  # times the median of before
SLOW_S = 1.0
SILENT = 10  # times the usual pause of a query that nearly all its pauses keep to
SILENT_S = 900


def of_findings(findings: Iterable[Finding], path: str) -> Iterator[Finding]:
    """Yield one finding for each kind, with what to do in commands."""
    kinds: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        kinds.setdefault((finding.code, finding.severity), []).append(finding)
    for same in kinds.values():
        first = same[0]
        paths = names_text([finding.path for finding in same if finding.path])
        # Of the directory as a whole, nothing else tells one from another.
        contents = [finding.found for finding in same if not finding.path] or [first.found]
        expected = f"expected {first.expected}, found {'; '.join(contents)}"
        text = f"{count_text(len(same), 'finding')}: {paths}: {expected}" if paths else expected
        yield replace(first, found=text, remedy=in_commands(first.remedy, path))


def of_silence(queries: Sequence[QueryStatus], commits: Commits, now_ms: int) -> Iterator[Finding]:
    """Yield a note if no version came for much longer than usual."""
    pauses = commits.pauses()[-RECENT:]
    pauses = pauses[~np.isnan(pauses)]
    if not queries or not len(pauses):
        return
    usual, silent = float(np.quantile(pauses, 0.95)), (now_ms - int(commits.columns["time_ms"][-1])) / 1000
    if silent > max(SILENT * usual, SILENT_S):
        yield find(
            "silence",
            "",
            f"a version within {SECONDS.text(usual)}, as usual",
            f"none for {duration_text(silent)}",
            remedy="Nothing to do if the queries have ended. Else look at their drivers: one may wait for its source",
        )


def of_files(files: LiveFiles, commits: Commits, status: DirectoryStatus, path: str) -> Iterator[Finding]:
    """Yield warnings of many small files, and of removed ones that still take space."""
    count = len(files.sizes)
    if count >= SMALL_FILES and files.size_bytes < SMALL_BYTES * count:
        small = int((files.sizes < SMALL_BYTES).sum())
        yield find(
            "small-files",
            "",
            f"{bytes_text(SMALL_BYTES)} and more",
            f"{count_text(small)} of {count_text(count, 'file')} are under {bytes_text(SMALL_BYTES)}, the mean is "
            f"{bytes_text(files.size_bytes // count)}",
            remedy=f"`ftfile compact {quote(path)} --dry-run` tells what merging them would do. To write larger ones "
            "from the start, let files stay open over batches: `maxBytesPerFile` with `rolloverInterval`",
        )
    removed = int(commits.columns["files_removed"].sum())
    if removed and not status.horizon_ms:
        yield find(
            "kept-files",
            "",
            "a vacuum at times",
            f"{count_text(removed, 'file')} were replaced or removed, and nothing was ever vacuumed",
            remedy=f"`ftfile vacuum {quote(path)} --dry-run` tells how much would be freed; older versions end with it",
        )


def of_commits(commits: Commits, path: str) -> Iterator[Finding]:
    """Yield warnings of recoveries, replays, retries, records that could not be written, and of slower commits."""
    recent = commits.columns[-RECENT:]
    letters = int(commits.columns["bad_records"].sum())
    if commits.unreadable:
        yield find(
            "unreadable-version",
            "",
            "their records",
            f"{count_text(commits.unreadable, 'version')}, whose records are missing or damaged",
            remedy=f"`ftfile verify {quote(path)}` says which, and what to do",
        )
    if letters:
        yield find(
            "dead-letters",
            "",
            "none",
            f"{count_text(letters, 'record')}, kept as dead letters with the reason of each",
            remedy=f"`ftfile.open({path!r}).dead_letters()` returns them",
        )
    for code in ("replays", "recoveries", "task-retries"):
        total = int(recent[code.replace("-", "_")].sum())
        often = total * 10 >= len(recent)
        if total:
            yield find(
                code,
                "",
                "none",
                f"{count_text(total)} in the newest {count_text(len(recent), 'version')}",
                severity="warning" if often else "info",
                remedy="No row is lost or doubled. "
                + ("That often, something ends again and again: see the driver's log" if often else "Nothing to do"),
            )
    seconds = commits.seconds()
    if len(seconds) > 2 * RECENT:
        before, now = float(np.median(seconds[:-RECENT])), float(np.median(seconds[-RECENT:]))
        if now > max(SLOWER * before, SLOW_S):
            yield find(
                "slower-commits",
                "",
                f"{SECONDS.text(before)}, as before",
                f"{SECONDS.text(now)} in the newest {count_text(RECENT)} versions",
                remedy="See which stage has grown, below, and docs/tuning.md",
            )


def of_stage(files: int, size_bytes: int, path: str) -> Iterator[Finding]:
    """Yield a note of staged files that no version names."""
    if files:
        yield find(
            "unneeded-files",
            layout.STAGED,
            "none",
            f"{count_text(files, 'file')}, {bytes_text(size_bytes)}: of running tasks, of lost attempts, or used up",
            remedy=f"Nothing to do while a query runs; `ftfile vacuum {quote(path)}` deletes the old ones",
        )
