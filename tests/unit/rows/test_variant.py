"""VARIANT as JSON text and back: the texts and bytes of Spark 4.3, and bytes that are no VARIANT."""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftfile.rows.variant import LEVELS_MAX, TEXT_MAX, variant_json
from ftfile.rows.variant_encoding import json_value, variant_of

NO_NAMES, ONE_NAME, TWO_NAMES = b"\x01\x00\x00", b"\x01\x01\x00\x01a", b"\x01\x02\x00\x01\x02ab"
JULY_US = 1_719_849_600_123_400  # 2024-07-01 16:00:00.1234 UTC
LONG = "x" * 70_000


def cases(names: tuple[str, ...], values: dict[str, tuple[Any, ...]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(names, [*values.values()], ids=[*values])


def encoded(text: str) -> tuple[bytes, bytes]:
    value, end = json_value(text, 0)
    assert end == len(text)
    return variant_of(value)


def primitive(kind: int, layout: str, *values: Any) -> bytes:
    return bytes([kind << 2]) + struct.pack(f"<{layout}", *values)


def decimal(kind: int, scale: int, unscaled: int) -> bytes:
    size = {8: 4, 9: 8, 10: 16}[kind]
    return bytes([kind << 2, scale]) + unscaled.to_bytes(size, "little", signed=True)


def text_of(value: bytes, zone: str = "UTC") -> str:
    return variant_json(value, TWO_NAMES, zone)


# What to_json of Spark 4.3 returns, but for zeros at the end of a fraction, and the sign of a zero.
@cases(
    ("value", "text"),
    {
        "null": (b"\x00", "null"),
        "true": (b"\x04", "true"),
        "false": (b"\x08", "false"),
        "one byte": (primitive(3, "b", -5), "-5"),
        "two bytes": (primitive(4, "h", -300), "-300"),
        "four bytes": (primitive(5, "i", -70_000), "-70000"),
        "eight bytes": (primitive(6, "q", -(2**63)), "-9223372036854775808"),
        "zeros of a fraction": (decimal(8, 2, -150), "-1.50"),
        "a fraction of zeros": (decimal(8, 2, 0), "0.00"),
        "a whole decimal": (decimal(8, 0, 100), "100"),
        "a fraction only": (decimal(9, 18, 5), "0.000000000000000005"),
        "digits of all sizes": (decimal(10, 38, 1 - 10**38), f"-0.{'9' * 38}"),
        "a double": (primitive(7, "d", 0.1), "0.1"),
        "a large double": (primitive(7, "d", 1e7), "1.0E7"),
        "a small double": (primitive(7, "d", 9.99e-4), "9.99E-4"),
        "a whole double": (primitive(7, "d", 100.0), "100.0"),
        "minus zero": (primitive(7, "d", -0.0), "0.0"),
        "not a number": (primitive(7, "d", float("nan")), '"NaN"'),
        "infinity": (primitive(7, "d", float("-inf")), '"-Infinity"'),
        "a float": (primitive(14, "f", 0.1), "0.1"),
        "an infinite float": (primitive(14, "f", float("inf")), '"Infinity"'),
        "a date": (primitive(11, "i", 19_905), '"2024-07-01"'),
        "a date after 9999": (primitive(11, "i", 2_932_897), '"+10000-01-01"'),
        "a date before 0000": (primitive(11, "i", -719_529), '"-0001-12-31"'),
        "a local time": (primitive(13, "q", JULY_US), '"2024-07-01 16:00:00.1234"'),
        "bytes": (primitive(15, "I", 2) + b"\x00\xff", '"AP8="'),
        "a long string": (primitive(16, "I", 3) + "é!".encode(), '"é!"'),
        "a short string": (bytes([2 << 2 | 1]) + b"hi", '"hi"'),
        "escapes": (bytes([13 << 2 | 1]) + b'"\\\x01\x1f\\u001f\n/\x7f', '"\\"\\\\\\u0001\\u001F\\\\u001f\\n/\x7f"'),
        "a UUID": (bytes([20 << 2, *range(16)]), '"00010203-0405-0607-0809-0a0b0c0d0e0f"'),
        "an empty array": (b"\x03\x00\x00", "[]"),
        "an array": (b"\x03\x02\x00\x01\x02\x00\x04", "[null,true]"),
        "an object": (b"\x02\x01\x00\x00\x01\x00", '{"a":null}'),
        "fields in another order": (b"\x02\x02\x01\x00\x00\x01\x02\x04\x08", '{"a":false,"b":true}'),
        "more bytes": (b"\x00\x01", "null"),
    },
)
def test_text_is_that_of_spark(value: bytes, text: str) -> None:
    assert text_of(value) == text
    assert variant_json(*encoded(text)) == text


@pytest.mark.parametrize(
    ("zone", "instant_us", "text"),
    [
        ("UTC", JULY_US, "2024-07-01 16:00:00.1234+00:00"),
        ("America/New_York", JULY_US, "2024-07-01 12:00:00.1234-04:00"),
        ("+05:30", JULY_US, "2024-07-01 21:30:00.1234+05:30"),
        ("UTC", 506_804_601_600_000_000, "+18029-12-31 00:00:00+00:00"),
        # Spark has 19:03:58 here: two seconds are lost, as the offset was -04:56:02.
        ("America/New_York", -5_364_662_400_000_000, "1799-12-31 19:04:00-04:56"),
    ],
)
def test_instants_are_shown_by_the_clocks_of_a_zone(zone: str, instant_us: int, text: str) -> None:
    assert text_of(primitive(12, "q", instant_us), zone) == f'"{text}"'


@cases(
    ("value", "metadata", "fault"),
    {
        "nothing": (b"", NO_NAMES, "truncated|overlap"),
        "no metadata": (b"\x00", b"", "version 1"),
        "a later version": (b"\x00", b"\x02\x00\x00", "version 1"),
        "metadata without its end": (b"\x00", b"\x01\x02\x00\x01", "truncated metadata"),
        "many names": (b"\x00", b"\xc1\xff\xff\xff\xff\x00", "truncated metadata"),
        "names out of order": (b"\x00", b"\x01\x02\x00\x02\x01ab", "out of order"),
        "names past the end": (b"\x00", b"\x01\x01\x00\x09a", "out of order"),
        "a name that is no text": (b"\x00", b"\x01\x01\x00\x01\xff", "utf-8"),
        "a string that is cut off": (primitive(16, "I", 4) + b"abc", NO_NAMES, "overlap|truncated"),
        "a string that is no text": (b"\x05\xff", NO_NAMES, "utf-8"),
        "an unknown type": (primitive(17, "q", 0), NO_NAMES, "type 17, for which Spark has no JSON text"),
        "a decimal with a high scale": (decimal(8, 10, 1), NO_NAMES, "more than 9 digits"),
        "a decimal with many digits": (decimal(10, 0, 10**38), NO_NAMES, "more than 38 digits"),
        "no time": (primitive(13, "q", -(2**63)), NO_NAMES, "text cannot represent"),
        "a field without a name": (b"\x02\x01\x01\x00\x01\x00", ONE_NAME, "not in its metadata"),
        "a name twice": (b"\x02\x02\x00\x00\x00\x01\x02\x00\x00", ONE_NAME, "two fields of the same name"),
        "one value as two": (b"\x03\x02\x00\x00\x01\x00", NO_NAMES, "overlap"),
        "a value past the end": (b"\x03\x01\x09\x0a\x00", NO_NAMES, "truncated"),
    },
)
def test_other_bytes_are_refused(value: bytes, metadata: bytes, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        variant_json(value, metadata)


def test_an_instant_that_has_no_local_time_is_refused() -> None:
    with pytest.raises(ValueError, match="years 0001 to 9999"):
        text_of(primitive(12, "q", 2**63 - 1), "America/New_York")


def test_values_that_refer_to_the_same_bytes_do_not_multiply() -> None:
    value = b"\x00"
    for _ in range(60):  # without a bound, 2**60 nulls
        value = bytes([3, 2, 0, 0, len(value)]) + value if len(value) < 256 else value
    with pytest.raises(ValueError, match="overlap"):
        text_of(value)


@pytest.mark.slow
def test_a_name_that_many_objects_have_does_not_multiply_without_a_bound() -> None:
    name = b"n" * 200_000
    metadata = bytes([1 | 2 << 6, 1, 0, 0, 0, 0, 0]) + len(name).to_bytes(3, "little") + name
    count = TEXT_MAX // len(name) + 1
    item = b"\x02\x01\x00\x00\x01\x00"
    offsets = b"".join((index * len(item)).to_bytes(2, "little") for index in range(count + 1))
    value = bytes([3 | 1 << 2 | 1 << 4]) + count.to_bytes(4, "little") + offsets + item * count
    with pytest.raises(ValueError, match="longer than"):
        variant_json(value, metadata)


def test_levels_have_a_bound_on_both_ways() -> None:
    text = "[" * LEVELS_MAX + "]" * LEVELS_MAX
    assert variant_json(*encoded(text)) == text
    for deeper in (f"[{text}]", "[" * 100_000 + "]" * 100_000):
        with pytest.raises(ValueError, match="levels"):
            encoded(deeper)
    value = b"\x03\x00\x00"
    for _ in range(LEVELS_MAX):
        value = bytes([3 | 1 << 2, 1, 0, 0]) + len(value).to_bytes(2, "little") + value
    with pytest.raises(ValueError, match=f"more than {LEVELS_MAX} levels"):
        text_of(value)


# What parse_json of Spark 4.3 returns.
@pytest.mark.parametrize(
    ("text", "value", "metadata"),
    [
        ("null", "00", "010000"),
        ("1", "0c01", "010000"),
        ("-129", "107fff", "010000"),
        ("70000", "1470110100", "010000"),
        ("5000000000", "1800f2052a01000000", "010000"),
        ("9223372036854775808", "280000000000000000800000000000000000", "010000"),
        ("1.50", "200296000000", "010000"),
        ("-0.0", "200100000000", "010000"),
        ("12345678901.25", "2402cd04fb711f010000", "010000"),
        ("1e3", "1c0000000000408f40", "010000"),
        (f"0.{'0' * 38}1", "1c832d55b12fc7d537", "010000"),
        ("1e999", "1c000000000000f07f", "010000"),
        ('"x"', "0578", "010000"),
        ("[]", "030000", "010000"),
        ("{}", "020000", "010000"),
        (
            '{"b":1,"a":[1.50,1e3,null]}',
            "020201000200180c01030300060f102002960000001c0000000000408f4000",
            "01020001026261",
        ),
        # Java compares UTF-16: the pair of surrogates is before U+FFFF.
        ('{"\uffff":1,"\U0001f600":2}', "020201000200040c010c02", "0102000307efbfbff09f9880"),
    ],
)
def test_bytes_are_those_of_spark(text: str, value: str, metadata: str) -> None:
    found = encoded(text)
    assert (found[0].hex(), found[1].hex()) == (value, metadata)


@cases(
    ("text", "fault"),
    {
        "a name twice": ('{"a":1,"b":2,"a":3}', "two fields named 'a'"),
        "half of a pair": ('"\\ud800"', "surrogates"),
        "a constant of JavaScript": ("NaN", "NaN"),
        "no value": ("x", "Expecting value"),
        "a control character": ('"\x01"', "control character"),
    },
)
def test_other_texts_are_refused(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        encoded(text)


@pytest.mark.slow
def test_sizes_of_offsets_and_counts_grow_with_the_value() -> None:
    values = [
        LONG,
        [LONG] * 300,
        {str(number): LONG for number in range(300)},
        {LONG * number: 1 for number in range(3)},
    ]
    for value in [*values, list(range(255)), list(range(256)), {str(number): 0 for number in range(256)}]:
        assert json.loads(variant_json(*encoded(json.dumps(value)))) == value


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.decimals(allow_nan=False, allow_infinity=False, places=5, min_value=-(10**20), max_value=10**20),
        st.text(max_size=80),
    ),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=5), children, max_size=4),
    max_leaves=12,
)


