"""A log file that grows and is rotated like the files of logrotate and of application loggers."""

from __future__ import annotations

import gzip
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable


__all__ = ("RotatingLog", "Rotation")


Rotation: TypeAlias = Literal["rename", "copytruncate"]


class RotatingLog:
    """A log file `app.log` with its rotated predecessors `app.log.1`, `app.log.2` …

    For example::

        log = RotatingLog("/tmp/logs/app.log", how="rename", compressed=True)
        log.write(["one", "two"])
        log.rotate()              # app.log.1.gz
        log.write(["three"])      # app.log

    The file is kept open, as a real logger does. No written line is ever deleted.

    Args:
        path: of the file; its directory is created.
        how: rotation renames the file and begins a new file, or copies and truncates the file.
        compressed: each rotated file is compressed by gzip, under a name ending in `.gz`.
    """

    def __init__(self, path: str | Path, *, how: Rotation = "rename", compressed: bool = False) -> None:
        self.path = Path(path)
        self._how = how
        self._compressed = compressed
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("ab")

    @property
    def size_bytes(self) -> int:
        """Return the size of the growing file."""
        return os.fstat(self._file.fileno()).st_size

    def write(self, lines: Iterable[str]) -> None:
        """Append lines, each with a line feed. They are in the file when this method returns."""
        self.write_text("".join(f"{line}\n" for line in lines))

    def write_text(self, text: str) -> None:
        """Append text unchanged, such as half a line."""
        self._file.write(text.encode())
        self._file.flush()

    def rotate(self) -> Path:
        """Rotate the file and return the path of the rotated file. The numbers of older files increase by one."""
        for number, old in sorted(self._rotated(), reverse=True):
            old.rename(self._numbered(number + 1, old.suffix if old.suffix == ".gz" else ""))
        rotated = self._numbered(1)
        if self._how == "rename":
            self.path.rename(rotated)
            self._file.close()
            self._file = self.path.open("ab")
        else:
            shutil.copy2(self.path, rotated)
            self._file.truncate(0)
        return self._compress(rotated) if self._compressed else rotated

    def files(self) -> list[Path]:
        """Return the paths of all files with written lines, the oldest first."""
        return [*(path for _, path in sorted(self._rotated(), reverse=True)), self.path]

    def lines(self) -> list[str]:
        """Return all lines that were ever written, read from the files."""
        lines = []
        for path in self.files():
            content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            lines += content.decode().split("\n")[:-1]
        return lines

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _compress(self, rotated: Path) -> Path:
        packed = rotated.with_name(f"{rotated.name}.gz")
        # On a busy machine, half of the file could stay long enough to be read as the complete file.
        hidden = rotated.with_name(f".{packed.name}")
        with rotated.open("rb") as source, gzip.open(hidden, "wb") as target:
            shutil.copyfileobj(source, target)
        shutil.copystat(rotated, hidden)
        hidden.rename(packed)
        rotated.unlink()
        return packed

    def _numbered(self, number: int, ending: str = "") -> Path:
        return self.path.with_name(f"{self.path.name}.{number}{ending}")

    def _rotated(self) -> list[tuple[int, Path]]:
        name = re.compile(rf"{re.escape(self.path.name)}\.(\d+)(\.gz)?")
        matches = ((name.fullmatch(path.name), path) for path in self.path.parent.iterdir())
        return [(int(match[1]), path) for match, path in matches if match]
