"""A file format, as the sink and the readers use it; and formats by name, imported when they are asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, NamedTuple

from ftfile.core.checksum import Decoding
from ftfile.core.errors import ConfigError
from ftfile.core.extensions import load_class

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    from numpy.typing import NDArray

    from ftfile.filters.api import ByteWriter
    from ftfile.filters.keys import Keys


# Options that every format is given, and the key of its name in the log.
_OF_ALL = frozenset({"timeZone", "compression", "compressionLevel", "name"})


class Encoder(ABC):
    """Writes the rows of one file. Used by one thread; not picklable."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch, limit_bytes: int | None = None) -> int:
        """Encode rows from the start of `batch` and return how many were taken: at least one, if it has any.

        Without a limit, all are taken. With one, line formats stop right after the row with which the file reaches
        `limit_bytes`, columnar formats after about that row. Where they stop before the end of `batch`, `size_bytes`
        has reached the limit, or the following rows cannot be encoded.

        Raises:
            UnencodableRows: a value among the first rows cannot be encoded, and no row was taken; names the column.
            EncodingError: the file cannot be written.
        """

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """Return the length of the file if it ended now: exact for line formats, else an estimate."""

    @property
    def buffered_bytes(self) -> int:
        """Return the memory, in bytes, of rows that are not written yet; 0 where every row is written at once."""
        return 0

    def flush(self) -> None:  # noqa: B027 - most formats have nothing to do
        """Write the buffered rows, to free their memory; files become larger."""

    @abstractmethod
    def finish(self) -> None:
        """Write the buffered rows and the footer, if the format has one. The target stays open."""


@dataclass(frozen=True, slots=True)
class Limits:
    """A part is full after the record that reaches a limit; if `strict`, before the one that would pass it."""

    max_bytes: int | None = None
    max_rows: int | None = None
    strict: bool = False

    def are_reached(self, size_bytes: float, rows: int) -> bool:
        """Return True if a part of this size, or with these rows, is full."""
        return (self.max_rows is not None and rows >= self.max_rows) or (
            self.max_bytes is not None and size_bytes >= self.max_bytes
        )


@dataclass(frozen=True, slots=True)
class Taken:
    """The share of a segment in a part."""

    rows: int
    data_start: int  # offset of the data not taken; 0 where the rest is known by rows alone


@dataclass(frozen=True, slots=True)
class RowFilter:
    """The rows of a file that a reader keeps."""

    where: pc.Expression  # true for these rows
    schema: pa.Schema  # of the columns that it names, also of those that are not in the file
    known: pc.Expression | None = None  # true for all rows of the file; None for nothing


