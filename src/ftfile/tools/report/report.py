"""The implementation of `ftfile.report`, which returns one page about a directory."""

from __future__ import annotations

import base64
import hashlib
import os
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files as resources
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ftfile.core import __version__
from ftfile.core.arguments import Access, check_arguments
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.core.logs import redact
from ftfile.core.remedies import in_commands
from ftfile.core.units import ago, bytes_text, count_text, duration_text, names_text, time_text
from ftfile.log.directory import store_of
from ftfile.log.opening import open_log
from ftfile.log.read.snapshot import Snapshot, take_snapshot
from ftfile.operate.doctor import doctor
from ftfile.operate.findings import find, sort_worst_first
from ftfile.operate.requests import RequestPrices
from ftfile.operate.status import directory_status
from ftfile.operate.verify.verify_directory import verify as compare
from ftfile.storage.paths import parse
from ftfile.storage.registry import is_local, normalise
from ftfile.tools.report.bars import directory_bars, operation_bars, reason_bars, size_bars, stage_bars
from ftfile.tools.report.charts import HEIGHT, timeline_of
from ftfile.tools.report.history import CommitColumns, live_files_of, read_commits
from ftfile.tools.report.scales import SECONDS
from ftfile.tools.report.views import view_of_machine, view_of_open, view_of_queries, view_of_requests

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import jinja2
    from typing_extensions import Unpack

    from ftfile.core.arguments import AccessArguments
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Job
    from ftfile.operate.findings import Finding
    from ftfile.operate.open_files import OpenFile
    from ftfile.operate.status import DirectoryStatus, QueryStatus
    from ftfile.operate.verify.verify_directory import VerifyReport
    from ftfile.tools.report.history import Commits, LiveFiles
    from ftfile.tools.report.views import TableView


__all__ = ("OPEN_SHOWN", "PageContents", "Report", "of_commits", "of_files", "of_silence", "render", "report")

SMALL_BYTES = 16 << 20  # with a lower mean size, readers need more time to open files than to read them
SMALL_FILES = 100  # fewer files need little time
RECENT = 1_000  # number of versions that show the current state
SLOWER = 3  # times the earlier median
SLOW_S = 1.0
SILENT = 10  # times the usual pause: the 0.95 quantile of the pauses
SILENT_S = 900
# Findings of a status that `verify` also reports.
_COMPARED = ("code-not-asked", "horizon-ahead", "lost-records", "not-hidden", "not-publishable", "not-published")