def exact(text: str) -> Any:
    """Return a JSON value whose numbers are exact."""
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


def text_with_numbers(value: Any) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, list):
        return f"[{','.join(map(text_with_numbers, value))}]"
    if isinstance(value, dict):
        fields = [f"{json.dumps(name)}:{text_with_numbers(item)}" for name, item in value.items()]
        return f"{{{','.join(fields)}}}"
    return json.dumps(value)


@pytest.mark.slow
@given(JSON)
def test_every_json_value_comes_back(value: Any) -> None:
    text = text_with_numbers(value)
    again = variant_json(*encoded(text))
    assert exact(again) == exact(text)
    assert variant_json(*encoded(again)) == again


@pytest.mark.slow
@given(JSON, st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4), st.booleans())
def test_damaged_bytes_are_a_text_or_refused(value: Any, changes: list[tuple[int, int]], is_in_value: bool) -> None:
    parts = [bytearray(part) for part in encoded(text_with_numbers(value))]
    damaged = parts[0] if is_in_value else parts[1]
    for place, byte in changes:
        damaged[place % len(damaged)] = byte
    try:
        text = variant_json(bytes(parts[0]), bytes(parts[1]))
    except ValueError:
        return
    assert variant_json(*encoded(text)) == text


@given(st.binary(max_size=60), st.binary(max_size=20))
def test_random_bytes_are_a_text_or_refused(value: bytes, metadata: bytes) -> None:
    try:
        text = variant_json(value, b"\x01" + metadata)
    except ValueError:
        return
    assert variant_json(*encoded(text)) == text
