"""The options for finding, planning and reading files of other programs."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from ftfile.core.codecs import filters_of_name
from ftfile.core.errors import ConfigError
from ftfile.core.options.kinds import FORMATS
from ftfile.core.options.parsing import values_of_fields
from ftfile.core.tasks import TASK_BYTES
from ftfile.formats.binary_records import framing_from_options
from ftfile.formats.line_formats import check_characters, overlaps_itself
from ftfile.formats.partition_paths import columns_of_directory
from ftfile.formats.parts import recorded_names
from ftfile.formats.reading.schema_checks import list_columns_within
from ftfile.formats.reading.time_formats import TimeFormats
from ftfile.rows.spark_types import is_variant
from ftfile.source.globs import alternatives, glob_pattern, has_wildcard
from ftfile.storage.paths import parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ftfile.core.options.kinds import FileRange
    from ftfile.core.options.typed import FilesOptions
    from ftfile.formats.binary_records import Framing


# In these encodings, the bytes of a line depend on earlier lines, or a line feed is not the single byte 0x0A.
_STATEFUL = ("utf-16", "utf-32", "utf-7", "iso2022", "hz", "idna", "punycode")
_UTF_8 = "utf-8"
_UTF_16 = ("utf-16", "utf-16-le", "utf-16-be")
_ISO_TIMES = TimeFormats.from_options({})
# Formats whose bad records can be kept as text in a column of the schema.
_WITH_BAD_RECORDS = frozenset({"csv", "json", "parquet", "orc", "arrow", "avro"})
_LATIN_TEXT = "".join(map(chr, range(0x20, 0x7F))) + "\n"

# The columns of a file that is one row, as in Spark's `binaryFile`.
_WHOLE_FILE = pa.schema(
    [
        ("path", pa.string()),
        ("modificationTime", pa.timestamp("us", tz="UTC")),
        ("length", pa.int64()),
        ("content", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class FileDecoding:
    """How files of other programs are decoded. Plain data, sent to tasks. Options have the names of the fields."""

    file_format: str
    encoding: str = _UTF_8  # Python's name
    line_sep: str = "\n"  # a carriage return before a line feed is part of the separator
    multi_line: bool = False
    header: bool = False
    sep: str = ","
    quote: str = '"'
    escape: str = "\\"
    comment: str = ""  # empty without comments
    null_value: str = ""
    times: TimeFormats = _ISO_TIMES
    delimiter: bytes | None = None  # of binary records; without a delimiter and a length prefix, a file is one row
    length_prefix: str | None = None
    bad_records: Literal["fail", "drop"] = "fail"
    column_name_of_corrupt_record: str = "_corrupt_record"
    ignore_missing_files: bool = False
    ignore_corrupt_files: bool = False
    skip_ranges: tuple[FileRange, ...] = ()  # planned ranges that return no rows, with paths as in plans
    file_identity: Literal["native", "content"] = "native"  # how a missing file is found again
    key_provider: str | None = None
    allow_clear_files: bool = False  # also read unencrypted files if a key provider is set
    max_partition_bytes: int = TASK_BYTES

    def __post_init__(self) -> None:
        if self.file_format not in FORMATS:
            raise ConfigError(f"fileFormat={self.file_format!r}: files are read as {', '.join(FORMATS)}")
        object.__setattr__(self, "encoding", _python_name(self.encoding))
        if not self.line_sep or overlaps_itself(self.line_sep):
            raise ConfigError(f"option lineSep={self.line_sep!r}: its end must differ from its beginning")
        # Text in UTF-16 is split into lines after its conversion to UTF-8.
        if not _tells_line_ends(self.line_sep, _UTF_8 if self.is_utf_16 else self.encoding):
            raise ConfigError(
                f"option lineSep={self.line_sep!r}: it cannot be encoded in {self.encoding}, or its bytes can be part "
                "of other characters; use a line feed"
            )
        if self.bad_records not in {"fail", "drop"}:
            raise ConfigError(f"option badRecords={self.bad_records!r}: to read files, it must be fail or drop")
        if len(self.comment) > 1 or not self.comment.isascii() or self.comment in {self.sep, self.quote, "\r", "\n"}:
            raise ConfigError(
                f"option comment={self.comment!r}: it must be one ASCII character that no field begins with"
            )
        if self.multi_line and self.file_format not in {"json", "csv"}:
            raise ConfigError(f"multiLine is only for fileFormat=json|csv, and fileFormat is {self.file_format}")
        if self.framing is not None and self.file_format != "binary":
            raise ConfigError("delimiter and lengthPrefix are only for fileFormat=binary")
        check_characters(self.sep, self.quote, self.escape)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> FileDecoding:
        """Return the settings of the given and parsed options, which are named as in the table of options.

        Raises:
            ConfigError: the format is missing, or a value is wrong or contradicts another value.
        """
        if options.get("fileFormat") is None:
            raise ConfigError("fileFormat is missing: give the format of the files, such as fileFormat=text")
        return cls(**values_of_fields(cls, options), times=TimeFormats.from_options(options))

    @property
    def encrypted_only(self) -> bool:
        """Return True if unencrypted files are refused: with a key provider, only authenticated files are trusted."""
        return self.key_provider is not None and not self.allow_clear_files

    @property
    def is_utf_16(self) -> bool:
        """Return True for text in UTF-16, whose files are read as a whole."""
        return self.encoding in _UTF_16

    @property
    def framing(self) -> Framing | None:
        """Return the framing of binary records; None if a file is one row."""
        if self.delimiter is None and self.length_prefix is None:
            return None
        return framing_from_options(self.delimiter, self.length_prefix)

    @property
    def separator(self) -> bytes:
        """Return the bytes that end a line."""
        return self.line_sep.encode(self.encoding)


def _python_name(encoding: str) -> str:
    """Return Python's name of UTF-16, or of an encoding in which the byte 0x0A only is a line feed."""
    try:
        name = codecs.lookup(encoding).name
        fits = not name.startswith(_STATEFUL) and _LATIN_TEXT.encode(name) == _LATIN_TEXT.encode("ascii")
    except (LookupError, ValueError):
        name, fits = "", False
    if not fits and name not in _UTF_16:
        raise ConfigError(
            f"option encoding={encoding!r}: it must be UTF-16, UTF-16LE, UTF-16BE, or an encoding in which the byte "
            "0x0A is a line feed, such as UTF-8, ISO-8859-1, windows-1252 or GBK"
        )
    return name