OPEN_SHOWN = 50
_FOLDER = "ftfile.tools.report"
_NEVER_MS = 1 << 62
_NOUNS = {"error": "error", "warning": "warning", "info": "note"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of `ftfile.report`: a page that needs no network and no other file.

    Attributes:
        path: URL of the directory.
        version: the newest version; -1 without versions.
        findings: the warnings on the page, worst first.
        html: the page.
    """

    path: str
    version: int
    findings: tuple[Finding, ...]
    html: str = field(repr=False)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the page to a local file, and replace an existing file.

        Raises:
            ConfigError: the file cannot be written.
        """
        try:
            # Names of files can contain bytes that are not UTF-8.
            with open(file, "w", encoding="utf-8", errors="backslashreplace") as page:
                page.write(self.html)
        except OSError as error:
            raise ConfigError(f"the page cannot be written to {os.fspath(file)!r}: {error.strerror}") from error


@check_arguments
def report(
    path: str | os.PathLike[str],
    *,
    verify: bool = True,
    request_prices: tuple[float, float] = RequestPrices(),
    **access: Unpack[AccessArguments],
) -> Report:
    """Return a page with plots and tables of a directory or a store, and with warnings and their remedies.

    The call does not write to the directory. It reads each kept record. Its memory is bounded by the number of live
    files. For more than 400 versions, plots show the least, the mean and the greatest value of groups of versions.

    Args:
        path: of the directory or the store.
        verify: also compare the storage with the log, as `OpenedDirectory.verify()` does. This takes most of the time.
        request_prices: prices of 1,000 PUT and of 1,000 GET requests, for the cost of batches on an object store.
        **access: how the directory is opened, see `ftfile.open`.

    Raises:
        RolledBack: the newest version is before `at_least_version`.
        ConfigError: the path has no log, its keys are not known, or packages of `ftfile[report]` are not installed.
        CorruptData: the newest version cannot be read; `OpenedDirectory.verify()` reports the repair.
        StorageError: the storage failed.
    """
    place = Access.of(access)
    log = open_log(path, place)
    head, url = log.refresh(), normalise(os.fspath(path))
    is_store = store_of(head) is not None
    columns = CommitColumns()
    verify_report = None
    if verify:
        verify_report = compare(log.fs, on_record=columns.add)
    contents = PageContents(
        path=parse(url).path if is_local(url) else redact(url),
        made_ms=place.context.clock.now_ms(),
        is_store=is_store,
        is_verified=verify,
        commits=read_commits(log) if verify_report is None else columns.commits(log, verify_report.version),
        files=live_files_of(_snapshot(log, is_verified=verify), is_store=is_store),
        status=directory_status(log, url, request_prices=RequestPrices(*request_prices)),
        machine=doctor(
            path,
            key_provider=place.key_provider,
            storage=place.storage,
            context=place.context,
            measure_start=False,
        ).findings,
        jobs=head.jobs,
    )
    contents = replace(contents, findings=sort_worst_first(_findings(contents, verify_report)))
    return Report(path=url, version=contents.status.version, findings=contents.findings, html=render(contents))


def _findings(contents: PageContents, verify_report: VerifyReport | None) -> Iterator[Finding]:
    commits, status = contents.commits, contents.status
    if verify_report is None:
        yield from status.findings
    else:
        for finding in status.findings:
            if finding.code not in _COMPARED:
                yield finding
        yield from verify_report.findings
        if files := verify_report.unrecorded_files:
            size = bytes_text(verify_report.unrecorded_bytes)
            yield find("unneeded-files", "", "", f"{count_text(files, 'staged file')} of {size}")
    for finding in contents.machine:
        if finding.severity in {"error", "warning"}:
            yield finding
    if not contents.is_store:
        yield from of_files(contents.files, commits, was_vacuumed=status.horizon_ms > 0)
    yield from of_commits(commits)
    yield from of_silence(status.queries, commits, contents.made_ms)


def _snapshot(log: CommitLog, *, is_verified: bool) -> Snapshot:
    """Return the newest snapshot; if it cannot be read and `verify` reports the damage, an empty snapshot."""
    try:
        return take_snapshot(log)
    except CorruptData:
        if not is_verified:
            raise
        return Snapshot()


def of_silence(queries: Sequence[QueryStatus], commits: Commits, now_ms: int) -> Iterator[Finding]:
    """Yield a finding if the time since the newest version is much longer than usual."""
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
    """Yield findings of many small files, and of removed files that still use space."""
    count = len(files.sizes)
    if count >= SMALL_FILES and files.size_bytes < SMALL_BYTES * count:
        small, mean = int((files.sizes < SMALL_BYTES).sum()), bytes_text(files.size_bytes // count)
        actual = f"{count_text(small)} of {count_text(count, 'file')} are smaller, the mean is {mean}"
        yield find("small-files", "", f"files of {bytes_text(SMALL_BYTES)} or more", actual)
    removed = int(commits.columns["files_removed"].sum())
    if removed and not was_vacuumed:
        actual = f"{count_text(removed, 'file')} were replaced or removed, and vacuum has never run"
        yield find("removed-files", "", "", actual)


def of_commits(commits: Commits) -> Iterator[Finding]:
    """Yield findings of recoveries, replays, retries, bad records and slower commits."""
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


@dataclass(frozen=True, kw_only=True)
class PageContents:
    """All facts on a page."""

    path: str
    made_ms: int
    is_store: bool
    is_verified: bool
    commits: Commits
    files: LiveFiles
    status: DirectoryStatus
    machine: Sequence[Finding]
    jobs: Sequence[Job]
    findings: tuple[Finding, ...] = ()


def render(contents: PageContents) -> str:
    """Return the page. All text in it is escaped, and only its own script runs. `ConfigError` without jinja2."""
    try:
        import jinja2  # noqa: F401, PLC0415 - of an extra
    except ImportError as error:
        raise ConfigError(
            f"a report needs a package that is not installed ({error}): pip install 'ftfile[report]'"
        ) from error
    return _template().render(_values(contents))


@cache
def _template() -> jinja2.Template:
    """Return the template of the page, with the style and the script already in it."""
    import jinja2  # noqa: PLC0415 - as above

    folder = resources(_FOLDER)
    style = folder.joinpath("report.css").read_text("utf-8")
    script = folder.joinpath("report.js").read_text("utf-8")
    template = folder.joinpath("report.html").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["sentence"] = _sentence
    return environment.from_string(template, {"style": style, "script": script, "digest": digest})


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _values(contents: PageContents) -> dict[str, Any]:
    commits, files, is_store = contents.commits, contents.files, contents.is_store
    attention = _attention(contents.findings, contents.path)
    bars = [size_bars(files, is_store=is_store), operation_bars(commits)]
    bars += [] if is_store else [reason_bars(commits)]
    bars += [directory_bars(files, is_store=is_store), stage_bars(commits)]
    return {
        "contents": contents,
        "made": f"{time_text(contents.made_ms)} UTC",
        "release": __version__,
        "verdict": _verdict(attention),
        "attention": attention,
        "nouns": _NOUNS,
        "tiles": [*_tiles(contents)],
        "timeline": timeline_of(commits, is_store=is_store),
        "height": HEIGHT,
        "bars": bars,
        "open": _open(contents),
        "queries": view_of_queries(contents.status.queries, contents.made_ms),
        "machine": view_of_machine(contents.machine),
        "requests": None if contents.status.requests is None else view_of_requests(contents.status.requests),
    }


def _attention(findings: Sequence[Finding], path: str) -> list[tuple[str, ...]]:
    """Return the severity, title, text and remedy of each kind of finding."""
    kinds: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        kinds.setdefault((finding.code, finding.severity), []).append(finding)
    rows: list[tuple[str, ...]] = []
    for same_kind in kinds.values():
        first = same_kind[0]
        paths, values = [], [first.actual]
        for finding in same_kind:
            if finding.path:
                paths.append(finding.path)
            elif finding is not first:
                # Findings without a path, about the whole directory, differ only in the text `actual`.
                values.append(finding.actual)
        text = "; ".join(values)
        if first.expected:
            text = f"expected {first.expected}, found {text}"
        if paths:
            text = f"{count_text(len(same_kind), 'finding')}: {names_text(paths)}: {text}"
        rows.append((first.severity, first.title, in_commands(text, path), in_commands(first.remedy, path)))
    return rows


def _verdict(attention: Sequence[tuple[str, ...]]) -> str:
    counts = Counter(severity for severity, *_ in attention)
    texts = []
    for severity, noun in _NOUNS.items():
        if counts[severity]:
            texts.append(count_text(counts[severity], noun))
    if texts:
        return ", ".join(texts)
    return "nothing needs attention"


class _Tile(NamedTuple):
    """A number at the head of the page."""

    name: str
    value: str
    explanation: str


def _tiles(contents: PageContents) -> Iterator[_Tile]:
    """Yield names, values and explanations."""
    commits, files, status, is_store = contents.commits, contents.files, contents.status, contents.is_store
    nothing = "nothing has been committed yet"
    if status.time_ms is None:
        age = nothing
    else:
        age = ago(status.time_ms, contents.made_ms)
    yield _Tile("Newest version", "none" if status.version < 0 else f"{status.version:,}", age)
    yield _Tile("Versions kept", f"{len(commits) + commits.unreadable:,}", f"from {status.oldest_version:,} on")
    if is_store:
        noun, home = ("runs", ("bucket", "buckets"))
    else:
        noun, home = ("files", ("directory", "directories"))
    open_rows = sum(file.rows for file in status.open)
    in_open = ""
    if open_rows:
        in_open = f", {open_rows:,} of them in open files"
    yield _Tile("Rows", f"{files.rows + open_rows:,}", f"in live {noun}" if is_store else f"committed{in_open}")
    yield _Tile(f"Live {noun}", f"{len(files.sizes):,}", f"in {count_text(len(files.directories), *home)}")
    mean = bytes_text(files.size_bytes // max(len(files.sizes), 1))
    yield _Tile("Size on storage", bytes_text(files.size_bytes), f"{mean} each, on average")
    if is_store:
        yield _Tile("Compactions due", f"{len(contents.jobs):,}", "the next batches run them")
        return
    due = sum(bool(file.reason) for file in status.open)
    yield _Tile("Open files", f"{len(status.open):,}", f"{due or 'none'} of them due")
    stuck = sum(bool(file.problem) for file in status.unpublished)
    yield _Tile("Not published", f"{len(status.unpublished):,}", f"{stuck or 'none'} of them stuck")


def _urgency(file: OpenFile) -> tuple[bool, int, int]:
    return not file.reason, file.deadline_ms or _NEVER_MS, file.first_ms


def _open(contents: PageContents) -> TableView:
    """Return the view of open files; due files first, then the earliest deadlines."""
    ordered = sorted(contents.status.open, key=_urgency)
    return view_of_open(ordered[:OPEN_SHOWN], contents.made_ms, contents.path)
