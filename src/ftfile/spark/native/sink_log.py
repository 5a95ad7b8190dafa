"""A folder with Spark's own log of a file sink, by which its sources read exactly the files of a list."""

from __future__ import annotations

import json
import posixpath
from typing import TYPE_CHECKING
from urllib.parse import quote

from ftfile.fs.location import parse

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ftfile.fs.api import FileInfo

__all__ = ("hadoop_url", "write_sink_log")

_VERSION = "v1"
_BLOCK_BYTES = 128 << 20  # Spark splits files by its own settings


def hadoop_url(directory: str, path: str) -> str:
    """Return the encoded URL by which Hadoop knows a file in a directory, which is named by its canonical URL."""
    parsed = parse(directory)
    scheme = "s3a" if parsed.scheme == "s3" else parsed.scheme
    return f"{scheme}://{parsed.authority}{quote(posixpath.join(parsed.path, path))}"


def write_sink_log(folder: Path, directory: str, files: Iterable[FileInfo]) -> None:
    """Write the log of a sink that has put these files, and no others, into `folder`."""
    log = folder / "_spark_metadata"
    log.mkdir()
    with (log / "0").open("w", encoding="utf-8", newline="\n") as out:
        out.write(_VERSION)
        for file in files:
            entry = {
                "path": hadoop_url(directory, file.path),
                "size": file.size_bytes,
                "isDir": False,
                "modificationTime": file.modified_ms,
                "blockReplication": 1,
                "blockSize": _BLOCK_BYTES,
                "action": "add",
            }
            out.write(f"\n{json.dumps(entry)}")