def _tells_line_ends(line_sep: str, encoding: str) -> bool:
    """Return True if the bytes of a line end occur in encoded text only at line ends."""
    try:
        first = line_sep.encode(encoding)[0]
    except UnicodeEncodeError:
        return False
    # In GBK, Shift_JIS and similar encodings, the second byte of a character may be an ASCII digit or a later
    # character.
    every_byte = bytes(range(256))
    is_single_byte = len(every_byte.decode(encoding, "replace")) == len(every_byte)
    return first < ord("0") or is_single_byte or encoding == _UTF_8


def default_schema(decoding: FileDecoding) -> pa.Schema | None:
    """Return the columns of formats with fixed columns; None for formats that need a schema."""
    if decoding.file_format == "text":
        return pa.schema([("value", pa.string())])
    if decoding.file_format == "binary":
        if decoding.framing is None:
            return _WHOLE_FILE
        return pa.schema([("value", pa.binary())])
    return None


def own_columns(schema: pa.Schema, decoding: FileDecoding) -> pa.Schema:
    """Return the columns that files contain: all columns except the column for bad records."""
    return pa.schema([field for field in schema if field.name != decoding.column_name_of_corrupt_record])


def columns_in_path(path: str, requested: pa.Schema) -> dict[str, str]:
    """Return the columns that the directories of a path name, ignoring case, and their spelling in the path."""
    named = columns_of_directory(path.rpartition("/")[0])
    spellings = {}
    for name, spelling in zip(requested.names, recorded_names(named, requested.names), strict=True):
        if spelling in named:
            spellings[name] = spelling
    return spellings


