"""The option `exportTo` starts an export after each commit. No batch waits for an export or fails with it."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import ftfile.operate.export.export
from ftfile.core.errors import ConfigError
from ftfile.operate.export.after_commit import export_soon
from ftfile.testing.context import current
from ftfile.testing.micro_batch import MicroBatch
from tests.unit.operate.export.formats import COLUMNS, check_newest, rows

if TYPE_CHECKING:
    from pathlib import Path

FORMATS = ("delta", "iceberg")
WAIT_S = 300.0


def export(url: str) -> None:
    export_soon(url, FORMATS, {}, current(), wait_s=WAIT_S)


@pytest.mark.slow
@pytest.mark.packages
def test_each_format_has_the_rows(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    query = MicroBatch(out, COLUMNS, {"exportTo": "delta, Iceberg"})
    for batch in range(2):
        query.run(batch, [rows(2 * batch)])
        export(out)
        for to in FORMATS:
            check_newest(out, to)
    export_soon(out, (), {}, current())


@pytest.mark.slow
@pytest.mark.packages
def test_a_failure_is_logged_once_and_caught_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = str(tmp_path / "out")
    query = MicroBatch(out, COLUMNS)
    query.run(0, [rows(0)])
    (tmp_path / "out" / "_iceberg").write_text("in the way")
    for batch in range(1, 3):
        export(out)
        query.run(batch, [rows(2 * batch)])
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1
    assert "iceberg: " in errors[0]
    assert "is not exported; the next commit, or ftfile.export, tries again" in errors[0]
    (tmp_path / "out" / "_iceberg").unlink()
    export(out)
    for to in FORMATS:
        check_newest(out, to)

    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(ftfile.operate.export.export, "export", fail)
    export(out)
    assert "ZeroDivisionError('a mistake')" in caplog.records[-1].getMessage()
    monkeypatch.setitem(sys.modules, "ftfile.operate.export.export", None)
    export(out)
    assert "ModuleNotFoundError" in caplog.records[-1].getMessage()


def test_calls_while_one_runs_lead_to_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, begun = threading.Event(), threading.Semaphore(0)
    runs: list[str] = []

    def slow(path: str, *_: Any, **__: Any) -> None:
        runs.append(path)
        begun.release()
        assert go_on.wait(WAIT_S)

    monkeypatch.setattr(ftfile.operate.export.export, "export", slow)
    export_soon("/o", ("delta",), {}, current())
    assert begun.acquire(timeout=WAIT_S)
    for _ in range(5):
        export_soon("/o", ("delta",), {}, current())
    export_soon("/other", ("delta",), {}, current())
    go_on.set()
    export_soon("/o", ("delta",), {}, current(), wait_s=WAIT_S)
    export_soon("/other", ("delta",), {}, current(), wait_s=WAIT_S)
    assert 2 <= runs.count("/o") <= 3


def test_each_export_has_the_settings_of_the_last_call(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, Any]] = []
    monkeypatch.setattr(
        ftfile.operate.export.export, "export", lambda *_, storage, context, **__: seen.append((storage, context))
    )
    calls = [({"s3.token": token}, replace(current())) for token in ("old", "new")]
    for storage, context in calls:
        export_soon("/settings", ("delta",), storage, context, wait_s=WAIT_S)
    assert seen == calls
    assert seen[1][1] is calls[1][1]


@pytest.mark.parametrize("text", ["hudi", "delta,delta", ""])
def test_formats_that_are_not_known(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="exportTo"):
        MicroBatch(str(tmp_path), COLUMNS, {"exportTo": text}).run(0, [rows(0)])
