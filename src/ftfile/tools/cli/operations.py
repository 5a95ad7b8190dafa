"""The operations on directories and stores: the options of each, and its words."""

from collections import defaultdict
from collections.abc import Sequence
from inspect import Parameter
from typing import Any, ClassVar

from ftfile.core.errors import ConfigError
from ftfile.core.units import bytes_text, count_text, parse_size_bytes, time_text
from ftfile.tools.cli.check_commands import print_findings
from ftfile.tools.cli.operation import Arguments, Operation, Option, Report, option
from ftfile.tools.cli.output import CONFLICT, FOUND, heading, print_table, put, say
from ftfile.tools.cli.place import Code, Merge, Place, Threads, Where
from ftfile.tools.report.views import BYTES, COUNT, TIME, Column


class _Flush(Operation):
    verbs = ("finishes", "finish", "Finished")
    changes = ("files",)
    nothing = "Nothing to finish"

    def words(self, report: Report) -> str:
        files = f"{count_text(report.files, 'file')} of {count_text(report.rows, 'row')}"
        return f"about {files}" if report.dry_run else f"{files}; the newest version is {report.version}"

    def explain_nothing(self, place: Place, arguments: Arguments) -> None:
        super().explain_nothing(place, arguments)
        if (query := arguments.get("query_id")) is None:
            return
        query_ids = [status.query_id for status in place.open().status(lag=False).queries]
        if query not in query_ids:
            there = ", ".join(query_ids) or "none"
            raise ConfigError(f"--query {query!r}: no such query wrote here; those that did: {there}")


class _Compact(Operation):
    verbs = ("merges", "merge", "Merged")
    changes = ("files_removed",)
    nothing = "Nothing to merge"

    def words(self, report: Report) -> str:
        files = f"{count_text(report.files_removed, 'file')} of {bytes_text(report.bytes_removed)}"
        if report.dry_run:
            return f"{files} with {count_text(report.rows, 'row')} into about {report.files_written:,}"
        return f"{files} into {_written(report.files_written, report)}"

    def print(self, report: Report, path: str) -> None:
        super().print(report, path)
        if report.files_lost:
            say(f"{count_text(report.files_lost, 'file')} were left out: others replaced them meanwhile", "yellow")


class _CompactStore(Operation):
    verbs = ("merges", "merge", "Merged")
    changes = ("runs_replaced",)
    nothing = "Nothing to merge"

    def words(self, report: Report) -> str:
        runs = count_text(report.runs_replaced, "run")
        if report.dry_run:
            return f"at first {runs} into about {report.runs_written:,}"
        return f"{runs} into {_written(report.runs_written, report)}"


def _written(count: int, report: Report) -> str:
    return f"{count:,} of {bytes_text(report.bytes_written)}; the newest version is {report.version}"


class _Vacuum(Operation):
    verbs = ("deletes", "delete", "Deleted")
    changes = ("files",)
    question = "Delete them?"
    nothing = ""
    reasons: ClassVar = {
        "retention": "within the retention: a running batch may need it",
        "readers": "versions within the retention have it, for their readers",
        "version": "no older than the newest record, or than the versions to be kept: it waits for a later one",
    }

    def words(self, report: Report) -> str:
        if not report.files:
            return "nothing"
        files = f"{count_text(len(report.files), 'file')} of {bytes_text(report.size_bytes)}"
        return f"{files}. Versions before {time_text(report.horizon_ms)} UTC cannot be read without them"

    def print(self, report: Report, path: str) -> None:
        super().print(report, path)
        if report.files:
            sizes = defaultdict[tuple[str, str], list[int]](list)
            for file in report.files:
                sizes[file.kind, file.why].append(file.size_bytes)
            heading("By kind")
            columns = [
                Column("kind", lambda group: group[0]),
                Column("files", lambda group: len(sizes[group]), COUNT),
                Column("bytes", lambda group: sum(sizes[group]), BYTES),
                Column("why", lambda group: group[1], folds=True),
            ]
            print_table(columns, sorted(sizes))
        if report.waiting:
            heading("Files that wait")
            columns = [
                Column("files", lambda group: group.files, COUNT),
                Column("bytes", lambda group: group.size_bytes, BYTES),
                Column("first from (UTC)", lambda group: group.first_ms, TIME),
                Column("last from (UTC)", lambda group: group.last_ms, TIME),
                Column("why", lambda group: self.reasons[group.reason], folds=True),
            ]
            print_table(columns, report.waiting)
        if report.failed:
            say(f"{count_text(report.failed, 'file')} could not be deleted; the next vacuum tries again", "yellow")


