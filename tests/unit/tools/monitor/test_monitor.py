"""The values of a monitor are equal to the values of `history()` and `status()`, over HTTP and OpenTelemetry."""

from __future__ import annotations

import logging
import socket
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.log import protocol
from ftfile.log.opening import open_log
from ftfile.storage.registry import normalise
from ftfile.testing.micro_batch import MicroBatch, StoreBatch
from ftfile.tools.monitor import monitor as monitor_module
from ftfile.tools.monitor.metrics import METRICS
from ftfile.tools.monitor.monitor import Monitor

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

ROWS = [{"id": n} for n in range(3)]
FORMAT = {"fileFormat": "json"}
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


@pytest.fixture
def query(out: str) -> MicroBatch:
    return MicroBatch(out, {"id": "long"}, FORMAT)


@pytest.fixture
def monitor() -> Iterator[Monitor]:
    """A monitor that reads the directories only when a test calls it."""
    with Monitor("1h", prometheus_port=0) as found:
        yield found


def scraped(monitor: Monitor) -> Series:
    monitor.look()
    assert monitor.url is not None
    with urlopen(monitor.url) as answer:
        text = answer.read().decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(series: Series, name: str, path: str, **labels: str) -> float:
    return series[name, frozenset({"directory": normalise(path), **labels}.items())]


def test_counters_are_those_of_history(monitor: Monitor, query: MicroBatch, out: str) -> None:
    monitor.watch(out)
    query.options = FORMAT | {"maxBatchesPerFile": "2"}
    for batch in range(5):
        query.run(batch, [ROWS, ROWS[:batch]])
    query.commit(4, query.run_tasks(4, [ROWS, ROWS[:4]]))
    query.run(5, [ROWS])
    query.options = FORMAT
    query.run_batch_write("a" * 32, [ROWS])
    ftfile.flush(out)
    MicroBatch(out, {"id": "long"}, FORMAT, overwrite=True).run_batch_write("b" * 32, [ROWS])
    found, history = scraped(monitor), ftfile.open(out).history()
    operations = {version.operation for version in history}
    assert operations == {"stream", "batch", "flush", "overwrite"}
    for operation in operations:
        versions = [version for version in history if version.operation == operation]
        for name, expected in {
            "ftfile_commits_total": len(versions),
            "ftfile_rows_total": sum(version.rows for version in versions),
            "ftfile_written_bytes_total": sum(version.size_bytes for version in versions),
            "ftfile_files_total": sum(version.files for version in versions),
            "ftfile_removed_files_total": sum(version.files_removed for version in versions),
            "ftfile_removed_rows_total": sum(version.rows_removed for version in versions),
            "ftfile_bad_records_total": sum(version.bad_records for version in versions),
        }.items():
            assert value(found, name, out, operation=operation) == expected, (name, operation)
    reasons = sum((Counter(version.metrics.files_by_reason) for version in history), Counter[str]())
    assert set(reasons) == {"batches", "flush"}
    for reason, files in reasons.items():
        assert value(found, "ftfile_finished_files_total", out, reason=reason) == files
    metrics = [version.metrics for version in history]
    assert value(found, "ftfile_replays_total", out) == sum(each.replays for each in metrics) == 1
    assert value(found, "ftfile_log_cache_hits_total", out) == sum(not each.log_reads for each in metrics)
    assert value(found, "ftfile_log_reads_total", out) == sum(each.log_reads for each in metrics)
    for name, times in {
        "write": [each.metrics.write_seconds for each in history if each.operation != "flush"],
        "prepare": [each.prepare_seconds for each in metrics],
        "publish": [each.publish_seconds for each in metrics if each.publish_seconds is not None],
    }.items():
        assert value(found, f"ftfile_{name}_seconds_count", out) == len(times)
        assert value(found, f"ftfile_{name}_seconds_sum", out) == pytest.approx(sum(times))


