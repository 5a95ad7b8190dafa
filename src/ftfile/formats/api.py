"""The interface of file formats for the sink and the readers, and the registry of formats.

A format is imported at first use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, NamedTuple

from ftfile.core.checksum import Decoding
from ftfile.core.errors import ConfigError
from ftfile.core.extensions import load_class

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    from numpy.typing import NDArray

    from ftfile.filters.api import ByteWriter
    from ftfile.filters.keys import Keys


# Options that every format gets, and the key of its name in the log.
_OF_ALL = frozenset({"timeZone", "compression", "compressionLevel", "name"})


class Encoder(ABC):
    """Writes the rows of one file; used by one thread, not picklable."""

    computes_text: ClassVar[bool] = False  # `text_extremes` has the columns of strings

    @abstractmethod
    def write(self, batch: pa.RecordBatch, limit_bytes: int | None = None) -> int:
        """Encode rows from the start of `batch` and return their number, at least one for a batch with rows.

        Without a limit, all rows are encoded. With a limit, line formats stop after the row with which the file reaches
        `limit_bytes`, columnar formats after about that row. If they stop before the end of `batch`, `size_bytes` has
        reached the limit, or the next rows cannot be encoded.

        Raises:
            UnencodableRows: a value in the first rows cannot be encoded, and no row was written; names the column.
            EncodingError: the file cannot be written.
        """

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """Return the length of the file if it ended now: exact for line formats, else an estimate."""

    @property
    def buffered_bytes(self) -> int:
        """Return the memory of buffered rows in bytes; 0 if every row is written at once."""
        return 0

    def flush(self) -> None:  # noqa: B027 - most formats have nothing to do
        """Write the buffered rows to free their memory; this makes files larger."""

    @abstractmethod
    def finish(self) -> None:
        """Write the buffered rows and the footer, if the format has one. The target stays open."""

    def text_extremes(self) -> Mapping[tuple[str, ...], tuple[bytes, bytes] | None]:
        """Return the least and the greatest value of columns of strings, by path; None if unknown, or if all are null.

        Only called after `finish`, if `computes_text`.
        """
        return {}


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a part: it ends after the row that reaches one or, if `strict`, before the row beyond it."""

    max_bytes: int | None = None
    max_rows: int | None = None
    strict: bool = False

    def are_reached(self, size_bytes: float, rows: int) -> bool:
        """Return True if a part with this size or these rows is complete."""
        return (self.max_rows is not None and rows >= self.max_rows) or (
            self.max_bytes is not None and size_bytes >= self.max_bytes
        )


@dataclass(frozen=True, slots=True)
class Taken:
    """The rows of a segment that a part contains."""

    rows: int
    data_start: int  # offset of the remaining data; 0 if only the number of rows is needed


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A condition on the rows that a reader wants."""

    where: pc.Expression  # true for these rows
    schema: pa.Schema  # columns of the condition, also of columns that are not in the file
    known: pc.Expression | None = None  # true for all rows of the file; None if not needed


@dataclass(frozen=True, slots=True)
class Span:
    """One of several equal shares of a file."""

    number: int
    count: int

    def chosen(self, groups: int) -> range:
        """Return the row groups of the share; each group is in exactly one share."""
        return range(groups * self.number // self.count, groups * (self.number + 1) // self.count)


class Wanted(NamedTuple):
    """The rows of a file that a reader wants; all rows by default."""

    row_filter: RowFilter | None = None
    span: Span | None = None  # for formats with `has_groups`


class SegmentCodec(ABC):
    """Converts rows to the data of segments and back."""

    @abstractmethod
    def encode(self, batch: pa.RecordBatch, counts: Sequence[int]) -> Iterator[tuple[int, bytes | memoryview]]:
        """Yield the data of segments in pieces, each with the number of its segment, in order.

        Args:
            batch: the rows of all segments, in order.
            counts: the number of rows of each segment, at least one.

        Raises:
            EncodingError: a value cannot be encoded; names the column.
        """

    @abstractmethod
    def decode(self, data: bytes, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a complete segment, cast to `schema`; missing columns are null. `path` is for messages.

        Raises:
            CorruptData: it is not a segment of this codec.
        """


class Joiner(ABC):
    """A part that is being assembled from segments."""

    rows: int

    def collect(self, columns: Collection[str]) -> None:  # noqa: B027 - most joiners do not decode rows
        """Collect statistics of the columns with these keys, before the first row; by default none."""

    def statistics(self) -> dict[str, tuple[Any, ...]]:
        """Return the statistics of all rows, as the log contains them. Only called after `finish`."""
        return {}

    @abstractmethod
    def take(self, data: bytes, rows: int, skip_rows: int) -> Taken:
        """Add rows from the start of a segment until the part is complete.

        The data contains the whole segment: `skip_rows` that another part has, then `rows`.
        """

    def try_copy_segment(self, size_bytes: int, rows: int, append: Callable[[], object]) -> bool:  # noqa: ARG002
        """Add a whole segment by `append`, which copies it to the target without decoding it.

        Return False, without a call, if the format cannot do this, or the part would end within the segment.
        """
        return False

    @abstractmethod
    def is_full(self) -> bool:
        """Return True if the part has reached a limit."""

    @abstractmethod
    def finish(self) -> None:
        """Write the end of the part; the target stays open."""


