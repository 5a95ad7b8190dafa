"""A directory or file on HDFS, with the reads that the demonstration needs, by WebHDFS and without code of a sink."""

from __future__ import annotations

import getpass
import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path, PurePath

__all__ = ("HdfsPath",)

TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class HdfsPath:
    """A path with the few methods of `pathlib.Path` that are needed.

    Attributes:
        pages: URL of the NameNode's web server.
        root: URL by which an application reaches the root of the file system.
        path: absolute, without a slash at its end.
    """

    pages: str
    root: str
    path: str

    def __truediv__(self, more: str | PurePath) -> HdfsPath:
        return HdfsPath(self.pages, self.root, f"{self.path}/{more}")

    def __str__(self) -> str:
        return f"{self.root}{self.path}"

    @property
    def name(self) -> str:
        """The last component."""
        return self.path.rpartition("/")[2]

    def exists(self) -> bool:
        """Return True if a file or directory exists."""
        try:
            self._ask("GETFILESTATUS")
        except FileNotFoundError:
            return False
        return True

    def iterdir(self) -> Iterator[HdfsPath]:
        """Yield the entries of the directory."""
        for child in self._children():
            yield self / child["pathSuffix"]

    def visible_files(self) -> Iterator[HdfsPath]:
        """Yield the files of the directory that programs read: Hadoop hides names that begin with `_` or `.`."""
        for child in self._children():
            if child["type"] == "FILE" and not child["pathSuffix"].startswith(("_", ".")):
                yield self / child["pathSuffix"]

    def read_text(self, encoding: str) -> str:
        """Return the content of the file."""
        return self.read_bytes().decode(encoding)

    def read_bytes(self) -> bytes:
        """Return the content of the file."""
        return self._get("OPEN")

    def count_files(self) -> int:
        """Count all files in the directory and below, also files that are being written; 0 if it is missing."""
        try:
            return int(self._ask("GETCONTENTSUMMARY")["ContentSummary"]["fileCount"])
        except FileNotFoundError:
            return 0

    def download(self, target: Path, ending: str) -> None:
        """Copy every file with this ending in the directory and below, including hidden files."""
        target.mkdir(parents=True)
        for child in self._children():
            name = child["pathSuffix"]
            if child["type"] == "DIRECTORY":
                (self / name).download(target / name, ending)
            elif name.endswith(ending):
                (target / name).write_bytes((self / name).read_bytes())

    def _children(self) -> list[dict[str, Any]]:
        children: list[dict[str, Any]] = self._ask("LISTSTATUS")["FileStatuses"]["FileStatus"]
        return children

    def _ask(self, operation: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._get(operation))
        return found

    def _get(self, operation: str) -> bytes:
        query = urllib.parse.urlencode({"op": operation, "user.name": getpass.getuser()})
        url = f"{self.pages}webhdfs/v1{urllib.parse.quote(self.path)}?{query}"
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as reply:
                content: bytes = reply.read()
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    raise FileNotFoundError(str(self)) from error
                raise OSError(f"{operation} of {self}: {error.read()[:500]!r}") from error
        return content
