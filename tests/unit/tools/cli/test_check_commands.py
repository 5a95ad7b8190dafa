"""The commands `verify`, `status`, `doctor` and `report`."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

import ftfile
from ftfile.log.format import layout
from ftfile.operate.findings import CheckReport, check, find
from ftfile.testing.micro_batch import MicroBatch
from ftfile.testing.source_run import SourceRun
from tests.kit.files_run import FilesRun
from tests.unit.tools.cli.running import documents, run

QUERY = "00000000-0000-0000-0000-000000000001"


@pytest.mark.slow
def test_verify(out: str) -> None:
    assert "result\twhole\n" in run("verify", out).stdout
    (report,) = documents("verify", out)
    assert (report["version"], report["files"], report["rows"], report["findings"]) == (2, 6, 12, [])
    gone = ftfile.open(out).files()[0].path
    Path(out, gone).unlink()
    text = run("verify", out, code=1).stdout
    assert f"error missing-part: {gone}" in text
    assert "remedy\tRestore the file from a copy" in text
    (report,) = documents("verify", out, code=1)
    assert report["findings"][0]["code"] == "missing-part"
    assert "actions" not in report["findings"][0]


@pytest.mark.slow
def test_verify_reads_content_only_when_asked(out: str) -> None:
    path = Path(out, ftfile.open(out).files()[0].path)
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    assert "content not read" in run("verify", out).stdout
    assert "error damaged-part" in run("verify", out, "--full", "--threads", 1, code=1).stdout


@pytest.mark.slow
def test_doctor(out: str) -> None:
    text = run("doctor", out).stdout
    assert "\ndirectory\tok\t" in text
    assert "\npython\tok\t" in text
    assert "\ndirectory\terror\t" in run("doctor", f"{out}/nowhere", code=1).stdout
    (report,) = documents("doctor")
    assert not any(each["code"] == "directory" for each in report["findings"])


@pytest.mark.slow
def test_doctor_on_a_terminal_has_every_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedies are below the table, because its columns are narrow. Optional packages have a remedy, too."""
    findings = (
        check("python", "3.10", "3.11", is_passed=True),
        find("extra", "", "", "not installed", remedy="pip install ..."),
        find("space", "", "", "1 MiB", remedy="wait"),
    )
    monkeypatch.setattr(ftfile, "doctor", lambda *_, **__: CheckReport(findings=findings))
    for module in ("output", "check_commands"):
        monkeypatch.setattr(f"ftfile.tools.cli.{module}.is_terminal", lambda: True)
    _, *remedies = run("doctor", code=1).stdout.split("\n\n")
    assert remedies == ["extra: what to do\npip install ...", "space: what to do\nwait\n"]


