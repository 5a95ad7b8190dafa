"""A folder with Spark's own log of a file sink, by which its sources read exactly the files of a list."""

from __future__ import annotations

import functools
import json
import posixpath
from typing import TYPE_CHECKING
from urllib.parse import quote

from ftfile.fs.location import parse

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ftfile.fs.api import FileInfo

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
    start = json.dumps(hadoop_url(directory, ""))[:-1]  # a quoted path needs no escapes of JSON
    more = json.dumps({"isDir": False, "blockReplication": 1, "blockSize": _BLOCK_BYTES, "action": "add"})[1:]
    quoted = functools.lru_cache(maxsize=1024)(quote)  # directories have many files each
    with (log / "0").open("w", encoding="utf-8", newline="\n") as out:
        out.write(_VERSION)
        for file in files:
            above, slash, name = file.path.rpartition("/")
            path = f"{quoted(above)}{slash}{quote(name)}"
            numbers = f'"size": {file.size_bytes}, "modificationTime": {file.modified_ms}'
            out.write(f'\n{{"path": {start}{path}", {numbers}, {more}')
