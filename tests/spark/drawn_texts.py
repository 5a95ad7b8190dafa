"""Spellings of values in lines of JSON and CSV: usual ones, limits, and values that no type has."""

from __future__ import annotations

import base64
import json
import struct
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

__all__ = ("CSV_TYPES", "JSON_TYPES", "csv_field", "json_value")

CSV_TYPES = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double"),
    *("decimal(5,2)", "decimal(20,0)", "decimal(38,18)", "string", "binary", "date", "timestamp", "timestamp_ntz"),
)
JSON_TYPES = (
    *CSV_TYPES,
    *("array<int>", "array<double>", "array<string>", "array<timestamp>", "map<string,double>", "map<string,string>"),
    *("struct<a:int,b:string>", "struct<d:date,t:decimal(5,2)>", "array<struct<a:bigint>>", "map<string,array<int>>"),
)

_FIELDS = {
    "struct<a:int,b:string>": (("a", "int"), ("b", "string")),
    "struct<d:date,t:decimal(5,2)>": (("d", "date"), ("t", "decimal(5,2)")),
    "struct<a:bigint>": (("a", "bigint"),),
}
_WORDS = (
    *("NaN", "nan", "Infinity", "-Infinity", "+Infinity", "INF", "Inf", "+INF", "-INF", "-Inf", "+NaN", "-NaN"),
    *(
        "0x10",
        "0x1p3",
        "1d",
        "1f",
        "1D",
        "1F",
        "1L",
        "1_000",
        "1,5",
        "\uff11",
        "\u0663",
        "--1",
        "+-1",
        "1e",
        "e1",
        "+",
        "-",
        ".",
    ),
    *("1 ", " 1", "\t1", "1\x0b", "\xa01", "1 2", "null", "None", "#1", "1e5d", ".5f", "infinity", "Inf "),
)
_NUMBERS = (
    *("0", "-0", "0.0", "-0.0", "+0", "00", "01", "-01", "+1", "1.", "-.5", ".5", "1e2", "1E+2", "1e-2", "1.50", "1.0"),
    *("1e400", "-1e400", "1e-400", "-1e-400", "4.9e-324", "2.4e-324", "1.7976931348623159e308", "3.4028235e38"),
    *("3.4028236e38", "1e-46", "16777217", "9007199254740993", "0.1", "2.5", "1.005", "1.004999999999999999999"),
    *("999.99", "999.994", "999.995", "-999.995", "1000", "99999999999999999999", "1e19", "1e20", "123e-2", "1e-50"),
    *(
        "1e999999999",
        "0e500",
        "0e-500",
        "1e-500",
        "12e-1000",
        "0e1000",
        "1e-2147483649",
        "1e2147483648",
        "1e99999999999",
        "0e99999999999",
        "-1.5e+3",
    ),
)
_BOOLEANS = ("true", "false", "TRUE", "False", "tRUE", "t", "f", "yes", "no", "1", "0", " true", "true ", "y", "on")
_TEXTS = (
    *(
        "",
        " ",
        "a",
        " a ",
        "a,b",
        "a|b",
        'say "hi"',
        "it's",
        "\\",
        "a\\",
        "\\n",
        "\\N",
        "null",
        "NULL",
        "-",
        "#x",
        "\t",
    ),
    *("é", "😀", "\u2028", "\ufeffx", "\x01", "\x7f", "\x85", "/", "{}", "[]", "[1,2]", '{"a":1}', "x" * 300, "\ufffd"),
)
_BINARIES = (
    "",
    "YQ==",
    "YWI=",
    "YWJj",
    "YQ",
    "YQ=",
    "Y Q==",
    "YWJj\n",
    "_-8=",
    "/+8=",
    "YR==",
    "=",
    "a",
    "YWJjZGVm",
    "YQ==YQ==",
)
_YEARS = (
    *("2024", "1970", "1969", "1900", "1899", "1582", "0001", "9999", "2038", "1677", "2262"),
    *("0000", "-0001", "10000", "+10000", "+2024", "24", "202", "12345", "123456", "1234567", "294247", "-290308"),
)
_DAYS = (
    "-01-01",
    "-12-31",
    "-02-29",
    "-10-10",
    "-10-15",
    "-03-31",
    "-10-27",
    "-3-10",
    "-1-1",
    "-02-30",
    "-13-01",
    "-00-10",
    "",
    "-05",
    "-5",
    "-06-00",
    "-",
    "/01/01",
    "0101",
)
_CLOCKS = (
    *("00:00:00", "23:59:59", "12:30:15", "02:30:00", "01:30:00", "12:30", "1:2:3", "12", "24:00:00", "12:60:00"),
    *("23:59:60", "1:2", "", "12:30:", "123015", "12:3", "012:00:00", "-1:00:00"),
)
_FRACTIONS = (".5", ".123", ".123456", ".1234567", ".123456789", ".1234567891", ".", ".000000", ".999999999", ",5")
_ZONES = (
    *(
        "Z",
        "+01:00",
        "-08:00",
        "+05:30",
        "+00:00",
        "z",
        "+0100",
        "+01",
        "+1",
        "+1:00",
        "-18:00",
        "+18:00",
        "+18:01",
        "+19:00",
    ),
    *(
        " Z",
        " +01:00",
        "UTC",
        " UTC",
        " Europe/Berlin",
        "Europe/Berlin",
        "GMT",
        "GMT+1",
        "UTC+01:00",
        " EST",
        "PST",
        "+01:00:30",
        "-00:00",
    ),
)
_NOT_UTF_8 = (
    *(b"\xff", b"\xc3", b"\xe2\x82", b"\xed\xa0\x80", b"\xed\xa0", b"\xc0\x80", b"\xe0\x80\x80", b"\xf0\x9f\x98"),
    *(b"\xf4\x90\x80\x80", b"\xf0\x80\x80", b"\xf8\x88\x80\x80\x80"),
)
_BLANKS = (" ", "\t", "\n", "\x0b", "\u00a0", "  ")


