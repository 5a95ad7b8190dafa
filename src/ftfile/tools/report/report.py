"""`ftfile.report`: what a directory's log, files and checks tell, as one page."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ftfile.core.arguments import checked
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.core.logs import redacted
from ftfile.core.units import bytes_text, count_text, duration_text
from ftfile.log.directory import store_of
from ftfile.log.opening import open_log
from ftfile.log.read.snapshot import Snapshot, take_snapshot
from ftfile.operate.doctor import doctor
from ftfile.operate.findings import find, worst_first
from ftfile.operate.status import directory_status
from ftfile.operate.verify.verify_directory import verify as compare
from ftfile.storage.paths import parse
from ftfile.storage.registry import is_local, normalise
from ftfile.tools.report.charts import SECONDS
from ftfile.tools.report.history import CommitColumns, live_files_of, read_commits
from ftfile.tools.report.page import Contents, render

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ftfile.core.context import Context
    from ftfile.log.commit_log import CommitLog
    from ftfile.operate.findings import Finding
    from ftfile.operate.status import QueryStatus
    from ftfile.operate.verify.verify_directory import VerifyReport
    from ftfile.tools.report.history import Commits, LiveFiles


__all__ = ("Report", "of_commits", "of_files", "of_silence", "report")

SMALL_BYTES = 16 << 20  # a mean size below costs readers more time to open files than to read them
SMALL_FILES = 100  # fewer are no burden
RECENT = 1_000  # versions that tell how things are now
SLOWER = 3  # times the median of before
SLOW_S = 1.0
SILENT = 10  # times the usual pause of a query that nearly all its pauses keep to
SILENT_S = 900
# Of a status, what `verify` finds as well.
_COMPARED = ("code-not-asked", "horizon-ahead", "lost-records", "not-hidden", "not-publishable", "not-published")


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `ftfile.report`: a page that needs no network and no other file.

    Attributes:
        path: URL of the directory.
        version: the newest one; -1 for none.
        findings: what the page warns of, worst first.
        html: the page.
    """

    path: str
    version: int
    findings: tuple[Finding, ...]
    html: str = field(repr=False)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the page to a local file, in the place of one that is there.

        Raises:
            ConfigError: the file cannot be written.
        """
        try:
            # Names of files on a disk need not be text.
            with open(file, "w", encoding="utf-8", errors="backslashreplace") as page:
                page.write(self.html)
        except OSError as error:
            raise ConfigError(f"the page cannot be written to {os.fspath(file)!r}: {error.strerror}") from error


@checked
def report(
    path: str | os.PathLike[str],
    *,
    verify: bool = True,
    key_provider: str | None = None,
    storage: Mapping[str, str] | None = None,
    at_least_version: int | None = None,
    context: Context = SYSTEM,
) -> Report:
    """Return a page with plots and tables of a directory or a store, and with warnings and what to do about each.

    Writes nothing there. It reads each record that is kept; memory is bounded by the number of live files. Where there
    are more than 400 versions, plots show the least, the mean and the greatest value of groups of them.

    Args:
        path: of the directory or the store.
        verify: also compare the storage with the log, as `Directory.verify()` does; takes longer than all else.
        key_provider: see `ftfile.open`.
        storage: likewise.
        at_least_version: likewise.
        context: likewise.

    Raises:
        RolledBack: the newest version is before `at_least_version`.
        ConfigError: the path has no log, or its keys are not known, or the packages of `ftfile[report]` are missing.
        CorruptData: the newest version cannot be read; `Directory.verify()` says how to mend it.
        StorageError: the store failed.
    """
    log = open_log(path, key_provider, storage, context, at_least_version)
    head, url = log.refresh(), normalise(os.fspath(path))
    is_store = store_of(head) is not None
    columns = CommitColumns()
    verify_report = compare(log.fs, on_record=columns.add) if verify else None
    contents = Contents(
        path=parse(url).path if is_local(url) else redacted(url),
        made_ms=context.clock.now_ms(),
        is_store=is_store,
        is_verified=verify,
        commits=read_commits(log) if verify_report is None else columns.commits(log, verify_report.version),
        files=live_files_of(_snapshot(log, is_verified=verify), is_store=is_store),
        status=directory_status(log, url),
        machine=doctor(path, key_provider=key_provider, storage=storage, context=context).findings,
        jobs=head.assembly_tasks,
    )
    contents = replace(contents, findings=worst_first(_findings(contents, verify_report)))
    return Report(url, contents.status.version, contents.findings, render(contents))


def _findings(contents: Contents, verify_report: VerifyReport | None) -> Iterator[Finding]:
    commits, status = contents.commits, contents.status
    if verify_report is None:
        yield from status.findings
    else:
        yield from (finding for finding in status.findings if finding.code not in _COMPARED)
        yield from verify_report.findings
        if files := verify_report.unrecorded_files:
            size = bytes_text(verify_report.unrecorded_bytes)
            yield find("unneeded-files", "", "", f"{count_text(files, 'staged file')} of {size}")
    yield from (finding for finding in contents.machine if finding.severity in {"error", "warning"})
    if not contents.is_store:
        yield from of_files(contents.files, commits, was_vacuumed=status.horizon_ms > 0)
    yield from of_commits(commits)
    yield from of_silence(status.queries, commits, contents.made_ms)


def _snapshot(log: CommitLog, *, is_verified: bool) -> Snapshot:
    """Return the newest snapshot; an empty one where it cannot be read and a warning of `verify` says so."""
    try:
        return take_snapshot(log)
    except CorruptData:
        if not is_verified:
            raise
        return Snapshot()


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