@pytest.mark.packages
@pytest.mark.slow
def test_what_is_printed_is_for_a_terminal(query: MicroBatch, rolled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output contains no Python calls, except in texts of JSON, which has a separate field for the command."""
    out = query.path
    Path(out, ftfile.open(out).files()[0].path).unlink()
    Path(out, layout.RETIRED).rmdir()
    Path(out, "foreign.json").touch()
    for command, code in (("verify", 1), ("repair", 1), ("report", 0)):
        options = {"repair": ["--dry-run"], "report": ["-o", os.devnull]}.get(command, [])
        assert "ftfile." not in run(command, out, *options, code=code).stdout
    (report,) = documents("verify", out, code=1)
    assert "ftfile.repair(" in report["findings"][0]["remedy"]
    assert {each["command"] for each in report["findings"]} == {
        f"ftfile repair {out}",
        f"ftfile repair {out} --give-up {report['findings'][0]['path']}",
        f"ftfile repair {out} --quarantine foreign.json",
    }
    (report,) = documents("repair", out, "--dry-run", code=1)
    assert report["findings"][0]["command"].startswith(f"ftfile repair {out} --give-up ")
    (status,) = documents("status", rolled)
    assert {each["command"] for each in status["open"]} == {None}
    monkeypatch.setattr("ftfile.operate.open_files.reason_to_end", lambda *_: "size")
    (status,) = documents("status", rolled)
    assert {each["command"] for each in status["open"]} == {f"ftfile flush {rolled} --due-only"}
    assert f"; `ftfile flush {rolled} --due-only` does so now\t" in run("status", rolled).stdout


@pytest.mark.packages
@pytest.mark.slow
def test_doctor_names_commands(out: str) -> None:
    Path(out, layout.record_path(2)).write_text("damaged")
    for path in Path(out, layout.HINTS).iterdir():
        path.unlink()
    assert f"\t`ftfile verify {out}` finds the damaged files\n" in run("doctor", out, code=1).stdout
    (report,) = documents("doctor", out, code=1)
    found = {each["code"]: each["command"] for each in report["findings"]}
    assert (found["directory"], found["python"]) == (f"ftfile verify {out}", None)


def test_each_finding_has_its_command(out: str) -> None:
    damaged, gone = (file.path for file in ftfile.open(out).files()[:2])
    content = Path(out, damaged).read_bytes()
    Path(out, damaged).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    Path(out, gone).unlink()
    Path(out, layout.RETIRED).rmdir()
    for name in ("a.json", "b.json"):
        Path(out, name).touch()
    fields = [line.split("\t") for line in run("verify", out, "--full", code=1).stdout.splitlines()]
    assert {field[1] for field in fields if field[0] == "command"} == {
        f"ftfile repair {out}",
        f"ftfile repair {out} --give-up {gone}",
        f"ftfile repair {out} --give-up {damaged} --full",
        f"ftfile repair {out} --quarantine FILE",
    }


@pytest.mark.slow
def test_status(out: str, rolled: str) -> None:
    text = run("status", out).stdout
    assert "version\t2, committed " in text
    assert f"{QUERY}\t2\t2\t" in text
    text = run("status", rolled).stdout
    assert "open files\t2\n" in text
    assert "UTC by rolloverInterval, or 1,000 segments" in text
    assert "\tin 60 min\t" in text
    (found,) = documents("status", rolled)
    assert [each["directory"] for each in found["open"]] == ["month=6", "month=7"]
    assert found["queries"][0]["last_batch"] == 2


@pytest.mark.slow
def test_status_tells_why_a_file_is_not_published(query: MicroBatch) -> None:
    query.run(3, [[{"id": 1, "month": "9", "word": "x"}]])
    directory = ftfile.open(query.path)
    file = directory.files()[-1].path
    # The process died before it published the file: the file is staged, and a foreign file has its name.
    staged = next(add for add in directory.snapshot().adds.values() if add.final_path == file)
    Path(query.path, staged.path).parent.mkdir(parents=True, exist_ok=True)
    Path(query.path, file).rename(Path(query.path, staged.path))
    Path(query.path, file).write_text("mine")
    Path(query.path, layout.PUBLISHED_HINT).unlink()
    text = run("status", query.path).stdout
    assert "not published\t1, 1 of them stuck" in text
    assert "a foreign file of 4 bytes" in text
    assert documents("ls", query.path)[-1]["state"] == "pending"


@pytest.mark.slow
def test_status_tells_how_far_a_query_is_behind(query: MicroBatch, tmp_path: Path) -> None:
    text = run("status", query.path).stdout
    assert re.search(rf"^{QUERY}\t2\t2\t\d\.\d s ago\tno batch\tfile://{query.checkpoint}\t\t$", text, re.MULTILINE)
    about = f'{{"batchTimestampMs": {time.time_ns() // 1_000_000 - 600_000}}}'
    Path(str(query.checkpoint), "offsets/3").write_text(f'v1\n{about}\n{{"t":{{"0":7}}}}\n{{"t":{{"0":8}}}}\n')
    text = run("status", query.path).stdout
    assert "\t3, for 10 min\t" in text
    assert "\t0\tkafka\tnot known\t\tt: partition 0 at 7\n" in text
    assert text.count("kafka: only Kafka has the newest offsets") == 1
    (found,) = documents("status", query.path)
    assert found["queries"][0]["checkpoint"]["sources"][0]["offset"] == {"t": {"0": 7}}
    assert (found["queries"][0]["checkpoint"]["planned_batch"], found["queries"][0]["last_batch"]) == (3, 2)
    assert "under way" in run("status", query.path, "--no-lag").stdout
    assert "no batch" not in run("status", query.path, "--no-lag").stdout
    Path(str(query.checkpoint)).rename(tmp_path / "moved")
    result = run("status", query.path)
    assert (
        f"\ninfo checkpoint-unread: file://{query.checkpoint}\nexpected\tthe checkpoint of query {QUERY}\n"
        in result.stdout
    )
    assert "\t3, for 10 min\t" in run("status", query.path, "--checkpoint", tmp_path / "moved").stdout
    assert "not a readable checkpoint" in run("status", query.path, "--checkpoint", tmp_path / "nowhere", code=2).stderr


@pytest.mark.slow
def test_status_counts_what_sources_have_left(query: MicroBatch, tmp_path: Path) -> None:
    """For files and for followed directories; the output names the source as the command line does."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.log").write_text("one\n")
    options = {"fileFormat": "text", "checkpointLocation": str(query.checkpoint)}
    files = FilesRun(str(tmp_path / "in"), {"value": "string"}, options)
    files.run()
    followed = MicroBatch(str(tmp_path / "followed"), {"id": "long"}, {"fileFormat": "json"})
    followed.run(0, [[{"id": 1}]])
    source = SourceRun(followed.path, {"id": "long"})
    source.run()
    text = "\n".join(["v1", "{}", files.offsets[-1], source.offsets[-1]])
    Path(str(query.checkpoint), "offsets/3").write_text(text)
    (tmp_path / "in/b.log").write_text("three\n")
    os.utime(tmp_path / "in/b.log", (time.time() - 7200,) * 2)
    followed.run(1, [[{"id": 1}]])
    text = run("status", query.path).stdout
    assert f"\t0\tfiles\t1 file of 6 B, the oldest changed 2 h ago\tfile://{tmp_path}/in\t" in text
    assert (
        "ftfile: a checkpoint does not name the directory that the query follows: give it with --source PATH\n" in text
    )
    text = run("status", query.path, "--source", followed.path).stdout
    assert f"\t1\tftfile\t1 version\tfile://{followed.path}\t" in text


