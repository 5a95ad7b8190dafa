"""A field whose type differs from docs/internals/format.md raises CorruptData with the field's name, at any depth."""

from __future__ import annotations

import json
from functools import reduce
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from ftfile.core.errors import CorruptData
from ftfile.log.apply import state_after
from ftfile.log.checkpoints import decode_checkpoint, encode_checkpoint
from ftfile.log.format import record as record_format
from ftfile.log.format.compacted import decode_compacted, encode_compacted
from ftfile.log.format.model import (
    Add,
    BatchWriteAuthor,
    Fingerprint,
    Job,
    MaintenanceAuthor,
    Origin,
    Record,
    Remove,
    SourceRange,
    StreamAuthor,
    Transaction,
)
from ftfile.log.format.record import compact_json, decode_json, decode_record, encode_record, to_checked_text
from ftfile.log.read.add_table import compact_records
from ftfile.log.state import LogState
from ftfile.storage.api import RangeFile
from ftfile.writing.files.rolling_rules import ALL_END, RollingSettings
from tests.unit.log.format.test_documented import TABLES
from tests.unit.log.plans import FILES_PLAN

if TYPE_CHECKING:
    from collections.abc import Callable

Steps = tuple[str | int, ...]

SEGMENT = Add(
    *("s", "segment", "staged/s.spool", None, 5, 6, "crc32:0", 7, "kind=a", "e", Origin("q", 0, 1), 8, ("gzip",)),
    skip_rows=9,
    rolling_stats={"index": 1},
    statistics={"id": (1, 2, 0)},
)
PART = structs.replace(
    SEGMENT,
    id="p",
    kind="part",
    final_path="p.json",
    ranges=(SourceRange("s", "rows", 0, 1),),
)
REMOVE = Remove("r", "part", "r.json", 5, "crc32:1")
FINGERPRINT = Fingerprint("kind", "digest", covers_content=True)
# With a different value in each field.
RECORD = Record(
    *(0, "nonce", StreamAuthor("q", "run", 3, "hash", ["offsets"]), 1, 2),
    jobs=(Job("t", "rows", (SEGMENT,), 1, FILES_PLAN),),
    lineage_start=1,
    fingerprint=FINGERPRINT,
    previous_nonce="",
    published=0,
    writer="user@host",
    adds=(SEGMENT, PART),
    removes=(REMOVE,),
    overwrite=True,
    replaces="a = 1",
    restored=1,
    rows_removed=2,
    dead_letters=(structs.replace(PART, id="d"),),
    tasks=2,
    horizon_ms=3,
    log_start=0,
    vacuumed_to=0,
    schema="s",
    encoding="e",
    settings="o",
    definitions={"s": "{}"},
    user_metadata="mine",
    metrics={"rows": 1},
    tables={
        "partNumbers": {"set": {"kind=a": 1}},
        "applications": {"set": {"app": {"epoch": 1, "runId": "r", "openedMs": 2, "process": "u@h", "position": 3}}},
    },
    payload=[1],
)
OF_A_JOB = structs.replace(RECORD, author=BatchWriteAuthor("j", Transaction("app", -7)))
OF_MAINTENANCE = structs.replace(RECORD, author=MaintenanceAuthor("compact", "j"))
STATE = state_after(
    LogState(), RECORD, structs.replace(OF_A_JOB, version=1, adds=(), removes=(), previous_nonce="nonce")
)
RANGE = encode_compacted(compact_records([RECORD], 0))


def read_record(lines: list[bytes]) -> object:
    return decode_record(to_checked_text(lines), "path", lambda _: b"")


def read_range(lines: list[bytes]) -> object:
    content = to_checked_text(lines) + RANGE.split(b"\n", 2)[2]
    return decode_compacted(RangeFile.of_content("path", content), "path", ended=True)


def read_settings(lines: list[bytes]) -> object:
    try:
        return decode_json(lines[0], RollingSettings)
    except ValueError as error:
        raise CorruptData("path", "settings", str(error), "") from error