@dataclass(frozen=True, slots=True)
class Span:
    """One of several equal shares of a file."""

    number: int
    count: int

    def chosen(self, groups: int) -> range:
        """Return which of a file's groups of rows are in the share: all shares together have each of them once."""
        return range(groups * self.number // self.count, groups * (self.number + 1) // self.count)


class Wanted(NamedTuple):
    """The rows of a file that a reader wants; all, if nothing says otherwise."""

    row_filter: RowFilter | None = None
    span: Span | None = None  # for formats with `has_groups`


class SegmentCodec(ABC):
    """Rows to the data of segments, and back."""

    @abstractmethod
    def encode(self, batch: pa.RecordBatch, counts: Sequence[int]) -> Iterator[tuple[int, bytes | memoryview]]:
        """Yield the data of segments piece by piece, each with its segment's number, in order.

        `counts` are the rows of each, at least one: the batch has those of the first segment, then of the second.

        Raises:
            EncodingError: a value cannot be encoded; names the column.
        """

    @abstractmethod
    def decode(self, data: bytes, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a whole segment, cast to `schema`; columns that it lacks are null. `path` is for messages.

        Raises:
            CorruptData: it is no segment of this codec.
        """


class Joiner(ABC):
    """One part being made of segments."""

    rows: int

    @abstractmethod
    def take(self, data: bytes, rows: int, skip_rows: int) -> Taken:
        """Take rows from the start of a segment until the part is full: all, or fewer.

        The data of the whole segment has `skip_rows` that are in another part, and then `rows`.
        """

    def try_copy_segment(self, size_bytes: int, rows: int, append: Callable[[], object]) -> bool:  # noqa: ARG002
        """Take a whole segment by `append`, which writes it to the target, without reading it.

        Return False, without a call, if the format cannot, or the part would end within the segment.
        """
        return False

    @abstractmethod
    def is_full(self) -> bool:
        """Return True if the part has reached a limit."""

    @abstractmethod
    def finish(self) -> None:
        """Write the end of the part; the target stays open."""


class Format(ABC):
    """A file format with its options settled: immutable, picklable, comparable.

    One from outside is an entry point of the group `ftfile.formats`: its name is that of the format, its value a class
    derived from this one, such as by way of `formats.line_formats.Lines`.
    """

    name: ClassVar[str]  # value of `fileFormat`, and key of the registry
    open_files_max: ClassVar[int] = 2_000  # that a task should write at a time: fewer where each takes memory
    has_groups: ClassVar[bool] = False  # `decode_some` takes a `Span`, so that several tasks read a large file

    @property
    @abstractmethod
    def extension(self) -> str:
        """Return the ending of file names for the options chosen, such as `.json` or `.zstd.parquet`."""

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Format:
        """Build from parsed option values by their names in the option table; absent names take the defaults.

        A format of another package gets its options `format.<name>` as text, `name` in lower case. By default there
        are none.

        Raises:
            ConfigError: there is no such option, or values contradict each other.
        """
        if foreign := sorted({*options} - _OF_ALL):
            raise ConfigError(f"fileFormat={cls.name} has no option format.{foreign[0]}")
        return cls()

    def definition(self, schema: pa.Schema) -> dict[str, Any]:  # noqa: ARG002 - for those with options
        """Return the options that a reader needs, as plain JSON; kept in the log for each file.

        Where files do not name their columns, it holds the names in `schema`, which is that of the files.
        """
        return {}

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> Format:
        """Build from `definition()` of this or an earlier version; by default that has options by their names."""
        return cls.from_options(definition)

    def encrypted(self, key_id: str, keys: Keys) -> Format:  # noqa: ARG002 - for those that encrypt
        """Return the format that encrypts its files by itself.

        Raises:
            ConfigError: it does not.
        """
        raise ConfigError(
            f"encryption=parquet is only for fileFormat=parquet, and fileFormat is {self.name}: use "
            "encryption=aes-gcm, which encrypts files of every format"
        )

    def with_keys(self, keys: Keys | None) -> Format:  # noqa: ARG002 - for those that encrypt
        """Return the format with keys, if it takes some: they are in no definition."""
        return self

    def for_file(self, identity: str) -> Format:  # noqa: ARG002 - for those that encrypt
        """Return the format for one file; see `Filter.encoder` for its identity."""
        return self

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
    def segments(self, schema: pa.Schema) -> SegmentCodec:
        """Return the codec of rows of exactly `schema` until a part is made of them."""

    @abstractmethod
    def joiner(self, schema: pa.Schema, target: ByteWriter, limits: Limits) -> Joiner:
        """Start a file that is made of segments; its head is written at once."""

    @abstractmethod
    def decode(self, file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a finished file (seekable, at offset 0), cast to `schema`; columns match by name.

        Raises:
            CorruptData: the file is not what this format writes.
        """

    def decode_some(
        self,
        file: BinaryIO,
        schema: pa.Schema,
        wanted: Wanted,
    ) -> tuple[int, Iterator[pa.RecordBatch]]:
        """Return the number of rows that are left out unread, and all others, as `decode`.

        Left out are those outside of the span, and those that the filter does not keep. By default none are: readers
        filter what they get.

        Raises:
            CorruptData: as `decode`, here or while rows are read.
        """
        assert wanted.span is None, f"{self.name} can only be read as a whole"
        return 0, self.decode(file, schema)


class LineFormat(Format):
    """A format whose files are a head, which may be empty, and the bytes of rows in sequence.

    Such files are compressed as a whole, by byte filters, and joined byte by byte.
    """

    @abstractmethod
    def row_ends(self, data: bytes) -> NDArray[np.integer]:
        """Return the offset after each row in the data of a segment."""


ENTRY_POINT_GROUP = "ftfile.formats"

FORMATS = {
    "parquet": "ftfile.formats.parquet_files:ParquetFormat",
    "json": "ftfile.formats.json_lines:JsonLines",
    "csv": "ftfile.formats.csv_lines:CsvLines",
    "text": "ftfile.formats.text_lines:TextLines",
    "binary": "ftfile.formats.binary_records:BinaryRecords",
    "avro": "ftfile.formats.avro_files:AvroFormat",
    "orc": "ftfile.formats.orc_files:OrcFormat",
    "arrow": "ftfile.formats.arrow_files:ArrowFormat",
}


def format_from_options(name: str, options: Mapping[str, Any]) -> Format:
    """Return a format with parsed option values; `ConfigError` if it is unknown, or values contradict each other."""
    return _format_class(name).from_options(options)


def format_from_definition(definition: Mapping[str, Any], keys: Keys | None = None) -> Format:
    """Return the format of its `name` and `definition()` in the log; `ConfigError` if it is not installed here."""
    with Decoding("_ftfile/log", "the definition of a format"):
        return _format_class(definition["name"]).from_definition(definition).with_keys(keys)


def _format_class(name: str) -> type[Format]:
    return load_class("fileFormat", name, FORMATS, ENTRY_POINT_GROUP, Format)  # type: ignore[type-abstract]