@pytest.mark.slow
def test_status_counts_orphans_when_asked(rolled: str) -> None:
    assert "not needed" not in run("status", rolled).stdout
    assert documents("status", rolled)[0]["unneeded_files"] is None
    assert documents("status", rolled, "--staged")[0]["unneeded_files"] == 0, (
        "all of these files have rows of open files"
    )
    Path(rolled, layout.STAGED, "lost").write_bytes(b"12345")
    assert "not needed\t1 staged file of 5 B: " in run("status", rolled, "--staged").stdout
    ftfile.flush(rolled)
    (found,) = documents("status", rolled, "--staged")
    assert found["unneeded_files"] == 4
    assert found["unneeded_bytes"] > 5


@pytest.mark.slow
def test_status_of_a_directory_whose_log_is_lost(out: str) -> None:
    for record in Path(out, layout.LOG).iterdir():
        record.unlink()
    assert "no readable version" in run("status", out, code=4).stdout
    (found,) = documents("status", out, code=4)
    assert [each["code"] for each in found["findings"]] == ["lost-records"]


@pytest.mark.slow
def test_report_to_stdout_is_the_page_alone(out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = {*tmp_path.iterdir()}
    page = run("report", out, "-o", "-", "--no-verify").stdout
    assert page.startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")
    assert {*tmp_path.iterdir()} == before
    assert "use only one of them" in run("report", out, "-o", "-", "--json", code=2).stderr


@pytest.mark.slow
def test_status_tells_the_oldest_version_that_can_be_read(query: MicroBatch) -> None:
    ftfile.compact(query.path)
    status = run("status", query.path).stdout
    assert "oldest version\t0\n" in status
    ftfile.expire(query.path, older_than="0s", force=True, dry_run=False)
    found = ftfile.open(query.path)
    assert (found.oldest_version(), found.status().oldest_version) == (3, 0)
    status = run("status", query.path).stdout
    assert "oldest version\t3 can be read; the log has records from 0 on\n" in status


@pytest.mark.slow
def test_report_says_remedies_as_commands(out: str, tmp_path: Path) -> None:
    gone = ftfile.open(out).files()[0].path
    Path(out, gone).unlink()
    text = run("report", out, "-o", tmp_path / "report.html").stdout
    assert f"`ftfile repair {out} --give-up {gone}`" in text
    assert "ftfile.repair(" not in text