def _one(random: Random, usual: Sequence[str], others: Sequence[str], share: float = 0.75) -> str:
    return random.choice(usual if random.random() < share else others)


def _time(random: Random) -> str:
    if random.random() < 0.3:
        return _usual_time(random)
    day = _one(random, _YEARS[:11], _YEARS[11:], 0.85) + _one(random, _DAYS[:7], _DAYS[7:], 0.85)
    text = day
    if random.random() < 0.75:
        text += _one(random, ("T", " "), ("t", "  ", "_", ""), 0.95) + _one(random, _CLOCKS[:5], _CLOCKS[5:])
        text += _one(random, ("",), _FRACTIONS, 0.5) + _one(random, ("",), _ZONES, 0.5)
    if random.random() < 0.06:
        text = random.choice((text + random.choice(_BLANKS), random.choice(_BLANKS) + text))
    return text


def _usual_time(random: Random) -> str:
    day = f"{random.randint(1, 9999):04}-{random.randint(1, 12):02}-{random.randint(1, 28):02}"
    if random.random() < 0.3:
        return day
    clock = f"{random.randint(0, 23):02}:{random.randint(0, 59):02}:{random.randint(0, 59):02}"
    fraction = _one(random, ("",), _FRACTIONS[:5], 0.5)
    zone = _one(random, ("",), _ZONES[:5], 0.5)
    return f"{day}{random.choice('T ')}{clock}{fraction}{zone}"


def _integer(random: Random) -> str:
    if random.random() < 0.4:
        bound = 1 << random.choice((7, 8, 15, 16, 24, 31, 32, 53, 63, 64))
        return str(random.choice((-1, 1)) * bound + random.randint(-1, 1))
    return str(random.randint(-(1 << random.choice((6, 14, 30, 62))), 1 << random.choice((6, 14, 30, 62))))


def _fraction(random: Random) -> str:
    draw = random.random()
    if draw < 0.4:
        return repr(struct.unpack("<d", random.randbytes(8))[0])
    if draw < 0.6:
        single = struct.unpack("<f", random.randbytes(4))[0]
        return str(Decimal(single)) if draw < 0.5 else repr(single)
    whole = str(random.randint(0, 10 ** random.choice((1, 2, 3, 17, 20))))
    digits = "".join(random.choices("0123456789", k=random.choice((1, 2, 3, 18, 19, 25))))
    return f"{random.choice(('', '-'))}{whole}.{digits}"


def _number(random: Random) -> str:
    draw = random.random()
    if draw < 0.4:
        return _integer(random)
    if draw < 0.65:
        return _fraction(random)
    return random.choice(_NUMBERS)


def _small_decimal(random: Random) -> str:
    return str(Decimal(random.randint(-(10**6), 10**6)).scaleb(-random.randint(0, 4)))


def _text(random: Random) -> str:
    return "".join(random.choice(_TEXTS) for _ in range(random.choice((1, 1, 2, 3))))


def _binary(random: Random) -> str:
    if random.random() < 0.5:
        return base64.b64encode(random.randbytes(random.randint(0, 9))).decode()
    return random.choice(_BINARIES)


def _any(random: Random) -> str:
    return random.choice((_integer, _fraction, _number, _time, _text))(random)


def _boolean(random: Random) -> str:
    return random.choice(_BOOLEANS)


_OTHERS = {
    "boolean": _boolean,
    "string": _text,
    "binary": _binary,
    "date": _time,
    "timestamp": _time,
    "timestamp_ntz": _time,
}


