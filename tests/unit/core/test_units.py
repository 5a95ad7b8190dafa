"""Sizes and durations."""

from __future__ import annotations

import pytest

from ftfile.core.units import format_duration, format_size, parse_duration_s, parse_size_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [("7", 7), ("1k", 1024), ("128MB", 128 << 20), ("128 MiB", 128 << 20), ("2g", 2 << 30), ("1T", 1 << 40)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size_bytes(text) == size
    assert parse_size_bytes(format_size(size)) == size


@pytest.mark.parametrize("text", ["", "x", "1x", "-1", "1.5m", "m"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the text is for the option parser
        parse_size_bytes(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("5 min", 300), ("1.5h", 5400), ("7 days", 7 * 86400), ("250ms", 0.25)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds
    assert parse_duration_s(format_duration(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "5", "5 parsecs", "h"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the text is for the option parser
        parse_duration_s(text)