def require_columns_beside(paths: Iterable[str], schema: pa.Schema, decoding: FileDecoding) -> None:
    """Raise `ConfigError` for columns that neither the files nor their directories can have."""
    if default_schema(decoding) is None:
        return
    path_by_directory = {path.rpartition("/")[0]: path for path in paths}
    for path in path_by_directory.values():
        in_path = columns_in_path(path, schema)
        require_columns(pa.schema([field for field in schema if field.name not in in_path]), decoding, path=path)


def require_columns(
    schema: pa.Schema, decoding: FileDecoding, *, may_be_in_paths: bool = False, path: str | None = None
) -> None:
    """Raise `ConfigError` for columns that files of the format cannot have.

    If `may_be_in_paths`, directories may name some of the columns. `path` is a file whose directories name none of
    them.
    """
    problems = list(_problems(schema, decoding, may_be_in_paths=may_be_in_paths))
    if problems:
        if path is None:
            which = ""
        else:
            which = f" of {path!r}, without the columns that its directories name"
        raise ConfigError(
            f"fileFormat={decoding.file_format} cannot be read with this schema{which}:\n  " + "\n  ".join(problems)
        )


def _unread_types(schema: pa.Schema) -> Iterator[str]:
    for path, kind in list_columns_within(schema):
        if pa.types.is_time(kind) or is_variant(kind):
            name = "VARIANT" if is_variant(kind) else "TIME"
            yield f"column `{path}`: {name}, which is only read from ftfile directories; omit the column"


def _problems(schema: pa.Schema, decoding: FileDecoding, *, may_be_in_paths: bool) -> Iterator[str]:
    file_format = decoding.file_format
    corrupt = decoding.column_name_of_corrupt_record
    if file_format in _WITH_BAD_RECORDS and corrupt in schema.names:
        kind = schema.field(corrupt).type
        if not pa.types.is_string(kind):
            yield f"column `{corrupt}`: {kind}; it contains the text of bad records: make it a string"
    yield from _unread_types(schema)
    if file_format == "csv":
        for field in schema:
            if pa.types.is_nested(field.type):
                yield f"column `{field.name}`: {field.type}; read it as a string, and parse it with from_json"
    if file_format == "json":
        for path, kind in list_columns_within(schema):
            if pa.types.is_map(kind) and not pa.types.is_string(kind.key_type):
                yield f"column `{path}`: {kind}; keys in JSON are strings"
    if default_schema(decoding) is not None and not may_be_in_paths:
        yield from _check_fixed(schema, decoding)


def _check_fixed(schema: pa.Schema, decoding: FileDecoding) -> Iterator[str]:
    if decoding.file_format == "binary" and decoding.framing is None:
        fields = {field.name.lower(): field for field in _WHOLE_FILE}
        for field in schema:
            expected = fields.get(field.name.lower())
            if expected is None:
                yield f"column `{field.name}`: if a file is one row, its columns are {', '.join(_WHOLE_FILE.names)}"
            elif expected.type != field.type:
                yield f"column `{field.name}`: {field.type}; it must be {expected.type}"
        return
    if len(schema) > 1:
        names = ", ".join(schema.names)
        yield f"columns {names}: give one column in .schema(…), and the columns that directories name as in `day=7`"
    for field in schema:
        if decoding.is_utf_16 and pa.types.is_binary(field.type):
            yield f"column `{field.name}`: {field.type}; text in UTF-16 is decoded: make it a string"
        if not pa.types.is_string(field.type) and not pa.types.is_binary(field.type):
            yield f"column `{field.name}`: {field.type}; make it a string, or binary for the unchanged bytes"


