"""The kinds of option values: how each is parsed and described."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeVar
from urllib.parse import quote, unquote

from ftfile.core.units import parse_duration_s, parse_size_bytes, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


# The built-in formats.
FORMATS = ("parquet", "json", "csv", "text", "binary", "avro", "orc", "arrow")

WRITE = frozenset({"write"})
FILES = frozenset({"files"})
STORE_WRITE = frozenset({"ftkv-write"})
OF_FILES = frozenset({"write", "read", "follow", "files"})
STORES = frozenset({"ftkv-write", "ftkv-read", "ftkv-follow"})
EVERYWHERE = OF_FILES | STORES

_Value = TypeVar("_Value")
# Each record contains the text.
NOTE_BYTES_MAX = 64 << 10
# The largest integer of Arrow, Spark and table logs.
WHOLE_MAX = 2**63 - 1
_DIGITS = re.compile("[+-]?[0-9]+")
_NAME = re.compile(r"[A-Za-z][\w.-]*", re.ASCII)
_PERMISSION = re.compile(r"0?\d{3}", re.ASCII)
# A column name, with or without backticks, and the comma after it or the end of the text.
_COLUMN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s,`][^,]*?))\s*(,|\Z)")
# A name in a path of a column, with or without backticks, and the dot or comma after it or the end of the text.
_PATH_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s,.`][^,.]*?))\s*([,.]|\Z)")
_FILE_RANGE = re.compile("(.+):([0-9]+)-([0-9]+)")
_ANY_NAME = "surrogatepass"  # file names on a disk can be invalid UTF-8
_ESCAPED = re.compile(r"\\(x[0-9A-Fa-f]{2}|.?)|([^\\]+)", re.DOTALL)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


@dataclass(frozen=True, slots=True)
class Kind(Generic[_Value]):
    """A kind of value."""

    accepts: str  # completes the sentence "it takes …"
    parse: Callable[[str], _Value]  # raises ValueError
    argument: str = "str"  # the type of a value that is a keyword argument of Python


class FileRange(NamedTuple):
    """The bytes `[start, end)` of a file, as an option names them: `app.log:1024-2048`, the path percent-encoded."""

    path: str
    start: int
    end: int

    def to_text(self) -> str:
        """Return the text form, which `from_text` reads."""
        return f"{quote(self.path, errors=_ANY_NAME)}:{self.start}-{self.end}"

    @classmethod
    def from_text(cls, text: str) -> FileRange:
        """Return the range of a text; a `ValueError` for another text."""
        match = _FILE_RANGE.fullmatch(text.strip())
        if match is None or int(match[2]) > int(match[3]):
            raise ValueError(text)
        return cls(unquote(match[1], errors=_ANY_NAME), int(match[2]), int(match[3]))


def _value_named(values: dict[str, _Value], text: str) -> _Value:
    try:
        return values[text.strip().lower()]
    except KeyError:
        raise ValueError(text) from None


def _parse_checked(parse: Callable[[str], _Value], is_right: Callable[[_Value], bool], text: str) -> _Value:
    value = parse(text)
    if not is_right(value):
        raise ValueError(text)
    return value


def one_of(*names: str, **also: str) -> Kind[str]:
    """Return the kind of an option with named values, in any case; `also` maps other accepted names to values."""
    values = {name.lower(): name for name in names} | also
    return Kind("one of " + ", ".join(f"`{name}`" for name in names), partial(_value_named, values))


def _parse_whole(text: str) -> int:
    number = int(text)
    if not _DIGITS.fullmatch(text.strip()) or abs(number) > WHOLE_MAX:
        raise ValueError(text)
    return number


def _parse_format(text: str) -> str:
    name = text.strip()
    if not _NAME.fullmatch(name):
        raise ValueError(text)
    if name.lower() in FORMATS:
        return name.lower()
    return name


def _parse_names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or _has_twice(names):
        raise ValueError(text)
    return names


def _has_twice(names: Sequence[str]) -> bool:
    return len({name.lower() for name in names}) != len(names)


def _parse_columns(text: str) -> tuple[str, ...]:
    names: list[str] = []
    position, comma = 0, ","
    while comma:
        match = _COLUMN.match(text, position)
        if match is None:
            raise ValueError(text)
        quoted, plain, comma = match.groups()
        names.append(plain if quoted is None else quoted.replace("``", "`"))
        position = match.end()
    if _has_twice(names):
        raise ValueError(text)
    return tuple(names)


def _parse_statistics_columns(text: str) -> Literal["auto", "none"] | tuple[tuple[str, ...], ...]:
    """Parse paths of columns, such as `id,address.city`; each name can be in backticks."""
    word = text.strip().lower()
    if word == "auto":
        return "auto"
    if word == "none":
        return "none"
    paths: list[tuple[str, ...]] = []
    names: list[str] = []
    position, sign = 0, ","
    while sign:
        match = _PATH_NAME.match(text, position)
        if match is None:
            raise ValueError(text)
        quoted, plain, sign = match.groups()
        names.append(plain if quoted is None else quoted.replace("``", "`"))
        position = match.end()
        if sign != ".":
            paths.append(tuple(names))
            names = []
    if _has_twice([str(path) for path in paths]):
        raise ValueError(text)
    return tuple(paths)


def columns_text(names: Iterable[str]) -> str:
    """Return the text that an option of column names reads as these names."""
    return ",".join(map(_column_text, names))


def _column_text(name: str) -> str:
    if "," in name or name.startswith("`") or name != name.strip():
        return "`" + name.replace("`", "``") + "`"
    return name


def _parse_tables(text: str) -> tuple[str, ...]:
    names = _parse_names(text.lower())
    if not {*names} <= {"delta", "iceberg"}:
        raise ValueError(text)
    return names


def _parse_bytes(text: str) -> bytes:
    def meant(match: re.Match[str]) -> bytes:
        escape, plain = match.groups()
        if plain is not None:
            return str(plain).encode()
        if len(escape) > 1:
            return bytes.fromhex(escape[1:])
        if escape not in _ESCAPES:
            raise ValueError(text)
        return _ESCAPES[escape]

    return b"".join(map(meant, _ESCAPED.finditer(text)))


def _parse_column_and_duration(text: str) -> tuple[str, float]:
    column, _, duration = text.rpartition(":")
    seconds = parse_duration_s(duration)
    if not column or not seconds:
        raise ValueError(text)
    return column.strip(), seconds


def _parse_latest_or_version(text: str) -> int | Literal["latest"]:
    if text.strip().lower() == "latest":
        return "latest"
    return VERSION.parse(text)


def _parse_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(text) from error
    return text


def _parse_character(text: str) -> str:
    # Spark's options accept these forms, since a shell or a file can keep the backslash.
    character = {r"\t": "\t", r"\b": "\b", r"\f": "\f", r"\"": '"', r"\'": "'", r"\\": "\\"}.get(text, text)
    if len(character) != 1:
        raise ValueError(text)
    return character


def _parse_file_ranges(text: str) -> tuple[FileRange, ...]:
    return tuple(map(FileRange.from_text, text.split(",")))


def _parse_permission(text: str) -> int:
    if not _PERMISSION.fullmatch(text.strip()):
        raise ValueError(text)
    return int(text, 8)


FORMAT = Kind(
    "one of " + ", ".join(f"`{name}`" for name in FORMATS) + ", or the name of an installed format", _parse_format
)
TEXT = Kind("text", str)
LOCATION = Kind("text", str, "str | os.PathLike[str]")
NOTE = Kind(
    "text of at most 64 KiB",
    partial(_parse_checked, str, lambda text: len(text.encode(errors="replace")) <= NOTE_BYTES_MAX),
)
BOOLEAN = Kind("`true` or `false`", partial(_value_named, {"true": True, "false": False}), "bool | str")
PATTERN = Kind("a regular expression of Python", _parse_pattern)
COUNT = Kind(
    "a whole number of 1 or more", partial(_parse_checked, _parse_whole, lambda number: number >= 1), "int | str"
)
VERSION = Kind(
    "a whole number of 0 or more, less than 2^63",
    partial(_parse_checked, _parse_whole, lambda number: number >= 0),
    "int | str",
)
LATEST_OR_VERSION = Kind("`latest`, or a whole number of 0 or more", _parse_latest_or_version, "int | str")
INTEGER = Kind("a whole number", _parse_whole, "int | str")
SIZE = Kind(
    "a size of at least one byte, such as `128MiB`, `64m` or `1000000`",
    partial(_parse_checked, parse_size_bytes, lambda size: size > 0),
    "int | str",
)
DURATION = Kind("a duration with its unit, such as `90s`, `5min` or `1h`", parse_duration_s, "str | timedelta")
CLOCK = Kind(
    "a duration that divides a day, such as `15min`, `1h` or `1d`",
    partial(_parse_checked, parse_duration_s, lambda seconds: seconds >= 1 and 86_400 % seconds == 0),
)
COLUMN_AND_DURATION = Kind("a timestamp column and a duration, such as `ts:1h`", _parse_column_and_duration)
TIME = Kind(
    "a point in time as in ISO 8601, such as `2024-07-01T12:00:00Z` or `2024-07-01`; without a zone it is UTC",
    parse_time,
)
PERMISSION = Kind("three octal digits, such as `640`", _parse_permission)
COLUMNS = Kind(
    "column names separated by commas, names with a comma in backticks, none twice",
    _parse_columns,
    "str | Sequence[str]",
)
STATISTICS_COLUMNS = Kind(
    "`auto`, `none`, or columns separated by commas, each once, such as `id,address.city`, names with a dot or comma "
    "in backticks",
    _parse_statistics_columns,
    "str | Sequence[str]",
)
NAMES = Kind("names separated by commas, none twice", _parse_names, "str | Sequence[str]")
TABLES = Kind("`delta` or `iceberg`, or both separated by a comma", _parse_tables, "str | Sequence[str]")
FILE_RANGES = Kind(
    "ranges of bytes as `FileChanged` names them, such as `app.log:1024-2048`, separated by commas",
    _parse_file_ranges,
)
CHARACTER = Kind(r"a single character, or `\t`", _parse_character)
BYTES = Kind(r"text, with any byte as in `\x00` or `\xff`, and `\n`, `\r`, `\t`, `\0`, `\\`", _parse_bytes)


def by_lower_case(names: Iterable[str]) -> dict[str, str]:
    """Return names by their lower-case form."""
    return {name.lower(): name for name in names}


def in_lower_case(names: Iterable[str]) -> list[str]:
    """Return the lower-case forms of names."""
    return [name.lower() for name in names]