def _bare(kind: str, random: Random) -> str:
    """Return a text that is probably a value of a type, in one of its spellings."""
    draw = random.random()
    if draw < 0.04:
        return _any(random)
    if kind in _OTHERS:
        return _OTHERS[kind](random)
    if draw < 0.1:
        return random.choice(_WORDS)
    if kind in {"tinyint", "smallint", "int", "bigint"} and draw < 0.8:
        return _integer(random)
    if kind == "decimal(5,2)" and draw < 0.5:
        return _small_decimal(random)
    return _number(random)


_QUOTED = {"string", "binary", "date", "timestamp", "timestamp_ntz"}
_ESCAPES = (
    *("\\u0041", "\\ud83d\\ude00", "\\ud800", "\\udc00x", "\\ud800\\ud83d\\ude00", "\\n", "\\/", "\\u00e9", "\\u0000"),
    *("\\'", "\\x41", "\\u12", "\x01", "\\\\", '\\"', "\\b\\f\\r\\t", "\\uD83D\\uDE00", "\\ufffe"),
)


def _json_string(text: str, random: Random) -> bytes:
    quoted = json.dumps(text, ensure_ascii=random.random() < 0.3)
    if random.random() < 0.12:
        place = random.choice((1, len(quoted) - 1))
        quoted = quoted[:place] + random.choice(_ESCAPES) + quoted[place:]
    data = quoted.encode("utf-8", "surrogatepass")
    if random.random() < 0.03:
        data = data[:1] + random.choice(_NOT_UTF_8) + data[1:]
    return data


def _json_scalar(kind: str, random: Random) -> bytes:
    draw = random.random()
    if draw < 0.03:
        return b"null"
    if draw < 0.06:
        return random.choice(
            (
                b"{}",
                b"[]",
                b"[1]",
                b'{"a":1}',
                b'{"a": 1.50 }',
                b"true",
                b"1e2",
                b'["x", 1.0]',
                b'""',
                b'"\\u0041"',
                b"{'a':1}",
                b'[{"b":[1 ,2]}]',
            )
        )
    text = _bare(kind, random)
    is_quoted = random.random() < (0.9 if kind in _QUOTED else 0.15)
    return _json_string(text, random) if is_quoted else text.replace("\n", " ").encode("utf-8", "surrogatepass")


def _blank(random: Random) -> bytes:
    return random.choice((b"", b"", b"", b"", b" ", b"\t", b"  "))


def _json_array(item: str, random: Random) -> bytes:
    items = [json_value(item, random) for _ in range(random.choice((0, 1, 2, 3)))]
    return b"[" + _blank(random) + (b"," + _blank(random)).join(items) + _blank(random) + b"]"


def _json_object(members: Sequence[tuple[str, str]], random: Random) -> bytes:
    texts = [json.dumps(name).encode() + _blank(random) + b":" + json_value(kind, random) for name, kind in members]
    return b"{" + _blank(random) + (_blank(random) + b",").join(texts) + b"}"


def _nested(kind: str, random: Random) -> bytes:
    inner = kind[kind.index("<") + 1 : -1]
    if random.random() < 0.04:
        return _json_scalar("string", random)
    if kind.startswith("array"):
        return _json_array(inner, random)
    if kind.startswith("map"):
        names = [random.choice(("a", "b", "A", "", "é", "x y")) for _ in range(random.choice((0, 1, 2, 3)))]
        return _json_object([(name, inner.partition(",")[2]) for name in names], random)
    members = [member for member in _FIELDS[kind] if random.random() < 0.9]
    if random.random() < 0.1:
        members.append(random.choice((("A", "int"), ("z", "string"), _FIELDS[kind][0])))
    random.shuffle(members)
    return _json_object(members, random)


def json_value(kind: str, random: Random) -> bytes:
    """Return the text of a value in JSON, which probably is of a type, and may be invalid JSON."""
    return _nested(kind, random) if "<" in kind else _json_scalar(kind, random)


def csv_field(kind: str, random: Random, escape: str) -> bytes:
    """Return the text of a field in CSV, which probably is a value of a type."""
    text = _bare(kind, random).replace("\n", " ").replace("\r", " ")
    draw = random.random()
    if draw < 0.03:
        return random.choice(
            (
                b"",
                b'""',
                b'"',
                b'""x',
                b'"a"b',
                b'a"b"',
                b'"a" ',
                b' "a"',
                b'"a\\"',
                b'"a""b"',
                b'"a\\"b"',
                b'"\\\\"',
                b'\\"',
                b'"a\\nb"',
            )
        )
    needs_quotes = any(character in text for character in ',|"') and random.random() < 0.9
    if needs_quotes or draw < 0.2:
        inner = text if escape == '"' else text.replace("\\", "\\\\")
        text = f'"{inner.replace(chr(34), escape + chr(34))}"'
    data = text.encode("utf-8", "surrogatepass")
    if random.random() < 0.02:
        data += random.choice(_NOT_UTF_8)
    return data
