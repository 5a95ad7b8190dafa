"""Texts as the values that Spark reads, without a loss of digits or zones."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.rows import kernels as pc
from ftfile.source.decoding.records import read_texts
from ftfile.tools.load.schema_texts import schema_option

if TYPE_CHECKING:
    from ftfile.formats.reading.time_formats import TimeFormats

_CLOCK = pa.timestamp("us")
_HAS_NANOSECONDS = (r":\d\d\.\d{6}\d*[1-9]", "has nanoseconds: round it to microseconds", "string")
_ZEROS = (r"(\.\d{6})0+$", r"\1")  # digits after the microseconds
_HAS_ZONE = r"\d:.*(?:[zZ]|[+-]\d\d(?::?\d\d)?)$"


class RefusedText(ValueError):
    """A text that Spark reads, and that would lose a part of its value.

    Attributes:
        other: the type that represents the whole value, as in `--schema`.
    """

    def __init__(self, text: str, reason: str, other: str) -> None:
        super().__init__(f"{text!r} {reason}")
        self.other = other

    def with_remedy(self, column: str) -> str:
        """Return the problem with a type that the column could have."""
        return f"{self}, or use {schema_option(column, self.other)} for a new directory"


def read_exactly(texts: pa.StringArray, target: pa.DataType, times: TimeFormats) -> pa.Array:
    """Return texts as values of a type, as `read_texts` does; also as TIME.

    Raises:
        RefusedText: a time has nanoseconds, or a zone that TIMESTAMP_NTZ does not have.
        ValueError: a text is not a value of the type.
    """
    if pa.types.is_time(target):
        return _times_of_day(texts).cast(target)
    if pa.types.is_date(target):
        return texts.cast(target)
    if pa.types.is_timestamp(target):
        is_clock = target.tz is None
        if is_clock and times.is_iso(target):
            with suppress(pa.ArrowInvalid):
                return texts.cast(target)  # nearly all files; it refuses zones, and digits after the microseconds
        _refuse(texts, *_HAS_NANOSECONDS)
        if is_clock:
            _refuse(texts, _HAS_ZONE, "has a time zone: remove the zone", "timestamp")
    return read_texts(texts, target, times)


def _times_of_day(texts: pa.StringArray) -> pa.Array:
    """Return times of the first day, since Arrow casts texts to timestamps, but not to times."""
    texts = pc.ascii_trim_whitespace(texts)
    if pc.all(pc.match_substring(texts, ":")).as_py() is False:
        raise ValueError("a time has no minutes")
    _refuse(texts, *_HAS_NANOSECONDS)
    clocks = pc.replace_substring_regex(texts, *_ZEROS)
    return pc.binary_join_element_wise("1970-01-01T", clocks, "").cast(_CLOCK)


def _refuse(texts: pa.StringArray, pattern: str, reason: str, other: str) -> None:
    refused = texts.filter(pc.match_substring_regex(texts, pattern))
    if len(refused):
        raise RefusedText(refused[0].as_py(), reason, other)
