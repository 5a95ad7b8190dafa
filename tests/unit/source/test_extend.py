"""The parts of a plan and their limits, tested with values in memory, without storage."""

from __future__ import annotations

from typing import Any

import pytest

from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import FilesOptions
from ftfile.source.extend import Extension, PlanBuilder
from ftfile.source.file_table import Table
from ftfile.source.known_files import KnownFiles
from ftfile.source.known_rows import key_of
from ftfile.source.matching import IdentityRule, Match
from ftfile.source.plan import FileEntry, Range, SourcePlan
from ftfile.source.settings import SourceSettings
from tests.unit.source.tailing import Tailing

SIZE = 100
MARKS = "0" * 16, "1" * 16


class Builders:
    """A builder of a plan for the files `a`, `b` and `c`, of 100 bytes each. The file `old` is already known."""

    def __init__(self, **limits: str) -> None:
        tailing = Tailing()
        for name in "abc":
            tailing.write(name, "x" * SIZE)
        self.listing, self.root = tailing.planner.list(), tailing.settings.root
        old = Range("in/old", 0, 30, *MARKS, 30, 5, "old")
        self.known = KnownFiles().apply(SourcePlan((old,), root=self.root))
        options = {"path": f"{self.root}/in", "fileFormat": "text", **limits}
        settings = SourceSettings.from_options(parse_options(options, FilesOptions))
        self.builder = PlanBuilder(Table(self.listing, self.known), settings, is_limited=True)

    def match(self, name: str, rule: IdentityRule = IdentityRule.NEW) -> Match:
        """Return a match of a file. If the file was moved, its old path is `old`."""
        row = self.builder.table.row(self.listing.paths.index(f"in/{name}"))
        if rule is IdentityRule.NEW:
            return Match(row, rule)
        key = key_of(self.root, "in/old")
        return Match(row, rule, self.known.get(key), (key,))

    def range(self, name: str, end: int = SIZE, **values: Any) -> Range:
        return Range(f"in/{name}", 0, end, *MARKS, SIZE, 5, **values)

    def plan(self) -> SourcePlan:
        return self.builder.plan((), (), 1000)


@pytest.mark.parametrize(
    ("bytes_max", "budgets"), [("1000", [1000, 900, 830]), ("150", [150, 50, 1]), (None, [None, None, None])]
)
def test_files_share_the_bytes_that_a_plan_has_left(bytes_max: str | None, budgets: list[int | None]) -> None:
    """Each file gets the bytes that the files before it do not use, and at least one line."""
    builders = Builders(**({} if bytes_max is None else {"maxBytesPerTrigger": bytes_max}))
    matches = [builders.match("a"), builders.match("b", IdentityRule.MOVED), builders.match("c")]
    assert builders.builder.budgets(matches) == budgets


def test_what_a_plan_has_is_no_part_of_a_budget() -> None:
    builders = Builders(maxBytesPerTrigger="250")
    builders.builder.add(builders.match("a"), Extension(builders.range("a")))
    assert builders.builder.budgets([builders.match("b"), builders.match("c")]) == [150, 50]


@pytest.mark.parametrize("limits", [{"maxBytesPerTrigger": "150"}, {"maxFilesPerTrigger": "1"}], ids=str)
def test_a_file_without_room_has_neither_range_nor_entry(limits: dict[str, str]) -> None:
    """The plan records that the file moved, with its old position."""
    builders = Builders(**limits)
    match = builders.match("b", IdentityRule.MOVED)
    entry = FileEntry("in/b", "moved", SIZE, *MARKS, SIZE, 5, previous_keys=(match.previous_keys[0].hex(),))
    assert builders.builder.add(builders.match("a"), Extension(builders.range("a")))
    assert not builders.builder.add(match, Extension(builders.range("b"), entry))
    assert (builders.builder.has_more, builders.builder.behind) == (True, [match.row.place])
    assert builders.builder.bytes_behind() == SIZE
    builders.builder.add_unread([builders.match("a"), match])
    plan = builders.plan()
    assert [planned.path for planned in plan.ranges] == ["in/a"]
    assert [(file.path, file.position) for file in plan.files] == [("in/b", 30)]
    assert builders.known.apply(plan).get(match.previous_keys[0]) is None


@pytest.mark.parametrize("limits", [{"maxBytesPerTrigger": "1"}, {"maxFilesPerTrigger": "1"}], ids=str)
def test_the_first_range_always_has_room(limits: dict[str, str]) -> None:
    builders = Builders(**limits)
    assert builders.builder.add(builders.match("a"), Extension(builders.range("a", whole=True)))
    assert builders.builder.is_full
    assert builders.builder.behind == []


def test_what_waits_or_is_read_in_part_is_behind() -> None:
    builders = Builders()
    builders.builder.add(builders.match("a"), Extension(builders.range("a", end=40)))
    builders.builder.add(builders.match("b"), Extension(wait_s=5))
    builders.builder.add(builders.match("c"), Extension())
    assert builders.builder.behind == [builders.match("a").row.place, builders.match("b").row.place]
    assert builders.builder.bytes_behind() == 60 + SIZE
    assert builders.plan().files == ()