class Format(ABC):
    """A file format with its options: immutable, picklable, comparable.

    A format of another package is an entry point of the group `ftfile.formats`: its name is the name of the format, its
    value a class derived from this one, for example by `formats.line_formats.Lines`.
    """

    name: ClassVar[str]  # value of `fileFormat`, and key of the registry
    # number of files that a task should write at the same time; fewer if each takes memory
    open_files_max: ClassVar[int] = 2_000
    has_groups: ClassVar[bool] = False  # `decode_some` accepts a `Span`, so several tasks can read a large file
    # The names in `definition` that plain readers do not need: files that differ in them are read the same way.
    settings_of_writers: ClassVar[frozenset[str]] = frozenset()

    @property
    @abstractmethod
    def extension(self) -> str:
        """Return the ending of file names for the chosen options, such as `.json` or `.zstd.parquet`."""

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Format:
        """Build from parsed option values by their names in the option table; missing ones have the defaults.

        A format of another package gets its options `format.<name>` as text, with `name` in lower case. By default
        there are none.

        Raises:
            ConfigError: an option does not exist, or values contradict each other.
        """
        if foreign := sorted({*options} - _OF_ALL):
            raise ConfigError(f"fileFormat={cls.name} has no option format.{foreign[0]}")
        return cls()

    def definition(self, schema: pa.Schema) -> dict[str, Any]:  # noqa: ARG002 - for those with options
        """Return the options that a reader needs, as plain JSON; the log stores it for each file.

        If files do not contain the names of their columns, it contains the names of `schema`.
        """
        return {}

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> Format:
        """Build from `definition()` of this or an earlier version; by default it contains options by name."""
        return cls.from_options(definition)

    def encrypt(self, key_id: str, keys: Keys) -> Format:  # noqa: ARG002 - for those that encrypt
        """Return the format that encrypts its files itself.

        Raises:
            ConfigError: it does not support encryption.
        """
        raise ConfigError(
            f"encryption=parquet is only for fileFormat=parquet, and fileFormat is {self.name}: use "
            "encryption=aes-gcm, which encrypts files of every format"
        )

    def with_keys(self, keys: Keys | None) -> Format:  # noqa: ARG002 - for those that encrypt
        """Return the format with keys, if it needs any; definitions contain no keys."""
        return self

    def for_file(self, identity: str) -> Format:  # noqa: ARG002 - for those that encrypt
        """Return the format for one file; for its identity see `Filter.encoder`."""
        return self

    @abstractmethod
    def check_schema(self, schema: pa.Schema) -> None:
        """Refuse columns that would not be read back unchanged.

        Raises:
            SchemaError: names every such column, its type, and the remedy.
        """

    def keeps(self, field: pa.Field) -> bool:  # noqa: ARG002 - for those that change values
        """Return True if all values of a column are read back as they were written; others have no statistics.

        `field` is a column, or a field of structs, without fields. By default True, which `check_schema` ensures.
        """
        return True

    @abstractmethod
    def encoder(self, schema: pa.Schema, target: ByteWriter) -> Encoder:
        """Start a file; rows for the encoder have exactly `schema`."""

    @abstractmethod
    def segments(self, schema: pa.Schema) -> SegmentCodec:
        """Return the codec for segments with rows of exactly `schema`."""

    @abstractmethod
    def joiner(self, schema: pa.Schema, target: ByteWriter, limits: Limits) -> Joiner:
        """Start a file that is assembled from segments; its header is written at once."""

    @abstractmethod
    def decode(self, file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a finished file (seekable, at offset 0), cast to `schema`; columns match by name.

        Raises:
            CorruptData: the file is not valid output of this format.
        """

    def decode_some(
        self,
        file: BinaryIO,
        schema: pa.Schema,
        wanted: Wanted,
    ) -> tuple[int, Iterator[pa.RecordBatch]]:
        """Return the number of rows that are skipped unread, and all other rows, like `decode`.

        Rows outside of the span are skipped, and rows that the filter excludes. The default skips none: readers filter
        the rows.

        Raises:
            CorruptData: like `decode`, here or while rows are read.
        """
        assert wanted.span is None, f"{self.name} can only be read as a whole"
        return 0, self.decode(file, schema)


class LineFormat(Format):
    """A format whose files are a header, which can be empty, and the bytes of rows in sequence.

    Byte filters compress such files as a whole, and files are joined byte by byte.
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
    """Return the format for its `name` and `definition()` in the log; `ConfigError` if it is not installed."""
    with Decoding("_ftfile/log", "the definition of a format"):
        return _format_class(definition["name"]).from_definition(definition).with_keys(keys)


def _format_class(name: str) -> type[Format]:
    return load_class("fileFormat", name, built_in=FORMATS, group=ENTRY_POINT_GROUP, base=Format)  # type: ignore[type-abstract]
