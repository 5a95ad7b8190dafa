"""The commands `verify` and `doctor`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.log.format import layout
from ftfile.operate.findings import CheckReport, check, find
from tests.unit.tools.cli.running import documents, run

if TYPE_CHECKING:
    from ftfile.testing.micro_batch import MicroBatch

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
    out = shlex.quote(out)
    assert {field[1] for field in fields if field[0] == "command"} == {
        f"ftfile repair {out}",
        f"ftfile repair {out} --give-up {gone}",
        f"ftfile repair {out} --give-up {damaged} --full",
        f"ftfile repair {out} --quarantine FILE",
    }
