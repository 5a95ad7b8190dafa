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
            raise ConfigError(f"--query {query!r}: this query has not written here. Queries that have: {there}")


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
            say(
                f"{count_text(report.files_lost, 'file')} were skipped: another process replaced them during the call",
                "yellow",
            )


class _CompactStore(Operation):
    verbs = ("merges", "merge", "Merged")
    changes = ("runs_replaced",)
    nothing = "Nothing to merge"

    def words(self, report: Report) -> str:
        runs = count_text(report.runs_replaced, "run")
        if report.dry_run:
            return f"first {runs} into about {report.runs_written:,}"
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
        "readers": "versions within the retention contain it",
        "version": "not older than the newest record or the kept versions: a later version must end it first",
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
            heading("Files that cannot be deleted yet")
            columns = [
                Column("files", lambda group: group.files, COUNT),
                Column("bytes", lambda group: group.size_bytes, BYTES),
                Column("first from (UTC)", lambda group: group.first_ms, TIME),
                Column("last from (UTC)", lambda group: group.last_ms, TIME),
                Column("why", lambda group: self.reasons[group.reason], folds=True),
            ]
            print_table(columns, report.waiting)
        if report.failed:
            say(f"{count_text(report.failed, 'file')} could not be deleted; the next vacuum retries", "yellow")


class _Remove(Operation):
    verbs = ("removes", "remove", "Removed")
    changes = ("files_removed",)
    question = "Remove them?"
    nothing = "Nothing to remove"

    def words(self, report: Report) -> str:
        files, rows = count_text(report.files_written, "new file"), count_text(report.rows, "row")
        rest = f"; {rows} of these files are kept, in {files}" if report.files_written else ""
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
        rows = f"{_rows_of(report.restored)} are restored, {_rows_of(report.removed)} are removed"
        return f"version {number}{version}: {rows}"

    def is_ready(self, plan: Report) -> bool:
        return not plan.missing

    def print(self, report: Report, path: str) -> None:
        if not report.missing:
            super().print(report, path)
            return
        say(
            f"Version {report.restored_version} cannot be restored: vacuum or another program deleted files of it. "
            "Nothing was changed"
        )
        heading(
            f"Missing files, so the version cannot be restored: {count_text(len(report.missing), 'file')}", "bold red"
        )
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
    question = "Rows or records are lost permanently. Continue?"

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
            put("Nothing that can be repaired automatically" if report.findings else "Nothing to repair")
        print_findings(report.findings, path)

    def exit_code(self, report: Report, *, dry_run: bool) -> int:  # noqa: ARG002
        return 0 if report.ok else FOUND


def _target_bytes(text: str) -> int:
    try:
        return parse_size_bytes(text)
    except ValueError:
        raise ConfigError(f"--target {text!r}: it must be a size such as 128MiB") from None


def _flag(name: str, text: str) -> Option:
    return option(bool, name, default=False, help=text)


def _files(text: str) -> Option:
    return option(list[str] | None, metavar="FILE", help=text)


def _condition(text: str) -> Option:
    return option(str, "--where", "-w", metavar="CONDITION", default=Parameter.empty, help=text)


_CODE, _MERGE, _THREADS, _WHERE = Option(Code), Option(Merge), Option(Threads), Option(Where)
_COMMIT_EVERY = option(
    int | None,
    metavar="N",
    help="Commit after this number of new files, so that an interruption loses no more than these.",
)
_TARGET = option(
    str, "--target", metavar="SIZE", default="128MiB", callback=_target_bytes, help="The approximate size of new files."
)
_FORCE = _flag(
    "--force", "Accept a retention of less than 24 hours. Use this only if no other process reads or writes."
)

