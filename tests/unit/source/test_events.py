"""Events of a log, the rule that identifies each listed file, and the rows that are read: the table of the docs."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import PermissionDenied
from ftfile.source.matching import IdentityRule
from tests.kit.parameters import parametrize
from tests.unit.source.tailing import Tailing

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.storage.api import InputFile

PAGE = Path(__file__).parents[3] / "docs/internals/protocol.md"
DECISION = re.compile(r"'in/(\S+)' is (.+): from byte (\d+)")


def lines(first: int, count: int) -> str:
    return "".join(f"line {number:05} of a log that goes on and on\n" for number in range(first, first + count))


KNOWN = lines(0, 40)
OTHER = lines(900, 10)


def refuse(tailing: Tailing, name: str) -> None:
    open_file = tailing.fs.open

    def refuse_one(path: str) -> InputFile:
        if path == f"in/{name}":
            raise PermissionDenied("open", path, "as the test wants it")
        return open_file(path)

    tailing.replace("open", refuse_one)


def rename_and_begin(tailing: Tailing) -> None:
    tailing.rename("a.log", "b.log")
    tailing.write("a.log", OTHER)


def rename_onto_known(tailing: Tailing) -> None:
    tailing.delete("k.log")
    tailing.rename("a.log", "k.log")


def replace_by(content: str) -> Callable[[Tailing], None]:
    def replace(tailing: Tailing) -> None:
        tailing.delete("a.log")
        tailing.write("a.log", content)

    return replace


def copy_and_cut_off(tailing: Tailing) -> None:
    tailing.copy("a.log", "b.log")
    tailing.write("a.log", "")


def compress(tailing: Tailing) -> None:
    tailing.compress("a.log", "a.log.gz")
    tailing.delete("a.log")


def grow_refused(tailing: Tailing) -> None:
    tailing.append("a.log", OTHER)
    refuse(tailing, "a.log")


def rename_refused(tailing: Tailing) -> None:
    rename_and_begin(tailing)
    refuse(tailing, "b.log")


EVENTS: dict[str, Callable[[Tailing], None]] = {
    "another log appears": lambda tailing: tailing.write("b.log", OTHER),
    "it grows": lambda tailing: tailing.append("a.log", OTHER),
    "it grows by half a line": lambda tailing: tailing.append("a.log", "half"),
    "it is cut off": lambda tailing: tailing.write("a.log", ""),
    "it is cut off, and half a line is written": lambda tailing: tailing.write("a.log", "half"),
    "it has other content, and is shorter": lambda tailing: tailing.write("a.log", OTHER),
    "it has other content, and is as long": lambda tailing: tailing.write("a.log", lines(500, 40)),
    "it is renamed": lambda tailing: tailing.rename("a.log", "b.log"),
    "it is renamed onto a known name": rename_onto_known,
    "it is renamed, and a new log is at its path": rename_and_begin,
    "another file is put at its path": replace_by(OTHER),
    "a longer file with its content is put at its path": replace_by(KNOWN + OTHER),
    "it is deleted": lambda tailing: tailing.delete("a.log"),
    "it is copied": lambda tailing: tailing.copy("a.log", "b.log"),
    "it is copied and cut off": copy_and_cut_off,
    "it is compressed and deleted": compress,
    "it grows, and cannot be opened": grow_refused,
    "it is renamed, and cannot be opened; a new log is at its path": rename_refused,
}


def outcome(event: str, identity: str, caplog: pytest.LogCaptureFixture) -> str:
    """Return a cell of the table: the rules of the first plan after an event, and the ranges of all plans."""
    tailing = Tailing(fileIdentity=identity)
    tailing.write("a.log", KNOWN)
    tailing.write("k.log", lines(300, 50))
    tailing.settle()
    count = len(tailing.plans)
    tailing.clock.advance(60)
    EVENTS[event](tailing)
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="ftfile.source"):
        tailing.scan()
    decisions = [match for record in caplog.records if (match := DECISION.fullmatch(record.getMessage()))]
    rules = [f"`{match[1]}` {IdentityRule(match[2]).name}" for match in decisions]
    tailing.settle()
    ranges = [
        f"`{planned.path.removeprefix('in/')}` {f'from {planned.start}' if planned.start else 'from its start'}"
        for plan in tailing.plans[count:]
        for planned in plan.ranges
    ]
    return f"{', '.join(rules) or 'none'}: {', '.join(ranges) or 'nothing'}"


def rows() -> dict[str, list[str]]:
    """Return the cells of the table by event."""
    text = PAGE.read_text().partition("## Which file a listed one is")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return {event: outcomes for event, *outcomes in cells[2:]}


@pytest.mark.parametrize("identity", ["native", "content"])
@parametrize("event", EVENTS, quick=5)
def test_an_event_has_the_rule_and_the_ranges_that_the_protocol_says(
    event: str, identity: str, caplog: pytest.LogCaptureFixture
) -> None:
    native, content = rows()[event]
    assert outcome(event, identity, caplog) == (native if identity == "native" else content)


def test_the_protocol_has_all_events() -> None:
    assert [*rows()] == [*EVENTS]
