"""The outcomes as a JUnit report, so that they are counted with those of the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.mutants.trial import Outcome


def write_report(path: Path, outcomes: Sequence[Outcome], seconds: float) -> None:
    """Write one case for each outcome: passed when good, an error when broken, else a failure."""
    broken = sum(outcome.verdict == "broken" for outcome in outcomes)
    counts = {
        "tests": len(outcomes),
        "failures": sum(not outcome.good for outcome in outcomes) - broken,
        "errors": broken,
        "skipped": 0,
    }
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(root, "testsuite", name="mutants", time=f"{seconds:.3f}")
    for name, count in counts.items():
        suite.set(name, str(count))
    for outcome in outcomes:
        case = ElementTree.SubElement(
            suite, "testcase", classname="tests.mutants", name=outcome.name, time=f"{outcome.seconds:.3f}"
        )
        if not outcome.good:
            ElementTree.SubElement(case, "error" if outcome.verdict == "broken" else "failure", message=outcome.told)
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
