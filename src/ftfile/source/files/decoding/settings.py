"""The options that say how foreign files are read."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ftfile.core.errors import ConfigError
from ftfile.core.options.kinds import FORMATS
from ftfile.encoding.base.lines import check_characters, ends_as_it_begins
from ftfile.encoding.base.time_formats import TimeFormats
from ftfile.encoding.binary.framing import framing_from_options
from ftfile.source.shares import TASK_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.encoding.binary.framing import Framing

# Of these, the bytes of a line depend on those before it, or a line feed is more than the byte 0x0A.
_STATEFUL = ("utf-16", "utf-32", "utf-7", "iso2022", "hz", "idna", "punycode")
_UTF_8 = "utf-8"
_ISO_TIMES = TimeFormats.from_options({})
_LATIN_TEXT = "".join(map(chr, range(0x20, 0x7F))) + "\n"


@dataclass(frozen=True, slots=True)
class FileDecoding:
    """How foreign files are read. It is plain data, which travels to tasks; the fields are options of these names."""

    file_format: str
    encoding: str = _UTF_8  # by Python's name
    line_sep: str = "\n"  # a carriage return before a line feed goes with it
    multi_line: bool = False
    header: bool = False
    sep: str = ","
    quote: str = '"'
    escape: str = "\\"
    comment: str = ""  # empty for none
    null_value: str = ""
    times: TimeFormats = _ISO_TIMES
    delimiter: bytes | None = None  # of binary records; without it and a prefix, a file is one row
    length_prefix: str | None = None
    bad_records: Literal["fail", "drop"] = "fail"
    corrupt_column: str = "_corrupt_record"
    ignore_missing: bool = False
    ignore_corrupt: bool = False
    by_content: bool = False  # a file that is gone is looked for by its content, not by its name in the store
    key_provider: str | None = None
    max_partition_bytes: int = TASK_BYTES

    def __post_init__(self) -> None:
        if self.file_format not in FORMATS:
            raise ConfigError(f"fileFormat={self.file_format!r}: foreign files are read as {', '.join(FORMATS)}")
        object.__setattr__(self, "encoding", _python_name(self.encoding))
        if not self.line_sep or ends_as_it_begins(self.line_sep):
            raise ConfigError(f"option lineSep={self.line_sep!r}: it takes text that does not end as it begins")
        if not _tells_line_ends(self.line_sep, self.encoding):
            raise ConfigError(
                f"option lineSep={self.line_sep!r}: in {self.encoding} it cannot be written, or its bytes may be part "
                "of other characters; a line feed never is"
            )
        if self.bad_records not in {"fail", "drop"}:
            raise ConfigError(f"option badRecords={self.bad_records!r}: for files that are read it takes fail or drop")
        if len(self.comment) > 1 or not self.comment.isascii() or self.comment in {self.sep, self.quote, "\r", "\n"}:
            raise ConfigError(
                f"option comment={self.comment!r}: it takes one ASCII character that no field begins with"
            )
        if self.multi_line and self.file_format not in {"json", "csv"}:
            raise ConfigError(f"multiLine is for fileFormat=json|csv, and fileFormat is {self.file_format}")
        if self.framing is not None and self.file_format != "binary":
            raise ConfigError("delimiter and lengthPrefix tell records of fileFormat=binary apart")
        check_characters(self.sep, self.quote, self.escape)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> FileDecoding:
        """Return the settings of the options that were given, parsed, by their names in the table.

        Raises:
            ConfigError: no format is given, or a value is wrong, or contradicts another.
        """
        if options.get("fileFormat") is None:
            raise ConfigError("fileFormat is missing: give the one of the files, such as fileFormat=text")
        given = {field: options[name] for field, name in _OPTIONS.items() if options.get(name) is not None}
        by_content = options.get("fileIdentity") == "content"
        return cls(**given, times=TimeFormats.from_options(options), by_content=by_content)

    @property
    def framing(self) -> Framing | None:
        """Return how binary records are told apart; None where a file is one row."""
        if self.delimiter is None and self.length_prefix is None:
            return None
        return framing_from_options(self.delimiter, self.length_prefix)

    @property
    def separator(self) -> bytes:
        """Return the bytes that end a line."""
        return self.line_sep.encode(self.encoding)


_OPTIONS = {
    "file_format": "fileFormat",
    "encoding": "encoding",
    "line_sep": "lineSep",
    "multi_line": "multiLine",
    "header": "header",
    "sep": "sep",
    "quote": "quote",
    "escape": "escape",
    "comment": "comment",
    "null_value": "nullValue",
    "delimiter": "delimiter",
    "length_prefix": "lengthPrefix",
    "bad_records": "badRecords",
    "corrupt_column": "columnNameOfCorruptRecord",
    "ignore_missing": "ignoreMissingFiles",
    "ignore_corrupt": "ignoreCorruptFiles",
    "key_provider": "keyProvider",
    "max_partition_bytes": "maxPartitionBytes",
}


def _python_name(encoding: str) -> str:
    """Return Python's name of an encoding in which the byte 0x0A is a line feed, and nothing else."""
    try:
        name = codecs.lookup(encoding).name
        fits = not name.startswith(_STATEFUL) and _LATIN_TEXT.encode(name) == _LATIN_TEXT.encode("ascii")
    except (LookupError, ValueError):
        name, fits = "", False
    if not fits:
        raise ConfigError(
            f"option encoding={encoding!r}: it takes one in which the byte 0x0A is a line feed, such as UTF-8, "
            "ISO-8859-1, windows-1252 or GBK"
        )
    return name


def _tells_line_ends(line_sep: str, encoding: str) -> bool:
    """Return True if the bytes of a line end are found in an encoding where it is, and nowhere else."""
    try:
        first = line_sep.encode(encoding)[0]
    except UnicodeEncodeError:
        return False
    # The second byte of a character of GBK, Shift_JIS and the like may be that of a digit or a later sign in ASCII.
    every_byte = bytes(range(256))
    is_single_byte = len(every_byte.decode(encoding, "replace")) == len(every_byte)
    return first < ord("0") or is_single_byte or encoding == _UTF_8
