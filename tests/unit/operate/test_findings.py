"""Findings: the table of their kinds, the page that lists them, and their commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ftfile.operate.findings import KINDS, SEVERITIES, Finding, check, find, is_well, worst_first


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
    every = [Finding("python", "", "", "", severity, "") for severity in reversed(SEVERITIES)]
    assert [finding.severity for finding in worst_first(every)] == [*SEVERITIES]


@pytest.mark.parametrize(
    ("remedy", "command"),
    [
        ("Look at it", None),
        ("ftfile.repair(path, dry_run=False) mends it", "ftfile repair '/a b'"),
        ("let ftfile.repair(path, dry_run=True) propose", "ftfile repair '/a b' --dry-run"),
        (
            "ftfile.repair(path, give_up=['x'], full=True, dry_run=False)",
            "ftfile repair '/a b' --give-up x --full",
        ),
        ("ftfile.repair(path, quarantine=[…], dry_run=False)", "ftfile repair '/a b' --quarantine FILE"),
        ("`ftfile.open(path).verify()` says which", "ftfile verify '/a b'"),
        ("ftfile.kv.compact(path), or ftfile.flush(path)", "ftfile kv compact '/a b'"),
        ("ftfile.undo_migration(path)", "ftfile migrate '/a b' --undo"),
    ],
)
def test_the_command_of_a_remedy(remedy: str, command: str | None) -> None:
    assert find("space", "", "", "", remedy=remedy).command("/a b") == command
