"""`onSchemaChange=any`: a directory never comes into a state that no reader understands."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ftfile
from ftfile.core.errors import SchemaError
from ftfile.testing.context import current
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.log.protocol import Committed

FORMATS = ["parquet", "json", "orc", "avro", "arrow"]


def struct(**fields: str) -> dict[str, Any]:
    more = {"nullable": True, "metadata": {}}
    return {"type": "struct", "fields": [{"name": name, "type": kind, **more} for name, kind in fields.items()]}


class Changing:
    """A query whose only column, next to `id`, changes."""

    def __init__(self, out: Path, file_format: str = "parquet", policy: str = "any", **options: str) -> None:
        self.out = str(out)
        self.query = MicroBatch(self.out, {}, {"fileFormat": file_format, "onSchemaChange": policy, **options})
        self.batch = 0

    def write(self, value: Any, kind: Any, name: str = "v") -> Committed:
        self.query.columns = {"id": "long", name: kind} if kind else {"id": "long"}
        done = self.query.run(self.batch, [[{"id": self.batch, name: value} if kind else {"id": self.batch}]])
        self.batch += 1
        return done

    def values(self, name: str = "v") -> list[Any]:
        found: list[Any] = ftfile.open(self.out).to_arrow()[name].to_pylist()
        return found


@pytest.mark.parametrize("file_format", FORMATS)
@parametrize(
    ("old", "value", "new"),
    [
        ("string", "x", "long"),
        ("double", 1.5, "long"),
        ("long", 1, "string"),
        (struct(a="long"), {"a": 1}, "long"),
        ("long", 1, struct(a="long")),
        (struct(a="string"), {"a": "x"}, struct(a="long")),
    ],
    quick=1,
)
def test_a_type_that_old_values_do_not_fit_is_refused(
    tmp_path: Path, file_format: str, old: Any, value: Any, new: Any
) -> None:
    changing = Changing(tmp_path, file_format)
    changing.write(value, old)
    with pytest.raises(SchemaError, match=r"v was .* and is .*\. Cast to the old type"):
        changing.write(None, new)
    assert changing.values() == [value]


@parametrize("file_format", FORMATS, quick=1)
@pytest.mark.parametrize("more", [{}, {"maxBatchesPerFile": "9"}])
def test_types_that_old_values_fit(tmp_path: Path, file_format: str, more: dict[str, str]) -> None:
    changing = Changing(tmp_path, file_format, **more)
    changing.write({"a": 1, "b": "x"}, struct(a="integer", b="string"))
    changing.write({"c": 1.5, "a": 2**40}, struct(c="double", a="long"))
    assert changing.values() == [{"c": None, "a": 1}, {"c": 1.5, "a": 2**40}]
    ftfile.flush(tmp_path, context=current())
    assert changing.values() == [{"c": None, "a": 1}, {"c": 1.5, "a": 2**40}]


@pytest.mark.slow
@pytest.mark.parametrize("file_format", [*FORMATS, "csv"])
@pytest.mark.parametrize("more", [{}, {"maxBatchesPerFile": "9"}])
@pytest.mark.parametrize(
    ("change", "value", "expected"),
    [
        (("float", "double"), 0.1, 0.10000000149011612),
        (("decimal(15,5)", "double"), Decimal("9999999999.99999"), 9999999999.99999),
        (("decimal(6,3)", "float"), Decimal("0.299"), 0.29899999499320984),
    ],
)
def test_numbers_are_the_same_from_every_format(
    tmp_path: Path, file_format: str, more: dict[str, str], change: tuple[str, str], value: Any, expected: float
) -> None:
    changing = Changing(tmp_path, file_format, **more)
    changing.write(value, change[0])
    changing.write(1.0, change[1])
    assert changing.values() == [expected, 1.0]


@pytest.mark.parametrize("policy", ["any", "widen"])
def test_a_column_that_comes_back_fits_older_rows(tmp_path: Path, policy: str) -> None:
    changing = Changing(tmp_path)
    changing.write("x", "string")
    changing.write(None, None)
    changing.query.options = {**changing.query.options, "onSchemaChange": policy}
    with pytest.raises(SchemaError, match="v was string and is int64 in older rows"):
        changing.write(1, "long")
    ftfile.drop(tmp_path, where="all", context=current())
    changing.write(1, "long")
    assert changing.values() == [1]


@pytest.mark.parametrize("policy", ["any", "widen"])
@parametrize(
    ("old", "value", "new", "is_refused"),
    [
        ("decimal(9,2)", Decimal("1.25"), "decimal(12,3)", True),
        ("short", 1, "decimal(20,1)", True),
        ("decimal(9,2)", Decimal("1.25"), "decimal(12,2)", False),
        ("short", 1, "long", False),
    ],
    quick=1,
)
def test_decimals_in_paths_keep_their_scale(
    tmp_path: Path, policy: str, old: str, value: Any, new: str, *, is_refused: bool
) -> None:
    """Spark's own readers would read 0.1 for the 1 of a directory whose column is DECIMAL(20,1) now."""
    for in_path in (False, True):
        changing = Changing(tmp_path / str(in_path), policy=policy, **({"partitionBy": "v"} if in_path else {}))
        changing.write(value, old)
        if is_refused and (in_path or (policy, old) == ("widen", "short")):
            with pytest.raises(SchemaError, match=r"v was .* and is decimal128") as refusal:
                changing.write(value, new)
            assert ("Set onSchemaChange=any" in str(refusal.value)) == (not in_path)
            changing.query.overwrite = True
        changing.write(value, new)
        assert set(changing.values()) == {value}


