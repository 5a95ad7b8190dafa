"""The kinds of findings, with their severity and remedy, and the repair actions of `ftfile.repair`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from ftfile.core.remedies import Advice, Remedy, command_in, uncapitalise
from ftfile.core.units import count_text
from ftfile.log.format import layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import EllipsisType

    from ftfile.log.format.model import Add, Remove


__all__ = (
    "ACTIONS",
    "KINDS",
    "SEVERITIES",
    "STRANGERS",
    "Action",
    "CheckReport",
    "Finding",
    "FindingKind",
    "Severity",
    "check",
    "find",
    "foreign_files_advice",
    "is_well",
    "lost",
    "sort_worst_first",
)


Severity: TypeAlias = Literal["error", "warning", "info", "ok"]
_Repair: TypeAlias = Literal["yes", "on request", "no"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info", "ok")  # worst first

# Findings about several files. A repair quarantines only the files that the caller names.
STRANGERS = frozenset({"foreign-files", "unknown-files"})

# The actions of a repair, in the order of execution. First files that are needed to read the log, then obstacles in
# place of files, then the files, then files that are derived from the log.
ACTIONS = {
    "make-directory": "create the directory {path!r}",
    "move-aside": f"move {{path!r}} to {layout.QUARANTINE}",
    "write-format": "rewrite {path!r}",
    "write-marker": "rewrite {path!r}, if hosts may see different directories",
    "cut-log": (
        f"move the records from version {{version}} on, and the files that they made visible, to {layout.QUARANTINE}"
    ),
    "lower-horizon": "record a vacuum horizon that is not in the future",
    "bring-back": "publish {path!r} again, from {source!r}",
    "rename": "record another name for {path!r}, and publish it",
    "give-up": "record that the {rows} rows of {path!r} are lost",
    "publish": "publish {path!r}",
    "retire": "hide {path!r} again",
    "start-log": "record that the log starts with version {version}",
    "rebuild-checkpoint": "rebuild the log checkpoint from the records",
    "rebuild-compacted-logs": "rebuild the compacted logs from the records",
    "rebuild-hint": "rebuild the hint",
}

_REPAIR = Advice(Remedy("repair", dry_run=False), " repairs it")
_NEXT = Advice("The next commit repairs it, or: ", _REPAIR)
_RESTORE = "Restore it from a copy of the directory"
_ACCEPT = Remedy("repair", accept_lost_records=True, dry_run=False)
_CUT = Advice(
    _RESTORE,
    "; if there is no copy, ",
    _ACCEPT,
    " quarantines the later records and the files that they made visible",
)
_FOREIGN = Advice(
    "A later record follows another record: the original record was lost, and another commit has its number. Restore "
    "the original from a copy, in place of the existing record; if there is no copy, ",
    _ACCEPT,
    " continues without it",
)
_LOST = Advice(
    f"Restore the newest records from a copy, with all of {layout.META}; if there is no copy, ",
    _ACCEPT,
    " accepts the newest existing record as the newest",
)

_WINDOWS = (
    "Restore the file from a copy; if there is no copy, open the store with `restore`, which discards the windows "
    "after the last recorded window, and reset the program that feeds it"
)
_OLD = (
    f"{_RESTORE}. The newest version does not need it, but older versions cannot be read or restored, and a follower "
    "that has not passed them stops there. A vacuum ends these versions"
)
_MOVE_OUT = (
    "Stop its writers, and move it out with all its content; or, if its rows belong here, read them, write them here "
    "with partitionBy, and delete it"
)
_NAMED = (
    "No action is needed. To run the code, name it: in the options of writers, with code=[…] in ftfile.flush, and "
    "with merge=… in readers of a store"
)
_NOT_DUE = Advice("The query's next batch finishes them. If no batch runs: ", Remedy("flush", due_only=True))
_STUCK = Advice("Remove the cause, or see the possible repairs: ", Remedy("repair", dry_run=True))
_FLUSH = Advice(
    Remedy("flush"), " tries again and reports why it fails; ", Remedy("verify", full=True), " finds damaged rows"
)
_COMPACT = Advice(
    Remedy("compact", dry_run=True),
    " reports what a compaction would do. To write larger files from the start, keep files open over batches: "
    "`maxBytesPerFile` with `rolloverInterval`",
)
_VACUUM = Advice(Remedy("vacuum", dry_run=True), " reports how much would be freed; a vacuum ends older versions")
_STAGE = Advice("No action is needed while a query runs; ", Remedy("vacuum"), " deletes the old files")
_SILENCE = (
    "No action is needed if the queries have ended. Otherwise check their drivers: a query may wait for its source"
)
_HARMLESS = "No row is lost or doubled. If it happens often, processes end repeatedly: check the driver's log"
_REREAD = Advice(
    "Open the directory with statistics=False: reads then return all rows. A compaction that merges the file with "
    "another one records new statistics; ",
    Remedy("compact", dry_run=True),
    " reports what would be merged",
)


def foreign_files_advice(path: str | EllipsisType) -> Advice:
    """Return the advice for a foreign file, or for several with an Ellipsis as the path."""
    return Advice(
        "Plain readers read them as data. ftfile never changes foreign files; ",
        Remedy("repair", quarantine=[path], dry_run=False),
        " quarantines the files that you name, also by patterns such as '*.tmp'",
    )


def _give_up_advice(path: str | EllipsisType, rows: str, consequence: str = "", *, full: bool = False) -> Advice:
    call = Remedy("repair", give_up=[path], dry_run=False)
    if full:
        call = Remedy("repair", give_up=[path], full=True, dry_run=False)
    advice = Advice("Restore the file from a copy; if there is no copy, ", call, f" records that its {rows} are lost")
    if consequence:
        return Advice(advice, ". ", consequence)
    return advice


class FindingKind(NamedTuple):
    """A row of the table of findings.

    Attributes:
        name: `Finding.code`.
        severity: of its findings, unless they have their own.
        repair: see `Finding`.
        title: the meaning, for a reader who does not know the log.
        remedy: of its findings, unless they have their own.
    """

    name: str
    severity: Severity
    repair: _Repair
    title: str
    remedy: str


_KINDS = (
    FindingKind("missing-format", "error", "yes", "The file with the format of the log is missing", _NEXT),
    FindingKind(
        "not-published",
        "warning",
        "yes",
        "Committed files are not at their final names yet: plain readers miss their rows",
        _NEXT,
    ),
    FindingKind(
        "not-hidden",
        "warning",
        "yes",
        "Removed files are still at their final names: plain readers see removed rows",
        _NEXT,
    ),
    FindingKind("bad-format", "error", "yes", "The file with the format of the log is damaged", _REPAIR),
    FindingKind("horizon-ahead", "error", "yes", "A vacuum recorded a horizon in the future", _REPAIR),
    FindingKind(
        "impossible-name", "error", "yes", "A committed file has a name that this storage does not accept", _REPAIR
    ),
    FindingKind("repeated-name", "error", "yes", "Two committed files have the same name", _REPAIR),
    FindingKind("hidden-part", "error", "yes", "A committed file was hidden: plain readers miss its rows", _REPAIR),
    FindingKind(
        "returned-part",
        "error",
        "yes",
        "A removed file is at its final name again: plain readers see removed rows",
        _REPAIR,
    ),
    FindingKind("missing-directory", "warning", "yes", "A directory that ftfile needs is missing", _REPAIR),
    FindingKind("bad-marker", "warning", "yes", "The file by which hosts recognise the directory is damaged", _REPAIR),
    FindingKind("bad-checkpoint", "warning", "yes", "A log checkpoint is wrong", _REPAIR),
    FindingKind(
        "bad-compacted-log", "warning", "yes", "A compacted log, which lists files for readers, is wrong", _REPAIR
    ),
    FindingKind("bad-hint", "warning", "yes", "The hint of how far files are published is wrong", _REPAIR),
    FindingKind("removed-part-staged", "warning", "yes", "A removed file would be published again", _REPAIR),
    FindingKind(
        "taken-name",
        "error",
        "yes",
        "A foreign file is at the final name of a committed file, which cannot be published",
        Advice("Move the foreign file away, or: ", _REPAIR, " and quarantines the foreign file"),
    ),
    FindingKind("missing-record", "error", "on request", "Records of commits are missing", _CUT),
    FindingKind("damaged-record", "error", "on request", "The record of a commit is damaged", _CUT),
    FindingKind(
        "foreign-record", "error", "on request", "The record of a commit was replaced by another record", _FOREIGN
    ),
    FindingKind("lost-records", "error", "on request", "The newest records of commits are lost", _LOST),
    FindingKind("missing-part", "error", "on request", "A committed file is missing", _give_up_advice(..., "rows")),
    FindingKind(
        "missing-segment",
        "error",
        "on request",
        "Committed rows of an open file are missing",
        _give_up_advice(..., "rows"),
    ),
    FindingKind(
        "damaged-part",
        "error",
        "on request",
        "A committed file does not have its written content",
        _give_up_advice(..., "rows"),
    ),
    FindingKind(
        "damaged-segment",
        "error",
        "on request",
        "Committed rows of an open file do not have their written content",
        _give_up_advice(..., "rows"),
    ),
    FindingKind(
        "wrong-statistics",
        "error",
        "no",
        "Statistics in the log do not fit the rows of a file: reads with a condition can miss rows",
        _REREAD,
    ),
    FindingKind(
        "damaged-letters", "error", "no", "Dead letters do not have their written content", f"{_RESTORE}, or delete it"
    ),
    FindingKind(
        "link",
        "error",
        "no",
        "A link, a pipe, a socket or a device is in place of one of ftfile's files",
        "Remove it. ftfile never follows it, reads it or writes to it",
    ),
    FindingKind(
        "damaged-windows", "error", "no", "Windows of a store that are not committed yet are damaged", _WINDOWS
    ),
    FindingKind(
        "nested-directory",
        "error",
        "no",
        "Another directory of ftfile lies in this directory: plain readers read the rows of both",
        _MOVE_OUT,
    ),
    FindingKind(
        "missing-checkpoint", "error", "no", "The log checkpoint with which all readers start is missing", _RESTORE
    ),
    FindingKind(
        "bad-record",
        "error",
        "no",
        "The record of a commit was changed by hand",
        f"The log was changed by hand. {_RESTORE}",
    ),
    FindingKind(
        "overlapping-segments",
        "error",
        "no",
        "Two segments of open files claim the same bytes",
        f"The log was changed by hand. {_RESTORE}",
    ),
    FindingKind("damaged-old-file", "info", "no", "Removed rows cannot be read in older versions", _OLD),
    FindingKind(
        "code-not-asked", "info", "no", "The log names code of users, which is not imported for this reason", _NAMED
    ),
    FindingKind(
        "foreign-files",
        "info",
        "on request",
        "There are files of other programs: plain readers read them as data",
        foreign_files_advice(...),
    ),
    FindingKind(
        "unknown-files",
        "info",
        "on request",
        "There are files that no record names: plain readers read them as data",
        foreign_files_advice(...),
    ),
    # Findings of `status`, from the head of the log and from checkpoints.
    FindingKind("open-file-fails", "error", "no", "Open files could not be finished", _FLUSH),
    FindingKind("open-file-due", "warning", "no", "Open files are due: plain readers miss their rows", _NOT_DUE),
    FindingKind(
        "not-publishable",
        "error",
        "no",
        "Committed files cannot be published, or removed files cannot be hidden",
        _STUCK,
    ),
    FindingKind(
        "compaction-fails",
        "warning",
        "no",
        "Compactions of a store failed too often, and are skipped for a while",
        Advice(Remedy("kv.verify"), " finds damaged runs"),
    ),
    FindingKind(
        "checkpoint-contradicts",
        "error",
        "no",
        "A query's checkpoint and the directory are from different times",
        "See docs/disaster-recovery.md",
    ),
    FindingKind(
        "checkpoint-unread",
        "info",
        "no",
        "The progress of a query is unknown: its checkpoint was not read",
        "Give the paths of checkpoints as this host sees them",
    ),
    # Findings of `doctor`, about this machine and its access to the directory.
    FindingKind(
        "python",
        "error",
        "no",
        "Python is too old for ftfile",
        "Install Python 3.10 or later, and install ftfile with that Python",
    ),
    FindingKind(
        "packages",
        "error",
        "no",
        "Packages that ftfile needs are missing",
        "Install the packages that ftfile needs: pip install --upgrade ftfile",
    ),
    FindingKind(
        "spark",
        "error",
        "no",
        "Spark is missing here, or too old",
        "Install pyspark 4.0 or later: pip install 'pyspark>=4.0'",
    ),
    FindingKind(
        "java",
        "error",
        "no",
        "Java is missing here, or too old",
        "Install a JDK 17 or later, and set JAVA_HOME to its directory: Spark needs it on this machine",
    ),
    FindingKind(
        "driver",
        "error",
        "no",
        "The package for this kind of storage is missing",
        "Install the package for this kind of storage: pip install 'ftfile[s3]' or 'ftfile[hdfs]'",
    ),
    FindingKind("extra", "info", "no", "An optional package is missing", "Install the package"),
    FindingKind(
        "worker-start", "info", "no", "Python processes of Spark start slowly", "Set PYSPARK_PYTHON=ftfile-python"
    ),
    FindingKind(
        "workers",
        "warning",
        "no",
        "Spark's workers would run another version of Python or ftfile",
        "Install the versions of this machine",
    ),
    FindingKind(
        "directory",
        "error",
        "no",
        "The directory cannot be opened from here",
        "Check the path, the keys, the network and the credentials",
    ),
    FindingKind(
        "clock",
        "error",
        "no",
        "The clocks of this machine and of the storage differ",
        "Set the clocks of this machine and of the storage, with NTP",
    ),
    FindingKind(
        "permissions",
        "warning",
        "no",
        "This user may not write to the directory",
        "Allow this user to write there, with chmod or chown",
    ),
    FindingKind(
        "space", "warning", "no", "The disk is nearly full", "Free space: on a full disk batches fail and are retried"
    ),
    # Findings of `report`, from the history and the live files.
    FindingKind(
        "unreadable-versions",
        "error",
        "no",
        "Versions cannot be read, and are not in the plots",
        Advice(Remedy("verify"), " reports the versions and the remedies"),
    ),
    FindingKind(
        "bad-records",
        "warning",
        "no",
        "Records could not be written, and are kept as dead letters",
        Advice(Remedy("dead_letters"), " returns them, with the reason of each"),
    ),
    FindingKind("replays", "info", "no", "Batches were repeated after restarts, and were recognised", _HARMLESS),
    FindingKind("recoveries", "info", "no", "Versions were published by a later process", _HARMLESS),
    FindingKind("task-retries", "info", "no", "Tasks failed and were tried again", _HARMLESS),
    FindingKind(
        "slower-commits",
        "warning",
        "no",
        "Commits take longer than before",
        "See below which stage takes longer, and docs/tuning.md",
    ),
    FindingKind("silence", "info", "no", "Nothing was committed for a long time", _SILENCE),
    FindingKind("small-files", "warning", "no", "Most files are small: reads take longer", _COMPACT),
    FindingKind("removed-files", "info", "no", "Removed files still take space", _VACUUM),
    FindingKind(
        "unneeded-files", "info", "no", "Staged files of running tasks or of lost attempts are not needed", _STAGE
    ),
)
KINDS = {kind.name: kind for kind in _KINDS}


@dataclass(frozen=True, slots=True)
class Action:
    """A step of a repair."""

    kind: str  # a key of `ACTIONS`
    path: str = ""  # by default the final path of `add`
    add: Add | None = None  # the part, dead letters or segment concerned
    remove: Remove | None = None  # the removed part concerned
    source: str = ""  # the file with the content of `add`; for `give-up` the damaged file, if any
    version: int = -1  # of the log
    consequence: str = ""  # of `give-up`, in addition to the lost rows

    def __str__(self) -> str:
        rows = 0
        if self.add is not None:
            rows = self.add.rows
        path = self.path
        if not path and self.add is not None:
            path = self.add.final_path or self.add.path
        text = ACTIONS[self.kind].format(path=path, source=self.source, version=self.version, rows=rows)
        if self.consequence:
            return f"{text}. {self.consequence}"
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A result of a check: a fault, a note, or with severity `ok`, a passed check."""

    code: str  # docs/repair.md lists them
    path: str  # relative to the directory; empty for the directory as a whole, and for a machine
    expected: str  # by the log, by the format, or by earlier values
    actual: str  # on storage, or on this machine
    severity: Severity  # `error` loses, doubles or blocks rows; `warning` is repaired without loss; `info` is harmless
    remedy: str  # the steps that the user can take
    repair: _Repair = "no"  # `on request`: with the argument of `ftfile.repair` that `remedy` names
    actions: tuple[Action, ...] = field(default=(), repr=False)  # of the repair

    def __str__(self) -> str:
        expected = ""
        if self.expected:
            expected = f"expected {self.expected}, "
        return f"{self.severity} {self.code} {self.path!r}: {expected}found {self.actual}. {self.remedy}"

    @property
    def title(self) -> str:
        """Return the meaning of findings of this kind, for a reader who does not know the log."""
        return KINDS[self.code].title

    def command(self, path: str) -> str | None:
        """Return the shell command of the remedy for a directory or a store; None if there is no command."""
        return command_in(self.remedy, path)

    def without_repair(self, remedy: str = _RESTORE) -> Finding:
        """Return the finding without its repair, with `remedy` as the only remedy."""
        return replace(self, severity="error", remedy=remedy, repair="no", actions=())


