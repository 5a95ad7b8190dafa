"""Texts as the values that Spark reads, without a loss of digits or zones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.read.foreign.decoding.records import read_texts
from ftfile.rows import kernels as pc

if TYPE_CHECKING:
    from ftfile.formats.reading import TimeFormats

_CLOCK = pa.timestamp("us")
_NANOSECONDS = r":\d\d\.\d{6}\d*[1-9]"
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
        return f"{self}, or use --schema '{column} {self.other}' for a new directory"


def read_exactly(texts: pa.StringArray, target: pa.DataType, times: TimeFormats) -> pa.Array:
    """Return texts as values of a type, as `read_texts` does; also as TIME.

    Raises:
        RefusedText: a timestamp has digits after the microseconds, or a zone that TIMESTAMP_NTZ does not have.
        ValueError: a text is not a value of the type.
    """
    if pa.types.is_time(target):
        # Arrow casts texts to timestamps, but not to times.
        return pc.binary_join_element_wise("1970-01-01T", texts, "").cast(_CLOCK).cast(target)
    if pa.types.is_date(target):
        return texts.cast(target)
    if pa.types.is_timestamp(target):
        _refuse(texts, _NANOSECONDS, "has nanoseconds: round it to microseconds", "string")
        if target.tz is None:
            _refuse(texts, _HAS_ZONE, "has a time zone: remove the zone", "timestamp")
    return read_texts(texts, target, times)


def _refuse(texts: pa.StringArray, pattern: str, reason: str, other: str) -> None:
    refused = texts.filter(pc.match_substring_regex(texts, pattern))
    if len(refused):
        raise RefusedText(refused[0].as_py(), reason, other)
