"""Warnings in plain words, and what to do about each."""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING

import numpy as np

from ftfile.core.units import ago, bytes_text, count_text, duration_text, names_text
from ftfile.operate.verify.findings import KINDS
from ftfile.tools.report.charts import SECONDS
from ftfile.tools.report.remedies import in_commands

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ftfile.operate.doctor import Check
    from ftfile.operate.status import DirectoryStatus, QueryStatus
    from ftfile.operate.verify.findings import Finding, Severity
    from ftfile.tools.report.history import Commits, LiveFiles


__all__ = (
    "ReportWarning",
    "of_checks",
    "of_commits",
    "of_files",
    "of_findings",
    "of_silence",
    "of_stage",
    "of_status",
)


SMALL_BYTES = 16 << 20  # a mean size below costs readers more time to open files than to read them
SMALL_FILES = 100  # fewer are no burden
RECENT = 1_000  # versions that tell how things are now
SLOWER = 3  # times the median of before
SLOW_S = 1.0
SILENT = 10  # times the usual pause of a query that nearly all its pauses keep to
SILENT_S = 900
EXAMPLES = 3  # of paths in one warning


@dataclass(frozen=True, slots=True)
class ReportWarning:
    """One thing that a report warns of.

    Attributes:
        severity: `error` loses, doubles or blocks rows; `warning` grows into a problem; `info` is worth knowing.
        title: what is the matter, in plain words.
        found: numbers and examples.
        remedy: what to do about it; commands and options are between backticks.
    """

    severity: Severity
    title: str
    found: str
    remedy: str


def of_findings(findings: Sequence[Finding], path: str) -> Iterator[ReportWarning]:
    """Yield a warning for each kind of finding of `verify`."""
    kinds: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        kinds.setdefault((finding.code, finding.severity), []).append(finding)
    for (code, _), same in kinds.items():
        first = same[0]
        paths = names_text([finding.path for finding in same if finding.path])
        # Of the directory as a whole, nothing else tells one from another.
        contents = [finding.found for finding in same if not finding.path] or [first.found]
        expected = f"expected {first.expected}, found {'; '.join(contents)}"
        text = f"{count_text(len(same), 'finding')}: {paths}: {expected}" if paths else expected
        yield ReportWarning(first.severity, KINDS[code].title, text, in_commands(first.remedy, path))


def of_checks(checks: Sequence[Check], path: str) -> Iterator[ReportWarning]:
    """Yield a warning for each check of `doctor` that is not passed."""
    for check in checks:
        if check.state in {"error", "warning"}:
            yield ReportWarning(
                check.state, f"On this machine: {check.name}", check.found, in_commands(check.remedy, path)
            )


def of_status(status: DirectoryStatus, path: str, now_ms: int, *, is_verified: bool) -> Iterator[ReportWarning]:
    """Yield warnings of open files that are due, of unpublished ones unless `verify` told, and of queries."""
    failing = [file for file in status.open if file.attempts]
    due = [file for file in status.open if file.reason and not file.attempts]
    if failing:
        attempts = max(file.attempts for file in failing)
        yield ReportWarning(
            "error",
            f"{count_text(len(failing), 'open file')} could not be finished",
            f"{names_text([file.directory or '.' for file in failing])}: tried {count_text(attempts, 'time')}",
            f"`ftfile flush {quote(path)}` tries again, and says why it fails; "
            f"`ftfile verify {quote(path)} --full` finds damaged rows",
        )
    if due:
        oldest = ago(min(file.first_ms for file in due), now_ms)
        yield ReportWarning(
            "warning",
            f"{count_text(len(due), 'open file')} {'is' if len(due) == 1 else 'are'} due and not finished",
            f"plain readers miss {count_text(sum(file.rows for file in due), 'row')}, the oldest committed {oldest}: "
            f"{names_text([file.directory or '.' for file in due])}",
            f"The next batch of the query finishes them. If none comes: `ftfile flush {quote(path)} --due-only`",
        )
    stuck = [file for file in status.unpublished if file.problem]
    waiting = [file for file in status.unpublished if not file.problem]
    if stuck and not is_verified:
        yield ReportWarning(
            "error",
            f"{count_text(len(stuck), 'committed file')} cannot be published: plain readers miss rows",
            in_commands("; ".join(file.problem for file in stuck[:EXAMPLES]), path),
            f"Remove the cause, or let `ftfile repair {quote(path)} --dry-run` propose what to do",
        )
    if waiting and not is_verified:
        yield ReportWarning(
            "warning",
            f"{count_text(len(waiting), 'change')} of newer versions not made yet: files are not at their names",
            names_text([file.path for file in waiting]),
            f"The next commit does it; if none comes: `ftfile repair {quote(path)}`",
        )


