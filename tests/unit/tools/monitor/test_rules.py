"""Alert rules, dashboard and page use only existing metrics, and Prometheus accepts the rules and the metrics."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import time
from dataclasses import fields
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

import ftfile
from ftfile.log.read.history import LastCommit, Version, VersionMetrics
from ftfile.operate.status import HeadFacts
from ftfile.testing.micro_batch import MicroBatch
from ftfile.tools.monitor.metrics import METRICS, Metric
from tests.guarded import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[4]
FILES = ROOT / "docs/monitoring"
RULES, TESTS = (FILES / "alerts.yml").read_text(), (FILES / "alerts_test.yml").read_text()
DASHBOARD: dict[str, Any] = json.loads((FILES / "grafana.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [(target["expr"], target["legendFormat"]) for panel in PANELS for target in panel["targets"]]
PAGE = (ROOT / "docs/monitoring.md").read_text()
ALERTS = re.findall(r"- alert: (\w+)", RULES)


def metrics_in(text: str) -> set[str]:
    """Return the metrics in a text, with a separate name for each series of a histogram."""
    found = set()
    for name in re.findall(r"\bftfile_\w+", text):
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        found.add(base if base in METRICS and METRICS[base].kind == "histogram" else name)
    return found


def program(name: str) -> str:
    """Return a program of Prometheus that `.ci/prometheus` installed."""
    found = shutil.which(name, path=str(ROOT / ".servers/prometheus/usr/bin")) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@pytest.mark.parametrize("text", [RULES, TESTS, json.dumps(DASHBOARD)], ids=["rules", "tests", "dashboard"])
def test_metrics_that_are_named_exist(text: str) -> None:
    assert len(metrics_in(text)) >= 9
    assert metrics_in(text) <= METRICS.keys()


def test_every_metric_but_few_is_in_the_dashboard() -> None:
    assert METRICS.keys() - metrics_in(json.dumps(DASHBOARD)) == {
        "ftfile_log_reads_total",
        "ftfile_oldest_unpublished_timestamp_seconds",
        "ftfile_query_last_commit_timestamp_seconds",
        "ftfile_version",
    }


def test_labels_are_those_of_the_metrics() -> None:
    rules = [(rule, rule) for rule in RULES.split("- alert:")[1:]]
    for text, shown in [*TARGETS, *rules]:
        known = {label for name in metrics_in(text) for label in METRICS[name].labels}
        labels = set(re.findall(r"\{\{ *(?:\$labels\.)?(\w+) *\}\}", shown))
        labels |= {each for group in re.findall(r"\b(?:by|on) \(([\w, ]+)\)", text) for each in group.split(", ")}
        labels |= set(re.findall(r"(\w+)=~", text))
        assert labels - {"le"} <= known, text


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        grid = panel["gridPos"]
        assert grid["w"] >= 1
        assert 0 <= grid["x"] <= 24 - grid["w"]
        assert {"type", "title"} <= panel.keys()
    for first, second in combinations([panel["gridPos"] for panel in panels], 2):
        is_beside = first["x"] + first["w"] <= second["x"] or second["x"] + second["w"] <= first["x"]
        assert is_beside or first["y"] + first["h"] <= second["y"] or second["y"] + second["h"] <= first["y"]
    for panel in PANELS:
        assert panel["type"] in {"stat", "timeseries"}
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["description"]
        refs = [target["refId"] for target in panel["targets"]]
        assert refs == sorted(set(refs))
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(DASHBOARD)))
    assert used == variables == {"datasource", "directory", "query"}


def unknown_fields(given: Any, known: Any, path: str = "") -> list[str]:
    """Return the paths of values in the first JSON value that are missing or different in the second."""
    if isinstance(given, dict) and isinstance(known, dict):
        return [each for key in given for each in unknown_fields(given[key], known.get(key), f"{path}/{key}")]
    if isinstance(given, list) and isinstance(known, list) and len(given) == len(known):
        return [
            each
            for i, pair in enumerate(zip(given, known, strict=True))
            for each in unknown_fields(*pair, f"{path}/{i}")
        ]
    return [] if given == known else [path]


@pytest.mark.slow
def test_grafana_knows_every_field_of_the_dashboard() -> None:
    """Grafana's model of dashboards drops an unknown field. No registry has Grafana itself."""
    pytest.importorskip("grafana_foundation_sdk")
    plugins, encoder, models = (
        importlib.import_module(f"grafana_foundation_sdk.{name}")
        for name in ("cog.plugins", "cog.encoder", "models.dashboard")
    )
    plugins.register_default_plugins()

    def understood(dashboard: dict[str, Any]) -> Any:
        return json.loads(json.dumps(models.Dashboard.from_json(dashboard), cls=encoder.JSONEncoder))

    assert unknown_fields(DASHBOARD, understood(DASHBOARD)) == []
    misspelt = json.loads(json.dumps(DASHBOARD).replace("legendFormat", "legendFormats"))
    assert len(unknown_fields(misspelt, understood(misspelt))) == len(TARGETS)


