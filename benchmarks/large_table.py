"""The log of a Delta table of many commits, written in a moment, with the checkpoint that Delta would have."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

import ftfile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ("File", "write_delta_log", "write_delta_log_over")

FILES_A_COMMIT = 1_000
CHECKPOINT_EVERY = 10  # commits, as Delta does by default
TIME_MS = 1_767_225_600_000
PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
_TEXTS = pa.map_(pa.string(), pa.string())
_TYPES = {
    "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
    "metaData": pa.struct(
        {
            "id": pa.string(),
            "format": pa.struct({"provider": pa.string(), "options": _TEXTS}),
            "schemaString": pa.string(),
            "partitionColumns": pa.list_(pa.string()),
            "configuration": _TEXTS,
            "createdTime": pa.int64(),
        }
    ),
    "add": pa.struct(
        {
            "path": pa.string(),
            "partitionValues": _TEXTS,
            "size": pa.int64(),
            "modificationTime": pa.int64(),
            "dataChange": pa.bool_(),
        }
    ),
}


class File(NamedTuple):
    """A file of a table: its path in it, its length, and the text of its value of each partition column."""

    path: str
    size_bytes: int
    values: Mapping[str, str] = {}


def write_delta_log(table: Path, commits: Sequence[Sequence[File]], schema: str, partition_by: Sequence[str]) -> None:
    """Write the log of commits of files, which need not be there; without syncs, and without statistics of columns.

    Args:
        table: its directory.
        commits: the files of each.
        schema: of the rows, as Spark's JSON.
        partition_by: names of columns.
    """
    log = table / "_delta_log"
    log.mkdir(parents=True)
    metadata: dict[str, Any] = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema,
        "partitionColumns": [*partition_by],
        "configuration": {},
        "createdTime": TIME_MS,
    }
    for commit, files in enumerate(commits):
        info = {
            "timestamp": TIME_MS + commit,
            "operation": "STREAMING UPDATE",
            "operationParameters": {"outputMode": "Append", "queryId": "query", "epochId": str(commit)},
            "isolationLevel": "Serializable",
            "isBlindAppend": True,
            "operationMetrics": {"numAddedFiles": str(len(files)), "numOutputRows": "0", "numOutputBytes": "0"},
            "engineInfo": "Apache-Spark Delta-Lake",
            "txnId": str(uuid.uuid4()),
        }
        actions: list[dict[str, Any]] = [{"commitInfo": info}]
        actions += [{"protocol": PROTOCOL}, {"metaData": metadata}] if commit == 0 else []
        actions += [{"add": _add(file) | {"partitionValues": file.values}} for file in files]
        (log / f"{commit:020}.json").write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    checkpoint = (len(commits) - 1) // CHECKPOINT_EVERY * CHECKPOINT_EVERY
    if checkpoint:
        written = [file for files in commits[: checkpoint + 1] for file in files]
        _write_checkpoint(log, checkpoint, metadata, written)


def write_delta_log_over(directory: Path) -> None:
    """Write the log of a Delta table over the files of a directory of ftfile, in commits of 1,000 of them."""
    opened = ftfile.open(directory)
    files = [
        File(file.path, file.size_bytes, {name: str(value) for name, value in file.partition.items()})
        for file in opened.files()
    ]
    commits = [files[first : first + FILES_A_COMMIT] for first in range(0, len(files), FILES_A_COMMIT)]
    write_delta_log(directory, commits, opened.spark_schema(), [*files[0].values])


def _add(file: File) -> dict[str, Any]:
    return {"path": file.path, "size": file.size_bytes, "modificationTime": TIME_MS, "dataChange": True}


def _write_checkpoint(log: Path, commit: int, metadata: dict[str, Any], files: list[File]) -> None:
    described = metadata | {"configuration": [], "format": {"provider": "parquet", "options": []}}
    rows: list[dict[str, Any]] = [{"protocol": PROTOCOL}, {"metaData": described}]
    rows += [{"add": _add(file) | {"partitionValues": [*file.values.items()], "dataChange": False}} for file in files]
    columns = {name: pa.array([row.get(name) for row in rows], kind) for name, kind in _TYPES.items()}
    pq.write_table(pa.table(columns), log / f"_{commit:020}.checkpoint.parquet")
    (log / "_last_checkpoint").write_text(json.dumps({"version": commit, "size": len(rows)}))
