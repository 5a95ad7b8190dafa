"""The table of rolling rules, and each place that must list them and cannot be derived: a failure names the place."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from ftfile.core.options.table import OPTIONS
from ftfile.log.format.model import Count
from ftfile.operate.open_files import NOUNS
from ftfile.writing.files.rolling_groups import GroupTotals
from ftfile.writing.files.rolling_rules import (
    ALL_END,
    POLICY,
    REASONS,
    RULES,
    RollingSettings,
    Rule,
    pending_rules,
)
from tests.kit.rolling import AT_ONCE, DRAWN, Rules, rules_of

ROOT = Path(__file__).parents[4]
# Which no history draws: the answer of a user's class, and a limit whose reason depends on all files of a directory.
NOT_IN_HISTORIES = {"rollingPolicy", "maxOpenSegments"}
TESTED_APART = {"finalize", POLICY.reason}  # by rows with other columns, by a class of the test
WITH_OPTIONS = [rule for rule in (*RULES, POLICY) if rule.options]


def rows_of_page() -> list[tuple[str, str]]:
    """Return the first and the last cell of the rows of the table in docs/rolling.md."""
    table = (ROOT / "docs/rolling.md").read_text().partition("\n\nCombine them")[0]
    return re.findall(r"^\| (.*?) \|.*\| ([^|]*) \|$", table, re.MULTILINE)


def is_on_the_page(rule: Rule) -> bool:
    code = "your own" if rule is POLICY else f"`{rule.reason}`"
    rows = [cell for cell, codes in rows_of_page() if code in codes]
    return any(all(f"`{option}" in cell for option in rule.options) for cell in rows)


def is_drawn(option: str) -> bool:
    return option in NOT_IN_HISTORIES or any(option in options for options in DRAWN)


def is_read_by_the_oracle(option: str) -> bool:
    """Return True if histories expect other ends of files with it."""
    chosen = next((options for options in DRAWN if option in options), None)
    if chosen is None:
        return option in NOT_IN_HISTORIES
    without = {name: value for name, value in chosen.items() if name != option} | {"rolling": "policy"}
    return option in NOT_IN_HISTORIES or rules_of(chosen) != rules_of(without)


def is_checked_by_the_oracle(rule: Rule) -> bool:
    source = (ROOT / "tests/kit/rolling.py").read_text()
    return (
        not {*rule.options} - NOT_IN_HISTORIES or f'return "{rule.reason}"' in source or f'"{rule.reason}" if' in source
    )


def has_noun(rule: Rule) -> bool:
    """Return True if reports can write the amounts of a rule, such as `3 rows`."""
    return rule.counts is None or rule.reason == "size" or rule.reason in NOUNS


@pytest.mark.parametrize("rule", WITH_OPTIONS, ids=lambda rule: rule.reason)
def test_every_place_has_every_rule(rule: Rule) -> None:
    named = " and ".join(rule.options)
    has = {
        "core/options/typed.py: the option": {*rule.options} <= {option.name for option in OPTIONS},
        f"docs/rolling.md: a row with {named} and the code {rule.reason}": is_on_the_page(rule),
        f"tests/kit/rolling.py, RULES: {named}": all(map(is_drawn, rule.options)),
        f"tests/kit/rolling.py, rules_of: {named}": all(map(is_read_by_the_oracle, rule.options)),
        f"tests/kit/rolling.py: what is due by {rule.reason}": is_checked_by_the_oracle(rule),
        f"tests/kit/rolling.py, AT_ONCE (ends with its batch, or an hour later), or TESTED_APART here: {rule.reason}": (
            rule.reason in AT_ONCE or rule.reason in TESTED_APART
        ),
        f"operate/open_files.py, NOUNS: {rule.reason}": has_noun(rule),
    }
    places = [place for place, is_there in has.items() if not is_there]
    assert not places, "\n".join(("lack it:", *places))


def test_the_page_has_the_codes_of_all_rules() -> None:
    codes = {code for _, cell in rows_of_page() for code in re.findall(r"`(\w+)`", cell)}
    assert codes | {"encoding"} == {*REASONS}
    assert POLICY.reason not in REASONS, "a class of users has codes of its own"
    assert len(REASONS) == len(RULES)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.is_due], ids=lambda rule: rule.reason)
def test_a_rule_that_goes_by_the_moment_has_a_deadline(rule: Rule) -> None:
    """Files that get no rows are checked only for their deadlines."""
    limits: dict[str, Any] = {
        info.name: 60_000 for info in structs.fields(RollingSettings) if info.type == Count | None
    }
    settings, totals = structs.replace(ALL_END, **limits), GroupTotals("", 1, 1, 1, 1, 5, 5)
    assert rule.is_due is not None
    is_due_later = rule.is_due(settings, totals, 10**12)
    assert is_due_later == (rule.deadline is not None)
    if rule.deadline is not None:
        now_ms = rule.deadline(settings, totals)
        assert not rule.is_due(settings, totals, 5)
        assert rule.is_due(settings, totals, 5 if now_ms is None else now_ms)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.is_due], ids=lambda rule: rule.reason)
def test_a_status_says_how_far_each_rule_is(rule: Rule) -> None:
    """By time with its deadline, by amount with its limit; without both, rows say when."""
    limits: dict[str, Any] = {
        info.name: 60_000 for info in structs.fields(RollingSettings) if info.type == Count | None
    }
    settings = structs.replace(ALL_END, **limits, max_segments=60_000, finalize_column="last")
    totals = GroupTotals("", 7, 7, 7, 7, 5, 5)
    matches = [pending for pending in pending_rules(settings, totals) if pending.reason == rule.reason]
    assert len(matches) == 1, (
        f"pending_rules in writing/files/rolling_rules.py lists {rule.reason} {len(matches)} times, not once"
    )
    pending = matches[0]
    assert (pending.option,) == rule.options
    if rule.deadline is not None:
        assert pending.deadline_ms == rule.deadline(settings, totals)
    elif pending.limit is None:
        assert rule.reason == "finalize"
    else:
        assert (pending.limit, pending.amount) == (60_000, 7)


def test_the_oracle_has_a_field_for_each_rule() -> None:
    source = (ROOT / "tests/kit/rolling.py").read_text()
    unread = [name for name in [field.name for field in fields(Rules)] if f"rules.{name}" not in source]
    assert not unread, f"tests/kit/rolling.py reads no {', '.join(unread)}"
