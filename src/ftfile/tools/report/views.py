"""Tables of a directory or a store, which `status` prints and a report shows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from json import dumps
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ftfile.core.remedies import in_commands
from ftfile.core.units import ago, bytes_text, count_text, duration_text, exact_time, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ftfile.operate.findings import Finding
    from ftfile.operate.lag import SourceLag
    from ftfile.operate.open_files import OpenFile
    from ftfile.operate.requests import StorageRequests
    from ftfile.operate.status import QueryStatus, UnpublishedFile


ALWAYS = 9  # see `TableColumn`


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """The text form of a column's values, for people and for programs."""

    for_people: Callable[[Any], str]
    in_pipe: Callable[[Any], str] = str
    is_number: bool = False


def same_text(text_of: Callable[[Any], str]) -> ValueFormat:
    """Return the format of values with the same text for people and for programs."""
    return ValueFormat(text_of, text_of)


def age_at(now_ms: int) -> ValueFormat:
    """Return the format of times, in milliseconds since 1970, as their age."""
    return same_text(partial(ago, now_ms=now_ms))


def with_commands(path: str) -> ValueFormat:
    """Return the format of messages for Python, as messages that name commands for a path."""
    return same_text(partial(in_commands, path=path))


def yes_or_no(value: bool) -> str:  # noqa: FBT001 - a function of `same_text`
    """Return the text of a flag."""
    if value:
        return "yes"
    return "no"


def _milliseconds_text(seconds: float) -> str:
    return f"{seconds:.3f}"


