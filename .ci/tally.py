"""Adds up the JUnit reports of a folder: a line for each, and a last one in the form of pytest's own."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from collections.abc import Sequence


def counts(report: Path) -> Counter[str]:
    """Return how many tests had which outcome, without the outcomes that none had."""
    suite = ElementTree.parse(report).getroot()[0].attrib
    failed, errors, skipped = (int(suite[name]) for name in ("failures", "errors", "skipped"))
    passed = int(suite["tests"]) - failed - errors - skipped
    return +Counter(failed=failed, passed=passed, skipped=skipped, errors=errors)


def phrase(outcomes: Counter[str]) -> str:
    """Say the counts as pytest does."""
    return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()) or "no tests ran"


def seconds(report: Path) -> float:
    """Return how long the tests took."""
    return float(ElementTree.parse(report).getroot()[0].attrib["time"])


def main(folder: Path, broken: Sequence[str]) -> bool:
    """Print the lines in the order in which the reports were written; return True if everything passed.

    Args:
        folder: of the reports.
        broken: targets of make that failed; one counts as a failure where no report shows any.
    """
    reports = sorted(folder.glob("*.xml"), key=lambda path: path.stat().st_mtime_ns)
    for report in reports:
        print(f"{report.stem:16} {phrase(counts(report))} in {seconds(report):.1f}s")
    total = sum(map(counts, reports), Counter[str]())
    if broken:
        print(f"failed: {', '.join(broken)}")
    # lint has no report, and a process that was killed has none either.
    untold = len(broken) - sum(1 for report in reports if {"failed", "errors"} & counts(report).keys())
    total = +(Counter(failed=max(0, untold)) + total)
    print(f" {phrase(total)} in {sum(map(seconds, reports)):.2f}s ".center(80, "="))
    return not (broken or total["failed"] or total["errors"])


sys.exit(0 if main(Path(sys.argv[1]), sys.argv[2:]) else 1)