class _Remove(Operation):
    verbs = ("removes", "remove", "Removed")
    changes = ("files_removed",)
    question = "Remove them?"
    nothing = "Nothing to remove"

    def words(self, report: Report) -> str:
        files, rows = count_text(report.files_written, "new file"), count_text(report.rows, "row")
        rest = f"; {rows} of these files stay, in {files}" if report.files_written else ""
        removed = f"{count_text(report.rows_removed, 'row')} in {count_text(report.files_removed, 'file')}"
        if report.dry_run:
            return f"{removed} of {bytes_text(report.bytes_removed)}{rest}"
        return f"{removed}{rest}, in version {report.version}"


class _Restore(Operation):
    verbs = ("restores", "restore", "Restored")
    changes = ("restored", "removed")
    nothing = "The newest version has the rows of version {0.restored_version}"
    question = "Do it?"

    def words(self, report: Report) -> str:
        undone = report.undone_version
        number = report.restored_version if undone is None else undone
        version = "" if report.dry_run else f" as version {report.version}"
        rows = f"{_rows_of(report.restored)} come back, {_rows_of(report.removed)} are removed"
        return f"version {number}{version}: {rows}"

    def is_ready(self, plan: Report) -> bool:
        return not plan.missing

    def print(self, report: Report, path: str) -> None:
        if not report.missing:
            super().print(report, path)
            return
        say(f"Version {report.restored_version} cannot be restored: files are vacuumed, or gone. Nothing was changed")
        heading(f"Missing, so that it cannot be restored: {count_text(len(report.missing), 'file')}", "bold red")
        put("\n".join(report.missing))

    def exit_code(self, report: Report, *, dry_run: bool) -> int:
        if not report.missing:
            return 0
        return FOUND if dry_run else CONFLICT


class _Undo(_Restore):
    verbs = ("undoes", "undo", "Undid")


def _rows_of(files: Sequence[Any]) -> str:
    """Return the number of rows of files, and of these."""
    return f"{count_text(sum(file.rows for file in files), 'row')} in {count_text(len(files), 'file')}"


class _Repair(Operation):
    verbs = ("takes", "do", "Done")
    changes = ("steps",)
    question = "Rows or records are given up for good. Go on?"

    def words(self, report: Report) -> str:
        return "\n  ".join([count_text(len(report.steps), "step"), *(step.action for step in report.steps)])

    def is_asked(self, arguments: Arguments) -> bool:
        return bool(arguments.get("give_up") or arguments.get("accept_lost_records"))

    def is_ready(self, plan: Report) -> bool:
        return bool(plan.steps)

    def explain_nothing(self, place: Place, arguments: Arguments) -> None:
        """Leave it to the findings."""

    def print(self, report: Report, path: str) -> None:
        if report.steps:
            put("Would do" if report.dry_run else "Done")
            columns = [
                Column("finding", lambda step: step.code),
                Column("step", lambda step: step.action, folds=True),
                Column("error", lambda step: step.error or None, folds=True, keep=8, style=lambda _: "red"),
            ]
            print_table(columns, report.steps)
        else:
            put("Nothing that can be mended by itself" if report.findings else "Nothing to mend")
        print_findings(report.findings, path)

    def exit_code(self, report: Report, *, dry_run: bool) -> int:  # noqa: ARG002
        return 0 if report.ok else FOUND


def _target_bytes(text: str) -> int:
    try:
        return parse_size_bytes(text)
    except ValueError:
        raise ConfigError(f"--target {text!r}: it takes a size such as 128MiB") from None


def _flag(name: str, text: str) -> Option:
    return option(bool, name, default=False, help=text)


def _files(text: str) -> Option:
    return option(list[str] | None, metavar="FILE", help=text)


def _condition(text: str) -> Option:
    return option(str, "--where", "-w", metavar="CONDITION", default=Parameter.empty, help=text)


