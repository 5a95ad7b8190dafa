"""`ftfile.report`: what a directory's log, files and checks tell, as one page."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ftfile.core.arguments import checked
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.core.logs import redacted
from ftfile.core.units import bytes_text, count_text
from ftfile.log.directory import store_of
from ftfile.log.opening import open_log
from ftfile.log.read.snapshot import Snapshot, take_snapshot
from ftfile.operate.doctor import doctor
from ftfile.operate.findings import find, worst_first
from ftfile.operate.status import directory_status
from ftfile.operate.verify.verify_directory import verify as compare
from ftfile.storage.paths import parse
from ftfile.storage.registry import is_local, normalise
from ftfile.tools.report import advice
from ftfile.tools.report.history import CommitColumns, live_files_of, read_commits
from ftfile.tools.report.page import Contents, render

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ftfile.core.context import Context
    from ftfile.log.commit_log import CommitLog
    from ftfile.operate.findings import Finding
    from ftfile.operate.verify.verify_directory import VerifyReport


__all__ = ("Report", "report")

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
        yield from advice.of_files(contents.files, commits, was_vacuumed=status.horizon_ms > 0)
    yield from advice.of_commits(commits)
    yield from advice.of_silence(status.queries, commits, contents.made_ms)


def _snapshot(log: CommitLog, *, is_verified: bool) -> Snapshot:
    """Return the newest snapshot; an empty one where it cannot be read and a warning of `verify` says so."""
    try:
        return take_snapshot(log)
    except CorruptData:
        if not is_verified:
            raise
        return Snapshot()
