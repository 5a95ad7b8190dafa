"""The function `ftfile.report`: the page, its warnings, and the command."""

from __future__ import annotations

import html
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import ftfile
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.operate.findings import CheckReport, check, find
from ftfile.operate.open_files import OpenFile
from ftfile.operate.status import UnpublishedFile, findings_of
from ftfile.testing.micro_batch import StoreBatch
from ftfile.tools.report import report as findings
from ftfile.tools.report.history import LiveFiles
from ftfile.tools.report.report import OPEN_SHOWN, render
from tests.kit.parameters import parametrize
from tests.unit.tools.cli.running import documents, run
from tests.unit.tools.report.samples import MADE_MS, commits_of, contents_of

if TYPE_CHECKING:
    from ftfile.testing.micro_batch import MicroBatch

MIB = 1 << 20
PAGE = Path(__file__).parents[4] / "docs/report.md"


@pytest.mark.slow
def test_a_page_of_100_000_batches_is_small_and_asks_for_nothing() -> None:
    page = render(contents_of(100_000))
    assert len(page.encode()) < 1_000_000
    assert "100,000 versions in 400 groups of up to 250" in page
    for reference in ("http:", "https:", "src=", "url(", "@import"):
        assert reference not in page
    assert f"The first {OPEN_SHOWN} of 60" in page


@pytest.mark.slow
def test_texts_are_escaped() -> None:
    page = render(contents_of(3))
    assert page.count("<script>") == 1
    assert "&lt;script&gt;alert(1)" in page
    assert "&lt;script&gt;alert(2)" in page


