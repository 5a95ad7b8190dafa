"""Each place that shows a status shows every field. A failure names the place that lacks a field."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from ftfile.operate.lag import CheckpointStatus, SourceLag
from ftfile.operate.open_files import OpenFile
from ftfile.operate.status import DirectoryStatus, QueryStatus, UnpublishedFile
from ftfile.writing.files.rolling_rules import PendingRule

ROOT = Path(__file__).parents[4]
# Fields that `ftfile status` shows only with `--json`. Its tables and lines contain all other fields.
IN_JSON_ALONE: dict[type[Any], set[str]] = {
    DirectoryStatus: set(),
    QueryStatus: {"options"},
    OpenFile: {"last_ms", "attempts", "rules"},
    PendingRule: {"reason", "option", "deadline_ms", "limit", "amount"},  # `waiting` is built from these fields
    UnpublishedFile: {"query_id"},
    CheckpointStatus: {"committed_batch", "contradicts"},
    SourceLag: set(),
}
PLACES = [(shown, field.name) for shown in IN_JSON_ALONE for field in fields(shown)]


@pytest.mark.parametrize(("shown", "name"), PLACES, ids=lambda value: getattr(value, "__name__", value))
def test_every_place_has_every_field_of_a_status(shown: type[Any], name: str) -> None:
    page = (ROOT / "docs/repair.md").read_text().partition("## Verify")[0]
    modules = ("cli/inspect_commands.py", "report/views.py")
    sources = "".join((ROOT / "src/ftfile/tools" / module).read_text() for module in modules)
    is_printed = bool(re.search(rf'\.{name}\b|", "{name}"', sources))
    has = {
        f"docs/repair.md, Status: `{name}`": f"`{name}`" in page,
        f"one of {', '.join(modules)}, or IN_JSON_ALONE here": is_printed or name in IN_JSON_ALONE[shown],
    }
    places = [place for place, is_there in has.items() if not is_there]
    assert not places, "\n".join((f"lack {shown.__name__}.{name}:", *places))
