"""All that can be wrong: one table of kinds, and one of the repairs by `ftfile.repair`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from ftfile.core.remedies import command_in
from ftfile.core.units import count_text
from ftfile.kv.definition import DELETE
from ftfile.kv.planning.runs import is_run, numbers_of
from ftfile.log.format import layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ftfile.log.format.model import Add, Remove


__all__ = (
    "ACTIONS",
    "KINDS",
    "SEVERITIES",
    "STRANGERS",
    "Action",
    "DirectoryReport",
    "Finding",
    "Severity",
    "check",
    "find",
    "is_well",
    "lost",
    "worst_first",
)


Severity: TypeAlias = Literal["error", "warning", "info", "ok"]
_Repair: TypeAlias = Literal["yes", "on request", "no"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info", "ok")  # worst first

_REPAIR = "ftfile.repair(path, dry_run=False) mends it"
_NEXT = f"The next commit does it, and so does a repair: {_REPAIR}"
_RESTORE = "Restore it from a copy of the directory"
_ACCEPT = "ftfile.repair(path, accept_lost_records=True, dry_run=False)"
_CUT = f"{_RESTORE}; if there is none, {_ACCEPT} puts the later records aside, and the files that they made visible"
_FOREIGN = (
    "A later record follows another one: that was lost, and another commit took its number. Restore it from a copy, in "
    f"the place of the one there; if there is none, {_ACCEPT} goes on without it"
)
_LOST = (
    f"Restore the newest records from a copy, with all of {layout.META}; if there is none, {_ACCEPT} takes the newest "
    "one there is for the newest"
)
_STRANGERS = (
    "Plain readers take them for data. ftfile leaves what is not its own; "
    "ftfile.repair(path, quarantine=[…], dry_run=False) puts aside what you name, also by patterns such as '*.tmp'"
)
_GIVE_UP = (
    "Restore the file from a copy; if there is none, ftfile.repair(path, give_up=[{path!r}], {full}dry_run=False) "
    "records that its {rows} are gone"
)

_WINDOWS = (
    "Restore the file from a copy; if there is none, open the store with `restore`, which forgets the windows behind "
    "the last recorded one, and let what feeds it go back"
)
_OLD = (
    f"{_RESTORE}. The newest version does not need it; older ones cannot be read, nor restored, and a follower that is "
    "not so far stops there. A vacuum ends these versions"
)
_MOVE_OUT = (
    "Stop its writers, and move it out with all that is in it; or, if its rows belong here, read them, write them here "
    "with partitionBy, and delete it"
)
_NAMED = (
    "Nothing has to be done. Who knows the code names it: writers by their options, ftfile.flush by code=[…], and "
    "readers of a store by merge=…"
)
_NOT_DUE = "The query's next batch finishes them. If none comes: ftfile.flush(path, due_only=True)"
_STUCK = "Remove the cause, or let ftfile.repair(path, dry_run=True) propose what to do"
_FLUSH = "ftfile.flush(path) tries again, and says why it fails; ftfile.verify(path, full=True) finds damaged rows"
_COMPACT = (
    "ftfile.compact(path, dry_run=True) tells what merging them would do. To write larger ones from the start, let "
    "files stay open over batches: `maxBytesPerFile` with `rolloverInterval`"
)
_VACUUM = "ftfile.vacuum(path, dry_run=True) tells how much would be freed; older versions end with it"
_STAGE = "Nothing to do while a query runs; ftfile.vacuum(path) deletes the old ones"
_SILENCE = "Nothing to do if the queries have ended. Otherwise look at their drivers: a query may wait for its source"
_HARMLESS = "No row is lost or doubled. If it comes often, something ends again and again: see the driver's log"
_OLDER = "The keys in this run of a store are then read as the runs before it have them, with older values or sums"


class _Kind(NamedTuple):
    """A row of the table of findings."""

    severity: Severity
    repair: _Repair
    remedy: str
    title: str  # what it means to a reader who does not know the log


_TABLE: dict[tuple[Severity, _Repair, str], dict[str, str]] = {
    ("error", "yes", _NEXT): {"missing-format": "The file that tells the format of the log is missing"},
    ("warning", "yes", _NEXT): {
        "not-published": "Committed files are not at their names yet: plain readers miss their rows",
        "not-hidden": "Removed files are still at their names: plain readers see rows that are gone",
    },
    ("error", "yes", _REPAIR): {
        "bad-format": "The file that tells the format of the log is damaged",
        "horizon-ahead": "A vacuum has noted a time in the future",
        "impossible-name": "A committed file has a name that this store does not take",
        "repeated-name": "Two committed files have one name",
        "hidden-part": "A committed file was hidden: plain readers miss its rows",
        "returned-part": "A removed file is back at its name: plain readers see rows that are gone",
    },
    ("warning", "yes", _REPAIR): {
        "missing-directory": "A directory that ftfile needs is missing",
        "bad-marker": "The mark by which hosts recognise the directory is damaged",
        "bad-checkpoint": "A summary of the log is wrong",
        "bad-range": "A list of files that readers use is wrong",
        "bad-hint": "A note of how far files are published is wrong",
        "removed-part-staged": "A removed file would be published again",
    },
    ("error", "yes", f"Move the foreign file away, or: {_REPAIR}: it puts that aside"): {
        "taken-name": "A foreign file is at the name of a committed one, which cannot be published"
    },
    ("error", "on request", _CUT): {
        "missing-record": "Records of commits are missing",
        "damaged-record": "The record of a commit is damaged",
    },
    ("error", "on request", _FOREIGN): {"foreign-record": "The record of a commit was replaced by another one"},
    ("error", "on request", _LOST): {"lost-records": "The newest records of commits are lost"},
    ("error", "on request", _GIVE_UP): {
        "missing-part": "A committed file is gone",
        "missing-segment": "Committed rows of an open file are gone",
        "damaged-part": "A committed file is not what was written",
        "damaged-segment": "Committed rows of an open file are not what was written",
    },
    ("error", "no", f"{_RESTORE}, or delete it"): {"damaged-letters": "Dead letters are not what was written"},
    ("error", "no", "Remove it. Nothing is reached by it, read from it or written to it"): {
        "link": "There is a link, a pipe, a socket or a device in the place of one of ftfile's own files"
    },
    ("error", "no", _WINDOWS): {"damaged-windows": "Windows of a store that no commit has yet are damaged"},
    ("error", "no", _MOVE_OUT): {
        "nested-directory": "Another directory of ftfile lies in this one: plain readers read the rows of both"
    },
    ("error", "no", _RESTORE): {"missing-checkpoint": "The summary of the log that all readers begin with is missing"},
    ("error", "no", f"The log was changed by hand. {_RESTORE}"): {
        "bad-record": "The record of a commit was changed by hand",
        "overlapping-segments": "Two pieces of open files claim the same bytes",
    },
    ("info", "no", _OLD): {"damaged-old-file": "Rows that were removed since cannot be read in older versions"},
    ("info", "no", _NAMED): {"code-not-asked": "The log names code of users, which nobody imports because of that"},
    ("info", "on request", _STRANGERS): {
        "foreign-files": "There are files of other programs: plain readers take them for data",
        "unknown-files": "There are files that no commit knows: plain readers take them for data",
    },
    # Of a status: what the head of the log, and checkpoints, show.
    ("error", "no", _FLUSH): {"open-file-fails": "Open files could not be finished"},
    ("warning", "no", _NOT_DUE): {"open-file-due": "Open files are due: plain readers miss their rows"},
    ("error", "no", _STUCK): {"not-publishable": "Committed files cannot be published, or removed ones not be hidden"},
    ("warning", "no", "ftfile.kv.verify(path) finds damaged runs"): {
        "merge-fails": "Merges of a store failed too often, and are left out for a while"
    },
    ("error", "no", "See docs/disaster-recovery.md"): {
        "checkpoint-contradicts": "A query's checkpoint and the directory are not of one time"
    },
    ("info", "no", "Give paths of checkpoints as they are seen from here"): {
        "checkpoint-unread": "How far a query has come is not known: its checkpoint was not read"
    },
    # Of the doctor: this machine, and the directory as it is seen from here.
    ("error", "no", "Install Python 3.10 or later, and install ftfile with that Python"): {
        "python": "Python is too old for ftfile"
    },
    ("error", "no", "Install the packages that ftfile needs: pip install --upgrade ftfile"): {
        "packages": "Packages that ftfile needs are missing"
    },
    ("error", "no", "Install pyspark 4.0 or later: pip install 'pyspark>=4.0'"): {
        "spark": "Spark is missing here, or too old"
    },
    ("error", "no", "Install a JDK 17 or later, and set JAVA_HOME to its directory: Spark needs it on this machine"): {
        "java": "Java is missing here, or too old"
    },
    ("error", "no", "Install the package for this kind of store: pip install 'ftfile[s3]' or 'ftfile[hdfs]'"): {
        "driver": "The package for this kind of store is missing"
    },
    ("info", "no", "Install the package"): {"extra": "A package for what only some need is missing"},
    ("info", "no", "Set PYSPARK_PYTHON=ftfile-python"): {"worker-start": "Python processes of Spark start slowly"},
    ("warning", "no", "Install what is here"): {"workers": "Spark's workers would run another Python or ftfile"},
    ("error", "no", "Check the path, the keys, the network and the credentials"): {
        "directory": "The directory cannot be opened from here"
    },
    ("error", "no", "Set the clocks of this machine and of the store, by NTP"): {
        "clock": "The clocks of this machine and of the store differ"
    },
    ("warning", "no", "Let this user write there, by chmod or chown"): {
        "permissions": "This user may not write to the directory"
    },
    ("warning", "no", "Make room: a full disk fails batches, which come again"): {"space": "The disk is nearly full"},
    # Of a report: what the history and the live files show.
    ("error", "no", "ftfile.verify(path) says which, and what to do"): {
        "unreadable-versions": "Versions cannot be read, and are not in the plots"
    },
    ("warning", "no", "`ftfile.open(path).dead_letters()` returns them, with the reason of each"): {
        "bad-records": "Records could not be written, and are kept as dead letters"
    },
    ("info", "no", _HARMLESS): {
        "replays": "Batches came again after restarts, and were recognised",
        "recoveries": "Versions were published by a later process than their own",
        "task-retries": "Tasks failed and were tried again",
    },
    ("warning", "no", "See which stage has grown, below, and docs/tuning.md"): {
        "slower-commits": "Commits take longer than before"
    },
    ("info", "no", _SILENCE): {"silence": "Nothing was committed for long"},
    ("warning", "no", _COMPACT): {"small-files": "Most files are small: reading them takes long"},
    ("info", "no", _VACUUM): {"removed-files": "Removed files still take space"},
    ("info", "no", _STAGE): {"unneeded-files": "Staged files of running tasks or of lost attempts are not needed"},
}
KINDS = {code: _Kind(*row, title) for row, titles in _TABLE.items() for code, title in titles.items()}

# Findings of several files, of which a repair puts aside those that are named.
STRANGERS = frozenset({"foreign-files", "unknown-files"})

# What a repair can do, in the order in which it does it: first what the log is read by, then what stands in the way of
# files, then files, then what is derived of the log.
ACTIONS = {
    "make-directory": "make the directory {path!r}",
    "move-aside": f"move {{path!r}} to {layout.QUARANTINE}",
    "write-format": "write {path!r} again",
    "write-marker": "write {path!r} again, where hosts may see different directories",
    "cut-log": f"move the records from version {{version}} on, and what they made visible, to {layout.QUARANTINE}",
    "lower-horizon": "record a vacuum horizon that is not in the future",
    "bring-back": "publish {path!r} again, from {source!r}",
    "rename": "record another name for {path!r}, and publish it",
    "give-up": "record that the {rows} rows of {path!r} are gone",
    "publish": "publish {path!r}",
    "retire": "hide {path!r} again",
    "start-log": "record that the log begins with version {version}",
    "rebuild-checkpoint": "make the log checkpoint anew of the records",
    "rebuild-ranges": "make the ranges anew of the records",
    "rebuild-hint": "make the hint anew",
}


@dataclass(frozen=True, slots=True)
class Action:
    """One step of a repair."""

    kind: str  # a key of `ACTIONS`
    path: str = ""  # by default the final one of `add`
    add: Add | None = None  # the part, dead letters or segment concerned
    remove: Remove | None = None  # the removed part concerned
    source: str = ""  # the file that has the content of `add`; to give up, the damaged one, if any
    version: int = -1  # of the log
    consequence: str = ""  # of giving up, beside the rows that are gone

    def __str__(self) -> str:
        rows = self.add.rows if self.add is not None else 0
        path = self.path or (self.add.final_path or self.add.path if self.add is not None else "")
        text = ACTIONS[self.kind].format(path=path, source=self.source, version=self.version, rows=rows)
        return f"{text}. {self.consequence}" if self.consequence else text


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or worth knowing; with severity `ok`, one that was looked at and is right."""

    code: str  # docs/repair.md lists them
    path: str  # relative to the directory; empty for the directory as a whole, and for a machine
    expected: str  # by the log, by the format, or by what was before
    actual: str  # on storage, or on this machine
    severity: Severity  # `error` loses, doubles or blocks rows; `warning` is mended without loss; `info` harms nothing
    remedy: str  # what to do
    repair: _Repair = "no"  # `on request`: by an argument of `ftfile.repair` that `remedy` names
    actions: tuple[Action, ...] = field(default=(), repr=False)  # of the repair

    def __str__(self) -> str:
        expected = f"expected {self.expected}, " if self.expected else ""
        return f"{self.severity} {self.code} {self.path!r}: {expected}found {self.actual}. {self.remedy}"

    @property
    def title(self) -> str:
        """Return the meaning of a fault of this kind to a reader who does not know the log."""
        return KINDS[self.code].title

    def command(self, path: str) -> str | None:
        """Return the command for a shell that helps with a directory or a store; None where none does."""
        return command_in(self.remedy, path)

    def without_repair(self, remedy: str = _RESTORE) -> Finding:
        """Return the finding where nothing can be done but what `remedy` says."""
        return replace(self, severity="error", remedy=remedy, repair="no", actions=())


