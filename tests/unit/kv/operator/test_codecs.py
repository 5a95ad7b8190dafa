"""The codecs that ftfile brings, by the contract that users' codecs have, too."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ftfile.core.errors import ConfigError, EncodingError
from ftfile.kv.operator.codecs import ArrowRows, Bytes, Codec, Int64, Json, Pairs, Text
from ftfile.testing.contracts.filter import CodecContract

if TYPE_CHECKING:
    from collections.abc import Sequence

ROWS = pa.schema([("n", pa.int32()), ("words", pa.list_(pa.string())), ("at", pa.timestamp("us", "UTC"))])
TOP = (1 << 63) - 1


class TestBytes(CodecContract):
    keeps_order = True

    @pytest.fixture
    def codec(self) -> Codec:
        return Pairs(Bytes(), Bytes())

    def pairs(self) -> Sequence[tuple[Any, Any]]:
        return [(b"", b"x"), (b"a", b""), (b"a\0", bytes(range(256))), (b"\xff", b"y")]


class TestText(CodecContract):
    keeps_order = True

    @pytest.fixture
    def codec(self) -> Codec:
        return Pairs(Text(), Text())

    def pairs(self) -> Sequence[tuple[Any, Any]]:
        return [("", "x"), ("a", ""), ("é", "ß"), ("\uffff", "y"), ("\U0001f600", "z")]


class TestInt64(CodecContract):
    keeps_order = True

    @pytest.fixture
    def codec(self) -> Codec:
        return Pairs(Int64(), Int64())

    def pairs(self) -> Sequence[tuple[Any, Any]]:
        draw = random.Random(7)
        drawn = [draw.randrange(-TOP, TOP) for _ in range(200)]
        return [(number, -1 - number) for number in {-TOP - 1, -256, -1, 0, 1, 255, 256, TOP, *drawn}]


class TestJson(CodecContract):
    @pytest.fixture
    def codec(self) -> Codec:
        return Pairs(Json(), Json())

    def pairs(self) -> Sequence[tuple[Any, Any]]:
        return [([1, "a"], {"b": 1, "a": None}), ({"x": 1.5, "a": "ü"}, []), ("1", 1), (1, "1"), (None, True)]


class TestArrowRows(CodecContract):
    @pytest.fixture
    def codec(self) -> Codec:
        return Pairs(Text(), ArrowRows(ROWS))

    def pairs(self) -> Sequence[tuple[Any, Any]]:
        return [("a", {"n": 1, "words": ["x", None]}), ("b", {}), ("c", {"n": None, "words": []})]

    def returned(self, key: Any, value: Any) -> Any:  # noqa: ARG002
        return {name: value.get(name) for name in ROWS.names}


def test_equal_json_has_equal_bytes() -> None:
    assert Json().to_bytes({"b": 1, "a": [2]}) == Json().to_bytes({"a": [2], "b": 1}) == b'{"a":[2],"b":1}'


@pytest.mark.parametrize(
    ("part", "value", "text"),
    [
        (Bytes(), "text", "not bytes"),
        (Text(), b"bytes", "not a str"),
        (Text(), "\ud800", "UTF-8"),
        (Int64(), True, "signed 64-bit int"),
        (Int64(), TOP + 1, "signed 64-bit int"),
        (Int64(), 1.0, "signed 64-bit int"),
        (Json(), float("nan"), "JSON"),
        (Json(), {1: "name"}, "use text as names"),
        (Json(), {"set": {1}}, "JSON"),
        (ArrowRows(ROWS), {"other": 1}, "other"),
        (ArrowRows(ROWS), {"n": 1 << 40}, "column 'n': 1099511627776 cannot be stored as int32"),
        (ArrowRows(ROWS), {"n": 1.5}, "column 'n': 1.5 cannot be stored as int32: it would be stored as 1"),
    ],
)
def test_values_that_have_no_bytes_are_refused(part: Any, value: Any, text: str) -> None:
    with pytest.raises(EncodingError, match=text):
        part.to_bytes(value)


def test_rows_are_no_keys() -> None:
    with pytest.raises(ConfigError, match="for values"):
        Pairs(ArrowRows(ROWS), Json())
