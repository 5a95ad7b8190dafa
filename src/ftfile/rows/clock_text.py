"""The text of times of day, such as `23:59:59.123456`."""

from __future__ import annotations

import re

import pyarrow as pa

from ftfile.rows import kernels as pc

_CLOCK = re.compile(r"\d\d:\d\d:\d\d(\.\d{1,6})?", re.ASCII)


def times_of_day(texts: pa.StringArray) -> pa.Array:
    """Return the times of day of texts, null for nulls; `pyarrow.ArrowInvalid` for another text."""
    # Arrow parses timestamps, but no times of day.
    moments = pc.binary_join_element_wise("1970-01-01", texts, " ")
    return moments.cast(pa.timestamp("us")).cast(pa.time64("us"))


def time_of_day(text: str) -> pa.Scalar:
    """Return the time of day of a text; `ValueError` if the text is not one."""
    if not _CLOCK.fullmatch(text):
        raise ValueError("not a time of day such as 23:59:59.5")
    return times_of_day(pa.array([text]))[0]