def test_gauges_are_those_of_status(monitor: Monitor, query: MicroBatch, out: str) -> None:
    query.options = FORMAT | {"maxBatchesPerFile": "3", "fileNameColumn": "name"}
    query.columns = {"id": "long", "name": "string"}
    for batch in range(3):
        query.run(batch, [[{"id": 1, "name": "a"}, {"id": 2, "name": "b" if batch else "c"}]])
    monitor.watch(out)
    found, status = scraped(monitor), ftfile.open(out).status()
    assert (len(status.open), status.due) == (3, 1)
    for name, expected in {
        "ftfile_version": status.version,
        "ftfile_open_files": len(status.open),
        "ftfile_open_rows": sum(file.rows for file in status.open),
        "ftfile_oldest_open_timestamp_seconds": min(file.first_ms for file in status.open) / 1000,
        "ftfile_due_files": status.due,
        "ftfile_failing_files": 0,
        "ftfile_last_commit_timestamp_seconds": (status.time_ms or 0) / 1000,
        "ftfile_unpublished_versions": 0,
        "ftfile_up": 1,
    }.items():
        assert value(found, name, out) == expected, name
    [last] = status.queries
    assert value(found, "ftfile_query_last_batch", out, query=query.query_id) == last.last_batch
    expected_s = (last.time_ms or 0) / 1000
    assert value(found, "ftfile_query_last_commit_timestamp_seconds", out, query=query.query_id) == expected_s


def test_only_versions_after_the_first_look_are_counted(monitor: Monitor, query: MicroBatch, out: str) -> None:
    query.run(0, [ROWS])
    monitor.watch(out)
    assert value(scraped(monitor), "ftfile_commits_total", out, operation="stream") == 0
    query.run(1, [ROWS])
    monitor.watch(out)
    assert value(scraped(monitor), "ftfile_commits_total", out, operation="stream") == 1


def test_a_directory_that_is_not_there_yet(monitor: Monitor, query: MicroBatch, out: str) -> None:
    monitor.watch(out)
    found = scraped(monitor)
    assert (value(found, "ftfile_version", out), value(found, "ftfile_up", out)) == (-1, 1)
    query.run(0, [ROWS])
    assert value(scraped(monitor), "ftfile_rows_total", out, operation="stream") == 3


def test_a_directory_that_is_made_anew(monitor: Monitor, query: MicroBatch, out: str, tmp_path: Path) -> None:
    monitor.watch(out)
    for batch in range(3):
        query.run(batch, [ROWS])
    scraped(monitor)
    Path(out).rename(tmp_path / "away")
    query.restart()
    query.run(0, [ROWS])
    found = scraped(monitor)
    assert value(found, "ftfile_commits_total", out, operation="stream") == 4
    assert value(found, "ftfile_version", out) == 0


def test_a_log_that_cannot_be_read(
    monitor: Monitor, query: MicroBatch, out: str, caplog: pytest.LogCaptureFixture
) -> None:
    query.run(0, [ROWS])
    monitor.watch(out)
    record = Path(out, "_ftfile/log/_00000000000000000001.record")
    query.run(1, [ROWS])
    content = record.read_bytes()
    record.write_bytes(b"x")
    for _ in range(2):
        assert value(scraped(monitor), "ftfile_up", out) == 0
    assert len([each for each in caplog.records if "cannot be read" in each.getMessage()]) == 1
    record.write_bytes(content)
    found = scraped(monitor)
    assert (value(found, "ftfile_up", out), value(found, "ftfile_version", out)) == (1, 1)


