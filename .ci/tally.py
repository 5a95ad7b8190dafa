"""Adds up the JUnit reports of all targets: a line for each, and a last one in the form of pytest's own."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from xml.etree.ElementTree import Element


def suite(report: Path) -> Element:
    """Return the only test suite of a report."""
    return ElementTree.parse(report).getroot()[0]


def counts(report: Path) -> Counter[str]:
    """Return how many tests had which outcome, without the outcomes that none had."""
    told = suite(report).attrib
    failed, errors, skipped = (int(told[name]) for name in ("failures", "errors", "skipped"))
    passed = int(told["tests"]) - failed - errors - skipped
    return +Counter(failed=failed, passed=passed, skipped=skipped, errors=errors)


def phrase(outcomes: Counter[str]) -> str:
    """Say the counts as pytest does."""
    return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()) or "no tests ran"


def seconds(report: Path) -> float:
    """Return how long the tests took."""
    return float(suite(report).attrib["time"])


def failures(report: Path) -> Iterator[str]:
    """Yield the tests that failed, as `module::test`."""
    for test in suite(report).iter("testcase"):
        if test.find("failure") is not None or test.find("error") is not None:
            yield f"{test.attrib['classname']}::{test.attrib['name']}"


def main(folder: Path, broken: Collection[str]) -> bool:
    """Print the lines in the order in which the reports were written; return True if everything passed.

    Args:
        folder: of the reports, in it one for each target.
        broken: targets of make that failed, also when they were made again; one counts as a failure where no report
            shows any.
    """
    reports = sorted(folder.glob("*/*.xml"), key=lambda path: path.stat().st_mtime_ns)
    total: Counter[str] = Counter()
    told = set()
    for report in reports:
        found = counts(report)
        print(f"{report.stem:16} {phrase(found)} in {seconds(report):.1f}s")
        if {"failed", "errors"} & found.keys():
            if report.parent.name in broken:
                told.add(report.parent.name)
            else:
                print(*(f"  passed when it ran again: {test}" for test in failures(report)), sep="\n")
                found = +Counter(passed=found["passed"] + found["failed"] + found["errors"], skipped=found["skipped"])
        total += found
    if broken:
        print(f"failed: {', '.join(broken)}")
    # lint has no report, and a process that was killed has none either.
    total = +(Counter(failed=len(set(broken) - told)) + total)
    print(f" {phrase(total)} in {sum(map(seconds, reports)):.2f}s ".center(80, "="))
    return not broken


sys.exit(0 if main(Path(sys.argv[1]), sys.argv[2:]) else 1)