@pytest.mark.slow
def test_the_example_of_the_page_of_the_docs(rolled: MicroBatch, tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    saved = tmp_path / "report.html"
    exec(program.replace("/data/out", rolled.path).replace("report.html", str(saved)), {"ftfile": ftfile})
    assert saved.read_text().startswith("<!doctype html>")


@parametrize("versions", [0, 1, 2], quick=1)
@pytest.mark.parametrize("is_store", [False, True])
def test_pages_of_few_versions(versions: int, *, is_store: bool) -> None:
    page = render(contents_of(versions, is_store=is_store))
    assert ("No version can be read yet" in page) == (versions == 0)
    assert ("Open files" in page) != is_store


@pytest.mark.slow
def test_the_page_of_a_directory(rolled: MicroBatch, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in Path(rolled.path).rglob("*")}
    report = ftfile.report(rolled.path)
    assert {path: path.stat().st_mtime_ns for path in Path(rolled.path).rglob("*")} == before
    assert report.version == 2
    assert report.path == f"file://{rolled.path}"
    assert rolled.query_id in report.html
    assert "day=%3Ci%3E1" in report.html or "day=&lt;i&gt;1" in report.html
    report.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == report.html
    with pytest.raises(ConfigError, match="cannot be written"):
        report.save(tmp_path / "no" / "page.html")


@pytest.mark.slow
def test_the_page_of_a_store(tmp_path: Path) -> None:
    store = StoreBatch(str(tmp_path / "store"), {"word": "string", "n": "long"}, {"keyColumns": "word"})
    for batch in range(3):
        store.run(batch, [[{"word": "a", "n": batch}]])
    report = ftfile.report(store.path)
    assert "keyed store" in report.html
    assert "Rows per version" in report.html
    assert "Files per version" not in report.html
    assert "Compactions due" in report.html


@pytest.mark.slow
def test_the_records_are_read_once(monkeypatch: pytest.MonkeyPatch, rolled: MicroBatch) -> None:
    """The plots use the records that the comparison has already read."""
    monkeypatch.setattr("ftfile.tools.report.report.read_commits", None)
    assert "3 versions, from left to right" in ftfile.report(rolled.path).html


@pytest.mark.slow
def test_what_is_missing(monkeypatch: pytest.MonkeyPatch, rolled: MicroBatch, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not an ftfile directory"):
        ftfile.report(tmp_path)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ConfigError, match=r"pip install 'ftfile\[report\]'"):
        ftfile.report(rolled.path)


@pytest.mark.slow
def test_faults_are_told_in_plain_words(rolled: MicroBatch) -> None:
    next(Path(rolled.path).rglob("*.json")).unlink()
    found = ftfile.report(rolled.path)
    (gone,) = (each for each in found.findings if each.code == "missing-part")
    assert (gone.title, gone.severity, found.findings[0]) == ("A committed file is missing", "error", gone)
    command = gone.command(rolled.path)
    assert command == f"ftfile repair {shlex.quote(rolled.path)} --give-up {shlex.quote(gone.path)}"
    assert "A committed file is missing" in found.html
    assert f"<code>{html.escape(command).replace('&#x27;', '&#39;')}</code>" in found.html
    assert "What needs attention: 1 error" in found.html
    found = ftfile.report(rolled.path, verify=False)
    assert "was not compared with the log" in found.html
    assert "missing-part" not in {each.code for each in found.findings}


@pytest.mark.slow
def test_a_log_that_cannot_be_read_to_its_end_has_a_page(damaged: str) -> None:
    found = ftfile.report(damaged)
    actual = {each.code: each.actual for each in found.findings}
    assert "missing-record" in actual
    assert actual["unreadable-versions"] == "1 version whose record is missing or damaged"
    assert "2 versions, from left to right" in found.html
    with pytest.raises(CorruptData):
        ftfile.report(damaged, verify=False)


def test_a_stuck_publication_is_told_without_a_comparison(rolled: MicroBatch) -> None:
    status = ftfile.open(rolled.path).status()
    unpublished = (
        UnpublishedFile(version=3, query_id=None, path="a", problem="a foreign file is at 'a'"),
        UnpublishedFile(version=3, query_id=None, path="b", problem=""),
    )
    opened = OpenFile("q", "day=1", 1, 7, 9, MADE_MS - 60_000, MADE_MS, "age", None, "", 0)
    status = replace(status, unpublished=unpublished, open=(opened, replace(opened, attempts=2)))
    found = {each.code: each for each in findings_of(status)}
    assert {code: each.severity for code, each in found.items()} == {
        "open-file-fails": "error",
        "open-file-due": "warning",
        "not-publishable": "error",
        "not-published": "warning",
    }
    assert "tried 2 times" in found["open-file-fails"].actual
    assert "7 rows" in found["open-file-due"].actual
    assert found["open-file-due"].command("/out") == "ftfile flush /out --due-only"
    assert "a foreign file" in found["not-publishable"].actual


@pytest.mark.slow
def test_what_a_comparison_finds_is_told_once(rolled: MicroBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = UnpublishedFile(version=3, query_id=None, path="b", problem="")
    monkeypatch.setattr("ftfile.operate.status._list_unpublished", lambda *_: [waiting])
    codes = [[each.code for each in ftfile.report(rolled.path, verify=is_told).findings] for is_told in (True, False)]
    assert ["not-published" in each for each in codes] == [False, True]


def test_many_small_files_and_removed_ones_are_told() -> None:
    commits = commits_of(10)
    small, few = LiveFiles(np.full(findings.SMALL_FILES, MIB)), LiveFiles(np.full(findings.SMALL_FILES - 1, MIB))
    (found,) = findings.of_files(small, commits, was_vacuumed=False)
    assert (found.code, found.command("/out")) == ("small-files", "ftfile compact /out --dry-run")
    assert not [*findings.of_files(few, commits, was_vacuumed=False)]
    large = LiveFiles(np.full(findings.SMALL_FILES, findings.SMALL_BYTES))
    assert not [*findings.of_files(large, commits, was_vacuumed=False)]
    commits.columns["files_removed"] = 1
    assert [each.actual for each in findings.of_files(few, commits, was_vacuumed=False)] == [
        "10 files were replaced or removed, and vacuum has never run"
    ]
    assert not [*findings.of_files(few, commits, was_vacuumed=True)]


def test_the_history_is_told() -> None:
    commits = commits_of(3 * findings.RECENT)
    for name in ("recoveries", "replays", "task_retries"):
        commits.columns[name] = 0
    commits.columns["write"] = 0.1
    assert not [*findings.of_commits(commits)]
    commits.columns["replays"][-1] = 1
    commits.columns["recoveries"][-200:] = 1
    commits.columns["bad_records"][0] = 5
    commits.columns["write"][-findings.RECENT :] = 9
    found = {each.code: (each.severity, each.actual) for each in findings.of_commits(commits)}
    assert found == {
        "bad-records": ("warning", "5 records"),
        "replays": ("info", "1 in the newest 1,000 versions"),
        "recoveries": ("warning", "200 in the newest 1,000 versions"),
        "slower-commits": ("warning", "9.1 s in the newest 1,000 versions"),
    }


def test_silence_is_told() -> None:
    commits, queries = commits_of(20), contents_of(20).status.queries
    last_ms = int(commits.columns["time_ms"][-1])
    beyond_ms = 1_000 * findings.SILENT_S + 1
    assert not [*findings.of_silence(queries, commits, last_ms + beyond_ms - 1)]
    (finding,) = findings.of_silence(queries, commits, last_ms + beyond_ms)
    assert (finding.code, finding.expected) == ("silence", "a version within 10 s, as usual")
    assert not [*findings.of_silence((), commits, last_ms + beyond_ms)]


@pytest.mark.slow
def test_checks_that_pass_need_no_attention(rolled: MicroBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    findings = (check("python", "x", "y", is_passed=True), find("extra", "", "x", "y"), find("space", "", "x", "y"))
    monkeypatch.setattr("ftfile.tools.report.report.doctor", lambda *_, **__: CheckReport(findings=findings))
    assert [each.code for each in ftfile.report(rolled.path).findings] == ["open-file-due", "space"]


@pytest.mark.slow
def test_findings_of_one_kind_are_one_point_of_a_page() -> None:
    findings = [find("not-published", name, "a file", "it is staged") for name in ("a", "b", "c", "d")]
    page = render(replace(contents_of(3), findings=(*findings, find("not-published", "", "", "others"))))
    assert "What needs attention: 1 warning<" in page
    assert (
        "5 findings: &#39;a&#39;, &#39;b&#39;, &#39;c&#39; and 1 more: expected a file, found it is staged; others"
        in page
    )


@pytest.mark.packages
@pytest.mark.slow
def test_the_command(rolled: MicroBatch, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = run("report", rolled.path, "-o", page)
    assert f"Wrote {page}" in result.stderr
    assert "<!doctype html>" in page.read_text()
    page.unlink()
    (found,) = documents("report", rolled.path, "-o", page, "--no-verify")
    assert found["version"] == 2
    assert {"title", "command"} <= found["findings"][0].keys()
    assert page.exists()
    assert "cannot be written" in run("report", rolled.path, "-o", tmp_path, code=2).stderr