def test_an_error_that_nobody_thought_of_ends_no_thread(
    query: MicroBatch, out: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failed, counted = threading.Event(), threading.Event()

    def fail(*_: Any) -> None:
        failed.set()
        raise RuntimeError("a mistake")

    with Monitor("10ms") as monitor:
        monitor.tally.observers.append(lambda *_: counted.set())
        monitor.watch(out)
        with monkeypatch.context() as patch:
            patch.setattr(monitor_module, "version_time_ms", fail)
            query.run(0, [ROWS])
            assert failed.wait(300)
        counted.clear()
        query.run(1, [ROWS])
        assert counted.wait(300)
    assert caplog.text.count("RuntimeError: a mistake") == 1


def test_versions_that_stay_unpublished(
    monitor: Monitor, query: MicroBatch, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor.watch(out)
    with monkeypatch.context() as patch:
        patch.setattr(protocol, "roll_forward", lambda *_, **__: [])
        query.run(0, [ROWS])
        query.run(1, [ROWS])
    first = scraped(monitor)
    assert value(first, "ftfile_unpublished_versions", out) == 2
    since = value(first, "ftfile_oldest_unpublished_timestamp_seconds", out)
    assert value(scraped(monitor), "ftfile_oldest_unpublished_timestamp_seconds", out) == since
    query.restart()
    query.run(2, [ROWS])
    found = scraped(monitor)
    assert value(found, "ftfile_unpublished_versions", out) == 0
    assert value(found, "ftfile_recoveries_total", out) == 2
    key = ("ftfile_oldest_unpublished_timestamp_seconds", frozenset({("directory", normalise(out))}))
    assert key in first
    assert key not in found


def test_a_store(monitor: Monitor, out: str) -> None:
    monitor.watch(out)
    query = StoreBatch(out, {"id": "long"}, {"keyColumns": "id", "buckets": "1", "flushIntervalCount": "2"})
    for batch in range(4):
        query.run(batch, [ROWS])
    found = scraped(monitor)
    assert value(found, "ftfile_merged_runs_total", out) == 2
    assert value(found, "ftfile_open_files", out) == 3
    assert value(found, "ftfile_rows_total", out, operation="stream") == 12


def test_reasons_of_a_users_policy_are_one(monitor: Monitor, query: MicroBatch, out: str) -> None:
    monitor.watch(out)
    own = f"{__name__}:EndsAlways"
    query.options = FORMAT | {"rollingPolicy": own}
    for batch in range(3):
        query.run(batch, [ROWS])
    found = scraped(monitor)
    assert value(found, "ftfile_finished_files_total", out, reason="policy") == 2
    assert len([labels for name, labels in found if name == "ftfile_finished_files_total"]) == 1


class EndsAlways:
    """A policy that returns a different reason for each file."""

    def reason_to_end(self, group: Any, now_ms: int) -> str:
        return f"own {group.first_ms} {now_ms}"

    def deadline_ms(self, group: Any) -> None:
        del group


def test_queries_that_wrote_last_have_series(
    monitor: Monitor, query: MicroBatch, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor_module, "QUERIES_SHOWN", 2)
    query.options = FORMAT | {"onNewQuery": "continue"}
    monitor.watch(out)
    for number in range(4):
        query.query_id = f"query-{number}"
        query.run(0, [ROWS])
        found = scraped(monitor)
    shown = {dict(labels)["query"] for name, labels in found if name == "ftfile_query_last_batch"}
    assert shown == {"query-2", "query-3"}


def test_the_oldest_directory_without_users_makes_room(
    monitor: Monitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(monitor_module, "DIRECTORIES_MAX", 2)
    paths = [str(tmp_path / f"out-{number}") for number in range(4)]
    for path in paths[:3]:
        monitor.watch(path)
    assert "out-2 is not monitored" in caplog.text
    monitor.leave(normalise(paths[0]), "watch")
    monitor.tally.add("ftfile_bad_records_total", (normalise(paths[1]), "stream"), 7)
    monitor.watch(paths[3])
    found = scraped(monitor)
    assert {dict(labels)["directory"] for _, labels in found} == {normalise(paths[1]), normalise(paths[3])}
    assert value(found, "ftfile_bad_records_total", paths[1], operation="stream") == 7


def test_who_follows_another_directory_does_not_wait_for_storage(
    monitor: Monitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking, going_on = threading.Event(), threading.Event()
    waited: list[bool] = []

    def slow(path: str, *rest: Any) -> Any:
        if path.endswith("slow"):
            looking.set()
            waited.append(going_on.wait(300))
        return open_log(path, *rest)

    monkeypatch.setattr(monitor_module, "open_log", slow)
    watching = threading.Thread(target=monitor.watch, args=(tmp_path / "slow",))
    watching.start()
    assert looking.wait(300)
    monitor.watch(tmp_path / "out")
    monitor.leave(normalise(str(tmp_path / "out")), "watch")
    assert not waited
    going_on.set()
    watching.join()


def test_one_line_an_interval(monitor: Monitor, query: MicroBatch, out: str, caplog: pytest.LogCaptureFixture) -> None:
    monitor.watch(out)
    with caplog.at_level(logging.INFO, "ftfile.tools.monitor"):
        for batch in range(3):
            query.run(batch, [ROWS])
        monitor.look()
        monitor.look()
    [line] = [record.getMessage() for record in caplog.records if record.name.startswith("ftfile.tools.monitor")]
    assert "3 versions up to 2 added 9 rows, 3 files" in line


def test_the_interval_brings_values_by_itself(query: MicroBatch, out: str) -> None:
    looked = threading.Event()
    with ftfile.monitor(out, interval=timedelta(milliseconds=10)) as monitor:
        monitor.tally.observers.append(lambda *_: looked.set())
        query.run(0, [ROWS])
        assert looked.wait(300)


def test_every_metric_can_be_scraped_and_has_its_type(monitor: Monitor) -> None:
    assert monitor.url is not None
    with urlopen(monitor.url) as answer:
        text = answer.read().decode()
    kinds = {family.name: (family.type, family.documentation) for family in text_string_to_metric_families(text)}
    assert kinds == {metric.base_name: (metric.kind, metric.help) for metric in METRICS.values()}


def test_closing_frees_the_port_and_ends_all_threads(query: MicroBatch, out: str) -> None:
    before = set(threading.enumerate())
    monitor = ftfile.monitor(out, prometheus_port=0)
    query.run(0, [ROWS])
    scraped(monitor)
    port = int(str(monitor.url).split(":")[2].split("/")[0])
    with pytest.raises(ConfigError, match="Give another port, or 0"):
        ftfile.monitor(out, prometheus_port=port)
    monitor.close()
    monitor.close()
    assert set(threading.enumerate()) <= before
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closed connections remain for a while
        free.bind(("127.0.0.1", port))
        free.listen()


@pytest.mark.parametrize("interval", ["0s", "soon", timedelta(0)])
def test_an_interval_that_is_none(interval: str | timedelta, out: str) -> None:
    with pytest.raises(ConfigError, match="interval="):
        ftfile.monitor(out, interval=interval)


def test_opentelemetry_has_the_same_values(query: MicroBatch, out: str) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    with ftfile.monitor(out, interval="1h", meter_provider=provider, prometheus_port=0) as monitor:
        for batch in range(2):
            query.run(batch, [ROWS])
        series = scraped(monitor)
        found = metered(reader)
        for name, metric in METRICS.items():
            for (sample, labels), expected in series.items():
                if sample == name:
                    assert found[metric.dotted_name][labels].value == expected
                elif metric.kind == "histogram" and sample == f"{name}_count":
                    assert found[metric.dotted_name][labels].count == expected
                elif metric.kind == "histogram" and sample == f"{name}_sum":
                    assert found[metric.dotted_name][labels].sum == pytest.approx(expected)
        assert {"ftfile.rows", "ftfile.written", "ftfile.write", "ftfile.last_commit_timestamp"} <= found.keys()
    assert not any(points for name, points in metered(reader).items() if METRICS_BY_DOT[name].kind != "histogram")
    provider.shutdown()


METRICS_BY_DOT = {metric.dotted_name: metric for metric in METRICS.values()}


def metered(reader: InMemoryMetricReader) -> dict[str, dict[frozenset[tuple[str, str]], Any]]:
    data: Any = reader.get_metrics_data()
    return {
        metric.name: {frozenset(point.attributes.items()): point for point in metric.data.data_points}
        for resource in (data.resource_metrics if data is not None else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_a_provider_that_is_none(out: str) -> None:
    with pytest.raises(ConfigError, match="meter_provider="):
        ftfile.monitor(out, meter_provider="x")


def test_buckets_of_times_are_cumulated(monitor: Monitor, out: str) -> None:
    monitor.watch(out)
    for seconds in (0.01, 0.02, 400.0):
        monitor.tally.observe("ftfile_write_seconds", (normalise(out),), seconds)
    found = scraped(monitor)
    bounds = ("0.01", "0.05", "300.0", "+Inf")
    assert [value(found, "ftfile_write_seconds_bucket", out, le=bound) for bound in bounds] == [1, 2, 2, 3]