_GROWING = ("text", "json", "csv")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """The location and selection of files, and the limits of plans. Plain data. The fields are named as the options."""

    root: str  # URL of the directory to which all paths of plans are relative
    pattern: str  # Hadoop glob relative to the root, of the files and directories that are read
    decoding: FileDecoding  # of all files
    tail: bool  # True if files grow
    follow_links: bool = False  # follow links to files; a link to a directory is followed only if the path names it
    recursive_file_lookup: bool = False
    path_glob_filter: str | None = None
    file_pattern: str | None = None
    ignore_file_pattern: str | None = None
    starting_offsets: Literal["earliest", "latest"] = "earliest"
    max_files_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    scan_interval: float = 1.0  # seconds
    max_file_age: float = 7 * 86_400.0  # seconds
    close_inactive: float = 300.0  # seconds
    min_file_age: float = 10.0  # seconds
    file_identity: Literal["native", "content"] = "native"
    allow_overwrites: bool = False
    fail_on_data_loss: bool = False
    max_retries: int = 5

    @property
    def shown(self) -> str:
        """Return the URL of the source, with its pattern."""
        return f"{self.root.rstrip('/')}/{self.pattern}"

    @property
    def separator(self) -> bytes:
        """Return the bytes that end a record of a growing file."""
        return self.decoding.separator

    @property
    def has_limits(self) -> bool:
        """Return True if a plan may leave content for the next plan."""
        return self.max_files_per_trigger is not None or self.max_bytes_per_trigger is not None

    def reads_lines(self, path: str) -> bool:
        """Return True for a file whose appended lines are read. Other files are read as a whole when complete."""
        return self.tail and not filters_of_name(path)

    @classmethod
    def from_options(cls, parsed: FilesOptions) -> SourceSettings:
        """Return the settings of the options.

        Raises:
            ConfigError: options contradict each other.
        """
        root, pattern = split_path(parsed.path)
        file_format = parsed.file_format
        grows = file_format in _GROWING and not parsed.multi_line
        if parsed.tail is None:
            tail = grows
        else:
            tail = parsed.tail
        if tail and not grows:
            raise ConfigError(
                f"tail=true is only for {', '.join(_GROWING)} without multiLine: other files are read as a whole"
            )
        parsed.for_format(file_format)
        if parsed.path_glob_filter is not None:
            glob_pattern(parsed.path_glob_filter)
        decoding = FileDecoding.from_options(parsed.given)
        if tail and decoding.is_utf_16:
            raise ConfigError(
                f"encoding={parsed.encoding!r}: growing files are cut into lines at the byte 0x0A, which in UTF-16 "
                "may be part of another character. Set tail=false, which reads a file once, when it is complete; for "
                "json and csv, multiLine=true also does this"
            )
        computed = {"root": root, "pattern": pattern, "decoding": decoding, "tail": tail}
        return cls(**values_of_fields(cls, parsed.given) | computed)


def split_path(path: str | None) -> tuple[str, str]:
    """Return the URL of the deepest directory that a path names without a pattern, and the rest of the path.

    The last name is always part of the rest, because it may be the name of a file.

    Raises:
        ConfigError: the path is missing, or its pattern is invalid.
    """
    if path is None:
        raise ConfigError("the option `path` is missing, as in spark.readStream.format('ftfile').load('/data/in')")
    url = parse(path)
    if url.path != "/":
        names = url.path.strip("/").split("/")
    else:
        names = []
    literal = max(len(names) - 1, 0)
    for place, name in enumerate(names):
        if has_wildcard(name):
            literal = place
            break
    for pattern in alternatives("/".join(names[literal:])):
        for name in pattern.split("/"):
            glob_pattern(name)
    root = "/" + "/".join(names[:literal])
    return f"{url.scheme}://{url.authority}{root}", "/".join(names[literal:])
