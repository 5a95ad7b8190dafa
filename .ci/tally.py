"""Print a table of the targets that stages.py made, and a last line in the form of pytest's own.

Usage: tally.py FOLDER FAILED..., where FOLDER has one folder for each target, with its JUnit reports and its times, and
FAILED are the targets that failed.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from xml.etree.ElementTree import Element

TIMES = "times"  # of stages.py
OUTCOMES = ("failed", "passed", "skipped", "errors")


def is_readable(report: Path) -> bool:
    """Return True for a report that was written to its end."""
    try:
        ElementTree.parse(report)
    except ElementTree.ParseError:
        return False
    return True


def suite(report: Path) -> Element:
    """Return the only test suite of a report."""
    return ElementTree.parse(report).getroot()[0]


def counts(reports: Sequence[Path]) -> Counter[str]:
    """Return the number of tests with each outcome."""
    total: Counter[str] = Counter()
    for report in reports:
        attributes = suite(report).attrib
        failed, errors, skipped = (int(attributes[name]) for name in ("failures", "errors", "skipped"))
        passed = int(attributes["tests"]) - failed - errors - skipped
        total += Counter(failed=failed, passed=passed, skipped=skipped, errors=errors)
    return total


def phrase(outcomes: Counter[str]) -> str:
    """Return the counts in the words of pytest."""
    return ", ".join(f"{outcomes[name]} {name}" for name in OUTCOMES if outcomes[name]) or "no tests ran"


def seconds(reports: Sequence[Path]) -> float:
    """Return the sum of the times of all tests."""
    return sum(float(suite(report).attrib["time"]) for report in reports)


def failures(reports: Sequence[Path]) -> Iterator[str]:
    """Yield the failed tests as `module::test`."""
    for report in reports:
        for test in suite(report).iter("testcase"):
            if test.find("failure") is not None or test.find("error") is not None:
                yield f"{test.attrib['classname']}::{test.attrib['name']}"


def times_s(target: Path) -> tuple[float, float]:
    """Return the seconds from start to end of a target, and its seconds of the processor, with repeated tests."""
    took_s = processor_s = 0.0
    for path in (target / TIMES, target / "again" / TIMES):
        if path.exists():
            took, processor = map(float, path.read_text().split())
            took_s, processor_s = took_s + took, processor_s + processor
    return took_s, processor_s


def main(folder: Path, broken: Collection[str]) -> bool:
    """Print a line for each target, in alphabetical order; return True if everything passed.

    A target in `broken` without a failed test in its reports, such as lint or a killed process, counts as one failure.
    """
    total: Counter[str] = Counter()
    all_s = 0.0
    print(f"{'target':20} {'minutes':>7} {'processor':>9}  tests")
    for target in sorted(path for path in folder.iterdir() if (path / TIMES).exists() or [*path.glob("*.xml")]):
        reports = [report for report in sorted(target.glob("*.xml")) if is_readable(report)]
        is_repeated = (target / "again").is_dir() and target.name not in broken
        if is_repeated and not reports:
            reports = [report for report in sorted((target / "again").glob("*.xml")) if is_readable(report)]
        outcomes, (took_s, processor_s) = counts(reports), times_s(target)
        print(f"{target.name:20} {took_s / 60:7.1f} {processor_s / 60:9.1f}  {phrase(outcomes)}")
        has_failures = outcomes["failed"] + outcomes["errors"] > 0
        if has_failures and target.name not in broken:
            print(*(f"  passed when it ran again: {test}" for test in failures(reports)), sep="\n")
            passed = outcomes["passed"] + outcomes["failed"] + outcomes["errors"]
            outcomes = Counter(passed=passed, skipped=outcomes["skipped"])
        elif is_repeated:
            print("  passed when it ran again: the target")
        elif not has_failures and target.name in broken:
            outcomes["failed"] = 1
        total += outcomes
        all_s += seconds(reports)
    if broken:
        print(f"failed: {', '.join(broken)}")
    print(f" {phrase(total)} in {all_s:.2f}s ".center(80, "="))
    return not broken


sys.exit(0 if main(Path(sys.argv[1]), sys.argv[2:]) else 1)
