"""The proof: plain readers find each Kafka record exactly once in the files, and the log names the right offsets.

Only `check_history` uses the sink: it compares the offsets in the sink's log with its rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, json, orc, parquet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ftfile.log.read.history import Version

__all__ = ("FORMATS", "FileRows", "PartitionVerdict", "check_history", "compare", "offsets_of", "read_files")

# Number of versions of the history whose rows are read.
VERSIONS_READ = 8


@dataclass(frozen=True, slots=True)
class FileRows:
    """The rows of all files that a plain reader sees.

    Attributes:
        rows: the columns topic, partition, offset, key, value.
        files: number of files.
        size_bytes: of all files.
        unreadable: files that cannot be read, each with the error.
    """

    rows: pa.Table
    files: int
    size_bytes: int
    unreadable: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartitionVerdict:
    """One partition of the topic, in Kafka and in the files.

    Attributes:
        in_kafka: number of records in Kafka.
        in_files: number of rows, each counted as often as it occurs.
        missing: number of offsets that are in no file.
        repeated: number of surplus rows of offsets that Kafka has.
        foreign: number of rows whose offset Kafka does not have, or whose key or value differs from Kafka's.
        gaps: number of places where the offsets in the files do not increase by one, beginning at 0.
    """

    partition: int
    in_kafka: int
    in_files: int
    missing: int
    repeated: int
    foreign: int
    gaps: int

    @property
    def exact(self) -> bool:
        """True if the files contain each record of Kafka once, unchanged, and no other rows."""
        return not (self.missing or self.repeated or self.foreign or self.gaps) and self.in_files == self.in_kafka


def read_files(directory: Path, file_format: str) -> FileRows:
    """Read all files with the ending by pyarrow (Avro by fastavro), except names or directories of `_` or `.`.

    Plain readers of a directory skip these names.
    """
    tables, size_bytes = [_EMPTY], 0
    unreadable: list[str] = []
    paths = sorted(path for path in directory.rglob(f"*.{file_format}") if _is_visible(path.relative_to(directory)))
    for path in paths:
        size_bytes += path.stat().st_size
        try:
            tables.append(FORMATS[file_format](path).select([*_TYPES]).cast(_EMPTY.schema))
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            unreadable.append(f"{path.relative_to(directory)}: {error}")
    return FileRows(pa.concat_tables(tables), len(paths), size_bytes, tuple(unreadable))


def compare(topic: str, ends: Mapping[int, int], kafka: pa.Table, found: pa.Table) -> list[PartitionVerdict]:
    """Compare the rows of files with the records of a topic, partition by partition.

    Args:
        topic: rows of other topics are foreign.
        ends: the offset after the last record of each partition.
        kafka: the records, as Kafka's consumer reads them.
        found: the rows.
    """
    found = found.set_column(
        1, "partition", pc.if_else(pc.equal(found["topic"], topic), found["partition"], pa.scalar(-1, pa.int64()))
    )
    partitions = sorted({*ends, *pc.unique(kafka["partition"]).to_pylist(), *pc.unique(found["partition"]).to_pylist()})
    return [_compare_partition(partition, ends.get(partition, 0), kafka, found) for partition in partitions]


def _compare_partition(partition: int, end: int, kafka: pa.Table, found: pa.Table) -> PartitionVerdict:
    theirs, ours = (each.filter(pc.equal(each["partition"], partition)).sort_by("offset") for each in (kafka, found))
    there, offsets = _offsets(theirs), _offsets(ours)
    distinct = np.unique(offsets)
    known = np.isin(offsets, there)
    # By row, its record in Kafka: both are sorted, and Kafka has each offset once.
    record = np.searchsorted(there, offsets[known])
    same = _equal(ours.filter(pa.array(known)), theirs.take(pa.array(record)))
    return PartitionVerdict(
        partition,
        in_kafka=end,
        in_files=len(offsets),
        missing=len(np.setdiff1d(np.arange(end), distinct)),
        repeated=int(known.sum()) - len(np.unique(offsets[known])),
        foreign=int((~known).sum()) + int((~same).sum()),
        gaps=int((np.diff(distinct, prepend=-1) != 1).sum()),
    )


def check_history(
    topic: str, versions: Sequence[Version], ends: Mapping[int, int], rows_at: Callable[[int], pa.Table]
) -> list[str]:
    """Return the errors in the Kafka offsets that the versions of a directory name; empty if all are right.

    Each version contains the records from the offsets of the version before it up to its offsets. For a few versions
    all rows are read: they must have exactly the offsets below those of the version.

    Args:
        topic: the only topic.
        versions: the history, oldest first.
        ends: the offset after the last record of each partition.
        rows_at: returns the rows of a version.
    """
    faults: list[str] = []
    before = dict.fromkeys(ends, 0)
    streamed = [version for version in versions if version.operation == "stream"]
    ranges: dict[int, dict[int, int]] = {}
    for version in streamed:
        found = offsets_of(topic, version)
        if found is None:
            faults.append(f"version {version.version} names no offsets of {topic}: {version.offsets}")
            continue
        now = {**before, **found}
        if any(now[partition] < before[partition] for partition in now if partition in before):
            faults.append(f"version {version.version} goes back from {before} to {now}")
        brought = sum(now.values()) - sum(before.values())
        if brought != version.rows:
            faults.append(f"version {version.version} has {version.rows} rows, its offsets stand for {brought}")
        ranges[version.version] = before = now
    if before != dict(ends):
        faults.append(f"the last version names {before}, Kafka ends at {dict(ends)}")
    chosen = np.unique(np.linspace(0, len(ranges) - 1, min(VERSIONS_READ, len(ranges))).round().astype(int))
    for version_number in (list(ranges)[index] for index in chosen):
        rows = rows_at(version_number)
        for partition, end in ranges[version_number].items():
            offsets = np.sort(_offsets(rows.filter(pc.equal(rows["partition"], partition))))
            if not np.array_equal(offsets, np.arange(end)):
                faults.append(f"version {version_number} has not exactly the offsets below {end} of {partition}")
    return faults


def offsets_of(topic: str, version: Version) -> dict[int, int] | None:
    """Return the end of each partition that a version names for a topic, or None if it names no end."""
    match version.offsets:
        case [dict(source)] if isinstance(source.get(topic), dict):
            return {int(partition): int(end) for partition, end in source[topic].items()}
        case _:
            return None


def _offsets(table: pa.Table) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = table["offset"].to_numpy().astype(np.int64)
    return numbers


def _equal(ours: pa.Table, theirs: pa.Table) -> NDArray[np.bool_]:
    flags = np.ones(len(ours), np.bool_)
    for name in ("key", "value"):
        flags &= pc.fill_null(pc.equal(ours[name], theirs[name]), False).to_numpy()
    return flags


def _is_visible(path: Path) -> bool:
    return not any(part.startswith(("_", ".")) for part in path.parts)


def _read_avro(path: Path) -> pa.Table:
    with path.open("rb") as file:
        rows: list[Any] = list(fastavro.reader(file))
    return pa.Table.from_pylist(rows)


_TYPES = {"topic": pa.string(), "partition": pa.int64(), "offset": pa.int64(), "key": pa.string(), "value": pa.string()}
_EMPTY = pa.schema(_TYPES).empty_table()
# By the ending of the files, which is also the format's name.
FORMATS: dict[str, Callable[[Path], pa.Table]] = {
    "parquet": lambda path: parquet.ParquetFile(path).read(),
    "orc": orc.read_table,
    "arrow": lambda path: pa.ipc.open_file(path).read_all(),
    "avro": _read_avro,
    "json": json.read_json,
    "csv": lambda path: csv.read_csv(path, convert_options=csv.ConvertOptions(column_types=_TYPES)),
}