def find(code: str, path: str, expected: str, actual: str, *actions: Action, remedy: str = "") -> Finding:
    """Return a finding of a kind of the table; `remedy` says what to do where the table says less."""
    kind = KINDS[code]
    return Finding(code, path, expected, actual, kind.severity, remedy or kind.remedy, kind.repair, actions)


def check(code: str, expected: str, actual: str, remedy: str = "", *, is_passed: bool) -> Finding:
    """Return a finding of a kind of the table, of severity `ok` if the check is passed."""
    finding = find(code, "", expected, actual, remedy=remedy)
    return replace(finding, severity="ok", remedy="") if is_passed else finding


def is_well(findings: Iterable[Finding]) -> bool:
    """Return True if nothing is an error or a warning."""
    return all(finding.severity in {"info", "ok"} for finding in findings)


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings by severity, those of one severity in their order."""
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryReport:
    """The findings of a look at a machine, a directory or a store."""

    findings: tuple[Finding, ...] = ()  # worst first

    @property
    def ok(self) -> bool:
        """Return True if nothing is an error or a warning."""
        return is_well(self.findings)

    @property
    def verdict(self) -> str:
        """Return a sentence that all is well, or the worst finding with what helps."""
        if is_well(self.findings):
            return f"well: {', '.join(self.facts())}"
        worst = self.findings[0]
        return f"{worst.title}: {worst.remedy[:1].lower()}{worst.remedy[1:]}"

    def facts(self) -> Iterator[str]:
        """Yield what was looked at, for the verdict that all is well."""
        yield f"{count_text(sum(finding.severity == 'ok' for finding in self.findings), 'check')} passed"

    def __str__(self) -> str:
        return "\n".join([self.verdict, *(str(finding) for finding in self.findings if finding.severity != "ok")])


def lost(add: Add, code: str, expected: str, actual: str, damaged: str = "", *, full: bool = False) -> Finding:
    """Return the finding of an add whose rows cannot be read; `damaged` is there instead, and of no other add.

    With `full`, nothing but the content shows it.
    """
    path, origin = add.final_path or add.path, add.origin
    several = origin.first_batch != origin.last_batch
    batches = f"batches {origin.first_batch} to {origin.last_batch}" if several else f"batch {origin.first_batch}"
    rows = f"{add.rows} rows of {batches} of {origin.query_id}"
    remedy = _GIVE_UP.format(path=path, full="full=True, " if full else "", rows=rows)
    consequence = _consequence_of(add)
    action = Action("give-up", add=add, source=damaged, consequence=consequence)
    text = f"{remedy}. {consequence}" if consequence else remedy
    return replace(find(code, path, expected, actual, action, remedy=text), repair="on request")


def _consequence_of(add: Add) -> str:
    """Return the effect on a store of giving up a run; empty for other adds, and where nothing else changes."""
    if not is_run(add) or not add.rows:
        return ""
    deletes = numbers_of(add.rolling_stats).ops & 1 << DELETE
    return f"{_OLDER}, and those that it deleted are found again: delete them once more" if deletes else _OLDER
