"""Overwrites of some partitions: the partitions of the rows, and the partitions that match a condition."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ChangedRows, ConfigError, SchemaError
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.batch import commit_batch
from ftfile.writing.files.file_writer import session_refusal
from ftfile.writing.messages import OperationIdentity
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

COLUMNS = {"id": "long", "month": "integer"}
DYNAMIC = {"partitionOverwriteMode": "dynamic"}
DAY_MS = 86_400_000
SUMMER = {"replaceWhere": "month BETWEEN 6 AND 8"}


@pytest.fixture
def out(tmp_path: Path) -> str:
    """A directory with a row in each of the months 6 to 9."""
    out = str(tmp_path / "out")
    stream(out).run(0, [rows(6, 7, 8, 9)])
    return out


def rows(*months: int | None) -> list[dict[str, Any]]:
    return [{"id": month, "month": month} for month in months]


def news(*months: int | None) -> list[dict[str, Any]]:
    return [{"id": -1, "month": month} for month in months]


def stream(out: str, columns: Mapping[str, str] = COLUMNS, **options: str) -> MicroBatch:
    return MicroBatch(out, columns, {"fileFormat": "json", "partitionBy": "month"} | options)


def overwrite(out: str, how: Mapping[str, str], columns: Mapping[str, str] = COLUMNS, **options: str) -> MicroBatch:
    given = {"fileFormat": "json", "partitionBy": "month"} | dict(how) | options
    return MicroBatch(out, columns, given, query_id="job", overwrite=True)


def found(out: str, version: int | None = None) -> list[tuple[Any, Any]]:
    """Return month and id of each row, after a check of all that is on storage."""
    report = check_directory(open_filesystem(out))
    assert version is not None or report.live_rows == report.visible_rows
    table = ftfile.open(out).to_arrow(version)
    pairs = zip(table["month"].to_pylist(), table["id"].to_pylist(), strict=True)
    return sorted(pairs, key=lambda pair: (pair[0] is None, pair))


class TestDynamic:
    @pytest.mark.slow
    def test_the_partitions_of_the_rows_are_replaced_in_one_record(self, out: str) -> None:
        overwrite(out, DYNAMIC).run_batch_write("job", [news(7, 10), news(7)])
        assert found(out) == [(6, 6), (7, -1), (7, -1), (8, 8), (9, 9), (10, -1)]
        assert found(out, 0) == [(6, 6), (7, 7), (8, 8), (9, 9)]
        version = ftfile.open(out).history()[-1]
        assert (version.version, version.files_removed, version.overwrite) == (1, 1, False)
        assert (version.operation, version.replaces) == ("replace", "partitions of the rows")

    def test_no_rows_replace_nothing(self, out: str) -> None:
        overwrite(out, DYNAMIC).run_batch_write("job", [[], []])
        assert found(out) == [(6, 6), (7, 7), (8, 8), (9, 9)]

    def test_into_a_directory_that_is_new(self, tmp_path: Path) -> None:
        out = str(tmp_path / "new")
        overwrite(out, DYNAMIC).run_batch_write("job", [news(7)])
        assert found(out) == [(7, -1)]

    @pytest.mark.slow
    def test_null_is_a_partition(self, out: str) -> None:
        stream(out).run(1, [rows(None)])
        overwrite(out, DYNAMIC).run_batch_write("job", [news(None)])
        assert found(out)[-1] == (None, -1)

    @pytest.mark.slow
    def test_open_files_of_these_partitions_go_and_others_stay_open(self, tmp_path: Path) -> None:
        out = str(tmp_path / "open")
        query = stream(out, rolling="policy")
        query.run(0, [rows(6, 7), rows(7)])
        query.run(1, [rows(6, 7)])
        overwrite(out, DYNAMIC).run_batch_write("job", [news(7)])
        query.run(2, [rows(8)])
        ftfile.flush(out)
        assert found(out) == [(6, 6), (6, 6), (7, -1), (8, 8)]

    @pytest.mark.slow
    def test_a_batch_that_comes_in_between_is_replaced_as_well(self, out: str) -> None:
        job = overwrite(out, DYNAMIC)
        planned = job.pickled_plan()
        stream(out).run(1, [rows(7, 8)])
        commit_batch(
            job.sink, job.config(), [job.run_task(planned, OperationIdentity("job"), 0, news(7))], None, SYSTEM
        )
        assert found(out) == [(6, 6), (7, -1), (8, 8), (8, 8), (9, 9)]

    def test_values_are_compared_not_the_names_of_directories(self, tmp_path: Path) -> None:
        """A directory that was written by the clocks of another zone has other names for the same moments."""
        out, columns = str(tmp_path / "out"), {"id": "long", "month": "timestamp"}
        noon = datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.timezone.utc)
        later = noon + datetime.timedelta(hours=2)
        moments = [{"id": 1, "month": noon}, {"id": 2, "month": later}]
        stream(out, columns, timeZone="Europe/Berlin").run(0, [moments])
        overwrite(out, DYNAMIC, columns, timeZone="UTC", onFormatChange="accept").run_batch_write(
            "job", [[{"id": 3, "month": noon}]]
        )
        assert sorted(ftfile.open(out).to_arrow()["id"].to_pylist()) == [2, 3]

    @pytest.mark.slow
    def test_below_partitions_everything_goes(self, tmp_path: Path) -> None:
        out, columns = str(tmp_path / "out"), {"id": "long", "month": "integer", "name": "string"}
        named = [{"id": 1, "month": 7, "name": "a/x"}, {"id": 2, "month": 7, "name": "b"}]
        named.append({"id": 3, "month": 8, "name": "b"})
        stream(out, columns, fileNameColumn="name").run(0, [named])
        job = overwrite(out, DYNAMIC, columns, fileNameColumn="name")
        job.run_batch_write("job", [[{"id": 4, "month": 7, "name": "c"}]])
        assert sorted(ftfile.open(out).to_arrow()["id"].to_pylist()) == [3, 4]

    @pytest.mark.slow
    def test_a_transaction_replaces_once(self, out: str) -> None:
        job = overwrite(out, DYNAMIC, txnAppId="app", txnVersion="1")
        job.run_batch_write("job", [news(7)])
        stream(out).run(1, [rows(7)])
        job.run_batch_write("again", [news(7)])
        assert found(out) == [(6, 6), (7, -1), (7, 7), (8, 8), (9, 9)]

    def test_other_columns_are_compared_as_for_an_append(self, out: str) -> None:
        job = overwrite(out, DYNAMIC, {"id": "string", "month": "integer"})
        with pytest.raises(
            SchemaError, match=r"id was int64 .* replaces only some partitions, and the rows of the oth"
        ):
            job.run_batch_write("job", [[{"id": "x", "month": 7}]])
        assert len(found(out)) == 4

    def test_another_partition_column_is_refused(self, out: str) -> None:
        message = r"partitionBy=id, but the directory was written with .*month.* partitionOverwriteMode=static"
        with pytest.raises(ConfigError, match=message):
            overwrite(out, DYNAMIC, partitionBy="id").run_batch_write("job", [news(7)])
        assert len(found(out)) == 4

    @pytest.mark.slow
    def test_followers_hear_of_changed_rows_only_where_some_went(self, out: str) -> None:
        overwrite(out, DYNAMIC).run_batch_write("job", [news(10)])
        batches = list(ftfile.open(out).follow())
        assert sum(batch.num_rows for _, found in batches for batch in found) == 5
        overwrite(out, DYNAMIC).run_batch_write("other", [news(7)])
        with pytest.raises(ChangedRows, match="version 2, an overwrite, replaces 1 files"):
            list(ftfile.open(out).follow(batches[-1][0]))
        passed = ftfile.open(out).follow(batches[-1][0], skipChangeCommits=True)
        assert [batch for _, found in passed for batch in found] == []


class TestReplaceWhere:
    def test_all_partitions_that_match_are_replaced(self, out: str) -> None:
        overwrite(out, SUMMER).run_batch_write("job", [news(7)])
        assert found(out) == [(7, -1), (9, 9)]
        assert ftfile.open(out).history()[-1].replaces == "month BETWEEN 6 AND 8"

    def test_no_rows_empty_them(self, out: str) -> None:
        overwrite(out, SUMMER).run_batch_write("job", [[]])
        assert found(out) == [(9, 9)]

    def test_rows_elsewhere_are_refused_and_nothing_is_lost(self, out: str) -> None:
        with pytest.raises(ConfigError, match=r"1 of the partitions .* do not match, such as 'month=9'"):
            overwrite(out, SUMMER).run_batch_write("job", [news(7), news(9)])
        assert found(out) == [(6, 6), (7, 7), (8, 8), (9, 9)]

    @pytest.mark.slow
    def test_null_matches_no_comparison(self, out: str) -> None:
        stream(out).run(1, [rows(None)])
        with pytest.raises(ConfigError, match="HIVE_DEFAULT_PARTITION"):
            overwrite(out, {"replaceWhere": "NOT month = 7"}).run_batch_write("job", [news(None)])
        overwrite(out, {"replaceWhere": "month = 7 OR month IS NULL"}).run_batch_write("job", [news(None)])
        assert found(out) == [(6, 6), (8, 8), (9, 9), (None, -1)]


class TestOptions:
    def test_the_mode_of_the_session_counts_where_no_option_says_another(self, out: str) -> None:
        def is_partial(query: MicroBatch, mode: str | None) -> bool:
            return query.config().for_session(mode).replacement is not None

        assert is_partial(overwrite(out, {}), "DYNAMIC")
        assert is_partial(overwrite(out, DYNAMIC), "static")
        assert not is_partial(overwrite(out, {}), "static")
        assert not is_partial(overwrite(out, {}), None)
        assert not is_partial(overwrite(out, {"partitionOverwriteMode": "static"}), "dynamic")
        assert not is_partial(MicroBatch(out, COLUMNS, overwrite=True), "dynamic")
        assert not is_partial(stream(out), "dynamic")
        where = overwrite(out, SUMMER).config()
        assert where.for_session("dynamic") == where

    def test_a_write_in_a_dynamic_session(self, out: str) -> None:
        job = overwrite(out, {})
        message = job.run_task(job.pickled_plan(), OperationIdentity("job"), 0, news(7))
        commit_batch(job.sink, job.config().for_session("dynamic"), [message], None, SYSTEM)
        assert found(out) == [(6, 6), (7, -1), (8, 8), (9, 9)]

    def test_what_a_dynamic_session_refuses_is_known_before_a_row_is_written(self, out: str) -> None:
        def refusal(mode: str, **options: str) -> str:
            return str(session_refusal(overwrite(out, options).config(), mode, SYSTEM))

        assert refusal("dynamic", fileFormat="orc").startswith("fileFormat=orc, but the directory was written as json")
        assert "This overwrite replaces only some partitions" in refusal("dynamic", partitionBy="id")
        assert refusal("dynamic") == refusal("static", fileFormat="orc") == "None"
        assert refusal("dynamic", fileFormat="orc", partitionOverwriteMode="static") == "None"

    @parametrize(
        ("options", "message"),
        [
            (DYNAMIC | SUMMER, "replaceWhere with partitionOverwriteMode=dynamic: .* leave out one"),
            (DYNAMIC | {"partitionBy": "id", "fileNameColumn": "id"}, "fileNameColumn"),
            ({"replaceWhere": "id = 7"}, "^replaceWhere: 'id' is not one of the partition columns, which are month"),
            ({"replaceWhere": "month = 'x'"}, "^replaceWhere: month='x' is not a value of the column's type int32"),
            ({"replaceWhere": "month"}, "^replaceWhere='month': a comparison by a sign, IN, BETWEEN or IS NULL is"),
            ({"replaceWhere": ""}, "^replaceWhere='' is empty: it takes a text, such as "),
            ({"replaceWhere": "month = now() - interval 1 x"}, "^replaceWhere='month = now.*a unit, such as DAYS"),
            ({"replaceWhere": "month = date_format(now(), 'y')"}, "^option replaceWhere with date_format='y'"),
            (
                {"replaceWhere": "month = date '2024-01-01' - 1"},
                "^replaceWhere: month=DATE '2023-12-31' is not a value",
            ),
            ({"replaceWhere": "month = 7.5"}, "^replaceWhere: month=7.5 is not a value of the column's type int32"),
            ({"replaceWhere": "month = 7; drop"}, "^replaceWhere='month = 7; drop': '; drop' is not .* a text"),
            ({"partitionOverwriteMode": "some"}, "partitionOverwriteMode"),
        ],
        quick=6,
    )
    def test_what_cannot_be_meant_is_refused(self, out: str, options: dict[str, str], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            overwrite(out, options).pickled_plan()

    def test_errors_have_the_date_that_it_is(self, out: str) -> None:
        before = SYSTEM.clock.now_ms() // DAY_MS
        with pytest.raises(ConfigError, match=r"^replaceWhere: month=DATE '") as raised:
            overwrite(out, {"replaceWhere": "month = current_date()"}).pickled_plan()
        named = datetime.date.fromisoformat(str(raised.value).split("'")[1])
        assert before <= (named - datetime.date(1970, 1, 1)).days <= SYSTEM.clock.now_ms() // DAY_MS

    @pytest.mark.parametrize(("how", "asked"), [(DYNAMIC, "partitionOverwriteMode=dynamic"), (SUMMER, "replaceWhere")])
    def test_they_are_for_overwrites_with_partitions(self, out: str, how: dict[str, str], asked: str) -> None:
        with pytest.raises(ConfigError, match=f"{asked} is only for overwrites"):
            MicroBatch(out, COLUMNS, {"partitionBy": "month", **how}).config()
        with pytest.raises(ConfigError, match=f"{asked} replaces partitions, but this write has none"):
            MicroBatch(out, COLUMNS, how, overwrite=True).config()