def test_every_metric_is_set_somewhere() -> None:
    folders = (ROOT / "src/ftfile/tools/monitor", ROOT / "src/ftfile/spark")
    source = "".join(path.read_text() for folder in folders for path in folder.glob("*.py") if path.stem != "metrics")
    unset = [name for name, metric in METRICS.items() if not metric.of and f'"{name}"' not in source]
    assert not unset, f"no row of the table, nor tools/monitor/monitor.py or its callers, sets {', '.join(unset)}"


def test_the_value_of_a_metric_is_one_of_its_subject() -> None:
    names = {
        "head": HeadFacts._fields,
        "version": [field.name for field in fields(Version)],
        "metrics": [field.name for field in fields(VersionMetrics)],
        "tasks": [field.name for field in fields(VersionMetrics)],
        "last": LastCommit._fields,
    }
    values = {f"{subject}.{name}" for subject in names for name in names[subject]}
    assert not {metric.of for metric in METRICS.values() if metric.of} - values


def test_the_page_has_every_metric_and_every_alert() -> None:
    rows = []
    for labels, table in re.findall(
        r"^\| of each (.*?) \| meaning \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE
    ):
        for name, more, text in re.findall(r"^\| `(ftfile_\w+)`(?: \((.*?)\))? \| (.*?) \|$", table, re.MULTILINE):
            rows.append((name, f"{labels}, {more}" if more else labels, text))
    assert rows == [
        (metric.name, ", ".join(f"`{label}`" for label in metric.labels), metric.help) for metric in METRICS.values()
    ]
    assert re.findall(r"^\| `(Ftfile\w+)` \|", PAGE, re.MULTILINE) == ALERTS


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_a_name_tells_the_kind(metric: Metric) -> None:
    """The names have the endings that docs/monitoring.md describes."""
    ends = {"_total": "counter", "_timestamp_seconds": "gauge", "_seconds": "histogram"}
    assert metric.kind == next((kind for end, kind in ends.items() if metric.name.endswith(end)), "gauge")


@pytest.mark.slow
def test_promtool_takes_the_rules() -> None:
    promtool = program("promtool")
    subprocess.run([promtool, "check", "rules", str(FILES / "alerts.yml")], check=True, capture_output=True)
    done = subprocess.run(
        [promtool, "test", "rules", str(FILES / "alerts_test.yml")], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tested = set(re.findall(r"(?:alertname: |alertname=\")(Ftfile\w+)", TESTS))
    assert tested == set(ALERTS)


@pytest.mark.slow
def test_promtool_takes_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": expr.replace("$__rate_interval", "5m").replace("$", "")}
        for number, (expr, _) in enumerate(TARGETS)
    ]
    path = tmp_path / "rules.yml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))  # JSON is YAML
    done = subprocess.run(
        [program("promtool"), "check", "rules", str(path)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Run Prometheus with the alert rules; return its URL and the file of its targets."""
    (port,) = free_ports(1)
    targets = tmp_path / "targets.json"
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "100ms"},
        "rule_files": [str(FILES / "alerts.yml")],
        "scrape_configs": [
            {"job_name": "ftfile", "file_sd_configs": [{"files": [str(targets)], "refresh_interval": "100ms"}]}
        ],
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))
    command = [
        program("prometheus"),
        f"--config.file={tmp_path}/prometheus.yml",
        f"--storage.tsdb.path={tmp_path}/tsdb",
    ]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
        try:
            yield f"http://127.0.0.1:{port}", targets
        finally:
            process.terminate()
            process.wait()


def asked(url: str, **parameters: str) -> Any:
    with urlopen(f"{url}?{urlencode(parameters)}") as answer:
        return json.load(answer)["data"]


def until(look: Any, expected: object) -> None:
    deadline_s = time.monotonic() + 300
    while True:
        try:
            found = look()
        except OSError as error:  # the port is not open yet
            found = error
        if found == expected:
            return
        assert time.monotonic() < deadline_s, found
        time.sleep(0.1)


@pytest.mark.slow
def test_a_real_prometheus_has_the_values_and_raises_the_alert(server: tuple[str, Path], tmp_path: Path) -> None:
    url, targets = server
    query = MicroBatch(str(tmp_path / "out"), {"id": "long"}, {"fileFormat": "json"})
    with ftfile.monitor(query.path, prometheus_port=0, interval="100ms") as monitor:
        address = str(monitor.url).removeprefix("http://").removesuffix("/metrics")
        targets.write_text(json.dumps([{"targets": [address]}]))
        for batch in range(3):
            query.run(batch, [[{"id": 1}]])

        def values(expr: str) -> list[str]:
            return [series["value"][1] for series in asked(f"{url}/api/v1/query", query=expr)["result"]]

        until(lambda: values("sum(ftfile_rows_total)"), ["3"])
        groups = asked(f"{url}/api/v1/rules")["groups"]
        assert [rule["name"] for group in groups for rule in group["rules"]] == ALERTS
        assert {rule["health"] for group in groups for rule in group["rules"]} <= {"ok", "unknown"}
        record = Path(query.path, "_ftfile/log/_00000000000000000003.record")
        record.write_bytes(b"x")
        until(lambda: values("ftfile_up"), ["0"])
        until(lambda: values('count(ALERTS{alertname="FtfileDirectoryUnreadable"})'), ["1"])
