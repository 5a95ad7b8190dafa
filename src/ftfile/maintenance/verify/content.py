"""The content of files compared with the log: checksums, and rows that can be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ftfile.arrays.spark_types import arrow_schema
from ftfile.attempt.pieces.workers import Work
from ftfile.commit.format.model import Add
from ftfile.commit.places import has_content, open_add
from ftfile.core.errors import ConfigError, CorruptData, FtfileError, NotFound
from ftfile.kv.planning.runs import is_run
from ftfile.kv.reading.verify import check_bytes
from ftfile.kv.run_files import OpenFiles
from ftfile.parts.reader import read_add

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ftfile.attempt.identity import TaskIdentity
    from ftfile.fs.api import FileSystem


class Fault(NamedTuple):
    """The content of an add that is not what was recorded."""

    path: str  # where it lies
    found: str  # there


@dataclass(frozen=True, slots=True)
class Comparing(Work[Add, Fault | None]):
    """Reads adds, and finds those that are not what was recorded."""

    definitions: Mapping[str, Any]  # of the encodings of the adds, by key
    schema: str | None  # the newest one

    def size_of(self, piece: Add) -> int:
        """Return the length of an add."""
        return piece.length

    def do(self, fs: FileSystem, _: TaskIdentity, pieces: Sequence[Add]) -> Iterator[Fault | None]:
        """Yield what is wrong with each add.

        Raises:
            ConfigError: a key of an encrypted directory is not known.
        """
        for add in pieces:
            yield self._fault(fs, add)

    def _fault(self, fs: FileSystem, add: Add) -> Fault | None:
        encoding = self.definitions.get(add.encoding)
        try:
            path = open_add(add, fs.stat).path
            if add.kind == "part" and not has_content(fs, path, add):
                return Fault(path, "other bytes") if fs.exists(path) else None
            if is_run(add):
                check_bytes(add, OpenFiles(fs))
            elif self.schema is not None and isinstance(encoding, dict):
                for _ in read_add(fs, add, encoding, arrow_schema(self.schema)):
                    pass
        except ConfigError:
            raise
        except CorruptData as error:
            return Fault(error.path, error.found)
        except NotFound:
            return None  # it moves at this moment
        except FtfileError as error:
            return Fault(add.path, str(error))
        return None
