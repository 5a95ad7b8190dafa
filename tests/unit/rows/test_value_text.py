from __future__ import annotations

import base64
import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftfile.formats.json_lines import base64_text, from_base64
from ftfile.rows.value_text import float_text


@pytest.mark.slow
@pytest.mark.packages
@given(st.lists(st.none() | st.binary(max_size=10)), st.integers(0, 3))
def test_base64(values: list[bytes | None], hidden: int) -> None:
    array = pa.array(values, pa.binary()).slice(hidden)
    text = base64_text(array)
    text.validate(full=True)
    assert text.to_pylist() == [
        None if value is None else base64.b64encode(value).decode() for value in array.to_pylist()
    ]
    back = from_base64(text)
    back.validate(full=True)
    assert back == array
    assert from_base64(text.slice(1)) == array.slice(1)


@pytest.mark.parametrize("bad", ["abc", "a===", "!!!!", "ab=c", "====", "YQ==YQ==", "é=", "YW Jj==="])
def test_what_is_not_base64(bad: str) -> None:
    with pytest.raises(ValueError, match=r"base64|[Pp]adding|more than 1"):
        from_base64(pa.array(["YWJj", bad, "YQ=="]))


@given(st.lists(st.none() | st.floats()))
def test_floats(values: list[float | None]) -> None:
    for value, text in zip(values, float_text(pa.array(values, pa.float64())).to_pylist(), strict=True):
        if value is None:
            assert text is None
        elif math.isfinite(value):
            assert repr(float(text)) == repr(value)
            assert any(character in text for character in ".e")  # no reader takes it for an integer
        else:
            assert text == {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