def of_silence(queries: Sequence[QueryStatus], commits: Commits, now_ms: int) -> Iterator[ReportWarning]:
    """Yield a note if no version came for much longer than usual."""
    pauses = commits.pauses()[-RECENT:]
    pauses = pauses[~np.isnan(pauses)]
    if not queries or not len(pauses):
        return
    usual, silent = float(np.quantile(pauses, 0.95)), (now_ms - int(commits.columns["time_ms"][-1])) / 1000
    if silent > max(SILENT * usual, SILENT_S):
        yield ReportWarning(
            "info",
            f"Nothing was committed for {duration_text(silent)}",
            f"usually a version comes within {SECONDS.text(usual)}",
            "Nothing to do if the queries have ended. Otherwise look at their drivers: a query may wait for its source",
        )


def of_files(files: LiveFiles, commits: Commits, status: DirectoryStatus, path: str) -> Iterator[ReportWarning]:
    """Yield warnings of many small files, and of removed ones that still take space."""
    count = len(files.sizes)
    if count >= SMALL_FILES and files.size_bytes < SMALL_BYTES * count:
        small = int((files.sizes < SMALL_BYTES).sum())
        yield ReportWarning(
            "warning",
            "Most files are small: reading them takes long",
            f"{count_text(small)} of {count_text(count, 'file')} are under {bytes_text(SMALL_BYTES)}, the mean is "
            f"{bytes_text(files.size_bytes // count)}",
            f"`ftfile compact {quote(path)} --dry-run` tells what merging them would do. To write larger ones from the "
            "start, let files stay open over batches: `maxBytesPerFile` with `rolloverInterval`",
        )
    removed = int(commits.columns["files_removed"].sum())
    if removed and not status.horizon_ms:
        yield ReportWarning(
            "info",
            "Removed files still take space",
            f"{count_text(removed, 'file')} were replaced or removed, and nothing was ever vacuumed",
            f"`ftfile vacuum {quote(path)} --dry-run` tells how much would be freed; older versions end with it",
        )


def of_commits(commits: Commits, path: str) -> Iterator[ReportWarning]:
    """Yield warnings of recoveries, replays, retries, records that could not be written, and of slower commits."""
    recent = commits.columns[-RECENT:]
    letters = int(commits.columns["bad_records"].sum())
    if commits.unreadable:
        yield ReportWarning(
            "error",
            f"{count_text(commits.unreadable, 'version')} cannot be read, and "
            f"{'is' if commits.unreadable == 1 else 'are'} not in the plots",
            "their records are missing or damaged",
            f"`ftfile verify {quote(path)}` says which, and what to do",
        )
    if letters:
        yield ReportWarning(
            "warning",
            f"{count_text(letters, 'record')} could not be written",
            "they are kept as dead letters, with the reason of each",
            f"`ftfile.open({path!r}).dead_letters()` returns them",
        )
    titles = {
        "replays": "Batches came again after restarts, and were recognised",
        "recoveries": "Versions were published by a later process than their own",
        "task_retries": "Tasks failed and were tried again",
    }
    for name, title in titles.items():
        total = int(recent[name].sum())
        often = total * 10 >= len(recent)
        if total:
            yield ReportWarning(
                "warning" if often else "info",
                title,
                f"{count_text(total)} in the newest {count_text(len(recent), 'version')}",
                "No row is lost or doubled. "
                + ("That often, something ends again and again: see the driver's log" if often else "Nothing to do"),
            )
    seconds = commits.seconds()
    if len(seconds) > 2 * RECENT:
        before, now = float(np.median(seconds[:-RECENT])), float(np.median(seconds[-RECENT:]))
        if now > max(SLOWER * before, SLOW_S):
            yield ReportWarning(
                "warning",
                "Commits take longer than before",
                f"{SECONDS.text(now)} in the newest {count_text(RECENT)} versions, {SECONDS.text(before)} before",
                "See which stage has grown, below, and docs/tuning.md",
            )


def of_stage(files: int, size_bytes: int, path: str) -> Iterator[ReportWarning]:
    """Yield a note of staged files that no version names."""
    if files:
        yield ReportWarning(
            "info",
            f"{count_text(files, 'staged file')} {'is' if files == 1 else 'are'} not needed",
            f"{bytes_text(size_bytes)}: of tasks that run now, of lost attempts, or used up",
            f"Nothing to do while a query runs; `ftfile vacuum {quote(path)}` deletes the old ones",
        )
