"""Sizes and durations."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from ftfile.core.units import exact_time, parse_duration_s, parse_size_bytes, parse_time, time_text


@pytest.mark.parametrize(
    ("text", "size"),
    [("7", 7), ("1k", 1024), ("128MB", 128 << 20), ("128 MiB", 128 << 20), ("2g", 2 << 30), ("1T", 1 << 40)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "x", "1x", "-1", "1.5m", "m"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the text is for the option parser
        parse_size_bytes(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("5 min", 300), ("1.5h", 5400), ("7 days", 7 * 86400), ("250ms", 0.25)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


def test_durations_end_where_times_do() -> None:
    assert parse_duration_s("999999999999d") == parse_duration_s("9" * 400 + "d") == 1e12


@pytest.mark.parametrize("text", ["", "5", "5 parsecs", "h", "\u0665s"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the text is for the option parser
        parse_duration_s(text)


@pytest.mark.parametrize(
    "text",
    [
        *("2024-07-01T12:00:00Z", "2024-07-01t12:00:00z", "2024-07-01T14:00:00+02:00", "2024-07-01 12:00:00"),
        *(" 2024-07-01T12:00 ", "2024-07-01T12:00:00.0", "2024-07-01T12:00:00,000000000Z", "2024-07-01T07:30-04:30"),
    ],
)
def test_times(text: str) -> None:
    assert parse_time(text) == datetime(2024, 7, 1, 12, tzinfo=timezone.utc)


def test_parts_of_a_second() -> None:
    assert parse_time("2024-07-01T12:00:00.25Z").microsecond == 250_000
    assert parse_time("2024-07-01").hour == 0


@pytest.mark.parametrize("text", ["", "now", "12:00", "2024-13-01", "1719835200", "2024-07-01T25:00"])
def test_no_times(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the text is for the option parser
        parse_time(text)


@pytest.mark.parametrize("time_ms", [253_402_300_799_999, 253_402_300_800_000, (1 << 63) - 1])
def test_texts_of_times_that_there_are_not(time_ms: int) -> None:
    assert time_text(time_ms) == "9999-12-31 23:59:59"
    assert exact_time(time_ms).startswith("9999-12-31T23:59:59.")
    assert time_text(-(1 << 63))
