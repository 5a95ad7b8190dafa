from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftfile.core.errors import ConfigError
from ftfile.formats.reading.time_formats import TimeFormats
from ftfile.rows.value_text import TimePattern
from tests.unit.formats.rows import DATE, DAY_US, FIRST_US, LAST_US, TIMESTAMP, TIMESTAMP_NTZ

ISO = TimeFormats.from_options({})


@pytest.mark.slow
@pytest.mark.packages
@given(st.lists(st.none() | st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999))))  # noqa: DTZ001
def test_iso_text_is_what_python_says(values: list[dt.datetime | None]) -> None:
    expected = [None if value is None else value.isoformat(timespec="microseconds") for value in values]
    array = pa.array(values, TIMESTAMP_NTZ)
    assert ISO.pattern(TIMESTAMP_NTZ).format(array, "UTC").to_pylist() == expected
    zulu = ISO.pattern(TIMESTAMP).format(pa.array(values, TIMESTAMP), "UTC").to_pylist()
    assert zulu == [None if text is None else f"{text}Z" for text in expected]
    days = pa.array([None if value is None else value.date() for value in values], DATE)
    assert ISO.pattern(DATE).format(days, "UTC").to_pylist() == [text and text[:10] for text in expected]


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("Europe/London", ["1970-01-01T01:00:00.000000+01:00", "2024-01-15T12:00:00.000000Z"]),
        ("America/New_York", ["1969-12-31T19:00:00.000000-05:00", "2024-01-15T07:00:00.000000-05:00"]),
        ("-03:30", ["1969-12-31T20:30:00.000000-03:30", "2024-01-15T08:30:00.000000-03:30"]),
    ],
)
def test_zones(zone: str, text: list[str]) -> None:
    array = pa.array([0, 1_705_320_000_000_000], TIMESTAMP)
    assert ISO.pattern(TIMESTAMP).format(array, zone).to_pylist() == text


def test_offsets_with_seconds_become_whole_minutes_of_the_same_instant() -> None:
    # New York was 4:56:02 behind Greenwich; `XXX` has no seconds.
    instant = pa.array([dt.datetime(1883, 1, 1, tzinfo=dt.timezone.utc)], TIMESTAMP)
    text = ISO.pattern(TIMESTAMP).format(instant, "America/New_York")
    assert text.to_pylist() == ["1882-12-31T19:03:00.000000-04:57"]
    assert text.cast(TIMESTAMP) == instant


NO_MORE_SHIFTS_US = -757_382_400_000_000  # since 1946 India's clocks were never changed


@pytest.mark.slow
@pytest.mark.packages
@given(st.lists(st.none() | st.integers(NO_MORE_SHIFTS_US, LAST_US - DAY_US)))
def test_clocks_without_offset_come_back_where_no_hour_repeats(micros: list[int | None]) -> None:
    pattern = TimePattern.parse("timestampFormat", "yyyy-MM-dd HH:mm:ss.SSSSSS", TIMESTAMP)
    array = pa.array(micros, TIMESTAMP)
    assert pattern.read(pattern.format(array, "Asia/Kolkata"), TIMESTAMP, "Asia/Kolkata") == array


def test_clocks_before_standard_time_come_back() -> None:
    pattern = TimePattern.parse("timestampFormat", "yyyy-MM-dd HH:mm:ss", TIMESTAMP)
    array = pa.array([dt.datetime(1800, 1, 1, tzinfo=dt.timezone.utc)], TIMESTAMP)
    text = pattern.format(array, "Europe/Berlin")
    assert text.to_pylist() == ["1800-01-01 00:53:28"]
    assert pattern.read(text, TIMESTAMP, "Europe/Berlin") == array


def test_of_an_hour_that_clocks_show_twice_the_first_is_read() -> None:
    pattern = TimePattern.parse("timestampFormat", "yyyy-MM-dd HH:mm", TIMESTAMP)
    found = pattern.read(pa.array(["2024-10-27 02:30", "2024-10-27 03:30"]), TIMESTAMP, "Europe/Berlin")
    assert found.to_pylist() == [dt.datetime(2024, 10, 27, hour, 30, tzinfo=dt.timezone.utc) for hour in (0, 2)]