# How files are read, each with its lines.
FILES: dict[str, tuple[Callable[[list[bytes]], object], list[bytes]]] = {
    "record": (read_record, encode_record(RECORD).content.split(b"\n")[:2]),
    "record of a job": (read_record, encode_record(OF_A_JOB).content.split(b"\n")[:2]),
    "record of maintenance": (read_record, encode_record(OF_MAINTENANCE).content.split(b"\n")[:2]),
    "checkpoint": (
        lambda lines: decode_checkpoint(to_checked_text(lines), "path"),
        encode_checkpoint(STATE).split(b"\n")[:1],
    ),
    "range": (read_range, RANGE.split(b"\n")[:1]),
    "settings": (read_settings, [compact_json(ALL_END)]),
}
# By the class: a file, a line of it, and the steps to a value of the class there.
PLACES: dict[str, tuple[str, int, Steps]] = {
    "HEADER": ("record", 0, ()),
    "StreamAuthor": ("record", 0, ("author",)),
    "BatchWriteAuthor": ("record of a job", 0, ("author",)),
    "Transaction": ("record of a job", 0, ("author", "transaction")),
    "Application": ("record", 0, ("tables", "applications", "set", "app")),
    "MaintenanceAuthor": ("record of maintenance", 0, ("author",)),
    "Fingerprint": ("record", 0, ("fingerprint",)),
    "CHANGES": ("record", 1, ()),
    "Add": ("record", 1, ("adds", 1)),
    "Origin": ("record", 1, ("adds", 0, "origin")),
    "SourceRange": ("record", 1, ("adds", 1, "segmentRanges", 0)),
    "Remove": ("record", 1, ("removes", 0)),
    "Job": ("record", 1, ("jobs", 0)),
    "RollingSettings": ("settings", 0, ()),
    "Checkpoint": ("checkpoint", 0, ()),
    "QueryState": ("checkpoint", 0, ("queries", "q")),
    "TransactionState": ("checkpoint", 0, ("transactions", "app")),
    "Unpublished": ("checkpoint", 0, ("unpublished", 0)),
    "CompactedLogHeader": ("range", 0, ()),
    "CompactedLogContents": ("range", 0, ()),
    "Placed": ("range", 0, ("live", 0)),
}
VALUES: dict[str, list[Any]] = {
    "string": ["7"],
    "integer": [7],
    "boolean": [True],
    "object": [{}],
    "array": [[]],
    "null": [None],
    "no type": [1.5, 1.0, 1 << 63, 10**30],
}
# Of users, who may count as they like.
NEGATIVE = {("Transaction", "version"), ("TransactionState", "lastTransaction")}


tables = pytest.mark.parametrize(
    ("kind", "text"),
    [pytest.param(name.partition(":")[2], text, id=name.partition(":")[2]) for name, text in TABLES],
)


def documented(text: str) -> dict[str, str]:
    """Return the types of the fields of a table."""
    rows = ([cell.strip() for cell in line.split("|")] for line in text.splitlines())
    return {row[1].strip("`"): row[2] for row in rows}


def source_of(kind: str) -> str:
    """Return the constant of this module that has the fields of a class."""
    file, _, _ = PLACES[kind]
    if kind in {"Add", "SourceRange"}:
        return "SEGMENT or PART"
    if file in {"checkpoint", "range"}:
        return "RECORD, or the state from it"
    return {
        "settings": "ALL_END",
        "record": "RECORD",
        "record of a job": "OF_A_JOB",
        "record of maintenance": "OF_MAINTENANCE",
    }[file]


def test_each_table_is_here() -> None:
    documented_kinds = {name.partition(":")[2] for name, _ in TABLES}
    assert documented_kinds == PLACES.keys(), "tests/unit/log/format/test_types.py, PLACES: a row for each table"


@pytest.mark.parametrize("info", structs.fields(Record), ids=lambda info: info.name)
def test_every_place_has_every_field_of_a_record(info: structs.FieldInfo) -> None:
    lines = (record_format.HEADER, record_format.CHANGES)
    rows = [row for name, text in TABLES if name.endswith((":HEADER", ":CHANGES")) for row in documented(text)]
    default = info.default if info.default_factory is msgspec.NODEFAULT else info.default_factory()
    is_set = getattr(RECORD, info.name) != default
    has = {
        "log/format/record.py, HEADER or CHANGES": any(info.name in line.__struct_fields__ for line in lines),
        f"docs/internals/format.md, the table of HEADER or CHANGES: `{info.encode_name}`": info.encode_name in rows,
        f"tests/unit/log/format/test_types.py, RECORD: a value of `{info.name}`": is_set,
    }
    places = [place for place, is_there in has.items() if not is_there]
    assert not places, "\n".join(("lack it:", *places))


def test_the_lines_of_a_record_have_all_of_it() -> None:
    assert decode_record(encode_record(RECORD).content, "path", lambda _: b"") == RECORD


@pytest.mark.parametrize("file", FILES)
def test_all_fields_are_read(file: str) -> None:
    read, lines = FILES[file]
    assert read(lines)