@pytest.mark.slow
def test_an_overwrite_forgets_the_types_before(tmp_path: Path) -> None:
    changing = Changing(tmp_path)
    changing.write("x", "string")
    changing.query.overwrite = True
    changing.write(None, None)
    changing.query.overwrite = False
    changing.write(1, "long")
    assert changing.values() == [None, 1]


@pytest.mark.parametrize("policy", ["fail", "widen", "any"])
def test_names_that_differ_by_case_only_are_refused(tmp_path: Path, policy: str) -> None:
    changing = Changing(tmp_path, policy=policy)
    changing.write(1, "long", "Value")
    with pytest.raises(SchemaError, match=r"only by case: value is recorded as Value\. Spark"):
        changing.write(2, "long", "value")
    changing.write(2, "long", "Value")
    assert changing.values("Value") == [1, 2]


@pytest.mark.slow
def test_a_column_that_comes_back_is_spelled_as_in_older_rows(tmp_path: Path) -> None:
    changing = Changing(tmp_path)
    changing.write(1, "long", "B")
    changing.write(None, None)
    with pytest.raises(SchemaError, match=r"only by case: b is recorded as B in older rows\. Spark"):
        changing.write(2, "long", "b")
    changing.write(2, "long", "B")
    assert changing.values("B") == [1, None, 2]
    changing.write(None, None)
    ftfile.drop(tmp_path, where="all", context=current())
    changing.write(3, "long", "b")
    assert changing.values("b") == [3]


@parametrize("file_format", ["parquet", "json"], quick=1)
def test_rows_of_other_types_are_named(tmp_path: Path, file_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an earlier ftfile admitted them."""
    changing = Changing(tmp_path, file_format)
    first = changing.write(1.5, "double")
    with monkeypatch.context() as patch:
        patch.setattr("ftfile.writing.files.prepared_files.check_schema_change", lambda *_: None)
        patch.setattr("ftfile.writing.files.prepared_files._check_older_rows", lambda *_: None)
        changing.write(1, "long")
    with pytest.raises(SchemaError, match=r"part-.*batch 0 of .*: v was double and is int64\. .* versionAsOf"):
        changing.values()
    assert ftfile.open(changing.out).to_arrow(first.version)["v"].type == pa.float64()