def test_fields_left_out_are_those_of_1970() -> None:
    pattern = TimePattern.parse("timestampFormat", "dd.MM. HH'h'", TIMESTAMP_NTZ)
    text = pattern.format(pa.array([dt.datetime(2024, 2, 29, 13, 59)], TIMESTAMP_NTZ), "UTC")  # noqa: DTZ001
    assert text.to_pylist() == ["29.02. 13h"]
    with pytest.raises(ValueError, match="1970-02-29"):
        pattern.read(text, TIMESTAMP_NTZ, "UTC")
    assert pattern.read(pa.array(["28.02. 13h"]), TIMESTAMP_NTZ, "UTC").to_pylist() == [dt.datetime(1970, 2, 28, 13)]  # noqa: DTZ001


def test_milliseconds_are_cut_not_rounded() -> None:
    pattern = TimePattern.parse("timestampFormat", "ss.SSS", TIMESTAMP_NTZ)
    assert pattern.format(pa.array([1_999_999, -1], TIMESTAMP_NTZ), "UTC").to_pylist() == ["01.999", "59.999"]


@pytest.mark.parametrize("micros", [FIRST_US - 1, LAST_US + 1])
@pytest.mark.parametrize("kind", [TIMESTAMP, TIMESTAMP_NTZ], ids=str)
def test_years_that_four_digits_cannot_say(micros: int, kind: pa.DataType) -> None:
    with pytest.raises(ValueError, match="outside the years 0001 to 9999"):
        ISO.pattern(kind).format(pa.array([0, micros, None], kind), "UTC")


def test_a_zone_may_push_a_value_out_of_range() -> None:
    with pytest.raises(ValueError, match="outside the years"):
        ISO.pattern(TIMESTAMP).format(pa.array([LAST_US], TIMESTAMP), "Asia/Tokyo")


def test_text_in_another_pattern_is_refused() -> None:
    with pytest.raises(ValueError, match="does not match the pattern"):
        ISO.pattern(TIMESTAMP).read(pa.array(["2024-01-01T00:00:00.000000Z", "2024-01-01"]), TIMESTAMP, "UTC")


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("yy-MM-dd", "'yy' is not understood; accepted: yyyy, MM, dd, HH"),
        ("yyyy-MMM-dd", "'MMM' is not understood"),
        ("yyyy-MM-dd hh:mm a", "'hh' is not understood"),
        ("yyyy-MM-ddTHH:mm", "'T' is not understood"),
        ("yyyy 'o''clock", "a quote is not terminated"),
        ("HH:mm HH", "each field only once"),
        ("-", "at least one"),
    ],
)
def test_patterns_that_are_refused(pattern: str, said: str) -> None:
    with pytest.raises(ConfigError, match="option timestampFormat=.*" + said):
        TimeFormats.from_options({"timestampFormat": pattern})


@pytest.mark.parametrize(
    ("option", "pattern"), [("dateFormat", "yyyy-MM-dd HH"), ("timestampNTZFormat", "yyyy-MM-dd HH:mm:ssXXX")]
)
def test_fields_that_a_type_has_not(option: str, pattern: str) -> None:
    with pytest.raises(ConfigError, match=f"option {option}=.* is not understood"):
        TimeFormats.from_options({option: pattern})


def test_quoted_text_and_optional_sections() -> None:
    pattern = TimePattern.parse("timestampFormat", "[yyyy]'year''s' ''é", TIMESTAMP)
    assert pattern.format(pa.array([0], TIMESTAMP), "UTC").to_pylist() == ["1970year's 'é"]


@pytest.mark.parametrize("zone", ["Mars/Olympus", "PST8", "GMT+1", ""])
def test_unknown_zones_are_refused(zone: str) -> None:
    with pytest.raises(ConfigError, match="option timeZone="):
        TimeFormats.from_options({"timeZone": zone})


def test_the_names_of_utc_are_one() -> None:
    assert {TimeFormats.from_options({"timeZone": zone}) for zone in ("UTC", "Z", "GMT", "Etc/UTC")} == {ISO}


def test_definition_has_what_was_given() -> None:
    given_options = {"timeZone": "+01:00", "dateFormat": "yyyyMMdd"}
    formats = TimeFormats.from_options(given_options)
    assert formats.definition() == given_options
    assert TimeFormats.from_options(formats.definition()) == formats
    assert ISO.definition() == {}