OPERATIONS: tuple[Operation, ...] = (
    _Flush(
        "flush",
        "Finish open files, so that every reader sees their rows. No row is lost or changed.",
        due_only=_flag("--due-only", "Finish only files that are due: a rule has ended them."),
        query_id=option(str | None, "--query", metavar="ID", help="Finish only files of this query."),
        code=_CODE,
        commit_every=_COMMIT_EVERY,
        threads=_THREADS,
    ),
    _Compact(
        "compact",
        "Merge small files of the same directory into larger ones. No row is lost or changed.\n"
        "\n"
        "--where selects partitions. Older versions keep the replaced files until a vacuum.",
        where=_WHERE,
        target_bytes=_TARGET,
        commit_every=_COMMIT_EVERY,
        threads=_THREADS,
    ),
    _CompactStore(
        "kv.compact",
        "Run the due compactions. No row is lost or changed.",
        full=_flag("--full", "Merge each bucket into one run, for the fastest reads."),
        merge=_MERGE,
        threads=_THREADS,
    ),
    _Repair(
        "repair",
        "Repair the damage that `verify` finds, also in a keyed store. By default no row is lost and no file is "
        "deleted.\n"
        "\n"
        "Before rows or records are lost, it asks for confirmation. The exit code is 1 if an error or a warning "
        "remains.",
        full=_flag("--full", "Also read every file."),
        give_up=_files(
            "A committed file that is permanently lost, or a pattern such as 'month=7/*': readers continue without "
            "it. May be repeated."
        ),
        quarantine=_files("A foreign file to move to the quarantine, or a pattern such as '*.tmp'. May be repeated."),
        accept_lost_records=_flag(
            "--accept-lost-records", "Continue from the last readable version. Stop all queries first."
        ),
    ),
    _Vacuum(
        "vacuum",
        "Delete files of failed attempts, files replaced before the retention, and unneeded records, also in a keyed "
        "store.\n"
        "\n"
        "The rows of the newest version are kept. Versions older than the retention become unreadable, so it asks for "
        "confirmation.",
        retention=option(str, metavar="DURATION", default="7d", help="Versions of this time remain readable."),
        force=_FORCE,
    ),
    _Vacuum(
        "expire",
        "End versions by age and number, and delete the files that only they need, also in a keyed store.\n"
        "\n"
        "A version is kept if it is younger than --older-than or among the newest --keep-last. The rows of the newest "
        "version are always kept. It asks for confirmation.",
        older_than=option(str, metavar="DURATION", default="7d", help="Versions younger than this are kept."),
        keep_last=option(int, metavar="N", default=1, help="The newest N versions are kept, regardless of their age."),
        force=_FORCE,
    ),
    _Remove(
        "drop",
        "Remove all rows of the partitions that match, in one version. It asks for confirmation.\n"
        "\n"
        "Older versions can be read until a vacuum.",
        where=_condition(
            'A condition on partition columns, such as "month < 7" or "day < current_date() - interval 30 days"; or '
            "the word all."
        ),
        directory_pattern=option(
            str | None,
            metavar="PATTERN",
            help="The same as the option directoryPattern: a condition can then name directoryTime.",
        ),
    ),
    _Remove(
        "delete",
        "Remove the rows that match, in one version. Files that contain such rows are rewritten. It asks for "
        "confirmation.\n"
        "\n"
        "Open files are finished first. Older versions can be read until a vacuum.",
        where=_condition(
            "A condition on any columns, such as \"id = 70\" or \"name IN ('a', 'b') AND at < DATE '2024-07-01'\"."
        ),
        code=_CODE,
        threads=_THREADS,
    ),
    _Restore(
        "restore",
        "Make the rows of an older version the rows of the newest one, in one record. It asks for confirmation.\n"
        "\n"
        "Another restore undoes it. Queries continue with their next batch.",
        version=option(int | None, metavar="N", help="The version to restore."),
        timestamp=option(
            str | None, metavar="TIME", help="A time, instead of a version: the version that was newest at this time."
        ),
    ),
    _Undo(
        "undo",
        "Undo the last write: restore the rows before it as the newest version, in one record. It asks for "
        "confirmation.\n"
        "\n"
        "Another undo reverts this one. Queries continue with their next batch.",
    ),
)
