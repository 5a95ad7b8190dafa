"""Times by a clock in conditions; tests/spark/test_moments.py has Spark compute the same."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.rows.moments import with_clock_values
from ftfile.testing.context import ManualClock, repeatable
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from pathlib import Path

# Of a zone: a moment without a clock, and what it is.
MOMENTS = [
    ("UTC", "DATE '2024-03-31' - interval 1 month", "DATE '2024-02-29'"),
    ("UTC", "DATE '2023-03-31' - INTERVAL 1 MONTHS", "DATE '2023-02-28'"),
    ("UTC", "DATE '2024-02-29' - interval 1 year", "DATE '2023-02-28'"),
    ("UTC", "DATE '2024-02-29' + interval 4 years", "DATE '2028-02-29'"),
    ("UTC", "DATE '2024-01-31' + interval 1 year 1 month", "DATE '2025-02-28'"),
    ("UTC", "DATE '2024-03-31' - interval 1 month - interval 1 month", "DATE '2024-01-29'"),
    ("UTC", "DATE '2024-03-01' - interval 1 day", "DATE '2024-02-29'"),
    ("UTC", "DATE '2024-03-01' - interval -1 day", "DATE '2024-03-02'"),
    ("UTC", "DATE '2024-03-01' - interval +1 day", "DATE '2024-02-29'"),
    ("UTC", "DATE '2024-03-05' - interval 3 days -2 hours", "TIMESTAMP '2024-03-02 02:00:00+00:00'"),
    ("UTC", "DATE '2024-03-05' + interval 1 year -2 months + 3 months", "DATE '2025-04-05'"),
    ("UTC", "DATE '2024-03-05' - interval 3 days -'2' days", "DATE '2024-03-04'"),
    ("UTC", "DATE '2024-03-05' - interval 3 days - 2", "DATE '2024-02-29'"),
    ("UTC", "DATE '2024-03-05' - interval 3 days - interval 2 days", "DATE '2024-02-29'"),
    ("UTC", "DATE '2024-01-10' - interval '2' weeks", "DATE '2023-12-27'"),
    ("UTC", "DATE '2024-03-01' - 30", "DATE '2024-01-31'"),
    ("UTC", "DATE '2024-03-01' - -30", "DATE '2024-03-31'"),
    ("UTC", "date_sub(DATE '2024-03-01', 1)", "DATE '2024-02-29'"),
    ("UTC", "date_add(DATE '2024-12-31', 1)", "DATE '2025-01-01'"),
    ("UTC", "date_add(date_sub(DATE '2024-03-01', 1), -1)", "DATE '2024-02-28'"),
    ("UTC", "TIMESTAMP '2024-03-31 12:00:00' - interval 1 month", "TIMESTAMP '2024-02-29 12:00:00+00:00'"),
    ("UTC", "TIMESTAMP '2024-03-01 00:00:00.5' - interval 1 second", "TIMESTAMP '2024-02-29 23:59:59.5+00:00'"),
    ("UTC", "date_format(DATE '2024-03-01' - interval 1 day, 'yyyyMMdd')", "'20240229'"),
    ("UTC", "date_format(TIMESTAMP '2024-03-01 05:06:07', 'yyyy-MM/HH:mm')", "'2024-03/05:06'"),
    # Spring: 02:00 to 03:00 is skipped on the 31st of March.
    ("Europe/Berlin", "DATE '2024-04-01' - interval 5 hours", "TIMESTAMP '2024-03-31 19:00:00+02:00'"),
    (
        "Europe/Berlin",
        "TIMESTAMP '2024-03-30 02:30:00' + interval 1 day",
        "TIMESTAMP '2024-03-31 03:30:00+02:00'",
    ),
    (
        "Europe/Berlin",
        "TIMESTAMP '2024-03-31 12:00:00' - interval 1 day 11 hours",
        "TIMESTAMP '2024-03-30 01:00:00+01:00'",
    ),
    (
        "Europe/Berlin",
        "TIMESTAMP '2024-03-31 12:00:00' - interval 24 hours",
        "TIMESTAMP '2024-03-30 12:00:00+01:00'",
    ),
    (
        "Europe/Berlin",
        "TIMESTAMP '2024-03-31 12:00:00' - interval 11 hours",
        "TIMESTAMP '2024-03-31 00:00:00+01:00'",
    ),
    (
        "Europe/Berlin",
        "TIMESTAMP '2024-02-29 02:30:00' + interval 31 days",
        "TIMESTAMP '2024-03-31 03:30:00+02:00'",
    ),
    (
        "Europe/Berlin",
        "TIMESTAMP '2024-03-31 02:30:00' - interval 1 hour",
        "TIMESTAMP '2024-03-31 01:30:00+01:00'",
    ),
    (
        "Europe/Berlin",
        "TIMESTAMP '2024-03-31T02:30:00Z' + interval 1 month",
        "TIMESTAMP '2024-04-30 04:30:00+02:00'",
    ),
    # Autumn: 02:00 to 03:00 comes twice on the 27th of October.
    (
        "Europe/Berlin",
        "TIMESTAMP '2024-10-28 02:30:00' - interval 1 day",
        "TIMESTAMP '2024-10-27 02:30:00+01:00'",
    ),
    (
        "Europe/Berlin",
        "TIMESTAMP '2024-10-26 02:30:00' + interval 1 day",
        "TIMESTAMP '2024-10-27 02:30:00+02:00'",
    ),
    (
        "Europe/Berlin",
        "TIMESTAMP '2024-10-27 12:00:00' - interval 10 hours",
        "TIMESTAMP '2024-10-27 02:00:00+01:00'",
    ),
    ("Europe/Berlin", "date_sub(TIMESTAMP '2024-02-29 23:30:00+00:00', 1)", "DATE '2024-02-29'"),
    # At midnight, clocks go to 01:00 on the 4th of November.
    (
        "America/Sao_Paulo",
        "DATE '2018-11-05' - interval 24 hours - interval 1 second",
        "TIMESTAMP '2018-11-03 23:59:59-03:00'",
    ),
    ("+05:30", "TIMESTAMP '2024-03-31 00:30:00' - interval 1 month", "TIMESTAMP '2024-02-29 00:30:00+05:30'"),
]


@pytest.mark.parametrize(("zone", "moment", "literal"), MOMENTS)
def test_a_moment_is_written_out(zone: str, moment: str, literal: str) -> None:
    assert (
        with_clock_values(f"a = 'b' AND (day < {moment} OR c = 1)", 0, zone)
        == f"a = 'b' AND (day < {literal} OR c = 1)"
    )


def ms(text: str) -> int:
    return int(datetime.datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("now", "zone", "text", "expected"),
    [
        ("2024-03-31T23:59:59+00:00", "UTC", "day < Current_Date()", "day < DATE '2024-03-31'"),
        ("2024-03-31T23:59:59+00:00", "Europe/Berlin", "day < current_date ( )", "day < DATE '2024-04-01'"),
        ("2024-03-31T02:00:00+00:00", "America/New_York", "day <current_date()", "day <DATE '2024-03-30'"),
        (
            "2024-03-31T01:30:00+00:00",
            "Europe/Berlin",
            "a BETWEEN now() - interval 1 hour AND CURRENT_TIMESTAMP()",
            "a BETWEEN TIMESTAMP '2024-03-31 01:30:00+01:00' AND TIMESTAMP '2024-03-31 03:30:00+02:00'",
        ),
        (
            "2024-03-01T00:00:00+00:00",
            "UTC",
            "day IN (current_date(), current_date() - 1) OR 'now()' = `now()`",
            "day IN (DATE '2024-03-01', DATE '2024-02-29') OR 'now()' = `now()`",
        ),
        ("2024-03-01T00:00:00+00:00", "UTC", "now = 1 AND current_date IS NULL", "now = 1 AND current_date IS NULL"),
        ("2024-03-01T00:00:00+00:00", "UTC", "all", "all"),
        ("2024-03-01T00:00:00+00:00", "UTC", "a < DATE '2024-03-01'", "a < DATE '2024-03-01'"),
    ],
)
def test_now_is_that_of_the_clock(now: str, zone: str, text: str, expected: str) -> None:
    assert with_clock_values(text, ms(now), zone) == expected


def test_what_is_no_text_stays_as_it_is() -> None:
    where = {"day": "now()"}
    assert with_clock_values(where, 0, "UTC") is where
    assert with_clock_values(None, 0, "UTC") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("day < now() - 30", "INTERVAL is expected after 'day < now\\(\\) -', not '30'"),
        ("day < current_date() --30", "'--30': comments are not supported"),
        ("day < current_date() /* + 30 */", "comments are not supported"),
        ("day < now() - interval 30", "a unit, such as DAYS is expected after"),
        ("day < current_date() - 7 div 2", "AND, OR or the end is expected after 'day < .* - 7', not 'div'"),
        ("day < current_date() - interval 3 days -2 ms", "AND, OR or the end is expected after .* -2', not 'ms'"),
        ("day < current_date() - interval '3' year to month", "AND, OR or the end is expected after .* not 'to'"),
        ("day = current_date() 7", "AND, OR or the end is expected after 'day = current_date\\(\\)', not '7'"),
        ("day = date_format(now(), 'yyyy') 'MM'", "AND, OR or the end is expected after"),
        ("day = current_date() `day`", "AND, OR or the end is expected after"),
        ("day - current_date() - 3 < 7", "a number is expected after 'day -', not 'current_date'"),
        ("day < now() - interval days", "a whole number is expected"),
        ("day < now() - interval '30 days'", "a whole number is expected"),
        ("day < now() - interval 1.5 days", "a whole number is expected"),
        ("day < now() - interval 1 month 1 day", "months and days must be separate intervals"),
        ("day < now() - interval 3000 years", "outside the years 1 to 9999"),
        ("day < current_date() + 9999999", "outside the years 1 to 9999"),
        ("day < current_date() + 9999999999", "at most 9 digits"),
        ("day < current_date(7)", "\\) is expected after"),
        ("day < date_sub(7, 7)", "current_date\\(\\), now\\(\\) or DATE '2024-12-31' is expected after"),
        ("day < date_sub(date_format(now(), 'yyyy'), 7)", "or DATE '2024-12-31' is expected after"),
        ("day < date_format(now(), 7)", "a pattern, such as 'yyyyMMdd' is expected after"),
        ("day < date_format(now(), 'QQ')", "'QQ' is not understood"),
        ("day < DATE '2024-02-30' - interval 1 day", "DATE '2024-02-30'"),
        (f"day < {'date_sub(' * 101}", "functions nested more than 100 levels"),
    ],
)
def test_what_is_no_moment_is_an_error(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        with_clock_values(text, ms("2024-03-01T00:00:00+00:00"), "UTC")


DAYS = [datetime.date(2024, 2, day) for day in (27, 28, 29)] + [datetime.date(2024, 3, 1)]
NOW = "2024-03-30T23:30:00+00:00"  # the 31st in Berlin


@parametrize(
    ("kind", "values", "where", "left"),
    [
        ("date", DAYS, "key < current_date() - interval 1 month", DAYS[2:]),
        ("date", DAYS, "key <= date_sub(current_date(), 31)", DAYS[3:]),
        (
            "timestamp",
            [datetime.datetime(2024, 3, 30, hour, 30, tzinfo=datetime.timezone.utc) for hour in (16, 17, 18)],
            "key < now() - interval 6 hours",
            [datetime.datetime(2024, 3, 30, hour, 30, tzinfo=datetime.timezone.utc) for hour in (17, 18)],
        ),
        (
            "string",
            [str(day) for day in DAYS],
            "key < date_format(current_date() - interval 1 month, 'yyyy-MM-dd')",
            [str(day) for day in DAYS[2:]],
        ),
        (
            "integer",
            [202312, 202401, 202402],
            "key <= date_format(current_date() - interval 2 months, 'yyyyMM')",
            [202402],
        ),
    ],
    quick=2,
    packages=True,
)
def test_partitions_go_by_age(tmp_path: Path, kind: str, values: list[Any], where: str, left: list[Any]) -> None:
    out = str(tmp_path / "out")
    options = {"fileFormat": "json", "partitionBy": "key", "timeZone": "Europe/Berlin"}
    query = MicroBatch(out, {"id": "long", "key": kind}, options)
    query.run(0, [[{"id": number, "key": value} for number, value in enumerate(values)]])
    with repeatable(ManualClock(ms(NOW))) as context:
        report = ftfile.drop(out, where, context=context)
    assert report.where == with_clock_values(where, ms(NOW), "Europe/Berlin")
    directory = ftfile.open(out)
    assert directory.history()[-1].replaces == report.where
    assert sorted(directory.to_arrow()["key"].to_pylist()) == left


def test_directories_by_time_go_by_age(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    options = {"fileFormat": "json", "directoryPattern": "ts:yyyy-MM-dd/HH", "timeZone": "Europe/Berlin"}
    begin = datetime.datetime(2024, 3, 30, 22, 15, tzinfo=datetime.timezone.utc)
    rows = [{"ts": begin + datetime.timedelta(hours=number)} for number in range(4)]  # 23, 00, 01, and 03 after 01
    MicroBatch(out, {"ts": "timestamp"}, options).run(0, [rows])
    clock = ManualClock(ms("2024-03-31T01:30:00+00:00"))  # 03:30
    where = "directoryTime < now() - interval 2 hours"
    with repeatable(clock) as context:
        report = ftfile.drop(out, where, directory_pattern="yyyy-MM-dd/HH", context=context)
    assert report.where == "directoryTime < TIMESTAMP '2024-03-31 00:30:00+01:00'"
    assert ftfile.open(out).to_arrow()["ts"].to_pylist() == [row["ts"] for row in rows[2:]]


@parametrize("newest", ["America/Los_Angeles", "UTC"], quick=1, packages=True)
@pytest.mark.parametrize("is_column", [False, True])
def test_directories_of_a_writer_go_by_its_own_clocks(tmp_path: Path, newest: str, *, is_column: bool) -> None:
    """A drop keeps the directory of the present hour, 13:00 in Los Angeles, whichever writer wrote last."""
    out = str(tmp_path / "out")
    pattern = "yyyy-MM-dd--HH"
    by = {"partitionBy": "at"} if is_column else {"directoryPattern": f"ts:{pattern}"}
    columns, options = {"ts": "timestamp", "at": "timestamp_ntz"}, {"fileFormat": "json", **by}
    rows = [
        {
            "ts": datetime.datetime(2024, 6, 15, hour + 7, 30, tzinfo=datetime.timezone.utc),
            "at": datetime.datetime(2024, 6, 15, hour),  # noqa: DTZ001 - a clock
        }
        for hour in (5, 13)
    ]
    MicroBatch(out, columns, options | {"timeZone": "America/Los_Angeles"}).run(0, [rows])
    MicroBatch(out, columns, options | {"timeZone": newest, "onFormatChange": "accept"}).run(1, [[]])
    where = f"{'at' if is_column else 'directoryTime'} < now() - interval 6 hours"
    with repeatable(ManualClock(ms("2024-06-15T20:30:00+00:00"))) as context:
        ftfile.drop(out, where, directory_pattern=None if is_column else pattern, context=context)
    assert ftfile.open(out).to_arrow()["ts"].to_pylist() == [rows[1]["ts"]]


def test_an_overwrite_replaces_by_the_time_of_its_plan(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    options = {"fileFormat": "json", "partitionBy": "day"}
    rows = [{"id": number, "day": day} for number, day in enumerate(DAYS)]
    MicroBatch(out, {"id": "long", "day": "date"}, options).run(0, [rows])
    asked = options | {"replaceWhere": "day >= current_date() - interval 1 day"}
    with repeatable(ManualClock(ms("2024-03-01T23:59:59+00:00"))):
        MicroBatch(out, {"id": "long", "day": "date"}, asked, overwrite=True).run_batch_write(
            "job", [[{"id": 9, "day": DAYS[3]}]]
        )
    directory = ftfile.open(out)
    assert directory.history()[-1].replaces == "day >= DATE '2024-02-29'"
    assert sorted(directory.to_arrow()["id"].to_pylist()) == [0, 1, 9]


def test_reads_and_compactions_count_from_now(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    now = datetime.datetime.now(datetime.timezone.utc)
    rows = [{"ts": now - datetime.timedelta(hours=hours), "day": now.date()} for hours in (1, 72)]
    query = MicroBatch(out, {"ts": "timestamp", "day": "date"}, {"fileFormat": "json", "partitionBy": "day"})
    query.run(0, [rows])
    query.run(1, [rows])
    assert ftfile.open(out).count(where="ts > now() - interval 2 days") == 2
    assert ftfile.compact(out, "day < current_date() - interval 7 days").files_removed == 0
    assert ftfile.compact(out, "day > current_date() - interval 7 days").files_removed == 2
