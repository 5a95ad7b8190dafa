"""Files in the formats and layouts of other programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ("UUID", "parquet", "spark_checkpoint", "spark_log", "tree")

UUID = "1f2e3d4c-0000-4000-8000-0123456789ab"


def parquet(path: Path, ids: Iterable[int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), path)


def tree(path: Path) -> dict[str, bytes]:
    """Return the content of all files by path, and the empty directories."""
    files = {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    return files | {f"{each.relative_to(path)}/": b"" for each in path.rglob("*") if each.is_dir()}


def spark_log(out: Path, name: str, entries: Iterable[tuple[str, str]]) -> None:
    """Write an entry of the log of Spark's file sink, with added or deleted files."""
    lines = []
    for action, path in entries:
        more = {"isDir": False, "modificationTime": 1, "blockReplication": 1, "blockSize": 1}
        size = (out / path).stat().st_size
        lines.append(json.dumps({"path": (out / path).as_uri(), "size": size, **more, "action": action}))
    (out / "_spark_metadata").mkdir(exist_ok=True)
    (out / "_spark_metadata" / name).write_text("\n".join(["v1", *lines]))


def spark_checkpoint(path: Path, batches: int) -> str:
    """Write the checkpoint of a query that has planned some batches."""
    (path / "offsets").mkdir(parents=True)
    (path / "metadata").write_text(json.dumps({"id": "spark-query"}))
    for batch in range(batches):
        (path / f"offsets/{batch}").write_text(f'v1\n{{"batchTimestampMs":{batch}}}\n{{"batch":{batch}}}')
    return str(path)
