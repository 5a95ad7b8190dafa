"""Store definitions, merge rules and run metadata with values of any type: CorruptData, or a usable result."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pyarrow as pa
import pytest

import ftfile
from ftfile import kv
from ftfile.core.errors import CorruptData
from ftfile.kv.definition import StoreDefinition, define
from ftfile.kv.driver import how_written
from ftfile.kv.planning.picker import DEFAULT_PLAN, PlanSettings
from ftfile.kv.planning.runs import RunMetadata
from ftfile.log.format.record import compact_json, from_checked_text, to_checked_text
from ftfile.testing.fs.memory import MemoryFileSystem
from ftfile.testing.micro_batch import MicroBatch, StoreBatch
from tests.hostile.forging import forged_header
from tests.unit.writing.files.encrypted import forget_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ftfile.log.state import LogState

SCHEMA = pa.schema([("key", pa.string()), ("day", pa.int32()), ("value", pa.int64())])


def rules(text: object) -> PlanSettings:
    """Return the rules of a store whose log contains this text."""
    encoding = {"store": define(SCHEMA, ["key"]).to_json(), "filters": []}
    settings = {"store": {"plan": text}, "storage": {}, "durability": "auto"}
    head = SimpleNamespace(encoding="e", definitions={"e": encoding, "s": settings})
    return how_written(cast("LogState", head), MemoryFileSystem("x")).plan


WRITTEN: dict[str, tuple[Callable[[Any], Any], dict[str, Any]]] = {
    "definition": (StoreDefinition.from_json, define(SCHEMA, ["key", "day"], merge="sum", buckets=4).to_json()),
    "rules": (rules, msgspec.to_builtins(DEFAULT_PLAN)),
    "metadata": (RunMetadata.from_json, RunMetadata((1, 2), ((b"a", 1), (b"b", 2)), (((b"a",), None),)).to_json()),
}
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1 << 70, 1.5, "", "key", "os:system", "../../x", [], [[]], [None], ["key", "key"], ["value"]),
    *([1], [[1.5], [{}]], [["a"], "b"], {}, {"key": "sum"}, {"value": 7}, {"value": {"a": 1}}),
)
FIELDS = [(kind, field) for kind, (_, text) in WRITTEN.items() for field in text]
# Values of `VALUES` that are valid for a field.
SOUND: dict[str, dict[str, list[Any]]] = {
    "definition": {"bucketBy": [{"key": "sum"}], "merge": [{}, [], ""], "sequenceColumn": [None]},
    "rules": {field: [0] for field in msgspec.to_builtins(DEFAULT_PLAN)},
    "metadata": {
        "keys": [None],
        "purges": [[], "", {}],
        **{field: [0] for field in ("ops", "committedMs", "level", "deletes", "plainBytes")},
    },
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_what_was_written_is_read(kind: str) -> None:
    decode, text = WRITTEN[kind]
    value = decode(text)
    assert (msgspec.to_builtins(value) if kind == "rules" else value.to_json()) == text


@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_a_field_of_another_type_is_damage(kind: str, field: str) -> None:
    decode, text = WRITTEN[kind]
    for value in VALUES:
        if value in SOUND[kind].get(field, []) and type(value) is not bool:
            decode(text | {field: value})
            continue
        with pytest.raises(CorruptData):
            decode(text | {field: value})


@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_a_field_that_is_missing_is_damage(kind: str, field: str) -> None:
    decode, text = WRITTEN[kind]
    with pytest.raises(CorruptData):
        decode({name: value for name, value in text.items() if name != field})


@pytest.mark.parametrize("field", ["level", "deletes", "plainBytes"])
@pytest.mark.parametrize("value", [None, True, -1, 2.5, "1", 1 << 70])
def test_damage_of_a_number_among_marks_names_it(field: str, value: object) -> None:
    with pytest.raises(CorruptData, match=rf"\$\.{field}"):
        RunMetadata.from_json(WRITTEN["metadata"][1] | {field: value})


def test_there_are_two_levels() -> None:
    assert RunMetadata.from_json(WRITTEN["metadata"][1] | {"level": 1}).level == 1
    with pytest.raises(CorruptData, match=r"\$\.level"):
        RunMetadata.from_json(WRITTEN["metadata"][1] | {"level": 2})


@pytest.mark.parametrize(("kind", "text"), [*itertools.product(WRITTEN, [[], None, "x"])])
def test_so_is_no_object(kind: str, text: object) -> None:
    with pytest.raises(CorruptData):
        WRITTEN[kind][0](text)


@pytest.mark.parametrize("field", ["format", "partitionBy", "schema"])
def test_an_encoding_without_a_field_is_damage(tmp_path: Path, field: str) -> None:
    out = tmp_path / "out"
    MicroBatch(str(out), {"id": "long"}, {"fileFormat": "json"}).run(0, [[{"id": 1}]])
    with forged_header(out) as header:
        del header["definitions"][header["encoding"]][field]
    forget_all()
    with pytest.raises(CorruptData, match=f"the field '{field}' of a definition"):
        ftfile.open(str(out)).to_arrow()


def test_settings_of_no_durability_are_damage(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = {"fileFormat": "json", "maxBatchesPerFile": "9"}
    MicroBatch(str(out), {"id": "long"}, options).run(0, [[{"id": 1}]])
    with forged_header(out) as header:
        header["definitions"][header["settings"]]["durability"] = "odd"
    forget_all()
    with pytest.raises(CorruptData, match="the durability is 'odd'"):
        ftfile.flush(str(out))


def test_a_segment_of_lines_with_rows_to_pass_over_is_damage(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = {"fileFormat": "json", "maxBatchesPerFile": "9"}
    MicroBatch(str(out), {"id": "long"}, options).run(0, [[{"id": 1}, {"id": 2}]])
    [record] = (out / "_ftfile/log").glob("*.record")
    header, text = from_checked_text(record.read_bytes(), record.name)
    changes = json.loads(text)
    changes["adds"][0] |= {"rows": 1, "skipRows": 1}
    record.write_bytes(to_checked_text([header, compact_json(changes)]))
    forget_all()
    with pytest.raises(CorruptData, match="no rows to pass over"):
        ftfile.flush(str(out))


@pytest.mark.parametrize("name", ["segment", "b=segment", "b=-0001", "b=1", "", "b=0000\u0661"])
def test_a_run_in_no_bucket_is_damage(tmp_path: Path, name: str) -> None:
    path = tmp_path / "store"
    batches = StoreBatch(str(path), {"key": "string", "n": "long"}, {"keyColumns": "key", "buckets": "4"})
    for number in range(2):
        batches.run(number, [[{"key": "a", "n": number}]])
    [*_, record] = sorted((path / "_ftfile/log").glob("*.record"))
    header, *lines = from_checked_text(record.read_bytes(), record.name)
    changed = [re.sub(rb'"b=[0-9]{5}"', lambda _: json.dumps(name).encode(), line) for line in lines]
    assert changed != lines
    record.write_bytes(to_checked_text([header, *changed]))
    for derived in ("hints", "checkpoints", "compacted"):
        shutil.rmtree(path / "_ftfile" / derived, ignore_errors=True)
    forget_all()
    for call in (lambda: kv.open(str(path)).get("a"), lambda: kv.rebucket(str(path), 8), lambda: kv.verify(str(path))):
        with pytest.raises(CorruptData, match="buckets with names such as b=00001"):
            call()
