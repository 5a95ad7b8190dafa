"""Findings of a report: what the history and the live files show."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ftfile.core.units import bytes_text, count_text, duration_text
from ftfile.operate.findings import find
from ftfile.tools.report.charts import SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ftfile.operate.findings import Finding
    from ftfile.operate.status import QueryStatus
    from ftfile.tools.report.history import Commits, LiveFiles


__all__ = ("of_commits", "of_files", "of_silence")


SMALL_BYTES = 16 << 20  # a mean size below costs readers more time to open files than to read them
SMALL_FILES = 100  # fewer are no burden
RECENT = 1_000  # versions that tell how things are now
SLOWER = 3  # times the median of before
SLOW_S = 1.0
SILENT = 10  # times the usual pause of a query that nearly all its pauses keep to
SILENT_S = 900


def of_silence(queries: Sequence[QueryStatus], commits: Commits, now_ms: int) -> Iterator[Finding]:
    """Yield a finding if no version came for much longer than usual."""
    pauses = commits.pauses()[-RECENT:]
    pauses = pauses[~np.isnan(pauses)]
    if not queries or not len(pauses):
        return
    usual, silent = float(np.quantile(pauses, 0.95)), (now_ms - int(commits.columns["time_ms"][-1])) / 1000
    if silent > max(SILENT * usual, SILENT_S):
        yield find(
            "silence", "", f"a version within {SECONDS.text(usual)}, as usual", f"none for {duration_text(silent)}"
        )


def of_files(files: LiveFiles, commits: Commits, *, was_vacuumed: bool) -> Iterator[Finding]:
    """Yield findings of many small files, and of removed ones that still take space."""
    count = len(files.sizes)
    if count >= SMALL_FILES and files.size_bytes < SMALL_BYTES * count:
        small, mean = int((files.sizes < SMALL_BYTES).sum()), bytes_text(files.size_bytes // count)
        actual = f"{count_text(small)} of {count_text(count, 'file')} are smaller, the mean is {mean}"
        yield find("small-files", "", f"files of {bytes_text(SMALL_BYTES)} or more", actual)
    removed = int(commits.columns["files_removed"].sum())
    if removed and not was_vacuumed:
        actual = f"{count_text(removed, 'file')} were replaced or removed, and nothing was ever vacuumed"
        yield find("removed-files", "", "", actual)


def of_commits(commits: Commits) -> Iterator[Finding]:
    """Yield findings of recoveries, replays, retries, records that could not be written, and of slower commits."""
    recent = commits.columns[-RECENT:]
    if commits.unreadable:
        text = count_text(commits.unreadable, "version")
        yield find("unreadable-versions", "", "a record for each version", f"{text} whose record is missing or damaged")
    if letters := int(commits.columns["bad_records"].sum()):
        yield find("bad-records", "", "", count_text(letters, "record"))
    for code, name in (("replays", "replays"), ("recoveries", "recoveries"), ("task-retries", "task_retries")):
        if total := int(recent[name].sum()):
            finding = find(code, "", "", f"{count_text(total)} in the newest {count_text(len(recent), 'version')}")
            yield replace(finding, severity="warning") if total * 10 >= len(recent) else finding
    seconds = commits.seconds()
    if len(seconds) > 2 * RECENT:
        before, now = float(np.median(seconds[:-RECENT])), float(np.median(seconds[-RECENT:]))
        if now > max(SLOWER * before, SLOW_S):
            actual = f"{SECONDS.text(now)} in the newest {count_text(RECENT)} versions"
            yield find("slower-commits", "", f"{SECONDS.text(before)}, as before", actual)
