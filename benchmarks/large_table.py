"""The log of a Delta table of many commits, written in a moment, with the checkpoint that Delta would have."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("write_delta_log",)

CHECKPOINT_EVERY = 10  # commits, as Delta does by default
TIME_MS = 1_767_225_600_000
SCHEMA = '{"type":"struct","fields":[{"name":"value","type":"string","nullable":true,"metadata":{}}]}'
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


def write_delta_log(table: Path, commits: int, files: int) -> None:
    """Write the log of this number of commits, of as many files each, which are not there; without syncs."""
    log = table / "_delta_log"
    log.mkdir(parents=True)
    paths = [
        [f"part-{commit:010d}-{number}-{uuid.uuid4()}.parquet" for number in range(files)] for commit in range(commits)
    ]
    metadata: dict[str, Any] = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": SCHEMA,
        "partitionColumns": [],
        "configuration": {},
        "createdTime": TIME_MS,
    }
    for commit in range(commits):
        info = {
            "timestamp": TIME_MS + commit,
            "operation": "STREAMING UPDATE",
            "operationParameters": {"outputMode": "Append", "queryId": "query", "epochId": str(commit)},
            "isolationLevel": "Serializable",
            "isBlindAppend": True,
            "operationMetrics": {"numAddedFiles": str(files), "numOutputRows": "0", "numOutputBytes": "0"},
            "engineInfo": "Apache-Spark Delta-Lake",
            "txnId": str(uuid.uuid4()),
        }
        actions: list[dict[str, Any]] = [{"commitInfo": info}]
        actions += [{"protocol": PROTOCOL}, {"metaData": metadata}] if commit == 0 else []
        actions += [{"add": _add(path) | {"partitionValues": {}}} for path in paths[commit]]
        (log / f"{commit:020}.json").write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    checkpoint = (commits - 1) // CHECKPOINT_EVERY * CHECKPOINT_EVERY
    if checkpoint:
        written = [path for own in paths[: checkpoint + 1] for path in own]
        _write_checkpoint(log, checkpoint, metadata, written)


def _add(path: str) -> dict[str, Any]:
    return {"path": path, "size": 1_000_000, "modificationTime": TIME_MS, "dataChange": True}


def _write_checkpoint(log: Path, commit: int, metadata: dict[str, Any], paths: list[str]) -> None:
    described = metadata | {"configuration": [], "format": {"provider": "parquet", "options": []}}
    rows: list[dict[str, Any]] = [{"protocol": PROTOCOL}, {"metaData": described}]
    rows += [{"add": _add(path) | {"partitionValues": [], "dataChange": False}} for path in paths]
    columns = {name: pa.array([row.get(name) for row in rows], kind) for name, kind in _TYPES.items()}
    pq.write_table(pa.table(columns), log / f"{commit:020}.checkpoint.parquet")
    (log / "_last_checkpoint").write_text(json.dumps({"version": commit, "size": len(rows)}))
