"""docs/internals/format.md says what the code does: its tables are those of the code, its examples are golden files."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.log.format import compacted as columns
from ftfile.log.format import layout
from tests.unit.log.format.make_golden import GOLDEN

if TYPE_CHECKING:
    from ftfile.log.format.model import Fields

PAGE = (Path(__file__).parents[4] / "docs/internals/format.md").read_text()
TABLES = re.findall(r"<!-- fields: (\S+) -->\n\|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE)
EXAMPLES = re.findall(r"<!-- golden: (\S+) -->\n```\n(.*?)\n```\n", PAGE, re.DOTALL)
NAMES = {str: "string", int: "integer", bool: "boolean", dict: "object", list: "array", NoneType: "null"}


def rows_of(fields: Fields[Any]) -> list[tuple[str, str, str]]:
    rows = []
    for row in fields.rows:
        kind = " or ".join(NAMES[each] for each in row.types) or "any"
        default = fields.defaults.get(row.attribute, ...)
        plain = [] if default == () else default
        rows.append((f"`{row.name}`", kind, "never absent" if default is ... else json.dumps(plain)))
    return rows


@pytest.mark.parametrize(("name", "text"), TABLES, ids=[name for name, _ in TABLES])
def test_tables_are_those_of_the_code(name: str, text: str) -> None:
    module, _, table = name.partition(":")
    table, _, key = table.partition("[")
    found = getattr(importlib.import_module(module), table)
    fields = found[key.removesuffix("]")] if key else found
    documented = [tuple(cell.strip() for cell in line.split("|")[1:4]) for line in text.splitlines()]
    assert documented == rows_of(fields)


def test_every_table_is_there() -> None:
    documented = {name for name, _ in TABLES}
    for module in ("format.record", "format.compacted", "checkpoints"):
        source = importlib.import_module(f"ftfile.log.{module}")
        fields = {name for name, value in vars(source).items() if type(value).__name__ == "Fields"}
        tables = {name for name in fields if name[0] != "_"}
        defined = {
            name for name in tables if re.search(rf"^{name} = Fields\(", Path(source.__file__ or "").read_text(), re.M)
        }
        assert {f"ftfile.log.{module}:{name}" for name in defined} <= documented


@pytest.mark.parametrize(("path", "text"), EXAMPLES, ids=[path for path, _ in EXAMPLES])
def test_examples_are_golden_files(path: str, text: str) -> None:
    assert text == (GOLDEN / path).read_text().removesuffix("\n")


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 12
    assert len(TABLES) >= 18


def test_columns_are_the_fields_that_most_adds_have() -> None:
    rare = {"id", "segmentRanges", "skipRows", "rollingStats"}
    (told,) = re.findall(r"a column for every field of an add but (.*?):\n", PAGE, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", told)) == rare
    assert not rare & set(columns.NAMES)


def test_paths_are_those_of_the_code() -> None:
    told = re.findall(r"^\| `(_ftfile/[^`]*)`", PAGE, re.MULTILINE)
    made = [
        layout.FORMAT_FILE,
        layout.MARKER,
        layout.record_path(0),
        layout.companion_path(0, "ab"),
        layout.log_checkpoint_path(layout.CheckpointName(0, "ab")),
        layout.compacted_path(layout.CompactedName(0, 0, "ab")),
        layout.columns_path(layout.ColumnsName(0, "ab")),
        f"{layout.staged_directory('q', 0)}/_00000-0-ab.staged",
        layout.note_path(layout.staged_directory("q", 0), "00000-0-ab"),
        layout.dead_letter_path("q", 0, 0, "ab"),
        layout.retired_path("ab"),
    ]
    patterns = [re.sub(r"\[.*?\]", "", re.sub(r"<[^>]*>", "@", path)) for path in told]
    for path in made:
        assert any(re.fullmatch(re.escape(pattern).replace("@", "[^/]+"), path) for pattern in patterns), path