def find(
    code: str, path: str, expected: str, actual: str, *, actions: Iterable[Action] = (), remedy: str = ""
) -> Finding:
    """Return a finding of a kind of the table; `remedy` replaces the remedy of the table."""
    kind = KINDS[code]
    return Finding(
        code=code,
        path=path,
        expected=expected,
        actual=actual,
        severity=kind.severity,
        remedy=remedy or kind.remedy,
        repair=kind.repair,
        actions=tuple(actions),
    )


def check(code: str, expected: str, actual: str, remedy: str = "", *, is_passed: bool) -> Finding:
    """Return a finding of a kind of the table, with severity `ok` if the check passed."""
    finding = find(code, "", expected, actual, remedy=remedy)
    if is_passed:
        return replace(finding, severity="ok", remedy="")
    return finding


def is_well(findings: Iterable[Finding]) -> bool:
    """Return True if no finding is an error or a warning."""
    return all(finding.severity in {"info", "ok"} for finding in findings)


def sort_worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings sorted by severity; findings of one severity keep their order."""
    return tuple(sorted(findings, key=_rank))


def _rank(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """The findings of a check of a machine, a directory or a store."""

    findings: tuple[Finding, ...] = ()  # worst first

    @property
    def ok(self) -> bool:
        """Return True if no finding is an error or a warning."""
        return is_well(self.findings)

    @property
    def verdict(self) -> str:
        """Return a summary of the checks if no fault was found, else the worst finding with its remedy."""
        if is_well(self.findings):
            return f"well: {', '.join(self.facts())}"
        worst = self.findings[0]
        return Advice(worst.title, ": ", uncapitalise(worst.remedy))

    def facts(self) -> Iterator[str]:
        """Yield the checked facts for a verdict without faults."""
        yield f"{count_text(sum(finding.severity == 'ok' for finding in self.findings), 'check')} passed"

    def __str__(self) -> str:
        faults = [finding for finding in self.findings if finding.severity != "ok"]
        return "\n".join([self.verdict, *map(str, faults)])


def lost(  # noqa: PLR0913 - the last by name
    add: Add, code: str, expected: str, actual: str, damaged: str = "", *, consequence: str = "", full: bool = False
) -> Finding:
    """Return the finding of an add whose rows cannot be read.

    Args:
        add: the add.
        code: of the finding.
        expected: see `Finding`.
        actual: see `Finding`.
        damaged: the damaged file of the add, if any.
        consequence: `Kind.consequence`.
        full: True if only a read of the content detects the damage.
    """
    path, origin = add.final_path or add.path, add.origin
    several = origin.first_batch != origin.last_batch
    if several:
        batches = f"batches {origin.first_batch} to {origin.last_batch}"
    else:
        batches = f"batch {origin.first_batch}"
    rows = f"{add.rows} rows of {batches} of {origin.query_id}"
    action = Action("give-up", add=add, source=damaged, consequence=consequence)
    remedy = _give_up_advice(path, rows, consequence, full=full)
    return replace(find(code, path, expected, actual, actions=[action], remedy=remedy), repair="on request")
