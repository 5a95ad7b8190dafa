"""docs/internals/format.md agrees with the code: same tables, and the golden files as examples."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import msgspec
import pytest

from ftfile.log.format import compacted as columns
from ftfile.log.format import layout
from ftfile.log.format.model import Value
from tests.unit.log.format.make_golden import GOLDEN

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs/internals/format.md").read_text()
TABLES = re.findall(r"<!-- fields: (\S+) -->\n\|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE)
EXAMPLES = re.findall(r"<!-- golden: (\S+) -->\n```\n(.*?)\n```\n", PAGE, re.DOTALL)
NAMES = (
    (msgspec.inspect.StrType, "string"),
    (msgspec.inspect.LiteralType, "string"),
    (msgspec.inspect.IntType, "integer"),
    (msgspec.inspect.BoolType, "boolean"),
    ((msgspec.inspect.StructType, msgspec.inspect.DictType), "object"),
    ((msgspec.inspect.VarTupleType, msgspec.inspect.NamedTupleType, msgspec.inspect.ListType), "array"),
    (msgspec.inspect.NoneType, "null"),
    (msgspec.inspect.AnyType, "any"),
)
# Classes without a table: their fields are in other tables, or the text describes them.
IN_MEMORY = {"Value", "Changes", "Body", "Record", "CompactedLog"}
IN_SENTENCES = {"AddColumns", "AddsById", "Companion", "Rare"}


def names_of(kind: msgspec.inspect.Type) -> str:
    kinds = kind.types if isinstance(kind, msgspec.inspect.UnionType) else (kind,)
    names = (next(name for classes, name in NAMES if isinstance(each, classes)) for each in kinds)
    return " or ".join(dict.fromkeys(names))


def rows_of(kind: type[msgspec.Struct]) -> list[tuple[str, str, str]]:
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    rows = []
    for field in info.fields:
        absent = "never absent"
        if not field.required:
            is_made = field.default is msgspec.NODEFAULT
            absent = json.dumps(field.default_factory() if is_made else field.default)
        rows.append((f"`{field.encode_name}`", names_of(field.type), absent))
    return rows


@pytest.mark.parametrize(("name", "text"), TABLES, ids=[name for name, _ in TABLES])
def test_tables_are_those_of_the_code(name: str, text: str) -> None:
    module, _, kind = name.partition(":")
    documented = [tuple(cell.strip() for cell in line.split("|")[1:4]) for line in text.splitlines()]
    rows = rows_of(getattr(importlib.import_module(module), kind))
    page = "docs/internals/format.md"
    for row in rows:
        assert row in documented, f"{page}, the table of {name}: the row | {' | '.join(row)} | …"
    assert documented == rows, (
        f"{page}, the table of {name}: remove other rows, and put them into the order of the code"
    )


def test_every_table_is_there() -> None:
    documented = {name.partition(":")[2] for name, _ in TABLES}
    for module in ("format.model", "format.record", "format.compacted", "checkpoints", "state"):
        source = importlib.import_module(f"ftfile.log.{module}")
        kinds = {name for name, kind in vars(source).items() if isinstance(kind, type) and issubclass(kind, Value)}
        own = {name for name in kinds if name[0] != "_" and vars(source)[name].__module__ == source.__name__}
        assert own - documented <= IN_MEMORY | IN_SENTENCES, module


@pytest.mark.parametrize(("path", "text"), EXAMPLES, ids=[path for path, _ in EXAMPLES])
def test_examples_are_golden_files(path: str, text: str) -> None:
    golden = (GOLDEN / path).read_text().removesuffix("\n")
    assert text == golden, f"docs/internals/format.md, the example: copy {(GOLDEN / path).relative_to(ROOT)} there"


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 12
    assert len(TABLES) >= 18


def test_columns_are_the_fields_that_most_adds_have() -> None:
    rare = {"id", "segmentRanges", "skipRows", "rollingStats", "statistics"}
    (told,) = re.findall(r"a column for every field of an add but (.*?):\s", PAGE, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", told)) == rare
    assert not rare & set(columns.FIELDS)


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
        f"{layout.staged_directory('q')}/_0-00000-0-ab.staged",
        layout.note_path(f"{layout.staged_directory('q')}/_", "0-00000-0-ab"),
        layout.dead_letter_path("q", 0, 0, "ab"),
        layout.retired_path("ab"),
    ]
    patterns = [re.sub(r"\[.*?\]", "", re.sub(r"<[^>]*>", "@", path)) for path in told]
    for path in made:
        assert any(re.fullmatch(re.escape(pattern).replace("@", "[^/]+"), path) for pattern in patterns), path