@tables
def test_a_field_of_another_type_is_named(kind: str, text: str) -> None:
    file, number, steps = PLACES[kind]
    read, lines = FILES[file]
    for field, types in documented(text).items():
        others = [value for name, values in VALUES.items() if name not in types.split(" or ") for value in values]
        others += [-1] if types == "integer" and (kind, field) not in NEGATIVE else []
        for value in others if types != "any" else []:
            tree = json.loads(lines[number])
            holder = reduce(lambda inner, step: inner[step], steps, tree)
            assert field in holder, f"tests/unit/log/format/test_types.py, {source_of(kind)}: a value of `{field}`"
            holder[field] = value
            with pytest.raises(CorruptData, match=field):
                read([*lines[:number], json.dumps(tree).encode(), *lines[number + 1 :]])


@tables
def test_a_field_that_is_never_absent_is_named_where_it_is(kind: str, text: str) -> None:
    file, number, steps = PLACES[kind]
    read, lines = FILES[file]
    required = [
        row.split("|")[1].strip(" `") for row in text.splitlines() if row.split("|")[3].strip() == "never absent"
    ]
    for field in required:
        tree = json.loads(lines[number])
        del reduce(lambda inner, step: inner[step], steps, tree)[field]
        with pytest.raises(CorruptData, match=field):
            read([*lines[:number], json.dumps(tree).encode(), *lines[number + 1 :]])


class TestNames:
    """Names of files that are not UTF-8, as `os.fsdecode` gives them."""

    NAME = "kind=caf\udce9/ü.json"
    ADD = structs.replace(PART, final_path=NAME, ranges=())
    RECORD = structs.replace(
        RECORD,
        adds=(ADD, SEGMENT),
        definitions={"e": {"partitionBy": ["caf\udce9"]}},
        tables={"partNumbers": {"set": {NAME: 1}}},
    )

    @pytest.mark.parametrize("companion_bytes", [1, 1 << 20])
    def test_in_records(self, companion_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(record_format, "COMPANION_FROM_BYTES", companion_bytes)
        encoded = encode_record(self.RECORD)
        content = encoded.companion or encoded.content
        assert content.isascii()
        assert rb"caf\udce9/\u00fc.json" in content
        assert decode_record(encoded.content, "path", lambda _: content) == self.RECORD

    def test_as_others_may_write_them(self) -> None:
        content = encode_record(self.RECORD).content.replace(rb"\udce9", rb"\uDCE9").split(b"\n")[:2]
        assert read_record(content) == self.RECORD

    def test_in_checkpoints_and_ranges(self) -> None:
        state = state_after(LogState(), self.RECORD)
        assert decode_checkpoint(encode_checkpoint(state), "path") == state
        content = encode_compacted(compact_records([self.RECORD], 0))
        (document,) = decode_compacted(RangeFile.of_content("path", content), "path", ended=True).kept
        assert self.NAME in document.all_columns().fields["finalPath"]


NAMES = st.text('aü/"\\\n\x00\x7f\u2028😀\udc80\udcff')
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text() | NAMES,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(NAMES, values, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(JSON)
def test_json_is_read_as_it_was_written(value: object) -> None:
    content = compact_json(value)
    assert b"\n" not in content
    assert json.loads(content) == decode_json(content, Any) == value


def test_texts_and_numbers_of_numpy_are_plain() -> None:
    values = [np.str_("a"), np.float64(1.5), np.str_("caf\udce9")]
    assert compact_json(values[:2]) == b'["a",1.5]'
    assert decode_json(compact_json(values), list) == ["a", 1.5, "caf\udce9"]
    with pytest.raises(TypeError, match="is not JSON"):
        compact_json(np.int64(1))


def test_numbers_that_json_lacks_are_written_as_null() -> None:
    assert compact_json({"a": float("nan"), "b": float("inf")}) == b'{"a":null,"b":null}'
    assert msgspec.json.decode(compact_json([1e16, 1e-7])) == [1e16, 1e-7]


@pytest.mark.parametrize("name", ["adds", "removes"])
def test_a_part_without_a_name_is_damage(name: str) -> None:
    header, changes = FILES["record"][1]
    values = json.loads(changes)
    del values[name][-1]["finalPath"]
    unnamed = {"finalPath": None} if name == "adds" else {}
    values[name] = [{**value, **unnamed, "kind": "part"} for value in values[name]]
    with pytest.raises(CorruptData, match="finalPath is missing for a part"):
        read_record([header, json.dumps(values).encode()])
