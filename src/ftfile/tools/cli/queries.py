"""Queries with their lag, and open files, as `status` shows them."""

from json import dumps
from typing import TYPE_CHECKING, Any

from ftfile.core.remedies import in_commands
from ftfile.core.units import ago, bytes_text, count_text, duration_text
from ftfile.tools.cli.output import heading, put
from ftfile.tools.cli.tables import BYTES, COUNT, TEXT, Column, is_terminal, print_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ftfile.operate.lag import SourceLag
    from ftfile.operate.status import OpenFile, QueryStatus


def print_queries(queries: "Sequence[QueryStatus]", now_ms: int) -> None:
    """Print queries, what each is about, and what is left to read of its sources."""
    heading("Queries")
    columns = [
        Column("query", lambda query: query.query_id, folds=True),
        Column("last batch", lambda query: query.last_batch, TEXT),
        Column("version", lambda query: query.version, COUNT, keep=3),
        Column("committed", lambda query: query.time_ms and ago(query.time_ms, now_ms)),
        Column("under way", lambda query: _under_way(query, now_ms), keep=8),
        Column("checkpoint", lambda query: query.checkpoint and query.checkpoint.path, keep=1, folds=True),
    ]
    print_table(columns, queries)
    sources = [(query.query_id, source) for query in queries if query.checkpoint for source in query.checkpoint.sources]
    if sources:
        is_one = len(queries) == 1 and is_terminal()
        heading("Sources: what is left to read behind the newest batch that Spark has planned")
        columns = [
            Column("query", lambda row: None if is_one else row[0], keep=4, folds=True),
            Column("source", lambda row: row[1].source, COUNT),
            Column("kind", lambda row: row[1].kind),
            Column("left to read", lambda row: _backlog(row[1], now_ms), folds=True),
            Column("path", lambda row: row[1].path, keep=3, folds=True),
            Column("read up to", lambda row: offset_text(row[1].kind, row[1].offset), keep=5, folds=True),
        ]
        print_table(columns, sources)
        for text in dict.fromkeys(f"{source.kind}: {source.unknown}" for _, source in sources if source.unknown):
            put(in_commands(text))


def print_open(files: "Sequence[OpenFile]", now_ms: int, path: str) -> None:
    """Print open files, when each ends, and why it is open."""
    heading("Open files: rows that are committed, and in no finished file yet")
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
    print_table(columns, files)


def offset_text(kind: str, offset: Any) -> str:  # noqa: ANN401 - any JSON
    """Return how far a source of a kind was read, as people read it; JSON where nothing is known of its form."""
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


def _ends_text(ends: "Mapping[str, int]") -> str:
    """Return the offset of each partition of a topic, in the order of their numbers: `0 at 1350, 1 at 17`."""
    in_order = sorted(ends.items(), key=lambda end: (len(end[0]), end[0]))
    return ", ".join(f"{partition} at {end}" for partition, end in in_order)


def _under_way(query: "QueryStatus", now_ms: int) -> str | None:
    """Return the batch that Spark has planned behind the last one, and for how long; None if that is not known."""
    checkpoint = query.checkpoint
    if checkpoint is None or checkpoint.problem:
        return None
    if checkpoint.planned_batch is None or checkpoint.planned_batch <= query.last_batch:
        return "no batch"
    since = (
        "" if checkpoint.planned_ms is None else f", for {duration_text(max(0, now_ms - checkpoint.planned_ms) / 1000)}"
    )
    return f"{checkpoint.planned_batch}{since}"


def _backlog(source: "SourceLag", now_ms: int) -> str:
    """Return the backlog of a source."""
    if source.unknown:
        return "not known"
    if source.versions_behind is not None:
        return count_text(source.versions_behind, "version")
    oldest = "" if source.oldest_unread_ms is None else f", the oldest changed {ago(source.oldest_unread_ms, now_ms)}"
    counts = ((source.parked, "parked"), (source.refused, "refused"), (source.late, "too late"))
    excluded = [f"{count:,} {word}" for count, word in counts if count]
    files = f"{count_text(source.files_behind or 0, 'file')} of {bytes_text(source.bytes_behind or 0)}"
    return "; ".join([f"{files}{oldest}", *excluded])


def _due(file: "OpenFile", now_ms: int) -> str:
    if file.reason:
        return f"now ({file.reason})"
    return "no deadline" if file.deadline_ms is None else ago(file.deadline_ms, now_ms)