_CODE, _MERGE, _THREADS, _WHERE = Option(Code), Option(Merge), Option(Threads), Option(Where)
_COMMIT_EVERY = option(
    int | None, metavar="N", help="Record after this number of new files: an interruption loses no more."
)
_TARGET = option(
    str, "--target", metavar="SIZE", default="128MiB", callback=_target_bytes, help="The size of new files, about."
)
_FORCE = _flag("--force", "Accept less than 24 hours, where nothing else writes or reads.")

OPERATIONS: tuple[Operation, ...] = (
    _Flush(
        "flush",
        "Finish the files that are open over batches, so that every reader sees their rows. No row is lost or changed.",
        due_only=_flag("--due-only", "Finish only files whose rule has fired."),
        query_id=option(str | None, "--query", metavar="ID", help="Finish only files of this query."),
        code=_CODE,
        commit_every=_COMMIT_EVERY,
        threads=_THREADS,
    ),
    _Compact(
        "compact",
        "Merge small files of the same directory into larger ones. No row is lost or changed.\n\n"
        "--where chooses partitions. Readers of older versions read the replaced files until a vacuum.",
        where=_WHERE,
        target_bytes=_TARGET,
        commit_every=_COMMIT_EVERY,
        threads=_THREADS,
    ),
    _CompactStore(
        "kv.compact",
        "Merge the runs that are due. No row is lost or changed.",
        full=_flag("--full", "Leave one run in each bucket: reads are fastest then."),
        merge=_MERGE,
        threads=_THREADS,
    ),
    _Repair(
        "repair",
        "Mend what `verify` finds. By itself it does what loses no row, and it deletes nothing. Also of a keyed store."
        "\n\nIt asks before it gives up rows or records. It ends with 1 where an error or a warning is left.",
        full=_flag("--full", "Read every file, too."),
        give_up=_files(
            "A committed file that is lost for good, or a pattern such as 'month=7/*': readers go on without it. "
            "May be repeated."
        ),
        quarantine=_files("A foreign file to be put aside, or a pattern such as '*.tmp'. May be repeated."),
        accept_lost_records=_flag(
            "--accept-lost-records", "Go on from the last version that can be read; stop queries before."
        ),
    ),
    _Vacuum(
        "vacuum",
        "Delete files of failed attempts, files replaced long ago, and records no longer needed. Also of a keyed store."
        "\n\nThe rows of the newest version stay; versions older than the retention can no longer be read, so it asks "
        "before.",
        retention=option(str, metavar="DURATION", default="7d", help="Versions of this time stay readable."),
        force=_FORCE,
    ),
    _Vacuum(
        "expire",
        "End versions by age and by number, and delete what only they need. Also of a keyed store.\n\n"
        "A version stays while it is younger than --older-than, or among the newest --keep-last. The rows of the "
        "newest version always stay. It asks before.",
        older_than=option(str, metavar="DURATION", default="7d", help="Versions younger than this stay."),
        keep_last=option(int, metavar="N", default=1, help="The newest N stay, however old."),
        force=_FORCE,
    ),
    _Remove(
        "drop",
        "Remove all rows of the partitions that match, in one version. It asks before.\n\n"
        "Older versions can be read until a vacuum.",
        where=_condition(
            'Of partition columns, such as "month < 7" or "day < current_date() - interval 30 days"; or the word all.'
        ),
        directory_pattern=option(
            str | None,
            metavar="PATTERN",
            help="As the option directoryPattern: a condition may then name directoryTime.",
        ),
    ),
    _Remove(
        "delete",
        "Remove the rows that match, in one version: files that have some are written anew. It asks before.\n\n"
        "Rows of open files are finished first. Older versions can be read until a vacuum.",
        where=_condition("Of any columns, such as \"id = 70\" or \"name IN ('a', 'b') AND at < DATE '2024-07-01'\"."),
        code=_CODE,
        threads=_THREADS,
    ),
    _Restore(
        "restore",
        "Make the rows of an older version those of the newest one, in one record. It asks before.\n\n"
        "It is undone by another restore. Queries go on with their next batch.",
        version=option(int | None, metavar="N", help="The version to go back to."),
        timestamp=option(str | None, metavar="TIME", help="Or a time: the newest version then."),
    ),
    _Undo(
        "undo",
        "Take the last write back: make the rows before it those of the newest version, in one record. It asks before."
        "\n\nAnother undo takes this one back. Queries go on with their next batch.",
    ),
)
