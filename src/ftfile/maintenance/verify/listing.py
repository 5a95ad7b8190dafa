"""What is on storage, found by listing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ftfile.commit.files import list_or_empty, walk
from ftfile.commit.format import layout

if TYPE_CHECKING:
    from ftfile.fs.api import FileSystem
    from ftfile.maintenance.verify.findings import Finding

__all__ = ("Files", "list_files")


@dataclass
class Files:
    """What is on storage, and how it compares with what is live.

    Attributes:
        visible: lengths of the files that plain readers see, by path; -1 once a live part was found there.
        staged: of what attempts wrote.
        retired: of removed parts.
        live_sum: of the hashes of all live adds.
    """

    fs: FileSystem
    visible: dict[str, int] = field(default_factory=dict)
    staged: dict[str, int] = field(default_factory=dict)
    retired: dict[str, int] = field(default_factory=dict)
    parts: int = 0
    segments: int = 0
    rows: int = 0
    size_bytes: int = 0
    live_sum: int = 0
    findings: list[Finding] = field(default_factory=list)


def list_files(fs: FileSystem) -> Files:
    """List what is in a directory, but for the log; directories that plain readers skip are passed over."""
    files = Files(fs)
    waiting = [""]
    while waiting:
        for info in list_or_empty(fs, waiting.pop()):
            if info.path.rpartition("/")[2][0] in "_.":
                continue
            if info.is_directory:
                waiting.append(info.path)
            else:
                files.visible[info.path] = info.size_bytes
    files.staged = {path: info.size_bytes for path, info in walk(fs, layout.STAGED).items()}
    files.retired = {info.path: info.size_bytes for info in list_or_empty(fs, layout.RETIRED)}
    return files
