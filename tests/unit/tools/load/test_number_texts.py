"""Texts that are numbers in lines of JSON, with Python's json module as the oracle."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.tools.load.file_rows import LoadedRows
from ftfile.tools.load.input_files import input_files
from ftfile.tools.load.number_texts import with_nulls, with_numbers

if TYPE_CHECKING:
    from pathlib import Path

NUMBERS = ["NaN", "Infinity", "-Infinity"]
TEXTS = st.sampled_from([*NUMBERS, 'x":"NaN"', '"NaN"', "\\", '\\"', "{", "]", ":", ",", "\u00e9", ""])
COLUMNS = pa.schema(
    [
        ("a", pa.float64()),
        ("s", pa.string()),
        ("NaN", pa.float32()),
        ('x"a', pa.string()),
        ("b\\", pa.float64()),
        ("\u00e9", pa.float64()),
        ("other", pa.struct([("a", pa.string()), ("s", pa.float64()), ("lists", pa.list_(pa.list_(pa.float64())))])),
        ("rows", pa.list_(pa.struct([("a", pa.int64()), ("s", pa.string())]))),
    ]
)


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Return a strategy for values as Spark writes them."""
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({}, optional={field.name: values(field.type) for field in kind})
    if pa.types.is_list(kind):
        return st.lists(values(kind.value_type), max_size=3)
    if pa.types.is_string(kind):
        return st.none() | TEXTS
    return st.none() | st.integers(-2, 2) | st.sampled_from(NUMBERS)


def expected(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, dict):
        return {name: expected(member, kind.field(name).type) for name, member in value.items()}
    if isinstance(value, list):
        return [expected(element, kind.value_type) for element in value]
    if value in NUMBERS and not pa.types.is_string(kind):
        return float(value)
    return value


@given(
    row=values(pa.struct(list(COLUMNS))),
    is_ascii=st.booleans(),
    separators=st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " :\r ")]),
)
def test_only_numbers_lose_their_quotes(row: dict[str, Any], is_ascii: bool, separators: tuple[str, str]) -> None:
    line = json.dumps(row, ensure_ascii=is_ascii, separators=separators).encode()
    read = json.loads(with_numbers(line, COLUMNS))
    assert repr(read) == repr(expected(row, pa.struct(list(COLUMNS))))


def test_names_do_not_become_null() -> None:
    line = rb'{"NaN":"NaN","a" : ["Infinity", "-Infinity" ],"NaN" : 1,"s":"\"NaN\":\"NaN\"","t":"\"NaN"}'
    nulls = rb'{"NaN":null,"a" : [null, null ],"NaN" : 1,"s":"\"NaN\":\"NaN\"","t":"\"NaN"}'
    assert with_nulls(line) == nulls


@given(st.lists(st.sampled_from([*'{}[],:\\1\n"', '"NaN"', '"a"', '"\\x":', '"\u00e9']), max_size=12))
def test_other_texts_are_not_lost(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert with_numbers(text.encode(), COLUMNS).decode().replace('"', "") == text.replace('"', "")


def derived(path: Path, *lines: str) -> pa.Table:
    path.write_text("".join(f"{line}\n" for line in lines))
    return pa.Table.from_batches([*LoadedRows(input_files([str(path)], None), {}, context=SYSTEM)])


def test_types_of_the_first_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    table = derived(path, '{"a":"NaN","b":"NaN","c":["NaN"],"d":"x"}', '{"a":1,"b":"x","c":[0.5],"d":"NaN"}')
    assert table.schema.types == [pa.float64(), pa.string(), pa.list_(pa.float64()), pa.string()]
    assert repr(table.to_pylist()[0]) == "{'a': nan, 'b': 'NaN', 'c': [nan], 'd': 'x'}"
    assert derived(path, '{"a":"NaN"}', '{"a":"NaN"}').schema.types == [pa.string()]
    with pytest.raises(ConfigError, match=r"Column\(/a\) changed from number to string"):
        derived(path, '{"a":1,"b":"NaN"}', '{"a":"x","b":"NaN"}')
