"""Clocks of zones, also after the changes that the files of zones list."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftfile.rows.value_text import value_of, value_texts
from ftfile.rows.zone_clocks import clocks_of, instants_of, instants_shown_once

INSTANT, CLOCK = pa.timestamp("us", "UTC"), pa.timestamp("us")
ZONES = ["Europe/Berlin", "America/New_York", "Africa/Casablanca", "Australia/Lord_Howe"]
HOUR = 3_600_000_000
YEARS_400 = 146_097 * 24 * HOUR


def clocks(*texts: str) -> pa.Array:
    return pa.array([dt.datetime.fromisoformat(text) for text in texts], CLOCK)


@pytest.mark.slow
@given(zone=st.sampled_from(ZONES), instant=st.datetimes(dt.datetime(1901, 1, 1), dt.datetime(9999, 1, 1)))  # noqa: DTZ001
def test_clocks_are_those_of_the_zone(zone: str, instant: dt.datetime) -> None:
    instants = pa.array([None, instant.replace(tzinfo=dt.timezone.utc)], INSTANT)
    shown = clocks_of(instants, zone)
    local = instants[1].as_py().astimezone(ZoneInfo(zone))
    assert shown.to_pylist() == [None, local.replace(tzinfo=None)]
    assert instants_of(shown, zone, "latest" if local.fold else "earliest").equals(instants)


@pytest.mark.parametrize("year", [2037, 2038, 2050, 9999])
def test_daylight_saving_time_does_not_end_in_2037(year: int) -> None:
    summer, winter = instants_of(clocks(f"{year}-07-01 12:00", f"{year}-12-01 12:00"), "Europe/Berlin").to_pylist()
    assert (summer.hour, winter.hour) == (10, 11)


def test_clocks_repeat_after_400_years() -> None:
    """Python has no year 10000."""
    near = instants_of(clocks("9999-07-01 12:00"), "Europe/Berlin").cast(pa.int64())[0].as_py()
    far = pa.array([near + YEARS_400], INSTANT)
    assert clocks_of(far, "Europe/Berlin").cast(pa.int64())[0].as_py() == near + YEARS_400 + 2 * HOUR
    assert instants_of(clocks_of(far, "Europe/Berlin"), "Europe/Berlin").equals(far)


@pytest.mark.parametrize(("year", "spring", "autumn"), [(2024, "03-31", "10-27"), (2050, "03-27", "10-30")])
def test_times_that_clocks_skip_or_show_twice(year: int, spring: str, autumn: str) -> None:
    skipped, twice = clocks(f"{year}-{spring} 02:30"), clocks(f"{year}-{autumn} 02:30")
    assert instants_of(skipped, "Europe/Berlin")[0].as_py().hour == 1
    assert instants_of(skipped, "Europe/Berlin", "latest")[0].as_py().hour == 1
    assert instants_of(twice, "Europe/Berlin")[0].as_py().hour == 0
    assert instants_of(twice, "Europe/Berlin", "latest")[0].as_py().hour == 1
    with pytest.raises(ValueError, match="skip a time"):
        instants_shown_once(skipped, "Europe/Berlin")
    with pytest.raises(ValueError, match="show a time twice"):
        instants_shown_once(twice, "Europe/Berlin")
    before = clocks(f"{year}-{spring} 01:30")
    assert instants_shown_once(before, "Europe/Berlin").equals(instants_of(before, "Europe/Berlin"))


def test_texts_of_far_times_are_read_back() -> None:
    noon = pa.array([dt.datetime(2050, 7, 1, 12, tzinfo=dt.timezone.utc)], INSTANT)
    texts = value_texts(noon, "Europe/Berlin")
    assert texts == ["2050-07-01 14:00:00"]
    assert value_of(texts[0], INSTANT, "Europe/Berlin").equals(noon[0])
    with pytest.raises(ValueError, match="this local time does not exist"):
        value_of("2050-03-27 02:30:00", INSTANT, "Europe/Berlin")
