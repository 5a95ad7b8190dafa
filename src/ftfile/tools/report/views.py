"""Tables of a directory or a store, which `status` prints and a report shows."""

from __future__ import annotations

from dataclasses import dataclass
from json import dumps
from typing import TYPE_CHECKING, Any

from ftfile.core.remedies import in_commands
from ftfile.core.units import ago, bytes_text, count_text, duration_text, exact_time, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ftfile.operate.findings import Finding
    from ftfile.operate.lag import SourceLag
    from ftfile.operate.open_files import OpenFile
    from ftfile.operate.status import QueryStatus, UnpublishedFile


ALWAYS = 9  # see `Column`


@dataclass(frozen=True, slots=True)
class Kind:
    """The text form of a column's values, for people and for programs."""

    for_people: Callable[[Any], str]
    in_pipe: Callable[[Any], str] = str
    is_number: bool = False


BYTES = Kind(bytes_text, is_number=True)
COUNT = Kind(count_text, is_number=True)
SECONDS = Kind(duration_text, lambda value: f"{value:.3f}", is_number=True)
TEXT = Kind(str)
TIME = Kind(time_text, exact_time)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    On a narrow terminal, columns with the lowest `keep` are left out first; `ALWAYS` columns are never left out.
    Columns with `keep` up to 3 are also left out if other columns would have to be folded.
    """

    name: str  # the heading
    value: Callable[[Any], Any]  # returns the value of an item; None without a value
    kind: Kind = TEXT
    keep: int = ALWAYS
    folds: bool = False  # long values continue in the next line
    style: Callable[[Any], str] | None = None  # returns the style of rich for a value

    def text(self, item: Any) -> str:  # noqa: ANN401 - of any table
        """Return the value of an item as text for people."""
        value = self.value(item)
        if value is None:
            return ""
        return self.kind.for_people(value)


def used_columns(columns: Sequence[Column], items: Sequence[Any]) -> list[Column]:
    """Return the columns that have a value in some item, or are never left out."""
    return [
        column for column in columns if column.keep == ALWAYS or any(column.value(item) is not None for item in items)
    ]


@dataclass(frozen=True, slots=True)
class View:
    """A table with a row for each item."""

    title: str
    columns: Sequence[Column]
    items: Sequence[Any]

    @property
    def used_columns(self) -> list[Column]:
        """Return the columns of a page: columns with values, and columns that are never left out."""
        return used_columns(self.columns, self.items)


def view_of_queries(queries: Sequence[QueryStatus], now_ms: int) -> View:
    """Return the view of queries, with the batches and the checkpoint of each query."""
    columns = [
        Column("query", lambda query: query.query_id, folds=True),
        Column("last batch", lambda query: query.last_batch, TEXT),
        Column("version", lambda query: query.version, COUNT, keep=3),
        Column("committed", lambda query: query.time_ms and ago(query.time_ms, now_ms)),
        Column("under way", lambda query: _under_way(query, now_ms), keep=8),
        Column("checkpoint", lambda query: query.checkpoint and query.checkpoint.path, keep=1, folds=True),
    ]
    return View("Queries", columns, queries)


def view_of_sources(queries: Sequence[QueryStatus], now_ms: int, *, names_query: bool = True) -> View:
    """Return the view of the sources of queries, as (query, source): the unread data of each source."""
    columns = [
        Column("query", lambda row: row[0].query_id if names_query else None, keep=4, folds=True),
        Column("source", lambda row: row[1].source, COUNT),
        Column("kind", lambda row: row[1].kind),
        Column("left to read", lambda row: _backlog(row[1], now_ms), folds=True),
        Column("path", lambda row: row[1].path, keep=3, folds=True),
        Column("read up to", lambda row: offset_text(row[1].kind, row[1].offset), keep=5, folds=True),
    ]
    sources = [(query, source) for query in queries if query.checkpoint for source in query.checkpoint.sources]
    return View("Sources: unread data after the newest batch that Spark has planned", columns, sources)


def view_of_open(files: Sequence[OpenFile], now_ms: int, path: str) -> View:
    """Return the view of open files: when each file ends, and why it is open."""
    columns = [
        Column("directory", lambda file: file.directory or ".", folds=True),
        Column("rows", lambda file: file.rows, COUNT),
        Column("bytes", lambda file: file.size_bytes, BYTES, keep=4),
        Column("pieces", lambda file: file.segments, COUNT, keep=2),
        Column("opened", lambda file: ago(file.first_ms, now_ms), keep=5),
        Column("due", lambda file: _due(file, now_ms), style=lambda due: "yellow" if due.startswith("now") else ""),
        Column("why it is open", lambda file: in_commands(file.waiting, path), keep=6, folds=True),
        Column("query", lambda file: file.query_id, keep=1),
    ]
    return View("Open files: committed rows that are in no finished file yet", columns, files)


def view_of_unpublished(files: Sequence[UnpublishedFile], path: str) -> View:
    """Return the view of files to publish or to hide: the reason of a failure, or that the next commit does it."""

    def why(file: UnpublishedFile) -> str:
        return in_commands(file.problem, path) or f"the next commit {'hides' if file.removed else 'publishes'} it"

    columns = [
        Column("file", lambda file: file.path, folds=True),
        Column("version", lambda file: file.version, COUNT),
        Column("why", why, folds=True, style=lambda text: "" if text.startswith("the next") else "red"),
    ]
    return View(
        "Not published: committed files without their final names, or removed files that still have them",
        columns,
        files,
    )


def view_of_machine(findings: Sequence[Finding]) -> View:
    """Return the view of the checks of a machine."""
    columns = [
        Column("check", lambda check: check.code),
        Column("state", lambda check: check.severity),
        Column("found", lambda check: check.actual),
        Column("what to do", lambda check: check.remedy),
    ]
    return View("Checks of the machine", columns, findings)


def offset_text(kind: str, offset: Any) -> str:  # noqa: ANN401 - any JSON
    """Return the offset of a source as text for people; as JSON if the form of the offset is not known."""
    match offset:
        case dict() if kind == "kafka":
            text = "; ".join(f"{topic}: partition {_ends_text(ends)}" for topic, ends in sorted(offset.items()))
        case {"kind": "start"} | {"kind": "log", "version": -1}:
            text = "its start"
        case {"kind": "log", "snapshot": int(version), "read": int(files)}:
            text = f"{count_text(files, 'file')} of version {version}"
        case {"kind": "log", "version": int(version), "next": int(files)}:
            text = f"version {version}, and {count_text(files, 'file')} of the next one"
        case {"kind": "log", "version": int(version)}:
            text = f"version {version}"
        case {"kind": "plans", "plan": int(plan)}:
            text = f"plan {plan}"
        case int() | str():
            text = str(offset)
        case dict() if not any(isinstance(value, dict | list) for value in offset.values()):
            text = ", ".join(f"{name} {value}" for name, value in offset.items())
        case _:
            text = dumps(offset, separators=(",", ":"))
    return text


def _ends_text(ends: Mapping[str, int]) -> str:
    """Return the offset of each partition of a topic, ordered by partition: `0 at 1350, 1 at 17`."""
    in_order = sorted(ends.items(), key=lambda end: (len(end[0]), end[0]))
    return ", ".join(f"{partition} at {end}" for partition, end in in_order)


def _under_way(query: QueryStatus, now_ms: int) -> str | None:
    """Return the batch that Spark has planned after the last batch, and its age; None if it is not known."""
    checkpoint = query.checkpoint
    if checkpoint is None or checkpoint.problem:
        return None
    if checkpoint.planned_batch is None or checkpoint.planned_batch <= query.last_batch:
        return "no batch"
    if checkpoint.planned_ms is None:
        since = ""
    else:
        since = f", for {duration_text(max(0, now_ms - checkpoint.planned_ms) / 1000)}"
    return f"{checkpoint.planned_batch}{since}"


def _backlog(source: SourceLag, now_ms: int) -> str:
    """Return the unread data of a source as text."""
    if source.unknown:
        return "not known"
    if source.versions_behind is not None:
        return count_text(source.versions_behind, "version")
    if source.oldest_unread_ms is None:
        oldest = ""
    else:
        oldest = f", the oldest changed {ago(source.oldest_unread_ms, now_ms)}"
    counts = ((source.parked, "parked"), (source.refused, "refused"), (source.late, "too late"))
    excluded = [f"{count:,} {word}" for count, word in counts if count]
    files = f"{count_text(source.files_behind or 0, 'file')} of {bytes_text(source.bytes_behind or 0)}"
    return "; ".join([f"{files}{oldest}", *excluded])


def _due(file: OpenFile, now_ms: int) -> str:
    if file.reason:
        return f"now ({file.reason})"
    if file.deadline_ms is None:
        return "no deadline"
    return ago(file.deadline_ms, now_ms)
