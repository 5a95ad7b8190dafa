"""`ftfile.report`: what a directory's log, files and checks tell, as one page."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ftfile.core.arguments import checked
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.core.logs import redacted
from ftfile.log.directory import store_of
from ftfile.log.opening import open_log
from ftfile.log.read.snapshot import Snapshot, take_snapshot
from ftfile.operate.doctor import doctor
from ftfile.operate.status import directory_status
from ftfile.operate.verify.findings import SEVERITIES
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
    from ftfile.operate.verify.findings import VerifyReport
    from ftfile.tools.report.advice import ReportWarning


__all__ = ("Report", "report")


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `ftfile.report`: a page that needs no network and no other file.

    Attributes:
        path: URL of the directory.
        version: the newest one; -1 for none.
        warnings: what the page warns of, worst first.
        html: the page.
    """

    path: str
    version: int
    warnings: tuple[ReportWarning, ...]
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
        checks=doctor(path, key_provider=key_provider, storage=storage, context=context).checks,
        jobs=head.assembly_tasks,
    )
    warnings = sorted(_warnings(contents, verify_report), key=lambda warning: SEVERITIES.index(warning.severity))
    contents = replace(contents, warnings=tuple(warnings))
    return Report(url, contents.status.version, contents.warnings, render(contents))


def _warnings(contents: Contents, verify_report: VerifyReport | None) -> Iterator[ReportWarning]:
    path, commits, status = contents.path, contents.commits, contents.status
    yield from advice.of_findings(status.findings if verify_report is None else verify_report.findings, path)
    if verify_report is not None:
        yield from advice.of_stage(verify_report.unrecorded_files, verify_report.unrecorded_bytes, path)
    yield from advice.of_checks(contents.checks, path)
    if not contents.is_store:
        yield from advice.of_status(status, path, contents.made_ms, is_verified=verify_report is not None)
        yield from advice.of_files(contents.files, commits, status, path)
    yield from advice.of_commits(commits, path)
    yield from advice.of_silence(status.queries, commits, contents.made_ms)


def _snapshot(log: CommitLog, *, is_verified: bool) -> Snapshot:
    """Return the newest snapshot; an empty one where it cannot be read and a warning of `verify` says so."""
    try:
        return take_snapshot(log)
    except CorruptData:
        if not is_verified:
            raise
        return Snapshot()
