"""What a file format is to the sink and to the readers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

__all__ = ("ByteWriter", "Encoder", "Format")


class ByteWriter(Protocol):
    """Where encoded bytes go."""

    @property
    def position(self) -> int:
        """Return how many bytes were written so far."""

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append all of `data` and return its length."""


class Encoder(ABC):
    """Writes the rows of one file. Used by one thread; not picklable."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch, limit_bytes: int | None = None) -> int:
        """Encode rows from the start of `batch` and return how many were taken: at least one, if it has any.

        Without a limit, all of them. With one, line formats stop right after the row with which the file
        reaches `limit_bytes`; columnar formats stop at the row after which the file, were it ended now, would
        be about that long. Where they stop before the end of `batch`, `size_bytes` has reached the limit.

        Raises:
            EncodingError: a value cannot be encoded; names the column.
        """

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """Return how long the file would be, were it ended now: exact for line formats, else an estimate."""

    @property
    def buffered_bytes(self) -> int:
        """Return how much memory rows take that are not written yet; 0 where every row is written at once."""
        return 0

    def flush(self) -> None:  # noqa: B027 - most formats have nothing to do
        """Write what is buffered, so that it takes no memory; files become larger by it."""

    @abstractmethod
    def finish(self) -> None:
        """Write what is buffered and the footer, if the format has one. Does not close the target."""


class Format(ABC):
    """A file format with its options settled: immutable, picklable, comparable.

    Attributes:
        name: value of `fileFormat`, and key of the registry.
        extension: how file names end, with the dot, for the options chosen.
    """

    name: ClassVar[str]

    @property
    @abstractmethod
    def extension(self) -> str:
        """Return the ending of file names, such as `.json` or `.zstd.parquet`."""

    @classmethod
    @abstractmethod
    def from_options(cls, options: Mapping[str, Any]) -> Format:
        """Build from parsed option values by their names in the option table; absent names take the defaults.

        Raises:
            ConfigError: values contradict each other.
        """

    @abstractmethod
    def definition(self, schema: pa.Schema) -> dict[str, Any]:
        """Return what a reader needs to know of the options, as plain JSON; kept in the log for each file.

        Where files do not name their columns, their names in `schema`, the files' own, are part of it.
        """

    @classmethod
    @abstractmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> Format:
        """Build from `definition()` of this or an earlier version."""

    @abstractmethod
    def check_schema(self, schema: pa.Schema) -> None:
        """Refuse columns that would not come back as they went in.

        Raises:
            SchemaError: names every such column, its type, and what to do.
        """

    @abstractmethod
    def encoder(self, schema: pa.Schema, target: ByteWriter) -> Encoder:
        """Start a file; rows given to the encoder have exactly `schema`."""

    @abstractmethod
    def decode(self, file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a finished file (seekable, at offset 0), cast to `schema`; columns match by name.

        Raises:
            CorruptData: the file is not what this format writes.
        """