BYTES = ValueFormat(bytes_text, is_number=True)
COUNT = ValueFormat(count_text, is_number=True)
SECONDS = ValueFormat(duration_text, _milliseconds_text, is_number=True)
TEXT = ValueFormat(str)
TIME = ValueFormat(time_text, exact_time)


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table.

    On a narrow terminal, columns with the lowest `keep` are left out first; `ALWAYS` columns are never left out.
    Columns with `keep` up to 3 are also left out if other columns would have to be folded.
    """

    name: str  # the heading
    # The name of an attribute of an item, such as `size_bytes` or `lag.kind`, or a function that returns the value of
    # an item. None means that an item has no value.
    value: str | Callable[[Any], Any]
    kind: ValueFormat = TEXT
    keep: int = ALWAYS
    folds: bool = False  # long values continue in the next line
    style: Callable[[Any], str] | None = None  # returns the style of rich for a value
    hides_zero: bool = False  # 0 and empty values are shown as if the item had no value

    def value_of(self, item: Any) -> Any:  # noqa: ANN401 - of any table
        """Return the value of an item, or None."""
        if isinstance(self.value, str):
            value = attrgetter(self.value)(item)
        else:
            value = self.value(item)
        if self.hides_zero and not value:
            return None
        return value

    def text(self, item: Any) -> str:  # noqa: ANN401 - of any table
        """Return the value of an item as text for people."""
        value = self.value_of(item)
        if value is None:
            return ""
        return self.kind.for_people(value)


def used_columns(columns: Sequence[TableColumn], items: Sequence[Any]) -> list[TableColumn]:
    """Return the columns that have a value in some item, or are never left out."""
    used = []
    for column in columns:
        if column.keep == ALWAYS or _has_values(column, items):
            used.append(column)
    return used


def _has_values(column: TableColumn, items: Sequence[Any]) -> bool:
    return any(column.value_of(item) is not None for item in items)


@dataclass(frozen=True, slots=True)
class TableView:
    """A table with a row for each item."""

    title: str
    columns: Sequence[TableColumn]
    items: Sequence[Any]

    @property
    def used_columns(self) -> list[TableColumn]:
        """Return the columns of a page: columns with values, and columns that are never left out."""
        return used_columns(self.columns, self.items)


class QuerySource(NamedTuple):
    """A source of a query."""

    query_id: str
    lag: SourceLag


def view_of_queries(queries: Sequence[QueryStatus], now_ms: int) -> TableView:
    """Return the view of queries, with the batches and the checkpoint of each query."""
    columns = [
        TableColumn("query", "query_id", folds=True),
        TableColumn("last batch", "last_batch", TEXT),
        TableColumn("version", "version", COUNT, keep=3),
        TableColumn("committed", "time_ms", age_at(now_ms)),
        TableColumn("under way", partial(_under_way, now_ms=now_ms), keep=8),
        TableColumn("checkpoint", _checkpoint_path, keep=1, folds=True),
        TableColumn("position", _position, keep=2, folds=True, hides_zero=True),
        TableColumn("opened by", _opening, keep=0, folds=True, hides_zero=True),
    ]
    return TableView("Queries", columns, queries)


def view_of_sources(queries: Sequence[QueryStatus], now_ms: int, *, names_query: bool = True) -> TableView:
    """Return the view of the sources of queries, as `QuerySource` items: the unread data of each source."""
    columns = [
        TableColumn("source", "lag.source", COUNT),
        TableColumn("kind", "lag.kind"),
        TableColumn("left to read", "lag", same_text(partial(_backlog, now_ms=now_ms)), folds=True),
        TableColumn("path", "lag.path", keep=3, folds=True),
        TableColumn("read up to", _read_up_to, keep=5, folds=True),
    ]
    if names_query:
        columns.insert(0, TableColumn("query", "query_id", keep=4, folds=True))
    sources: list[QuerySource] = []
    for query in queries:
        if query.checkpoint:
            for lag in query.checkpoint.sources:
                sources.append(QuerySource(query.query_id, lag))
    return TableView("Sources: unread data after the newest batch that Spark has planned", columns, sources)


def view_of_open(files: Sequence[OpenFile], now_ms: int, path: str) -> TableView:
    """Return the view of open files: when each file ends, and why it is open."""
    columns = [
        TableColumn("directory", _directory_of, folds=True),
        TableColumn("rows", "rows", COUNT),
        TableColumn("bytes", "size_bytes", BYTES, keep=4),
        TableColumn("segments", "segments", COUNT, keep=2),
        TableColumn("opened", "first_ms", age_at(now_ms), keep=5),
        TableColumn("due", partial(_due, now_ms=now_ms), style=_due_style),
        TableColumn("why it is open", "waiting", with_commands(path), keep=6, folds=True),
        TableColumn("query", "query_id", keep=1),
    ]
    return TableView("Open files: committed rows that are in no finished file yet", columns, files)


def view_of_unpublished(files: Sequence[UnpublishedFile], path: str) -> TableView:
    """Return the view of files to publish or to hide: the reason of a failure, or that the next commit does it."""
    columns = [
        TableColumn("file", "path", folds=True),
        TableColumn("version", "version", COUNT),
        TableColumn("why", partial(_why_unpublished, path=path), folds=True, style=_why_style),
    ]
    return TableView(
        "Not published: committed files without their final names, or removed files that still have them",
        columns,
        files,
    )


def _why_unpublished(file: UnpublishedFile, path: str) -> str:
    if file.problem:
        return in_commands(file.problem, path)
    if file.removed:
        return "the next commit hides it"
    return "the next commit publishes it"


def _why_style(why: str) -> str:
    if why.startswith("the next commit"):
        return ""
    return "red"


def view_of_machine(findings: Sequence[Finding]) -> TableView:
    """Return the view of the checks of a machine."""
    columns = [
        TableColumn("check", "code"),
        TableColumn("state", "severity"),
        TableColumn("found", "actual"),
        TableColumn("what to do", "remedy"),
    ]
    return TableView("Checks of the machine", columns, findings)


def view_of_requests(requests: StorageRequests) -> TableView:
    """Return the view of the requests of a batch by step."""
    mean = ValueFormat("{:.3g}".format, str, is_number=True)
    columns = [
        TableColumn("step", "step"),
        *(TableColumn(name.upper(), name, mean, hides_zero=True) for name in ("get", "put", "copy", "delete")),
        TableColumn("cost of 1,000 batches", "cost", mean, hides_zero=True),
    ]
    title = f"Requests of a batch, the mean of {count_text(requests.batches, 'batch', 'batches')}"
    if requests.batches_a_day is not None and requests.cost_a_day is not None:
        title += f": {requests.batches_a_day:,.0f} batches a day cost {requests.cost_a_day:.2f}"
    return TableView(title, columns, requests.steps)


def offset_text(kind: str, offset: Any) -> str:  # noqa: ANN401 - any JSON
    """Return the offset of a source as text for people; as JSON if the form of the offset is not known."""
    match offset:
        case dict() if kind == "kafka":
            text = _topics_text(offset)
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


def _topics_text(offset: Mapping[str, Mapping[str, int]]) -> str:
    texts = []
    for topic in sorted(offset):
        texts.append(f"{topic}: partition {_ends_text(offset[topic])}")
    return "; ".join(texts)


def _ends_text(ends: Mapping[str, int]) -> str:
    """Return the offset of each partition of a topic, ordered by partition: `0 at 1350, 1 at 17`."""
    partitions = sorted(ends, key=_length_and_text)  # as numbers, of which the partitions are texts
    return ", ".join(f"{partition} at {ends[partition]}" for partition in partitions)


def _length_and_text(text: str) -> tuple[int, str]:
    return len(text), text


def _checkpoint_path(query: QueryStatus) -> str | None:
    if query.checkpoint is None:
        return None
    return query.checkpoint.path


def _position(query: QueryStatus) -> str | None:
    """Return the position of an application as JSON; None for a query of Spark."""
    if query.application is None:
        return None
    return dumps(query.application.position, separators=(",", ":"))


def _opening(query: QueryStatus) -> str | None:
    """Return the process that has opened the directory as an application; None for a query of Spark."""
    if query.application is None:
        return None
    return f"{query.application.process or 'unknown'}, {time_text(query.application.opened_ms)}"


def _read_up_to(source: QuerySource) -> str:
    return offset_text(source.lag.kind, source.lag.offset)


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
    files = f"{count_text(source.files_behind or 0, 'file')} of {bytes_text(source.bytes_behind or 0)}"
    texts = [f"{files}{oldest}"]
    for count, word in ((source.parked, "parked"), (source.refused, "refused"), (source.late, "too late")):
        if count:
            texts.append(f"{count:,} {word}")
    return "; ".join(texts)


def _directory_of(file: OpenFile) -> str:
    return file.directory or "."


def _due(file: OpenFile, now_ms: int) -> str:
    if file.reason:
        return f"now ({file.reason})"
    if file.deadline_ms is None:
        return "no deadline"
    return ago(file.deadline_ms, now_ms)


def _due_style(due: str) -> str:
    if due.startswith("now"):
        return "yellow"
    return ""
