"""Findings: the table of their kinds, the page that lists them, and their commands."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ftfile.core.remedies import Advice, Remedy
from ftfile.operate.findings import KINDS, SEVERITIES, CheckReport, Finding, check, find, is_well, sort_worst_first
from ftfile.operate.repair import RepairReport, RepairStep


def test_every_kind_of_finding_is_documented() -> None:
    docs = Path(__file__).parents[3] / "docs"
    text = (docs / "repair.md").read_text().partition("## By symptom")[2] + (docs / "internals/findings.md").read_text()
    titles = {code: title for title, code in re.findall(r"^\| ([^|]*) \| `([a-z-]+)` \|", text, re.MULTILINE)}
    assert titles == {"code": "symptom"} | {code: kind.title for code, kind in KINDS.items()}


def test_a_finding_has_what_the_table_says_of_its_kind() -> None:
    for code, kind in KINDS.items():
        finding = find(code, "", "", "")
        assert (finding.severity, finding.repair, finding.remedy) == (kind.severity, kind.repair, kind.remedy)
        passed = check(code, "", "", is_passed=True)
        assert (passed.severity, passed.remedy, passed.command("/out")) == ("ok", "", None)
        assert is_well([passed, finding]) == (kind.severity == "info")
    every = [
        Finding(code="python", path="", expected="", actual="", severity=severity, remedy="")
        for severity in reversed(SEVERITIES)
    ]
    assert [finding.severity for finding in sort_worst_first(every)] == [*SEVERITIES]


@pytest.mark.parametrize(
    ("remedy", "command"),
    [
        ("Look at it: ftfile.repair(path)", None),
        (Advice("Read them: ", Remedy("dead_letters")), None),
        (Advice("run ", Remedy("repair", dry_run=False), ", or ", Remedy("flush")), "ftfile repair '/a b'"),
    ],
)
def test_the_command_of_a_remedy(remedy: str, command: str | None) -> None:
    assert find("space", "", "", "", remedy=remedy).command("/a b") == command


def test_a_report_is_as_its_worst_finding() -> None:
    passed, known = check("python", "", "", is_passed=True), find("extra", "", "", "s3 is not installed")
    well = CheckReport(findings=(known, passed))
    assert (well.ok, well.verdict) == (True, "well: 1 check passed")
    assert str(well) == f"{well.verdict}\n{known}"
    full = CheckReport(findings=(find("space", "", "", ""), known))
    assert (full.ok, full.verdict) == (
        False,
        "The disk is nearly full: free space: on a full disk batches fail and are retried",
    )


def test_a_repair_with_a_step_that_failed_is_not_well() -> None:
    steps = (RepairStep(code="bad-hint", path="a", action="rebuild the hint"),)
    done = RepairReport(version=3, dry_run=False, steps=steps)
    assert (done.ok, done.verdict) == (True, "well: version 3, rebuild the hint")
    assert not replace(done, steps=(replace(steps[0], error="no space"),)).ok
